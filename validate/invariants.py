"""What must hold of every artifact whatever its precision, on a few inputs.

None of these compares with the reference: they ask whether the file is what it says, and whether it
agrees with itself over batch sizes, optimiser settings and repetition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np

from edgeserve.backends.base import Session
from edgeserve.data import Feed
from edgeserve.errors import BackendError
from edgeserve.types.artifact import Artifact
from edgeserve.types.reports import Limits
from edgeserve.types.tensors import Signature, TensorSpec
from edgeserve.types.words import Precision
from edgeserve.validate.difference import relative
from edgeserve.validate.feeds import Runner
from edgeserve.validate.findings import Findings

__all__ = [
    "check_batch", "check_declared", "check_optimizer", "check_outputs",
    "check_places", "check_repeatable", "self_limit",
]  # fmt: skip

#: What a file below float32 may differ from itself by: its rounding is up to the engine.
_LOOSE = 0.05
_ANY = (0, 1 << 62)
_REPEATED = 1e-6


def self_limit(precision: Precision, limits: Limits) -> float:
    """Largest relative difference between two ways of running the same file."""
    return limits.tensor if precision == "fp32" else max(_LOOSE, limits.tensor)


def check_declared(artifact: Artifact, signature: Signature, findings: Findings) -> bool:
    """Inputs and outputs as the source has them: as many, with the same kinds and shapes."""
    wrong = []
    for kind, ours, theirs in (
        ("input", signature.inputs, artifact.io.inputs),
        ("output", signature.outputs, artifact.io.outputs),
    ):
        if len(ours) != len(theirs):
            wrong.append(f"{len(theirs)} {kind}s instead of {len(ours)}")
            continue
        pairs = zip(ours, theirs, strict=True)
        wrong += [f"{kind} {a.name!r}: {w}" for a, b in pairs if (w := _unlike(a, b, signature))]
    said = "; ".join(wrong) or "names, dtypes and shapes as the source has them"
    return findings.check("declared", not wrong, said)


def _unlike(ours: TensorSpec, theirs: TensorSpec, signature: Signature) -> str:
    """What sets a file's tensor apart from the source's; empty when it may stand for it."""
    integers = all(spec.dtype.startswith(("int", "uint")) for spec in (ours, theirs))
    if ours.dtype != theirs.dtype and not integers:
        return f"{theirs.dtype} instead of {ours.dtype}"
    if len(ours.shape) != len(theirs.shape):
        return f"shape {list(theirs.shape)} instead of {list(ours.shape)}"
    for wanted, got in zip(ours.shape, theirs.shape, strict=True):
        low, high = (
            (wanted, wanted) if isinstance(wanted, int) else signature.dims.get(wanted, _ANY)
        )
        if isinstance(got, int) and not low <= got <= high:
            return f"shape {list(theirs.shape)} instead of {list(ours.shape)}"
    return ""


def check_outputs(artifact: Artifact, outputs: Feed, signature: Signature) -> str:
    """What real outputs break of their declaration; empty when they keep it."""
    for ours, theirs in zip(signature.outputs, artifact.io.outputs, strict=True):
        array = outputs[ours.name]
        fixed = [(a, d) for a, d in enumerate(theirs.shape) if isinstance(d, int)]
        if array.ndim != len(theirs.shape) or any(array.shape[a] != d for a, d in fixed):
            return f"output {ours.name!r} has shape {list(array.shape)}, not {list(theirs.shape)}"
        if theirs.dtype not in ("string", "bfloat16") and array.dtype != np.dtype(theirs.dtype):
            return f"output {ours.name!r} is {array.dtype}, not {theirs.dtype}"
    return ""


def check_repeatable(
    runner: Runner, feeds: Sequence[Feed], findings: Findings, floor: float
) -> None:
    """The same input twice gives the same answer."""
    first, second = _singly(runner, feeds), _singly(runner, feeds)
    worst = _worst(first, second, floor)
    said = "the same bits twice" if worst == 0 else f"answers differ by {worst:.2g} of their scale"
    findings.check("repeatable", worst <= _REPEATED, said, worst, _REPEATED)


def check_batch(
    runner: Runner, feeds: Sequence[Feed], findings: Findings, floor: float, limit: float
) -> None:
    """Inputs answered one by one and together get the same answers."""
    together = [feed for feed in feeds if _alike(feed, feeds[0])][: runner.most]
    if runner.fixed or len(together) < 2:
        why = "the batch is fixed" if runner.fixed else "inputs of one shape are too few"
        findings.check("batch", True, f"static: {why}")
        return
    alone = _singly(runner, together)
    try:
        joint = runner.run(together)
    except BackendError as error:
        findings.check("batch", False, f"fails with a batch of {len(together)}: {error.got}")
        return
    worst = _worst(alone, joint, floor)
    said = f"a batch of {len(together)} differs from single inputs by {worst:.2g} of the scale"
    findings.check("batch", worst <= limit, said, worst, limit)


def _singly(runner: Runner, feeds: Sequence[Feed]) -> list[Feed]:
    """Answers to each feed alone, so that a fault of batches stays one."""
    return [output for feed in feeds for output in runner.run([feed])]


def _alike(feed: Feed, other: Feed) -> bool:
    return all(
        array.shape == other[name].shape and array.shape[:1] == (1,) for name, array in feed.items()
    )


def check_optimizer(
    runner: Runner, plain: Callable[[], Session], signature: Signature, feeds: Sequence[Feed],
    findings: Findings, floor: float, limit: float,
) -> None:  # fmt: skip
    """The engine's optimiser changes nothing that matters."""
    try:
        with plain() as session:
            unoptimised = _singly(Runner(session, signature), feeds)
    except BackendError as error:
        findings.check("optimizer", False, f"fails without the optimiser: {error.got}")
        return
    worst = _worst(unoptimised, _singly(runner, feeds), floor)
    said = f"with and without the optimiser: {worst:.2g} of the scale apart"
    findings.check("optimizer", worst <= limit, said, worst, limit)


def _worst(reference: Sequence[Feed], answers: Sequence[Feed], floor: float) -> float:
    pairs = zip(reference, answers, strict=True)
    return max((relative(a, b, floor) for a, b in pairs), default=0.0)


def check_places(
    runner: Runner, signature: Signature, feeds: Sequence[Feed], reference: Sequence[Feed],
    findings: Findings, floor: float, limit: float,
) -> None:  # fmt: skip
    """Whether two tensors of equal shape have changed places, where a file's answers are wrong.

    An answer to "why is it wrong", not to "is it": values decide that.
    """
    answers = _singly(runner, feeds)
    if _worst(reference, answers, floor) <= limit:
        return
    for a, b in _interchangeable(signature.outputs):
        swapped = [_with_swap(answer, a, b) for answer in answers]
        if _worst(reference, swapped, floor) <= limit:
            findings.check("outputs-in-place", False, f"{a!r} and {b!r} have changed places")
            return
    for a, b in _interchangeable(signature.inputs):
        swapped = _singly(runner, [_with_swap(feed, a, b) for feed in feeds])
        if _worst(reference, swapped, floor) <= limit:
            findings.check("inputs-in-place", False, f"{a!r} and {b!r} have changed places")
            return


def _interchangeable(specs: Sequence[TensorSpec]) -> list[tuple[str, str]]:
    pairs = combinations(specs, 2)
    return [(a.name, b.name) for a, b in pairs if (a.dtype, a.shape) == (b.dtype, b.shape)]


def _with_swap(feed: Feed, a: str, b: str) -> Feed:
    return feed | {a: feed[b], b: feed[a]}
