"""What must hold of every artifact whatever its precision, on a few inputs; and the log of checks.

None of these invariants compares with the reference: they ask whether the file agrees with
itself over batch sizes, padding, optimiser settings and repetition. `CheckLog` holds all checks
of an artifact and the reasons behind them: one name, one code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from edgeserve.backends.batching import BatchRunner, PaddedBatch
from edgeserve.backends.session import Session
from edgeserve.data import Feed
from edgeserve.errors import BackendError
from edgeserve.types.artifact import Reason
from edgeserve.types.base import number
from edgeserve.types.reports import Check, Limits
from edgeserve.types.tensors import Signature, TensorSpec
from edgeserve.types.vocabulary import Precision
from edgeserve.validate.compare.tensors import relative_difference

#: Code of the reason that a broken check gives.
_CODES: dict[str, str] = {
    "loads": "EDGE-CHECK-001",
    "runs": "EDGE-CHECK-003",
    "declared": "EDGE-CHECK-004",
    "finite": "EDGE-CHECK-005",
    "reference-finite": "EDGE-CHECK-014",
    "not-constant": "EDGE-CHECK-006",
    "field-moves": "EDGE-CHECK-060",
    "constant-kept": "EDGE-CHECK-061",
    "scores-spread": "EDGE-CHECK-062",
    "batch": "EDGE-CHECK-007",
    "optimizer": "EDGE-CHECK-008",
    "repeatable": "EDGE-CHECK-009",
    "outputs-in-place": "EDGE-CHECK-010",
    "inputs-in-place": "EDGE-CHECK-011",
    "decides": "EDGE-CHECK-013",
    "weights": "EDGE-CHECK-053",
    "weights-8bit": "EDGE-CHECK-053",
}


@dataclass
class CheckLog:
    """What has been found so far.

    Attributes:
        checks: In the order they were made.
        broken: Reasons of those that do not hold.
        vacuous: Why the reference's outputs prove nothing.
        remarks: What the verdict should be read with, whatever it is.
        notes: What else a reader should know.
    """

    checks: list[Check] = field(default_factory=list)
    broken: list[Reason] = field(default_factory=list)
    vacuous: list[Reason] = field(default_factory=list)
    remarks: list[Reason] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def check(
        self,
        name: str,
        ok: bool,
        detail: str,
        value: float | None = None,
        limit: float | None = None,
    ) -> bool:
        """Note a check and, where it does not hold, its reason. Returns ``ok``."""
        self.checks.append(
            Check(
                name=name,
                ok=ok,
                detail=detail,
                value=None if value is None else number(value),
                limit=None if limit is None else number(limit),
            )
        )
        if not ok:
            self.broken.append(Reason(code=_CODES[name], message=f"{name}: {detail}"))
        return ok

    def prove_nothing(self, code: str, message: str) -> None:
        """Note that the reference's outputs carry no evidence; the check itself holds."""
        self.vacuous.append(Reason(code=code, message=message))
        self.check("evidence", True, message)

    def remark(self, code: str, message: str) -> None:
        """Note a reason that changes no verdict and stands beside it."""
        self.remarks.append(Reason(code=code, message=message))


#: What a file below float32 may differ from itself by: its rounding is up to the engine. Where
#: activations are rounded too, every op's kernel rounds for itself: LiteRT's own and XNNPACK's are
#: 0.03 apart on EfficientNet-Lite0.
_WEIGHT_ONLY_LIMIT = 0.05
_QUANTIZED_LIMIT = 0.1
_REPEAT_LIMIT = 1e-6


def self_consistency_limit(precision: Precision, limits: Limits) -> float:
    """Largest relative difference between two ways of running the same file."""
    if precision == "fp32":
        return limits.tensor
    return max(
        _WEIGHT_ONLY_LIMIT if precision in ("fp16", "w8") else _QUANTIZED_LIMIT, limits.tensor
    )


def check_repeatable(
    runner: BatchRunner, feeds: Sequence[Feed], findings: CheckLog, floor: float
) -> None:
    """The same input twice gives the same answer."""
    first, second = _run_singly(runner, feeds), _run_singly(runner, feeds)
    worst = _largest_difference(first, second, floor)
    said = "the same bits twice" if worst == 0 else f"answers differ by {worst:.2g} of their scale"
    findings.check("repeatable", worst <= _REPEAT_LIMIT, said, worst, _REPEAT_LIMIT)


