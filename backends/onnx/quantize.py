"""Other precisions of an ONNX artifact: not in this version, and said so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from edgeserve.errors import BackendError
from edgeserve.types.artifact import Artifact, Recipe

__all__ = ["quantize_onnx"]


def quantize_onnx(
    artifact: Artifact, root: Path, recipe: Recipe, samples: Iterable[Mapping[str, np.ndarray]],
    out: Path,
) -> Artifact:  # fmt: skip
    """Derive another precision of ``artifact``.

    Raises:
        BackendError: EDGE-BACKEND-006, always: this version makes fp32 only.
    """
    raise BackendError(
        "EDGE-BACKEND-006", f"{artifact.format} {recipe.precision}", wanted="fp32",
        got=f"{recipe.precision}, which is not made in this version",
        hint="ask for --precision fp32",
    )  # fmt: skip
