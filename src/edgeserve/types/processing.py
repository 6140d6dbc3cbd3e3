"""`Processing`: what happens between raw bytes and tensors, as data.

Each step is a value with its own version in its tag (``resize/1``). An unknown step is refused on
reading, so that an old Wrapper never guesses. The steps lie in `edgeserve.processing.steps`; those
that read a task's record in the folder of their task. What each computes, to the last bit, stands
in ``spec/processing.md``.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from edgeserve.processing.steps import input_steps, output_steps
from edgeserve.processing.steps.tokenize import Tokenize
from edgeserve.tasks.values import AnyTaskOutput
from edgeserve.types.artifact import FileEntry
from edgeserve.types.base import UNSET, UnsetType, Value
from edgeserve.types.steps import InputStep, OutputStep, PixelStep, TaskOutput

if TYPE_CHECKING:
    AnyStep = InputStep
    AnyOutputStep = OutputStep
else:
    AnyStep = reduce(or_, input_steps())
    AnyOutputStep = reduce(or_, output_steps()) | AnyTaskOutput


class InputProcessing(Value, frozen=True):
    """The steps that make one model input out of the raw medium."""

    name: str
    steps: tuple[AnyStep, ...]


class ChatTemplate(Value, frozen=True):
    """How a conversation becomes the text that a model of texts takes.

    Attributes:
        template: The template in the Jinja language, an asset. It is data of another author: who
            renders it does so in a sandbox without attributes, imports and files.
        bos: Text of the token that begins a sequence, as the template's ``bos_token``.
        eos: Likewise of the one that ends it, as ``eos_token``.
        stop: Texts of the tokens that end an answer.
    """

    template: FileEntry
    bos: str = ""
    eos: str = ""
    stop: tuple[str, ...] = ()


class Processing(Value, frozen=True):
    """All processing of a model: per input before it, in order after it.

    Attributes:
        inputs: One entry per model input made from the raw medium. Empty: callers bring tensors.
        outputs: Steps on the model's outputs, in order. The decision record of the task is read
            from their result.
        chat: How a conversation becomes text; absent for models that take none.
    """

    inputs: tuple[InputProcessing, ...] = ()
    outputs: tuple[AnyOutputStep, ...] = ()
    chat: ChatTemplate | UnsetType = UNSET

    def __post_init__(self) -> None:
        names = [i.name for i in self.inputs]
        if len(set(names)) != len(names):
            raise ValueError(f"processing names an input twice: {names}")

    @property
    def task_output(self) -> TaskOutput | None:
        """The step that reads the task's record; None where the model has none."""
        return next((step for step in self.outputs if isinstance(step, TaskOutput)), None)

    def pixel_steps(self, name: str = "") -> tuple[PixelStep, ...]:
        """What happens to the picture that an input is made of; empty name: the first input's."""
        made = [each for each in self.inputs if name in ("", each.name)]
        return tuple(s for s in (made[0].steps if made else ()) if isinstance(s, PixelStep))

    @property
    def padding(self) -> dict[str, Tokenize]:
        """For each input that may be padded, the step that says with what and on which side."""
        return {
            each.name: step
            for each in self.inputs
            for step in each.steps
            if isinstance(step, Tokenize)
        }

    @property
    def assets(self) -> tuple[FileEntry, ...]:
        """Each file that the steps name, once, sorted by path."""
        steps = (*(step for each in self.inputs for step in each.steps), *self.outputs)
        named = {file for step in steps for file in step.files.values()}
        if not isinstance(self.chat, UnsetType):
            named.add(self.chat.template)
        return tuple(sorted(named, key=lambda entry: (entry.path, entry.sha256)))
