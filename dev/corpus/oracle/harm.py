"""Harm of one artifact behind one processing, against the PyTorch reference, with its bounds."""

from __future__ import annotations

import functools
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dev.corpus import nets
from dev.corpus.nets import Net
from dev.corpus.oracle.bounds import lower, upper
from dev.corpus.oracle.decisions import Set, decisions, flips, of_answers
from dev.corpus.oracle.prepare import feeds
from dev.corpus.oracle.runtimes import outputs
from dev.corpus.paths import OUT, write_atomic
from dev.corpus.tasks.base import ORACLE, ORACLE_SEED, Raw
from edgeserve.types.artifact import Artifact


@dataclass(frozen=True)
class Harm:
    """What a wrong artifact costs.

    Attributes:
        share: Decided flips over decided units, a group's share counting once.
        lower: It is more than this, with 95 % confidence.
        upper: It is less than this, with 95 % confidence.
        n: Independent groups with something decided.
        raw: The same over all units, decided or not.
    """

    share: float
    lower: float
    upper: float
    n: int
    raw: float


@functools.lru_cache(maxsize=4)
def raws(task: str) -> list[Raw]:
    """The oracle's inputs, which nobody else sees."""
    return [raw for raw, _, _ in nets.Net(task).of.inputs(ORACLE_SEED, ORACLE)]


@functools.lru_cache(maxsize=4)
def _reference(net: Net) -> Set:
    """What the server decides on them: PyTorch, eager, with its own preprocessing."""
    path = OUT / "oracle" / f"{net.name}.npz"
    if not path.is_file():
        server = nets.__getattr__(net.reference.partition(":")[2])
        held = io.BytesIO()
        np.savez(held, **of_answers(net.of.kind, [server(raw) for raw in raws(net.task)]))  # type: ignore[arg-type]
        write_atomic(path, held.getvalue())
    with np.load(path) as stored:
        return {name: stored[name] for name in stored.files}


@functools.lru_cache(maxsize=3)
def _feeds(task: str, said: str, folder: Path) -> dict[str, np.ndarray]:
    return feeds(json.loads(said), raws(task), folder)


def measure(net: Net, artifact: Artifact, root: Path, source: Path) -> Harm:
    """Run an artifact behind the processing of an export, and count.

    Args:
        net: Whose decisions are right.
        artifact: What runs, under ``root``.
        root: See ``artifact``.
        source: The folder of ``source.json``, whose processing is packaged.
    """
    text = (source / "source.json").read_text()
    said = json.loads(text)
    given = _feeds(net.task, text, source)
    with np.errstate(all="ignore"):
        found = outputs(artifact, root, given)
        answer = decisions(said, found, given, net.of.kind)
        sure, raw = flips(net.of.kind, _reference(net), answer)
    decided = sure[~np.isnan(sure)]
    events, n = float(decided.sum()), len(decided)
    share = events / n if n else 0.0
    return Harm(share, lower(events, n), upper(events, n), n, float(raw.mean()))


def strays(net: Net, artifact: Artifact, root: Path, source: Path) -> float:
    """Largest difference from PyTorch on equal tensors, relative to each output's own scale."""
    text = (source / "source.json").read_text()
    given = _feeds(net.task, text, source)
    rows = {name: array[:200] for name, array in given.items()}
    worst = 0.0
    with np.errstate(all="ignore"):
        for got, right in zip(outputs(artifact, root, rows), _torch(net, text, rows), strict=True):
            off = np.abs(got - right).max() / max(float(np.abs(right).max()), 1e-3)
            worst = max(worst, float(off) if np.isfinite(off) else float("inf"))
    return worst


def _torch(net: Net, text: str, rows: dict[str, np.ndarray]) -> list[np.ndarray]:
    from dev.corpus.tasks.base import trained

    order = [spec["name"] for spec in json.loads(text)["signature"]["inputs"]]
    module: Any = trained(net.of, net.seed, net.width)
    with torch.inference_mode():
        found = module(*(torch.from_numpy(rows[name]) for name in order))
    several = found if isinstance(found, tuple) else (found,)
    return [each.numpy() for each in several]
