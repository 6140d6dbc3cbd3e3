"""A request for an export to Core ML: route, precision, target, inputs and outputs.

An input may be an image: Core ML takes pixel buffers and normalizes them itself. An image input has
one scale for all channels, a bias for each, and no other step. If the declared preprocessing is
exactly that, moving it into the package changes no value. Any other preprocessing would only be
approximated, and is rejected. `check_converted_io` compares the converted package with the request.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from edgeserve.backends.coreml.coremltools_import import coremltools
from edgeserve.backends.sizes import Sizes
from edgeserve.errors import ConvertError
from edgeserve.processing.steps.cast import Cast
from edgeserve.processing.steps.layout import Layout
from edgeserve.processing.steps.normalize import Normalize
from edgeserve.types.source import Exported
from edgeserve.types.steps import InputStep
from edgeserve.types.tensors import IO, TensorSpec
from edgeserve.types.vocabulary import Precision

#: Minimum systems of a package, oldest first. iOS 16 has quantized weights, 17
#: quantized activations, 18 several functions in a file and attention as one operation.
TARGETS = ("iOS16", "iOS17", "iOS18")

#: The route that keeps operators whole where coremltools translates them.
WHOLE = "whole"


@dataclass(frozen=True)
class CoremlExportRequest:
    """A request for one package.

    Attributes:
        exported: The source.
        route: How its operators reach coremltools.
        precision: fp32, or fp16: 16 bits inside, float32 inputs and outputs.
        options: See `edgeserve.backends.coreml.CoremlBackend`.
    """

    exported: Exported
    route: str
    precision: Precision
    options: dict[str, str]

    @property
    def picture(self) -> str | None:
        """The name of the image input, if any."""
        return self.options.get("image")

    def target(self, functions: int) -> str:
        """The minimum system of a file with so many functions.

        Raises:
            ConvertError: EDGE-CONVERT-054, the requested one is unknown or too old for the file.
        """
        least = TARGETS[-1] if functions > 1 else TARGETS[0]
        asked = self.options.get("target", least)
        usable = TARGETS[TARGETS.index(least) :]
        if asked not in usable:
            raise ConvertError(
                "EDGE-CONVERT-054",
                "deployment target",
                wanted=f"one of {list(usable)}",
                got=f"{asked}, for a file with {functions} functions",
                hint=f"omit the target, or ask for {least}",
            )
        return asked


def check_image_input(exported: Exported, name: str, sizes: Sizes) -> None:
    """Reject an image input that cannot reproduce the declared preprocessing exactly.

    Raises:
        ConvertError: EDGE-CONVERT-050.
    """
    spec = next((each for each in exported.signature.inputs if each.name == name), None)
    if spec is None:
        names = [each.name for each in exported.signature.inputs]
        raise _image_input_error(name, f"one of {names}", "no such input")
    if why := _mismatch_reason(exported, spec, sizes.of(spec.shape)):
        raise _image_input_error(name, "an RGB image [1, 3, H, W], normalized by one scale", why)


def _image_type(exported: Exported, name: str, shape: tuple[int, ...]) -> Any:
    """The ``ImageType`` of coremltools for an input that `check_image_input` accepts.

    Args:
        exported: The source with the preprocessing.
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


def _steps(exported: Exported, name: str) -> tuple[InputStep, ...]:
    return next((each.steps for each in exported.processing.inputs if each.name == name), ())


def _mismatch_reason(exported: Exported, spec: TensorSpec, shape: tuple[int, ...]) -> str:
    """Why the input cannot be an image; empty if it can."""
    steps = _steps(exported, spec.name)
    normalize = [step for step in steps if isinstance(step, Normalize)]
    if not steps:
        return "an input without preprocessing"
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


def _image_input_error(name: str, wanted: str, got: str) -> ConvertError:
    hint = "omit the option: the package then takes the preprocessed tensor"
    return ConvertError(
        "EDGE-CONVERT-050", f"image input {name!r}", wanted=wanted, got=got, hint=hint
    )


#: The shape of a scalar in a package.
_SCALAR = (1,)

#: Core ML's dtypes by the source's; others are left to coremltools.
_INPUTS = {"bool": "int32", "float32": "float32", "int32": "int32", "int64": "int32"}


def input_types(request: CoremlExportRequest, sizes: Sizes) -> list[Any]:
    """The inputs for coremltools: names, 32 bits, an image if requested."""
    import numpy as np

    types = []
    for spec in request.exported.signature.inputs:
        shape = sizes.of(spec.shape)
        if any(dim in sizes.ranges for dim in spec.shape):
            shape = tuple(_range(dim, sizes) for dim in spec.shape)
        if spec.name == request.picture:
            types.append(_image_type(request.exported, spec.name, shape))
        else:
            known = _INPUTS.get(spec.dtype)
            dtype = np.dtype(known).type if known else None
            types.append(coremltools().TensorType(name=spec.name, shape=shape or None, dtype=dtype))
    return types


def _range(dim: int | str, sizes: Sizes) -> Any:
    """A dimension for coremltools: a size, or a range with its default."""
    if isinstance(dim, int) or dim not in sizes.ranges:
        return dim if isinstance(dim, int) else sizes.dims[dim]
    low, high = sizes.ranges[dim]
    return coremltools().RangeDim(low, high, default=sizes.dims[dim])


def output_types(request: CoremlExportRequest) -> list[Any]:
    """The outputs for coremltools: names, float32 or int32."""
    import numpy as np

    return [
        coremltools().TensorType(
            name=spec.name, dtype=np.float32 if "float" in spec.dtype else np.int32
        )
        for spec in request.exported.signature.outputs
    ]


def check_converted_io(
    found: Sequence[IO], request: CoremlExportRequest, sizes: Sequence[Sizes]
) -> None:
    """Compare a package's inputs and outputs with the request.

    Raises:
        ConvertError: EDGE-CONVERT-052.
    """
    signature, picture = request.exported.signature, request.picture
    for io, each in zip(found, sizes, strict=True):
        inputs = [spec for spec in signature.inputs if spec.name != picture]
        taken = [spec for spec in io.inputs if spec.name != picture]
        wanted = [(spec.name, each.of(spec.shape) or _SCALAR) for spec in inputs]
        got = [(spec.name, spec.shape) for spec in taken]
        names = [spec.name for spec in signature.outputs]
        made = [spec.name for spec in io.outputs]
        shapes = [shape for _, shape in wanted] == [shape for _, shape in got]
        named = _names_match([*(name for name, _ in wanted), *names], [*(n for n, _ in got), *made])
        if not (shapes and named and each.name == io.signature):
            raise ConvertError(
                "EDGE-CONVERT-052",
                "model.mlpackage",
                wanted=f"{wanted} -> {names}",
                got=f"{got} -> {made}",
                hint="this is a bug of edgeserve: report it with `edgeserve doctor --json`",
            )


def _names_match(names: Sequence[str], made: Sequence[str]) -> bool:
    """Whether values have these names, as far as a Core ML program allows them.

    Characters other than letters, digits and underscores become underscores; names with a leading
    digit and keywords of the program text ("state", "list") get an affix.
    """

    def same(name: str, found: str) -> bool:
        safe = re.sub(r"[^A-Za-z0-9_]", "_", name)
        return found in (safe, f"{safe}_workaround") or found.endswith(f"_{safe}")

    return len(names) == len(made) and all(map(same, names, made))
