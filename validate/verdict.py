"""From evidence to verdict, as pure functions over numbers.

The rules are documented in ``docs/explanation/verdicts.md``.

In order, and the first that has something to say decides:

1. an invariant is broken                                              -> fail
2. the reference's own outputs carry no evidence                       -> unproven
3. fp32 within the tensor limit, measured against the reference's own tensors, or with every
  decided
   answer of the reference reproduced                                  -> pass
4. fp32 beyond it, and nothing but tensors to go by                    -> fail
   quantized, and nothing but tensors to go by: noise of each field    -> pass, degraded, fail
5. decided inputs: the bounds of their flip rate against the limits    -> pass, degraded, fail
6. otherwise                                                           -> unproven (more data)

Noise is signal to noise (SNR) by field and channel. The signal is what the reference's values do
around their mean, so that an offset counts for nothing. By default a field needs 20 dB to pass
(the noise is a tenth of the signal) and 10 dB to be degraded (a third); each single channel may
have 10 dB less, down to noise as large as the channel's own signal. fp16 rounds a hundred times
finer than 8 bits and needs 20 dB more to pass; what counts as harm is the same.

`crash_report` is the report on an artifact whose worker died.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from edgeserve import tasks
from edgeserve.environment import environment
from edgeserve.errors import EdgeError
from edgeserve.types.artifact import Judgement, Reason
from edgeserve.types.base import Number, plain
from edgeserve.types.records import Runtime
from edgeserve.types.reports import Check, DecisionStats, Limits, OutputDiff, Rate, Report
from edgeserve.types.vocabulary import Precision, Task, Verdict
from edgeserve.validate.compare.output_fields import describe_field as field_called
from edgeserve.validate.requests import Answers, JudgeRequest
from edgeserve.validate.stats.binomial import groups_needed, lower_bound, upper_bound

#: A float32 output that is off by a tenth of its own scale is another function, not rounding.
GROSS_ERROR = 0.1

_Outcome = tuple[Verdict, tuple[Reason, ...]]


def drift_limit(task: Task) -> float:
    """Largest difference of a score that leaves the reference's answer "reproduced".

    A fifth of the margin from which an input counts as decided, far below what could turn it.
    """
    return tasks.sure_margin(task) / 5


@dataclass(frozen=True)
class Evidence:
    """What is known of one artifact.

    Attributes:
        precision: Its precision.
        task: What its outputs mean.
        limits: The accuracy loss that is allowed.
        outputs: Difference per field from the tensors of the reference, or of the exported program
            where the reference gives decisions only; on natural inputs with their noise.
        own_tensors: ``outputs`` were measured against the reference itself.
        decisions: Decisions on the user's inputs; None without data or for the ``tensors`` task.
        synthetic: Decided flips on generated inputs: too little to pass on, enough to fail on.
        drift: Largest difference of a score from the reference's, where it tells its scores.
        broken: Invariants that do not hold.
        vacuous: Why the reference's outputs prove nothing.
        remarks: Reasons that change no verdict and stand last beside it.
        whole: Those of ``outputs`` on natural inputs that are whole numbers.
        edges: Names of the inputs on constants of the program, where its answer is well defined.
    """

    precision: Precision
    task: Task
    limits: Limits
    outputs: tuple[OutputDiff, ...]
    own_tensors: bool = True
    decisions: DecisionStats | None = None
    synthetic: Rate | None = None
    drift: Number | None = None
    broken: tuple[Reason, ...] = ()
    vacuous: tuple[Reason, ...] = ()
    remarks: tuple[Reason, ...] = ()
    whole: tuple[OutputDiff, ...] = ()
    edges: frozenset[str] = frozenset()

    @property
    def drifts(self) -> bool:
        """The reference's own scores are not reproduced closely enough to count as the same."""
        return self.drift is not None and plain(self.drift) > drift_limit(self.task)

    @property
    def worst(self) -> OutputDiff | None:
        """The output that is furthest off (NaN counts as further than anything)."""
        return max(self.outputs, key=_distance, default=None)

    @property
    def within(self) -> bool:
        """Every output lies within the tensor limit."""
        return self.worst is not None and _distance(self.worst) <= self.limits.tensor


