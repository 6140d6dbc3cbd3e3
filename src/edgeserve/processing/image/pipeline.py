"""From one picture to the inputs of a model: what `Processor` does where the medium is "image".

The steps of each input are checked and compiled once. normalize/1, dtype/1 and layout/1 look at one
8-bit sample at a time, so whatever they do is a table of 256 values a channel. `ToTensor` makes
that table, with the steps written out plainly, and refuses what cannot be a tensor. At run time the
common case, float32, is computed instead of looked up: the same two rounded operations, faster than
a gather. `ImageTransform` leads places in the model's input back to the upright picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from edgeserve.errors import InputError, ProcessingError
from edgeserve.processing.arrays import Prepared, SampleOrigin
from edgeserve.processing.image.plan import check_cost, way_bytes
from edgeserve.processing.inputs import (
    FeedValidator,
    StepTimer,
    bytes_of,
    check_names,
    check_task,
    sample_signature,
    step_name,
    wrong_order,
)
from edgeserve.processing.steps import input_steps
from edgeserve.processing.steps.decode import Decode, EncodedImage, Raw
from edgeserve.types.processing import InputProcessing
from edgeserve.types.steps import MAX_PIXELS, LevelStep, PixelStep, Size, held_bytes
from edgeserve.types.tensors import Shape, Signature, TensorSpec
from edgeserve.types.vocabulary import Task

if TYPE_CHECKING:
    import PIL.Image


_BANDS = "RGB"


class ToTensor:
    """The steps after the last pixel step, compiled.

    Attributes:
        name: The steps joined by "+", for timings: "normalize+layout"; "array" where none are.
        dtype: Of the tensor.
        planar: Whether it is [channel, row, column] rather than [row, column, channel].
    """

    __slots__ = ("_bias", "_fill", "_scale", "_table", "dtype", "name", "planar")

    def __init__(self, steps: Sequence[LevelStep]) -> None:
        self.name = "+".join(step_name(step) for step in steps) or "array"
        self.planar = next((s.planar for s in steps if s.planar is not None), False)
        table = levels = np.tile(np.arange(256, dtype=np.uint8), (3, 1))
        for step in steps:
            table = step.apply(table)
        self._table, self.dtype = table, table.dtype
        affine = [pair for step in steps if (pair := step.affine()) is not None]
        self._scale: np.ndarray = affine[0][0] if affine else np.ones(3)
        self._bias: np.ndarray = affine[0][1] if affine else np.zeros(3)
        # Whether the whole table is one scale and bias a channel, in float32.
        levels32 = np.arange(256, dtype=np.float32)
        made = levels32 * self._scale[:, None] + self._bias[:, None]
        is_affine = self.dtype == np.float32 and np.array_equal(table, made)
        self._fill = self._look_up
        if not affine and np.array_equal(table, levels):
            self._fill = self._copy
        elif len(affine) == 1 and is_affine:
            self._fill = self._compute

    @property
    def affine(self) -> tuple[np.ndarray, np.ndarray]:
        """Scale and bias of each channel, float32 [3]; 1 and 0 where no step has any."""
        return self._scale, self._bias

    @property
    def bytes_per_pixel(self) -> int:
        """Memory that the tensor takes for each pixel, with the plane that it is made from."""
        return 3 * self.dtype.itemsize + 1

    def __call__(self, image: PIL.Image.Image) -> np.ndarray:
        """Make the tensor of an RGB picture: [3, H, W] or [H, W, 3], fresh and contiguous."""
        height, width = image.height, image.width
        tensor = np.empty((3, height, width) if self.planar else (height, width, 3), self.dtype)
        channels = tensor if self.planar else tensor.transpose(2, 0, 1)
        for index, band in enumerate(_BANDS):
            plane = np.frombuffer(image.tobytes("raw", band), np.uint8).reshape(height, width)
            self._fill(index, plane, channels[index])
        return tensor

    def _copy(self, index: int, plane: np.ndarray, out: np.ndarray) -> None:
        out[...] = plane

    def _compute(self, index: int, plane: np.ndarray, out: np.ndarray) -> None:
        # Two operations, each rounded to float32: never one fused multiply-add.
        np.multiply(plane, self._scale[index], out=out)
        np.add(out, self._bias[index], out=out)

    def _look_up(self, index: int, plane: np.ndarray, out: np.ndarray) -> None:
        np.take(self._table[index], plane, out=out, mode="clip")


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


class ImagePipeline:
    """Inputs made from a picture, compiled. Immutable, so threads may share it."""

    __slots__ = ("_plans", "_samples")

    def __init__(self, inputs: Sequence[InputProcessing], signature: Signature, task: Task) -> None:
        """Check and compile.

        Raises:
            ProcessingError: EDGE-PROCESS-001 to 005 or 012.
        """
        self._plans = tuple(ImagePlan(each) for each in inputs)
        check_image_plans(self._plans, signature, task)
        free = any(plan.size is None for plan in self._plans)
        self._samples = FeedValidator(sample_signature(signature)) if free else None

    def __call__(self, raw: Raw, clock: StepTimer) -> dict[str, np.ndarray]:
        """One sample of one picture; see `Processor.prepare`."""
        opened = self._opened(raw)
        decoded: dict[Decode, PIL.Image.Image] = {}
        sample: dict[str, np.ndarray] = {}
        for plan in self._plans:
            if plan.decode not in decoded:  # inputs that decode alike share the picture
                decoded[plan.decode] = opened[plan.decode].decode()
                clock("decode")
            image = decoded[plan.decode]
            for name, step in plan.pixels:
                image = step.apply(image)
                clock(name)
            sample[plan.name] = plan.tail(image)
            clock(plan.tail.name)
        width, height = decoded[self._plans[0].decode].size
        checked = self._checked(sample) if self._samples else sample
        return Prepared(checked, (SampleOrigin(size=(height, width)),))

    def _opened(self, raw: Raw) -> dict[Decode, EncodedImage]:
        """The headers for each way of decoding, of a picture whose whole cost is within bounds.

        Raises:
            InputError: EDGE-INPUT-001 to -009.
        """
        if hasattr(raw, "read"):  # once, for all of them
            raw = bytes_of(raw, "picture", "a Pillow picture or an array")
        opened = {
            each: EncodedImage(each, raw) for each in dict.fromkeys(p.decode for p in self._plans)
        }
        size = opened[self._plans[0].decode].size
        held = most = kept = fixed = 0
        for image in opened.values():
            most, held = max(most, held + image.peak), held + held_bytes(size)
        for plan in self._plans:
            steps = [step for _, step in plan.pixels]
            way, tensor = way_bytes(opened[plan.decode].size, steps, plan.tail.bytes_per_pixel)
            most = max(most, held + kept + way)
            kept += tensor
            fixed += tensor if plan.size else 0
        check_cost(size, most, fixed)
        return opened

    def _checked(self, sample: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        assert self._samples is not None
        try:
            return self._samples(sample)
        except InputError as error:
            raise InputError(
                "EDGE-INPUT-017",
                "picture",
                wanted="one whose tensors the model takes after its processing",
                got=error.message,
                hint="send a picture of another size, or end the processing with a center_crop",
            ) from error


class ImageTransform:
    """What steps do to a picture of one size: ``x -> x * scale + shift``.

    Places are continuous: pixel i covers [i, i + 1). Exact but for the rounding of float64.

    Attributes:
        size: Height and width of the picture.
        end: Height and width of what the steps make of it.
    """

    def __init__(self, steps: Sequence[PixelStep], size: Size) -> None:
        self.size = self.end = size
        self._scale, self._shift = np.ones(2), np.zeros(2)  # height, width
        for step in steps:
            scale, shift, self.end = step.placement(self.end)
            self._scale = self._scale * scale
            self._shift = self._shift * scale + shift

    def back(self, boxes: np.ndarray) -> np.ndarray:
        """Boxes xyxy [n, 4] of the model's input as boxes of the picture, clipped to it: float64.

        What lies in a letterbox's borders ends at the edge of the picture.
        """
        corners = np.asarray(boxes, np.float64).reshape(-1, 2)
        height, width = self.size
        return np.asarray(np.clip(self.points_back(corners), 0, (width, height)).reshape(-1, 4))

    def points_back(self, points: np.ndarray) -> np.ndarray:
        """Points xy [n, 2] of the model's input in pixels of the picture, wherever they lie."""
        return np.asarray((np.asarray(points, np.float64) - self._shift[::-1]) / self._scale[::-1])

    def seen(self, shape: Size) -> tuple[np.ndarray, np.ndarray]:
        """Where the picture's pixels lie in a map that the model made of it.

        Args:
            shape: Height and width of the map, which spans all that the steps made.

        Returns:
            For the centre of each row, and of each column, the map's row or column that it lies in:
            int64 [height] and [width]; -1 where the model did not see it.
        """
        found = []
        for axis in (0, 1):
            places = (np.arange(self.size[axis]) + 0.5) * self._scale[axis] + self._shift[axis]
            index = np.floor(places * (shape[axis] / self.end[axis])).astype(np.int64)
            found.append(np.where((index >= 0) & (index < shape[axis]), index, -1))
        return found[0], found[1]
