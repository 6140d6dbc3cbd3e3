"""Do the processing's steps make what the signature asks for? Answered before the first picture."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from edgeserve.errors import ProcessingError
from edgeserve.processing.plan import Plan
from edgeserve.types.tensors import Shape, Signature, TensorSpec
from edgeserve.types.words import Task

__all__ = ["check_fit", "sample_signature"]

_OTHER_MEDIA = {
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
    if medium := _OTHER_MEDIA.get(task):
        raise ProcessingError(
            "EDGE-PROCESS-005",
            f"task {task!r}",
            wanted=f"{medium} processing",
            got="image steps; other media are not handled in this version",
            hint="leave the processing's inputs empty and bring named tensors",
        )
    made, wanted = {plan.name for plan in plans}, {spec.name for spec in signature.inputs}
    if made != wanted:
        raise ProcessingError(
            "EDGE-PROCESS-002",
            "processing",
            wanted=f"steps for each of the inputs {sorted(wanted)}",
            got=f"steps for {sorted(made)}",
            hint="name them as the signature does; either all are made from the picture or none",
        )
    for plan in plans:
        _check_tensor(plan, signature.input(plan.name), signature)


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