def _distance(diff: OutputDiff) -> float:
    relative = plain(diff.relative)
    return relative if relative == relative else float("inf")


def decide(evidence: Evidence, executed_by: str) -> Judgement:
    """The verdict, its reasons, and the smallest harm that the evidence could have seen."""
    rules = (_no_evidence, _tensors, _synthetic, _decisions)
    outcomes = (outcome for rule in rules if (outcome := rule(evidence)) is not None)
    verdict, reasons = next(outcomes)
    harm = evidence.decisions.minimum_harm if evidence.decisions else None
    reasons = (*reasons, *evidence.remarks)
    return Judgement(verdict=verdict, reasons=reasons, minimum_harm=harm, executed_by=executed_by)


def crash_verdict(error: EdgeError, executed_by: str = "") -> Judgement:
    """The verdict on an artifact whose worker died, hung or met an unexpected error.

    Raises:
        EdgeError: ``error`` itself, when it says something else than that.
    """
    if error.code == "EDGE-WORKER-001":
        message = f"judging it ended with an error: {error.code} {error.message}; {error.hint}"
        reason = Reason(code="EDGE-CHECK-015", message=message)
    elif error.code in ("EDGE-WORKER-002", "EDGE-WORKER-003"):
        reason = Reason(code="EDGE-CHECK-012", message=f"crashed or hung: {error.message}")
    else:
        raise error
    return Judgement(verdict="fail", reasons=(reason,), executed_by=executed_by)


def _no_evidence(evidence: Evidence) -> _Outcome | None:
    """A file that breaks an invariant, or a reference that proves nothing: no figure counts."""
    if evidence.broken:
        return "fail", evidence.broken
    return ("unproven", evidence.vacuous) if evidence.vacuous else None


def _tensors(evidence: Evidence) -> _Outcome | None:
    if evidence.precision != "fp32":
        return snr_verdict(evidence) if evidence.task == "tensors" else None
    if evidence.within:
        return _within(evidence)
    beyond = (_beyond(evidence),)
    if evidence.task == "tensors":
        return "fail", beyond
    worst = evidence.worst
    gross = worst is None or _distance(worst) > GROSS_ERROR
    on_edge = worst is not None and worst.worst in evidence.edges
    return ("fail", beyond) if gross and (evidence.decisions is None or on_edge) else None


def _within(evidence: Evidence) -> _Outcome | None:
    """The tensor rule holds; it is the reference's word only where the reference was compared."""
    if evidence.own_tensors:
        return "pass", ()
    if evidence.decisions is None:
        if evidence.synthetic is not None and evidence.synthetic.count:
            return None
        message = "equal to the exported program; the reference was not compared on data"
        return "pass", (Reason(code="EDGE-CHECK-050", message=message),)
    decided = evidence.decisions.decided
    return ("pass", ()) if decided.n and not decided.count and not evidence.drifts else None


def _beyond(evidence: Evidence) -> Reason:
    worst = evidence.worst
    message = "no output could be compared"
    if worst is not None:
        share = f"{plain(worst.relative):.3g} of its scale (on {worst.worst})"
        message = f"{describe_diff(worst)} differs by {share}, limit {evidence.limits.tensor:g}"
    return Reason(code="EDGE-CHECK-030", message=message)


def _synthetic(evidence: Evidence) -> _Outcome | None:
    rate = evidence.synthetic
    if evidence.decisions is not None or rate is None:
        return None
    if plain(rate.lower) <= evidence.limits.degraded_flips:
        return None
    message = f"{rate.count} of {rate.n} decided answers flip on synthetic inputs"
    return "fail", (Reason(code="EDGE-CHECK-045", message=message), *_tensor_note(evidence))


