"""An input that is a picture: Core ML takes pixel buffers and normalises them itself, if it can.

A picture input has one scale for all channels, a bias for each, and no other step: where the
declared processing is that and nothing else, handing it over changes no value. Anything else would
be near to what the model was proven with, and is refused.
"""

from __future__ import annotations

from typing import Any

from edgeserve.backends.coreml.library import coremltools
from edgeserve.backends.sizes import Sizes
from edgeserve.errors import ConvertError
from edgeserve.types.processing import Cast, Layout, Normalize, Step
from edgeserve.types.source import Exported
from edgeserve.types.tensors import TensorSpec

__all__ = ["check_picture", "image_type"]


def check_picture(exported: Exported, name: str, sizes: Sizes) -> None:
    """Refuse a picture input that could not do exactly what the declared processing does.

    Raises:
        ConvertError: EDGE-CONVERT-050.
    """
    spec = next((each for each in exported.signature.inputs if each.name == name), None)
    if spec is None:
        names = [each.name for each in exported.signature.inputs]
        raise _refused(name, f"one of {names}", "no such input")
    if why := _reason(exported, spec, sizes.of(spec.shape)):
        raise _refused(name, "an RGB picture [1, 3, H, W], normalised by one scale", why)


def image_type(exported: Exported, name: str, shape: tuple[int, ...]) -> Any:
    """The ``ImageType`` of coremltools for an input that `check_picture` let pass.

    Args:
        exported: The source, whose processing is taken over.
        name: The input.
        shape: Its shape in the package, [1, 3, height, width].
    """
    normalize = next(s for s in _steps(exported, name) if isinstance(s, Normalize))
    return coremltools().ImageType(
        name=name,
        shape=shape,
        scale=normalize.scale[0],
        bias=list(normalize.bias),
        color_layout=coremltools().colorlayout.RGB,
    )


def _steps(exported: Exported, name: str) -> tuple[Step, ...]:
    return next((each.steps for each in exported.processing.inputs if each.name == name), ())


def _reason(exported: Exported, spec: TensorSpec, shape: tuple[int, ...]) -> str:
    """Why the input cannot be a picture; empty where it can."""
    steps = _steps(exported, spec.name)
    normalize = [step for step in steps if isinstance(step, Normalize)]
    if not steps:
        return "an input without processing"
    if spec.dtype != "float32" or len(shape) != 4 or shape[:2] != (1, 3):
        return f"{spec.dtype} {list(shape)}"
    if not any(isinstance(step, Layout) and step.order == "CHW" for step in steps):
        return "channels in the last place"
    if not normalize:
        return "no normalize step"
    if len(set(normalize[0].scale)) > 1 or len(normalize[0].scale) != 3:
        return f"scales {list(normalize[0].scale)}"
    if any(isinstance(step, Cast) and step.dtype != "float32" for step in steps):
        return "a conversion to another dtype"
    return ""


def _refused(name: str, wanted: str, got: str) -> ConvertError:
    return ConvertError(
        "EDGE-CONVERT-050",
        f"picture input {name!r}",
        wanted=wanted,
        got=got,
        hint="leave the option out: the package then takes the processed tensor",
    )
