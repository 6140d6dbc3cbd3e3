"""What must hold of every artifact whatever its precision, on a few inputs; and the log of checks.

None of these invariants compares with the reference: they ask whether the file agrees with
itself over batch sizes, padding, optimiser settings and repetition. `CheckLog` holds all checks
of an artifact and the reasons behind them: one name, one code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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

    def check(self, name: str, ok: bool, detail: str, *figures: float) -> bool:
        """Note a check and, where it does not hold, its reason. Returns ``ok``.

        Args:
            name: As `_CODES` has it.
            ok: Whether it holds.
            detail: In words.
            figures: What was measured and the limit, where there are such.
        """
        value, limit = (*map(number, figures), None, None)[:2]
        self.checks.append(Check(name=name, ok=ok, detail=detail, value=value, limit=limit))
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
    weights = precision in ("fp16", "w8")
    rounding = _WEIGHT_ONLY_LIMIT if weights else _QUANTIZED_LIMIT
    return limits.tensor if precision == "fp32" else max(rounding, limits.tensor)


@dataclass(frozen=True)
class SelfConsistency:
    """Ways of running one file that must not change its answers.

    Attributes:
        runner: Runs the file.
        feeds: A few inputs.
        findings: Where to note what was found.
        floor: No scale counts as smaller.
        limit: Largest difference allowed.
        scales: Largest magnitude of each output over all natural inputs, where known: a faint
            answer, to noise, is as rounded as any other.
    """

    runner: BatchRunner
    feeds: Sequence[Feed]
    findings: CheckLog
    floor: float
    limit: float
    scales: Mapping[str, float] = field(default_factory=dict)

    def check_repeatable(self) -> None:
        """The same input twice gives the same answer."""
        worst = self._largest_difference(self._answers(), self._answers())
        detail = f"answers differ by {worst:.2g} of their scale"
        detail = detail if worst else "the same bits twice"
        self.findings.check("repeatable", worst <= _REPEAT_LIMIT, detail, worst, _REPEAT_LIMIT)

    def check_batch(self, together: PaddedBatch | None, mixes: bool) -> None:
        """Inputs answered one by one and together get the same answers, if the reference's do.

        Args:
            together: How inputs of different length become one batch; None: only those of one
                shape do.
            mixes: The reference answers a batch otherwise than its rows; its batch was compared.
        """
        runner, findings = self.runner, self.findings
        if mixes:
            findings.check("batch", True, "not asked: the reference's rows depend on each other")
            return
        some = _batchable(self.feeds, together)[: runner.largest]
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
        padded = "" if all(_same_shapes(feed, some[0]) for feed in some) else "padded "
        what = f"a {padded}batch of {len(some)} differs from single inputs by"
        worst = self._largest_difference(alone, joint)
        detail = f"{what} {worst:.2g} of the scale"
        findings.check("batch", worst <= self.limit, detail, worst, self.limit)

    def check_optimizer(
        self, plain: Callable[[], Session], again: Callable[[Session], BatchRunner]
    ) -> None:
        """The engine's optimiser changes nothing that matters. The runner's session is closed."""
        answers = self._answers()
        self.runner.close()  # gigabytes of weights need not be there twice
        try:
            with plain() as session:
                unoptimised = _run_singly(again(session), self.feeds)
        except BackendError as error:
            detail = f"fails without the optimiser: {error.got}"
            self.findings.check("optimizer", False, detail)
            return
        worst = self._largest_difference(unoptimised, answers)
        detail = f"with and without the optimiser: {worst:.2g} of the scale apart"
        self.findings.check("optimizer", worst <= self.limit, detail, worst, self.limit)

    def check_swapped_tensors(self, signature: Signature, reference: Sequence[Feed]) -> None:
        """Whether two tensors of equal shape have changed places, where a file's answers are wrong.

        An answer to "why is it wrong", not to "is it": values decide that.
        """
        answers = self._answers()
        if self._largest_difference(reference, answers) <= self.limit:
            return
        for kind, specs in (("outputs", signature.outputs), ("inputs", signature.inputs)):
            for a, b in _interchangeable(specs):
                if kind == "outputs":
                    swapped = [_with_swap(answer, a, b) for answer in answers]
                else:
                    swapped = _run_singly(self.runner, [_with_swap(f, a, b) for f in self.feeds])
                if self._largest_difference(reference, swapped) <= self.limit:
                    detail = f"{a!r} and {b!r} have changed places"
                    self.findings.check(f"{kind}-in-place", False, detail)
                    return

    def _answers(self) -> list[Feed]:
        return _run_singly(self.runner, self.feeds)

    def _largest_difference(self, reference: Sequence[Feed], answers: Sequence[Feed]) -> float:
        pairs = zip(reference, answers, strict=True)
        differences = (relative_difference(a, b, self.floor, self.scales) for a, b in pairs)
        return max(differences, default=0.0)


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
    shapes = [(array.shape, other[name].shape) for name, array in feed.items()]
    return all(one == another and one[:1] == (1,) for one, another in shapes)


def _interchangeable(specs: Sequence[TensorSpec]) -> list[tuple[str, str]]:
    pairs = combinations(specs, 2)
    return [(a.name, b.name) for a, b in pairs if (a.dtype, a.shape) == (b.dtype, b.shape)]


def _with_swap(feed: Feed, a: str, b: str) -> Feed:
    return feed | {a: feed[b], b: feed[a]}