def _decisions(evidence: Evidence) -> _Outcome:
    stats, note = evidence.decisions, _tensor_note(evidence)
    if stats is None:
        message = "no data to compare decisions on"
        return "unproven", (Reason(code="EDGE-CHECK-043", message=message), *note)
    cause = _processing_mismatch(evidence)
    if stats.decided.n == 0:
        return "unproven", (*cause, _undecided(evidence, stats), *note)
    verdict = verdict_by_bounds(stats.decided, evidence.limits)
    flips = _flips(stats, evidence.limits, verdict)
    both = (*flips, *cause) if verdict == "fail" else (*cause, *flips)
    return verdict, (*both, *note)


def _undecided(evidence: Evidence, stats: DecisionStats) -> Reason:
    if tasks.needs_neighbours(evidence.task) and stats.inputs < 3:
        message = f"a nearest neighbour needs at least 3 inputs, there are {stats.inputs}"
        return Reason(code="EDGE-CHECK-051", message=message)
    message = f"the reference decides none of {stats.inputs} inputs"
    return Reason(code="EDGE-CHECK-044", message=message)


def _processing_mismatch(evidence: Evidence) -> tuple[Reason, ...]:
    """The file computes what the program does, so a drift of scores comes in before the model."""
    if evidence.own_tensors or not evidence.within or not evidence.drifts:
        return ()
    drift = plain(evidence.drift or 0.0)
    what = "cosines" if tasks.needs_neighbours(evidence.task) else "scores"
    message = (
        f"the artifact equals the exported program, but {what} differ from the reference's by up to"
        f" {drift:.2g}: the reference preprocesses its inputs differently, or has other weights"
    )
    return (Reason(code="EDGE-CHECK-046", message=message),)


def verdict_by_bounds(rate: Rate, limits: Limits) -> Verdict:
    """What the bounds of a flip rate say, against the limits."""
    if plain(rate.upper) <= limits.pass_flips:
        return "pass"
    if plain(rate.upper) <= limits.degraded_flips:
        return "degraded"
    return "fail" if plain(rate.lower) > limits.degraded_flips else "unproven"


_FLIPS = {"degraded": "EDGE-CHECK-041", "fail": "EDGE-CHECK-040", "unproven": "EDGE-CHECK-042"}


def _flips(stats: DecisionStats, limits: Limits, verdict: Verdict) -> tuple[Reason, ...]:
    if verdict == "pass":
        return ()
    rate = stats.decided
    limit = limits.pass_flips if verdict == "degraded" else limits.degraded_flips
    message = (
        f"{rate.count} of {rate.n} decided answers flip ({plain(rate.n_eff):g} independent inputs):"
        f" between {_percent(rate.lower)} and {_percent(rate.upper)}, limit {_percent(limit)}"
    )
    if verdict == "unproven":
        more = stats.more_groups
        settled = f"a verdict needs about {more} more independent inputs"
        message += f"; {settled}" if more else "; more data needed"
    return (Reason(code=_FLIPS[verdict], message=message),)


def _tensor_note(evidence: Evidence) -> tuple[Reason, ...]:
    """Beside another reason: that a float32 file also misses the tensor limit."""
    return (_beyond(evidence),) if evidence.precision == "fp32" and not evidence.within else ()


def _percent(share: Number) -> str:
    return f"{100 * plain(share):.3g} %"


def more_groups(rate: Rate, limits: Limits) -> int | None:
    """How many more groups, at the rate seen so far, would settle an unproven verdict.

    The verdict aimed at is the one that the rate itself points to. None: already settled, nothing
    observed, or the rate lies too close to a limit.
    """
    if rate.n == 0 or verdict_by_bounds(rate, limits) != "unproven":
        return None
    share, now = plain(rate.rate), int(plain(rate.n_eff))
    total = groups_needed(_settled_at(share, limits), now + 1)
    return None if total is None else total - now


def _settled_at(share: float, limits: Limits) -> Callable[[int], bool]:
    """Whether so many groups settle it, for a flip rate that stays at ``share``."""
    if share > limits.degraded_flips:
        return lambda n: lower_bound(share * n, n) > limits.degraded_flips
    limit = limits.pass_flips if share <= limits.pass_flips else limits.degraded_flips
    return lambda n: upper_bound(share * n, n) <= limit


