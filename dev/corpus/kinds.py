"""Every kind of artifact in the corpus: honest ones, and thirty ways and more to be wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from dev.corpus.damage import (
    conversion,  # noqa: F401  its kinds stand among those of `network`
    dense_networks,  # noqa: F401  likewise
    network,
    processing,
    quantizer,
)

FORMATS = ("onnx", "tflite", "coreml")

#: Where the damage is done.
DamageStage = Literal["honest", "file", "network", "processing", "quantizer"]

_ALL = ("digits", "topics", "pairs", "voice", "segments", "boxes")
_TEXT = ("topics", "pairs")
_CONV = ("digits", "segments", "boxes")
_FLOAT, _W8, _W8A8 = ("fp32", "fp16"), ("w8",), ("w8a8",)


@dataclass(frozen=True)
class Kind:
    """One kind.

    Attributes:
        name: What it is called.
        place: Where the damage is done.
        sweep: Severities.
        tasks: What it fits.
        precisions: What it is done to; cases take them in turn.
        formats: In which; cases take them in turn.
        every_format: Each severity in all of ``formats``.
        blind: Written without having read the gate, its tests and its verdicts on such cases.
    """

    name: str
    place: DamageStage
    sweep: tuple[Any, ...]
    tasks: tuple[str, ...]
    precisions: tuple[str, ...] = ("fp32", "w8a8", "fp16", "w8")
    formats: tuple[str, ...] = FORMATS
    every_format: bool = False
    blind: bool = True


def _file(
    name: str,
    sweep: tuple[float, ...],
    tasks: tuple[str, ...] = _ALL,
    precisions: tuple[str, ...] = ("fp32", "w8", "fp16", "w8a8"),
) -> Kind:
    return Kind(name, "file", sweep, tasks, precisions)


_FILES = (
    _file("bytes-shifted", (1.0, 0.2, 0.02, 0.004)),
    _file("values-shifted", (1.0, 0.4, 0.1, 0.03, 0.005)),
    _file("channel-killed", (1.0, 0.5, 0.25, 0.12, 0.05)),
    _file("scale-wrong", (10.0, 3.0, 0.3, 1.5, 1.1, 1.01, 1.0002)),
    _file("one-scale-wrong", (10.0, 3.0, 1.5, 1.1), precisions=_W8 + _W8A8),
    _file("bias-dropped", (1.0, 0.5, 0.2, 0.05, 0.0005)),
    _file("zero-point-off", (60, 25, 10, 3, 1), precisions=_W8A8),
    _file("range-narrow", (0.1, 0.3, 0.5, 0.8, 3.0, 0.95), precisions=_W8A8),
    _file("embedding-cut", (0.9, 0.6, 0.3, 0.1, 0.02), tasks=_TEXT),
    _file("signs-flipped", (0.5, 0.2, 0.05, 0.02, 0.003)),
    _file("bits-flipped", (200, 40, 8, 1)),
    _file("channels-swapped", (1.0, 0.5, 0.25, 0.1)),
    _file("weights-noisy", (1.0, 0.5, 0.2, 0.05, 0.01, 0.0001)),
    _file("block-repeated", (0.5, 0.2, 0.06, 0.01)),
    _file("tail-lost", (0.5, 0.2, 0.08, 0.03, 0.005)),
    _file("weights-clipped", (0.05, 0.15, 0.4, 0.7, 0.95)),
    _file("few-bits", (2, 3, 4, 5, 6, 7, 8), precisions=("fp32", "fp16")),
    _file("red-blue", (1.0, 0.5, 0.25, 0.08, 0.02), tasks=_CONV),
    _file("kernel-transposed", (3, 2, 1), tasks=_CONV),
    _file("classes-swapped", (10, 4, 3, 2), tasks=("digits", "topics", "segments")),
)


def _registered() -> list[Kind]:
    made = [
        Kind(name, "network", sweep, network.FITS[name], **network.MORE[name])
        for name, sweep in network.SWEEPS.items()
    ]
    made += [
        Kind(name, "processing", sweep, processing.FITS[name])
        for name, sweep in processing.SWEEPS.items()
    ]
    made += [
        Kind(
            name,
            "quantizer",
            sweep,
            quantizer.FITS.get(name, _ALL),
            _W8A8,
            **quantizer.MORE.get(name, {}),
        )
        for name, sweep in quantizer.SWEEPS.items()
    ]
    return made


KINDS: dict[str, Kind] = {
    kind.name: kind for kind in (Kind("honest", "honest", (0,), _ALL), *_FILES, *_registered())
}
