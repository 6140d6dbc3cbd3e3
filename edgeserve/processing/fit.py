"""Do the processing's steps make what the signature asks for? Answered before the first input."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from edgeserve.errors import ProcessingError
from edgeserve.processing.plan import Plan
from edgeserve.types.tensors import Shape, Signature, TensorSpec
from edgeserve.types.words import Task

__all__ = ["check_fit", "check_names", "check_task", "sample_signature"]

#: The medium of tasks that know only one.
_MEDIA: dict[Task, str] = {
    "image-classification": "image",
    "object-detection": "image",
    "image-segmentation": "image",
    "depth-estimation": "image",
    "text-classification": "text",
    "token-classification": "text",
    "text-generation": "text",
    "audio-classification": "audio",
    "automatic-speech-recognition": "audio",
    "voice-activity": "audio",
}


def check_fit(plans: Sequence[Plan], signature: Signature, task: Task) -> None:
    """Compare the plans of a model whose inputs are made from pictures with its signature.

    Raises:
        ProcessingError: EDGE-PROCESS-002 (an input without steps, or steps without an input),
            EDGE-PROCESS-003 (dtype or shape), EDGE-PROCESS-005 (a task of another medium).
    """
    check_task(task, "image")
    check_names([plan.name for plan in plans], signature, "picture")
    for plan in plans:
        _check_tensor(plan, signature.input(plan.name), signature)


def check_task(task: Task, medium: str) -> None:
    """Refuse the steps of one medium for a task of another.

    Raises:
        ProcessingError: EDGE-PROCESS-005.
    """
    wanted = _MEDIA.get(task, medium)
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


def _check_tensor(plan: Plan, spec: TensorSpec, signature: Signature) -> None:
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


def _unfit(plan: Plan, wanted: str, got: str, hint: str) -> ProcessingError:
    return ProcessingError(
        "EDGE-PROCESS-003", f"steps of input {plan.name!r}", wanted=wanted, got=got, hint=hint
    )
