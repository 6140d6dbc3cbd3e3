"""A network of one picture: its image processor as steps, proven pixel by pixel.

The steps are written from the processor's settings, then both make tensors of probe pictures of odd
sizes. So a processor with code of its own is either carried over exactly or refused.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgeserve.backends.torch.blame import one_line
from edgeserve.convert.factory import Made
from edgeserve.convert.huggingface.folder import Folder
from edgeserve.convert.huggingface.model import Plan, labels_of, load_model
from edgeserve.convert.huggingface.pixels import input_steps, refused
from edgeserve.convert.huggingface.preprocessor import preprocessor
from edgeserve.convert.options import Options
from edgeserve.processing import Processor
from edgeserve.types.processing import (
    InputProcessing,
    Normalize,
    OutputStep,
    Processing,
    Softmax,
    Step,
    TopK,
)
from edgeserve.types.tensors import Signature, TensorSpec

if TYPE_CHECKING:
    import torch

__all__ = ["load_image_model", "load_image_processor", "proven_steps"]

_INPUT = "pixel_values"
_BATCH = 16

#: Heights and widths of the probes: odd and even, wide, small, square. Each shrinks its columns as
#: much as its rows or more, so that no version of Pillow takes another order of passes.
_PROBES = ((97, 131), (333, 501), (64, 202), (255, 255))


def load_image_model(folder: Folder, planned: Plan) -> Made:
    """Load a network of one picture with its image processor.

    Raises:
        ConvertError: EDGE-CONVERT-061 to -069.
    """
    steps = proven_steps(load_image_processor(folder.network))
    model, notes = load_model(folder, planned)
    output = _wrap(model, planned.task)
    classifies = planned.task == "image-classification"
    ends: tuple[OutputStep, ...] = (Softmax(output=output), TopK(output=output))
    processing = Processing(
        inputs=(InputProcessing(name=_INPUT, steps=steps),), outputs=ends if classifies else ()
    )
    options = Options(
        dynamic_shapes={_INPUT: {0: ("batch", 1, _BATCH)}},
        input_names=(_INPUT,),
        task=planned.task,
        processing=processing,
        labels=labels_of(model.config) if classifies else (),
    )
    return Made(model, {_INPUT: _example(steps)}, options, (*planned.notes, *notes))


def load_image_processor(folder: Path) -> Any:
    """The folder's image processor, in the variant that works with Pillow and numpy.

    Raises:
        ConvertError: EDGE-CONVERT-069.
    """
    import transformers

    return preprocessor(transformers.AutoImageProcessor, folder, "image processor", backend="pil")


def proven_steps(processor: Any) -> tuple[Step, ...]:
    """The steps of an image processor, compared with it on the probes.

    Raises:
        ConvertError: EDGE-CONVERT-069, naming the setting that no step expresses, or the processor
            whose own code does something else.
    """
    steps = input_steps(processor)
    for height, width in _PROBES:
        picture = _picture(height, width)
        difference = _difference(_made(steps, picture), _theirs(processor, picture), steps)
        if difference:
            raise refused(
                type(processor).__name__,
                f"what its settings say of a picture {height} x {width}",
                f"{difference}: it has steps of its own",
            )
    return steps


def _theirs(processor: Any, picture: np.ndarray) -> np.ndarray:
    """What the processor makes of a picture."""
    try:
        made: np.ndarray = np.asarray(processor(picture, return_tensors="np")[_INPUT][0])
        return made
    except Exception as error:  # transformers raises many kinds here
        name = type(processor).__name__
        raise refused(name, f"{_INPUT} of a picture", one_line(error)) from error


def _picture(height: int, width: int) -> np.ndarray:
    """Noise over a slope: edges everywhere, all levels, and no two places alike."""
    rng = np.random.default_rng(height * width)
    slope = np.linspace(0, 200, height * width * 3).reshape(height, width, 3)
    return np.asarray(np.clip(slope + rng.integers(-60, 61, slope.shape), 0, 255), np.uint8)


def _made(steps: tuple[Step, ...], picture: np.ndarray) -> np.ndarray:
    """What the steps make of a picture."""
    spec = TensorSpec(name=_INPUT, dtype="float32", shape=("batch", 3, "height", "width"))
    any_size = (1, 1 << 16)
    signature = Signature(
        inputs=(spec,), outputs=(), dims={"batch": any_size, "height": any_size, "width": any_size}
    )
    processing = Processing(inputs=(InputProcessing(name=_INPUT, steps=steps),))
    made: np.ndarray = Processor(processing, signature, "tensors").prepare(picture)[_INPUT]
    return made


def _difference(ours: np.ndarray, theirs: np.ndarray, steps: tuple[Step, ...]) -> str:
    """How far two tensors are apart, in levels of a pixel; empty where only rounding differs."""
    if ours.shape != theirs.shape:
        return f"shape {list(theirs.shape)} instead of {list(ours.shape)}"
    scale = next((step.scale for step in steps if isinstance(step, Normalize)), (1.0, 1.0, 1.0))
    levels = np.abs(theirs.astype(np.float64) - ours) / np.abs(scale)[:, None, None]
    worst = float(levels.max())
    return f"up to {worst:.2g} levels of a pixel apart" if not worst < 0.01 else ""


def _example(steps: tuple[Step, ...]) -> torch.Tensor:
    import torch

    return torch.from_numpy(_made(steps, _picture(*_PROBES[0])))[None]


def _wrap(model: Any, task: str) -> str:
    """Give the model a forward of one picture that returns what the task needs, and name that."""
    original = model.forward
    output = "logits" if task == "image-classification" else ""

    def forward(pixel_values: torch.Tensor) -> Any:
        answer = original(pixel_values=pixel_values, return_dict=True)
        return {output: answer[output]} if output else answer

    forward.__signature__ = inspect.signature(forward)  # type: ignore[attr-defined]
    model.forward = forward
    return output
