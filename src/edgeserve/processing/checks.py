"""What the pipelines of all media share: names and times of steps, and task and inputs that fit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from edgeserve.errors import ProcessingError
from edgeserve.tasks import REGISTRY
from edgeserve.types.processing import InputProcessing
from edgeserve.types.steps import InputStep
from edgeserve.types.tensors import Signature
from edgeserve.types.vocabulary import Task

#: Called after each step with its name and the seconds it took.
OnStep = Callable[[str, float], None]


class StepTimer:
    """Tells a callback, where there is one, how long each step took, from one call to the next."""

    def __init__(self, on_step: OnStep | None) -> None:
        self._on_step = on_step
        self._since = time.perf_counter()

    def __call__(self, name: str) -> None:
        """End the step called ``name``."""
        if self._on_step:
            self._on_step(name, time.perf_counter() - self._since)
        self._since = time.perf_counter()  # the callback's own time is nobody's step


def step_name(step: InputStep) -> str:
    """Name of a step without its version, as timings show it: "resize"."""
    return step.tag.partition("/")[0]


def wrong_order(processing: InputProcessing, wanted: str, hint: str) -> ProcessingError:
    """EDGE-PROCESS-001, the steps of an input are others than its medium has, or out of order."""
    where = f"steps of input {processing.name!r}"
    got = ", ".join(map(step_name, processing.steps)) or "no steps"
    return ProcessingError("EDGE-PROCESS-001", where, wanted=wanted, got=got, hint=hint)


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
