"""What must hold of every artifact whatever its precision, on a few inputs.

None of these compares with the reference: they ask whether the file agrees with itself over batch
sizes, padding, optimiser settings and repetition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations

from edgeserve.backends.session import Session
from edgeserve.data import Feed
from edgeserve.errors import BackendError
from edgeserve.types.reports import Limits
from edgeserve.types.tensors import Signature, TensorSpec
from edgeserve.types.words import Precision
from edgeserve.validate.difference import relative
from edgeserve.validate.feeds import Runner
from edgeserve.validate.findings import Findings
from edgeserve.validate.together import Together

__all__ = ["check_batch", "check_optimizer", "check_places", "check_repeatable", "self_limit"]

#: What a file below float32 may differ from itself by: its rounding is up to the engine. Where
#: activations are rounded too, every op's kernel rounds for itself: LiteRT's own and XNNPACK's are
#: 0.03 apart on EfficientNet-Lite0.
_LOOSE = 0.05
_LOOSER = 0.1
_REPEATED = 1e-6


def self_limit(precision: Precision, limits: Limits) -> float:
    """Largest relative difference between two ways of running the same file."""
    if precision == "fp32":
        return limits.tensor
    return max(_LOOSE if precision in ("fp16", "w8") else _LOOSER, limits.tensor)


def check_repeatable(
    runner: Runner, feeds: Sequence[Feed], findings: Findings, floor: float
) -> None:
    """The same input twice gives the same answer."""
    first, second = _singly(runner, feeds), _singly(runner, feeds)
    worst = _worst(first, second, floor)
    said = "the same bits twice" if worst == 0 else f"answers differ by {worst:.2g} of their scale"
    findings.check("repeatable", worst <= _REPEATED, said, worst, _REPEATED)


def check_batch(
    runner: Runner,
    feeds: Sequence[Feed],
    findings: Findings,
    floor: float,
    limit: float,
    together: Together | None = None,
    mixes: bool = False,
) -> None:
    """Inputs answered one by one and together get the same answers, if the reference's do.

    Args:
        runner: Runs the file.
        feeds: A few inputs.
        findings: Where to note it.
        floor: No scale counts as smaller.
        limit: Largest difference allowed.
        together: How inputs of different length become one batch; None: only those of one shape do.
        mixes: The reference answers a batch otherwise than its rows; its batch was compared.
    """
    if mixes:
        findings.check("batch", True, "not asked: the reference's rows depend on each other")
        return
    some = _together(feeds, together)[: runner.most]
    if runner.fixed or len(some) < 2:
        why = "the batch is fixed" if runner.fixed else "inputs of one shape are too few"
        findings.check("batch", True, f"static: {why}")
        return
    alone = _singly(runner, some)
    try:
        joint = together.run(runner, some) if together else runner.run(some)
    except BackendError as error:
        findings.check("batch", False, f"fails with a batch of {len(some)}: {error.got}")
        return
    worst = _worst(alone, joint, floor)
    padded = "" if all(_alike(feed, some[0]) for feed in some) else "padded "
    said = f"a {padded}batch of {len(some)} differs from single inputs by {worst:.2g} of the scale"
    findings.check("batch", worst <= limit, said, worst, limit)


def _together(feeds: Sequence[Feed], together: Together | None) -> list[Feed]:
    """Those inputs that fit into one batch."""
    if together:
        return [feed for feed in feeds if together.takes(feed)]
    ones = [feed for feed in feeds if _alike(feed, feed)]  # an example may be a batch itself
    return [feed for feed in ones if _alike(feed, ones[0])]


def _singly(runner: Runner, feeds: Sequence[Feed]) -> list[Feed]:
    """Answers to each feed alone, so that a fault of batches stays one."""
    return [output for feed in feeds for output in runner.run([feed])]


def _alike(feed: Feed, other: Feed) -> bool:
    return all(
        array.shape == other[name].shape and array.shape[:1] == (1,) for name, array in feed.items()
    )


def check_optimizer(
    runner: Runner,
    plain: Callable[[], Session],
    again: Callable[[Session], Runner],
    feeds: Sequence[Feed],
    findings: Findings,
    floor: float,
    limit: float,
) -> None:
    """The engine's optimiser changes nothing that matters. The runner's session is closed."""
    answers = _singly(runner, feeds)
    runner.close()  # gigabytes of weights need not be there twice
    try:
        with plain() as session:
            unoptimised = _singly(again(session), feeds)
    except BackendError as error:
        findings.check("optimizer", False, f"fails without the optimiser: {error.got}")
        return
    worst = _worst(unoptimised, answers, floor)
    said = f"with and without the optimiser: {worst:.2g} of the scale apart"
    findings.check("optimizer", worst <= limit, said, worst, limit)


def _worst(reference: Sequence[Feed], answers: Sequence[Feed], floor: float) -> float:
    pairs = zip(reference, answers, strict=True)
    return max((relative(a, b, floor) for a, b in pairs), default=0.0)


def check_places(
    runner: Runner,
    signature: Signature,
    feeds: Sequence[Feed],
    reference: Sequence[Feed],
    findings: Findings,
    floor: float,
    limit: float,
) -> None:
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
