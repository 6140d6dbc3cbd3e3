"""The steps of an input, checked and compiled before the first raw input comes.

Their names and times; the plan of an image's steps that `Processor.prepare` walks through; and
whether the steps make what the signature asks for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from edgeserve.errors import ProcessingError
from edgeserve.processing.image.resize import MAX_PIXELS, Size, resized
from edgeserve.processing.image.tensor import ToTensor
from edgeserve.tasks import REGISTRY
from edgeserve.types.processing import (
    Cast,
    CenterCrop,
    Decode,
    InputProcessing,
    Layout,
    Normalize,
    Resize,
)
from edgeserve.types.steps import InputStep
from edgeserve.types.tensors import Shape, Signature, TensorSpec
from edgeserve.types.vocabulary import Task

__all__ = [
    "ImagePlan",
    "OnStep",
    "StepTimer",
    "check_image_plans",
    "check_names",
    "check_task",
    "sample_signature",
    "step_name",
]


#: Called after each step with its name and the seconds it took.
OnStep = Callable[[str, float], None]


class StepTimer:
    """Tells a callback how long each step took, from one call to the next."""

    def __init__(self, on_step: OnStep) -> None:
        self._on_step = on_step
        self._since = time.perf_counter()

    def __call__(self, name: str) -> None:
        """End the step called ``name``."""
        now = time.perf_counter()
        self._on_step(name, now - self._since)
        self._since = time.perf_counter()  # the callback's own time is nobody's step


_StepT = TypeVar("_StepT", bound=InputStep)

_GRAMMAR = "decode, then resize or center_crop, then normalize, then layout and dtype"
#: A step may only follow steps of its own rank or below.
_RANKS: dict[type[InputStep], int] = {
    Decode: 0,
    Resize: 1,
    CenterCrop: 1,
    Normalize: 2,
    Layout: 3,
    Cast: 3,
}


def step_name(step: InputStep) -> str:
    """Name of a step without its version, as timings show it: "resize"."""
    return str(type(step).__struct_config__.tag).partition("/")[0]


class ImagePlan:
    """One input's steps, checked and compiled.

    Attributes:
        name: The model input that they make.
        decode: The first step.
        pixels: The steps on the 8-bit picture, in order, each with its name for timings.
        tail: What makes a tensor of it.
        size: Height and width of every result; None where they depend on the picture.
    """

    __slots__ = ("decode", "name", "pixels", "size", "tail")

    def __init__(self, processing: InputProcessing) -> None:
        """Check and compile.

        Raises:
            ProcessingError: EDGE-PROCESS-001 (order), EDGE-PROCESS-004 or 012 (parameters).
        """
        steps = processing.steps
        self.name = processing.name
        self.decode = _check_order(processing)
        pixels = [step for step in steps if isinstance(step, Resize | CenterCrop)]
        self.pixels = tuple((step_name(step), step) for step in pixels)
        self.size = _fixed_size(processing.name, pixels)
        self.tail = ToTensor(_only(steps, Normalize), _only(steps, Layout), _only(steps, Cast))

    @property
    def shape(self) -> tuple[int | None, ...]:
        """Shape of one sample; None where a side depends on the picture."""
        height, width = self.size or (None, None)
        return (3, height, width) if self.tail.planar else (height, width, 3)


def _only(steps: Sequence[InputStep], kind: type[_StepT]) -> _StepT | None:
    return next((step for step in steps if isinstance(step, kind)), None)


def _check_order(processing: InputProcessing) -> Decode:
    steps = processing.steps
    ranks = [_RANKS.get(type(step), -1) for step in steps]
    single = [type(step) for step in steps if not isinstance(step, Resize | CenterCrop)]
    first = steps[0] if steps else None
    if isinstance(first, Decode) and ranks == sorted(ranks) and len(set(single)) == len(single):
        return first
    raise ProcessingError(
        "EDGE-PROCESS-001",
        f"steps of input {processing.name!r}",
        wanted=_GRAMMAR,
        got=", ".join(step_name(step) for step in steps) or "no steps",
        hint="put the steps in this order; only resize and center_crop may stand more than once",
    )


def _fixed_size(name: str, steps: Sequence[Resize | CenterCrop]) -> Size | None:
    size: Size | None = None
    for step in steps:
        if isinstance(step, Resize) and step.fit == "shortest-edge":
            size = resized(step, size) if size else None
        else:
            size = (step.height, step.width)
        if size and size[0] * size[1] > MAX_PIXELS:
            raise ProcessingError(
                "EDGE-PROCESS-004",
                f"step {step_name(step)!r} of input {name!r}",
                wanted=f"at most {MAX_PIXELS} pixels",
                got=f"{size[0]} x {size[1]}",
                hint="give the height and width that the model takes",
            )
    return size


def check_image_plans(plans: Sequence[ImagePlan], signature: Signature, task: Task) -> None:
    """Compare the plans of a model whose inputs are made from pictures with its signature.

    Raises:
        ProcessingError: EDGE-PROCESS-002 (an input without steps, or steps without an input),
            EDGE-PROCESS-003 (dtype or shape), EDGE-PROCESS-005 (a task of another medium).
    """
    check_task(task, "image")
    check_names([plan.name for plan in plans], signature, "picture")
    for plan in plans:
        _check_image_tensor(plan, signature.input(plan.name), signature)


def check_task(task: Task, medium: str) -> None:
    """Refuse the steps of one medium for a task of another.

    Raises:
        ProcessingError: EDGE-PROCESS-005.
    """
    wanted = (REGISTRY[task].medium if task in REGISTRY else None) or medium
    if wanted != medium:
        raise ProcessingError(
            "EDGE-PROCESS-005",
            f"task {task!r}",
            wanted=f"{wanted} processing",
            got=f"steps for {medium}",
            hint="declare the task that fits, or leave the inputs empty and bring named tensors",
        )


def check_names(made: Iterable[str], signature: Signature, raw: str) -> None:
    """All inputs of a model are made from its one raw input, or none.

    Args:
        made: Names of the inputs that have steps.
        signature: The model's.
        raw: What the raw input is called.

    Raises:
        ProcessingError: EDGE-PROCESS-002.
    """
    names, wanted = set(made), {spec.name for spec in signature.inputs}
    if names != wanted:
        raise ProcessingError(
            "EDGE-PROCESS-002",
            "processing",
            wanted=f"steps for each of the inputs {sorted(wanted)}",
            got=f"steps for {sorted(names)}",
            hint=f"name them as the signature does; either all are made from the {raw} or none",
        )


def sample_signature(signature: Signature) -> Signature:
    """The inputs of one sample: the same without their batch axis."""
    inputs = tuple(replace(spec, shape=spec.shape[1:]) for spec in signature.inputs)
    return Signature(inputs=inputs, outputs=(), dims=signature.dims)


def _check_image_tensor(plan: ImagePlan, spec: TensorSpec, signature: Signature) -> None:
    if plan.tail.dtype != spec.dtype:
        raise _unfit(plan, f"dtype {spec.dtype}", str(plan.tail.dtype), "add or change dtype/1")
    made, wanted = plan.shape, spec.shape[1:]
    fits = len(spec.shape) == 4 and all(
        size is None or _allows(dim, size, signature)
        for dim, size in zip(wanted, made, strict=True)
    )
    if not fits:
        hint = "change the layout step, or the size that the last resize or center_crop makes"
        if len(spec.shape) != 4:
            hint = "export the model with a batch axis in front of its input"
        raise _unfit(plan, f"shape {_shown(spec.shape)}", _shown(("batch", *made)), hint)


def _allows(dim: int | str, size: int, signature: Signature) -> bool:
    low, high = (dim, dim) if isinstance(dim, int) else signature.dims[dim]
    return low <= size <= high


def _shown(shape: Shape | tuple[int | str | None, ...]) -> str:
    return f"[{', '.join('any' if dim is None else str(dim) for dim in shape)}]"


def _unfit(plan: ImagePlan, wanted: str, got: str, hint: str) -> ProcessingError:
    return ProcessingError(
        "EDGE-PROCESS-003", f"steps of input {plan.name!r}", wanted=wanted, got=got, hint=hint
    )
