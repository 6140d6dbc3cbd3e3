"""What the gate says of a file, and what the file itself says."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from edgeserve import backends
from edgeserve.types.artifact import Artifact
from edgeserve.types.reports import Report

__all__ = ["answers", "codes", "data"]


def codes(report: Report) -> list[str]:
    """Of the reasons for the verdict."""
    return [reason.code for reason in report.judgement.reasons]


def data(folder: Path, **arrays: np.ndarray) -> str:
    """A data set of named tensors."""
    np.savez(folder / "data.npz", **arrays)
    return str(folder / "data.npz")


def answers(artifact: Artifact, root: Path, feed: dict[str, np.ndarray]) -> np.ndarray:
    """The first output, by the format's own engine."""
    with backends.get(artifact.format).load(artifact, root) as session:
        return session.run(feed)[artifact.io.outputs[0].name]
