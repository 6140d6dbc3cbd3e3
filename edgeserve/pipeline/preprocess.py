"""``--preprocess NAME|FILE``: processing for a source that does not declare its own."""

from __future__ import annotations

from pathlib import Path

import msgspec

from edgeserve.convert.allowed import with_allowed
from edgeserve.errors import UsageError
from edgeserve.processing import normalize_from
from edgeserve.types.base import decode
from edgeserve.types.processing import (
    CenterCrop,
    Decode,
    InputProcessing,
    Layout,
    Normalize,
    Processing,
    Resize,
    Softmax,
    Step,
    TopK,
)
from edgeserve.types.source import Exported
from edgeserve.types.tensors import Signature, TensorSpec

__all__ = ["PRESETS", "processing_for"]

#: Normalisations that published image classifiers were trained with, by their usual names.
PRESETS: dict[str, Normalize] = {
    "imagenet": normalize_from(1 / 255, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "inception": normalize_from(1 / 255, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "unit": normalize_from(1 / 255, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
}


def processing_for(preprocess: str, exported: Exported) -> Processing:
    """The processing that ``--preprocess`` names, fitted to the model's only image input.

    A preset resizes the shorter side to 8/7 of the model's size (bilinear, antialiased), crops the
    middle and normalises: what torchvision and timm do with these names.

    Raises:
        UsageError: EDGE-USAGE-002 unknown name or unreadable file, -003 no image input to fit.
    """
    if preprocess in PRESETS:
        return _preset(PRESETS[preprocess], exported.signature)
    path = Path(preprocess)
    try:
        data = path.read_bytes()
        if path.suffix == ".toml":
            return msgspec.toml.decode(data, type=Processing)
        return decode(data, Processing)
    except OSError as error:
        raise UsageError(
            "EDGE-USAGE-002",
            f"--preprocess {preprocess}",
            wanted=f"one of {', '.join(PRESETS)} or a file",
            got=error.strerror or "no such file",
            hint="docs/processing.md shows what a processing file holds",
        ) from error
    except msgspec.MsgspecError as error:
        raise UsageError(
            "EDGE-USAGE-002",
            f"--preprocess {preprocess}",
            wanted="a processing in JSON or TOML",
            got=with_allowed(error),
            hint="docs/processing.md shows what a processing file holds",
        ) from error


def _image_input(signature: Signature) -> tuple[TensorSpec, int, int]:
    spec = signature.inputs[0]
    height, width = (spec.shape[-2:] if len(spec.shape) == 4 else (0, 0)) or (0, 0)
    fits = len(signature.inputs) == 1 and len(spec.shape) == 4 and spec.shape[1] == 3
    if not fits or not isinstance(height, int) or not isinstance(width, int):
        raise UsageError(
            "EDGE-USAGE-003",
            "--preprocess",
            wanted="a model with one input of shape [batch, 3, height, width]",
            got=", ".join(f"{s.name} {list(s.shape)}" for s in signature.inputs),
            hint="write the processing into a file and name that instead",
        )
    return spec, height, width


def _preset(normalize: Normalize, signature: Signature) -> Processing:
    spec, height, width = _image_input(signature)
    edge = round(min(height, width) * 8 / 7)
    steps: tuple[Step, ...] = (
        Decode(),
        Resize(height=edge, width=edge, fit="shortest-edge", filter="bilinear"),
        CenterCrop(height=height, width=width),
        normalize,
        Layout(order="CHW"),
    )
    output = signature.outputs[0].name
    return Processing(
        inputs=(InputProcessing(name=spec.name, steps=steps),),
        outputs=(Softmax(output=output), TopK(output=output, k=5)),
    )