#: By how many dB a single channel may be noisier than its field.
CHANNEL_ALLOWANCE = 10.0

#: By how many dB a precision's rounding is finer than that of 8 bits.
_EXTRA_SNR: dict[Precision, float] = {"fp16": 20.0}


def snr_verdict(evidence: Evidence) -> tuple[Verdict, tuple[Reason, ...]]:
    """The verdict on a quantized file by its noisiest field; whole numbers must be equal."""
    noisy = [diff for diff in evidence.outputs if diff.snr is not None]
    if noisy:
        diff = max(noisy, key=lambda each: snr_shortfall(each, evidence))
        lack, message = snr_shortfall(diff, evidence), _snr_message(diff, evidence)
        if lack > _required_snr(evidence) - evidence.limits.degraded_snr:
            return "fail", (Reason(code="EDGE-CHECK-063", message=message),)
        if lack > 0:
            return "degraded", (Reason(code="EDGE-CHECK-064", message=message),)
    for diff in evidence.whole:
        if plain(diff.max_abs) > 0:
            message = f"{describe_diff(diff)} holds whole numbers, and other ones on {diff.worst}"
            return "unproven", (Reason(code="EDGE-CHECK-032", message=message),)
    return "pass", ()


def snr_shortfall(diff: OutputDiff, evidence: Evidence) -> float:
    """By how many dB a field misses the limit for ``pass``; negative where it keeps it."""
    least = min(_decibels(diff.snr), _decibels(diff.channel_snr) + CHANNEL_ALLOWANCE)
    return _required_snr(evidence) - least


def _required_snr(evidence: Evidence) -> float:
    return evidence.limits.snr + _EXTRA_SNR.get(evidence.precision, 0.0)


def _decibels(value: object) -> float:
    """As a number; what is not known or no number counts as nothing but noise."""
    found = float("nan") if value is None else float(str(value))
    return found if found == found else float("-inf")


def _snr_message(diff: OutputDiff, evidence: Evidence) -> str:
    field, channel = _decibels(diff.snr), _decibels(diff.channel_snr)
    wanted = _required_snr(evidence)
    message = f"{describe_diff(diff)}: signal to noise {field:.3g} dB, limit {wanted:g}"
    if diff.noisiest is not None and channel + CHANNEL_ALLOWANCE < field:
        least = wanted - CHANNEL_ALLOWANCE
        message += f"; channel {diff.noisiest}: {channel:.3g} dB, limit {least:g}"
    return message


def describe_diff(diff: OutputDiff) -> str:
    """A field in words; see `edgeserve.validate.compare.output_fields.describe_field`."""
    return field_called(diff.field, diff.output, diff.part)


#: Addresses of the verbs.
COLLECT_VERB = "edgeserve.validate.collect:collect_answers"
JUDGE_VERB = "edgeserve.validate.judge:judge"


def crash_report(request: JudgeRequest, answers: Answers, error: EdgeError) -> Report:
    """The report on an artifact whose worker died, hung or met an unexpected error.

    Raises:
        EdgeError: ``error`` itself, when it is none of these.
    """
    judgement = crash_verdict(error)
    check = Check(name="survives", ok=False, detail=judgement.reasons[0].message)
    report = bare_report(request, answers, judgement)
    return msgspec.structs.replace(report, checks=(check,), notes=answers.notes)


def bare_report(request: JudgeRequest, answers: Answers, judgement: Judgement) -> Report:
    """The report on an artifact of which nothing was run."""
    artifact = request.artifact
    return Report(
        artifact_sha256=artifact.sha256,
        format=artifact.format,
        precision=artifact.precision,
        runtime=Runtime(name=artifact.format, version="", delegate=request.delegate or ""),
        reference=answers.reference,
        preprocessing=answers.preprocessing,
        inputs="none",
        limits=request.limits,
        checks=(),
        outputs=(),
        decisions=None,
        worst=(),
        judgement=judgement,
        environment=environment(),
        seconds=0.0,
    )
