"""What quantizers do by accident: ranges from the wrong data, averages for extremes.

Two kinds are no wrong data at all: what public quantizers make of the right samples by default.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dev.corpus.damage import public_quantizers
from edgeserve import backends
from edgeserve.convert.calibration import calibration
from edgeserve.convert.source import read_export
from edgeserve.types.artifact import Artifact, Recipe

#: Severities by kind, worst first.
SWEEPS: dict[str, tuple[float, ...]] = {
    "calibrated-on-scaled": (0.05, 0.2, 0.5, 0.8, 20.0, 2.0),
    "calibrated-on-average": (1.0, 0.7, 0.3),
    "calibrated-on-noise": (1.0, 0.5),
    "calibrated-on-few": (1, 3),
    "calibrated-on-outlier": (1000.0, 100.0, 10.0, 3.0),
    "by-onnxruntime": (1, 0),
    "by-ai-edge": (0,),
}

#: Ids of words have no scale: where a kind fits only networks of floats.
FITS = {
    name: ("digits", "voice", "segments", "boxes")
    for name in SWEEPS
    if name.startswith("calibrated") and name != "calibrated-on-few"
}
#: Whatever else `dev.corpus.kinds.Kind` says of a kind.
MORE: dict[str, dict[str, Any]] = {
    "calibrated-on-outlier": {"blind": False},
    "by-onnxruntime": {"formats": ("onnx",), "blind": False},
    "by-ai-edge": {"formats": ("tflite",), "blind": False},
}

Feed = dict[str, np.ndarray]


def quantized(
    kind: str, value: float, parent: Artifact, root: Path, source: Path, data: str, out: Path
) -> Artifact:
    """Make w8a8 of the fp32 artifact with samples that are not what users send."""
    exported = read_export(source)
    right = [dict(feed) for feed in calibration(exported, source, data, 0, 64)]
    if kind.startswith("by-"):
        return public_quantizers.quantized(kind, int(value), parent, root, right, out)
    recipe = Recipe(precision="w8a8", options={"samples": "64", "seed": "0"})
    backend = backends.get(parent.format)
    out.mkdir(parents=True, exist_ok=True)
    return backend.quantize(parent, root, recipe, list(_wrong(kind, value, right)), out)


def _wrong(kind: str, value: float, right: list[Feed]) -> Iterator[Mapping[str, np.ndarray]]:
    rng = np.random.default_rng(5)
    if kind == "calibrated-on-few":
        yield from right[: int(value)]
        return
    if kind == "calibrated-on-outlier":
        yield {name: _scaled(array, value) for name, array in right[0].items()}
        yield from right[1:]
        return
    mean = {name: np.mean([feed[name] for feed in right], axis=0) for name in right[0]}
    for feed in right:
        yield {name: _number(kind, value, array, mean[name], rng) for name, array in feed.items()}


def _scaled(array: np.ndarray, factor: float) -> np.ndarray:
    return (array * factor).astype(array.dtype) if array.dtype.kind == "f" else array


def _number(
    kind: str, value: float, array: np.ndarray, mean: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    if array.dtype.kind != "f":  # ids and masks have no scale
        return array
    if kind == "calibrated-on-scaled":
        made = array * value
    elif kind == "calibrated-on-average":
        made = array * (1 - value) + mean * value
    else:
        made = array * (1 - value) + value * rng.normal(0, 0.3, array.shape)
    return made.astype(array.dtype)