def check_batch(
    runner: BatchRunner,
    feeds: Sequence[Feed],
    findings: CheckLog,
    floor: float,
    limit: float,
    together: PaddedBatch | None = None,
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
    some = _batchable(feeds, together)[: runner.largest]
    if runner.fixed or len(some) < 2:
        why = "the batch is fixed" if runner.fixed else "inputs of one shape are too few"
        findings.check("batch", True, f"static: {why}")
        return
    alone = _run_singly(runner, some)
    try:
        joint = together.run(runner, some) if together else runner.run(some)
    except BackendError as error:
        findings.check("batch", False, f"fails with a batch of {len(some)}: {error.got}")
        return
    worst = _largest_difference(alone, joint, floor)
    padded = "" if all(_same_shapes(feed, some[0]) for feed in some) else "padded "
    said = f"a {padded}batch of {len(some)} differs from single inputs by {worst:.2g} of the scale"
    findings.check("batch", worst <= limit, said, worst, limit)


def _batchable(feeds: Sequence[Feed], together: PaddedBatch | None) -> list[Feed]:
    """Those inputs that fit into one batch."""
    if together:
        return [feed for feed in feeds if together.takes(feed)]
    ones = [feed for feed in feeds if _same_shapes(feed, feed)]  # an example may be a batch itself
    return [feed for feed in ones if _same_shapes(feed, ones[0])]


def _run_singly(runner: BatchRunner, feeds: Sequence[Feed]) -> list[Feed]:
    """Answers to each feed alone, so that a fault of batches stays one."""
    return [output for feed in feeds for output in runner.run([feed])]


def _same_shapes(feed: Feed, other: Feed) -> bool:
    return all(
        array.shape == other[name].shape and array.shape[:1] == (1,) for name, array in feed.items()
    )


def check_optimizer(
    runner: BatchRunner,
    plain: Callable[[], Session],
    again: Callable[[Session], BatchRunner],
    feeds: Sequence[Feed],
    findings: CheckLog,
    floor: float,
    limit: float,
) -> None:
    """The engine's optimiser changes nothing that matters. The runner's session is closed."""
    answers = _run_singly(runner, feeds)
    runner.close()  # gigabytes of weights need not be there twice
    try:
        with plain() as session:
            unoptimised = _run_singly(again(session), feeds)
    except BackendError as error:
        findings.check("optimizer", False, f"fails without the optimiser: {error.got}")
        return
    worst = _largest_difference(unoptimised, answers, floor)
    said = f"with and without the optimiser: {worst:.2g} of the scale apart"
    findings.check("optimizer", worst <= limit, said, worst, limit)


def _largest_difference(reference: Sequence[Feed], answers: Sequence[Feed], floor: float) -> float:
    pairs = zip(reference, answers, strict=True)
    return max((relative_difference(a, b, floor) for a, b in pairs), default=0.0)


def check_swapped_tensors(
    runner: BatchRunner,
    signature: Signature,
    feeds: Sequence[Feed],
    reference: Sequence[Feed],
    findings: CheckLog,
    floor: float,
    limit: float,
) -> None:
    """Whether two tensors of equal shape have changed places, where a file's answers are wrong.

    An answer to "why is it wrong", not to "is it": values decide that.
    """
    answers = _run_singly(runner, feeds)
    if _largest_difference(reference, answers, floor) <= limit:
        return
    for a, b in _interchangeable(signature.outputs):
        swapped = [_with_swap(answer, a, b) for answer in answers]
        if _largest_difference(reference, swapped, floor) <= limit:
            findings.check("outputs-in-place", False, f"{a!r} and {b!r} have changed places")
            return
    for a, b in _interchangeable(signature.inputs):
        swapped = _run_singly(runner, [_with_swap(feed, a, b) for feed in feeds])
        if _largest_difference(reference, swapped, floor) <= limit:
            findings.check("inputs-in-place", False, f"{a!r} and {b!r} have changed places")
            return


def _interchangeable(specs: Sequence[TensorSpec]) -> list[tuple[str, str]]:
    pairs = combinations(specs, 2)
    return [(a.name, b.name) for a, b in pairs if (a.dtype, a.shape) == (b.dtype, b.shape)]


def _with_swap(feed: Feed, a: str, b: str) -> Feed:
    return feed | {a: feed[b], b: feed[a]}
