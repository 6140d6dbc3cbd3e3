"""The steps of an input made from a picture, checked and compiled."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from edgeserve.errors import ProcessingError
from edgeserve.processing.checks import check_names, check_task, step_name, wrong_order
from edgeserve.processing.image.tensor import ToTensor
from edgeserve.processing.steps import input_steps
from edgeserve.processing.steps.decode import Decode
from edgeserve.types.processing import InputProcessing
from edgeserve.types.steps import MAX_PIXELS, LevelStep, PixelStep, Size
from edgeserve.types.tensors import Shape, Signature, TensorSpec
from edgeserve.types.vocabulary import Task


def _grammar() -> str:
    """The order of an image's steps, in words."""
    kinds = [kind for kind in input_steps() if kind.medium == "image"]
    tags = {kind: str(kind.__struct_config__.tag).partition("/")[0] for kind in kinds}
    words = []
    for _, rank in groupby(kinds, key=lambda kind: kind.rank):
        some = list(rank)
        joint = " or " if issubclass(some[0], PixelStep) else " and "
        words.append(joint.join(tags[kind] for kind in some))
    return ", then ".join(words)


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
        pixels = [step for step in steps if isinstance(step, PixelStep)]
        self.pixels = tuple((step_name(step), step) for step in pixels)
        self.size = _fixed_size(processing.name, pixels)
        self.tail = ToTensor([step for step in steps if isinstance(step, LevelStep)])

    @property
    def shape(self) -> tuple[int | None, ...]:
        """Shape of one sample; None where a side depends on the picture."""
        height, width = self.size or (None, None)
        return (3, height, width) if self.tail.planar else (height, width, 3)


def _check_order(processing: InputProcessing) -> Decode:
    steps = processing.steps
    ranks = [step.rank if step.medium == "image" else -1 for step in steps]
    single = [type(step) for step in steps if not isinstance(step, PixelStep)]
    first = steps[0] if steps else None
    if isinstance(first, Decode) and ranks == sorted(ranks) and len(set(single)) == len(single):
        return first
    hint = "put the steps in this order; only steps on pixels may stand more than once"
    raise wrong_order(processing, _grammar(), hint)


def _fixed_size(name: str, steps: Sequence[PixelStep]) -> Size | None:
    size: Size | None = None
    for step in steps:
        size = step.out_size(size)
        if size and size[0] * size[1] > MAX_PIXELS:
            where = f"step {step_name(step)!r} of input {name!r}"
            wanted = f"at most {MAX_PIXELS} pixels"
            got = f"{size[0]} x {size[1]}"
            hint = "give the height and width that the model takes"
            raise ProcessingError("EDGE-PROCESS-004", where, wanted=wanted, got=got, hint=hint)
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


def _check_image_tensor(plan: ImagePlan, spec: TensorSpec, signature: Signature) -> None:
    if plan.tail.dtype != spec.dtype:
        raise _unfit(plan, f"dtype {spec.dtype}", str(plan.tail.dtype), "add or change dtype/1")
    made, wanted = plan.shape, spec.shape[1:]
    ranges = [(dim, dim) if isinstance(dim, int) else signature.dims[dim] for dim in wanted]
    fits = len(spec.shape) == 4 and all(
        size is None or low <= size <= high for (low, high), size in zip(ranges, made, strict=True)
    )
    if not fits:
        hint = "change the layout step, or the size that the last resize or center_crop makes"
        if len(spec.shape) != 4:
            hint = "export the model with a batch axis in front of its input"
        raise _unfit(plan, f"shape {_shown(spec.shape)}", _shown(("batch", *made)), hint)


def _shown(shape: Shape | tuple[int | str | None, ...]) -> str:
    return f"[{', '.join('any' if dim is None else str(dim) for dim in shape)}]"


def _unfit(plan: ImagePlan, wanted: str, got: str, hint: str) -> ProcessingError:
    return ProcessingError(
        "EDGE-PROCESS-003", f"steps of input {plan.name!r}", wanted=wanted, got=got, hint=hint
    )
