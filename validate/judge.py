"""`judge`: one artifact against the reference's answers, in a process of its own.

`inspect_internals` adds remarks on what the file holds: stored weights, activations, sums that
may saturate.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import msgspec

from edgeserve import backends, tasks
from edgeserve.backends.base import UNAVAILABLE, Backend, Session
from edgeserve.backends.batching import BatchRunner, PaddedBatch
from edgeserve.backends.graph import Graph
from edgeserve.errors import BackendError, ValidateError
from edgeserve.processing.processor import load_processor
from edgeserve.tasks import decision_rule
from edgeserve.types.artifact import Judgement, Reason
from edgeserve.types.base import number, plain
from edgeserve.types.reports import OutputDiff, Report
from edgeserve.validate.accuracy.evaluators import perplexity
from edgeserve.validate.checks.activations import (
    check_activations,
    match_taps,
    measure_activations,
    read_activations,
)
from edgeserve.validate.checks.declared_io import check_declared_io, check_size, check_weights
from edgeserve.validate.checks.invariants import CheckLog, SelfConsistency, self_consistency_limit
from edgeserve.validate.checks.reference_sanity import MIN_CONSTANT_ANSWERS, threshold_note
from edgeserve.validate.culprit import find_culprit
from edgeserve.validate.flips.counter import worst_tensors
from edgeserve.validate.reference.python_callable import PT2
from edgeserve.validate.reference_store import (
    load_exported,
    program_key,
    read_answers,
    stored_answers,
)
from edgeserve.validate.requests import JudgeRequest
from edgeserve.validate.run_artifact import ArtifactRun, RunAborted, ValidationCase
from edgeserve.validate.stats.paired_tests import label_stats, ratio_stats
from edgeserve.validate.verdict import GROSS_ERROR, Evidence, bare_report, decide, describe_diff

#: Mean overlap (IoU) of matched boxes below which it is said.
_CLOSE_IOU = 0.9


def judge(request: JudgeRequest) -> Report:
    """Judge one artifact.

    What is wrong with the artifact is the report's business, not an exception's. A crash of the
    runtime takes this process along; `edgeserve.validate.verdict.crash_verdict` makes a verdict of
    it.

    Raises:
        DataError: the data has changed since the reference saw it.
        ValidateError: there are no stored answers.
        BackendError: the artifact's format is unknown.
    """
    started = time.monotonic()
    case = _load_case(request)
    backend = backends.get(request.artifact.format)
    findings = CheckLog()
    try:
        opened = _load(backend, request, optimize=True)
    except BackendError as error:
        return _report(ArtifactRun.of(case, findings), _unloadable(error, findings), started)
    with opened as session:
        findings.check("loads", True, _executed_by(session))
        return _judge_session(case, backend, session, findings, started)


def _load_case(request: JudgeRequest) -> ValidationCase:
    folder, samples = Path(request.source_folder), Path(request.samples)
    exported = load_exported(folder)
    answers = read_answers(samples)
    if answers is None or answers.program_key != program_key(exported):
        raise ValidateError(
            "EDGE-VALIDATE-010",
            request.samples,
            wanted="the reference's answers",
            got="those to another program" if answers else "none",
            hint="run validate, which asks the reference first",
        )
    stored = stored_answers(samples, answers)
    return ValidationCase(request, exported, answers, stored, load_processor(exported, folder))


def _load(
    backend: Backend, request: JudgeRequest, taps: Sequence[str] = (), *, optimize: bool
) -> Session:
    return backend.load(
        request.artifact,
        Path(request.root),
        delegate=request.delegate,
        threads=request.threads,
        taps=taps,
        optimize=optimize,
        verified=bool(taps),  # the files' hashes were compared by the first load
    )


def _executed_by(session: Session) -> str:
    runtime = session.runtime
    named = f"{runtime.name} {runtime.version} ({runtime.delegate})"
    return f"{named}; {session.note}" if session.note else named


def _unloadable(error: BackendError, findings: CheckLog) -> Judgement:
    """The verdict on a file that could not be opened."""
    if error.code in UNAVAILABLE:
        reason = Reason(code="EDGE-CHECK-002", message=f"not run here: {error.message}")
        return Judgement(verdict="unproven", reasons=(reason,))
    findings.check("loads", False, error.message)
    return Judgement(verdict="fail", reasons=tuple(findings.broken))


def _judge_session(
    case: ValidationCase, backend: Backend, session: Session, findings: CheckLog, started: float
) -> Report:
    """Try the session, and put what was found into a report."""
    trial = ArtifactRun.of(case, findings)
    check_weights(case.request.artifact, findings)
    declared = check_declared_io(case.request.artifact, case.exported.signature, findings)
    if declared and case.split:
        findings.check("batch", False, case.split)  # the cause of all else that would be found
    elif declared:
        try:
            _examine(trial, backend, session)
        except RunAborted:
            pass  # its finding says why
        except BackendError as error:
            findings.check("runs", False, f"fails on inputs it has answered: {error.got}")
    evidence = _evidence(trial)
    judgement = decide(evidence, _executed_by(session))
    if judgement.verdict == "fail" and evidence.precision == "fp32":
        judgement = _with_culprit(judgement, trial, backend, evidence.worst)
    report = _report(trial, judgement, started)
    return msgspec.structs.replace(report, runtime=session.runtime)


#: Reasons whose cause is a value, which some op computed.
_OF_VALUES = frozenset(f"EDGE-CHECK-{n}" for n in "005 006 008 030 040 045 060 061 062".split())


def _with_culprit(
    judgement: Judgement, trial: ArtifactRun, backend: Backend, worst: OutputDiff | None
) -> Judgement:
    """The same, its first reason with the op that the wrong values come from."""
    first, *rest = judgement.reasons
    feed = trial.feed_of(worst.worst) if worst and first.code in _OF_VALUES else None
    if worst is None or feed is None:
        return judgement
    case = trial.case
    try:
        found = find_culprit(backend, case.request, case.exported, worst.output, feed)
    except BackendError as error:
        trial.findings.notes.append(f"the op at fault was not looked for: {error.message}")
        return judgement
    if not found:
        return judgement
    named = msgspec.structs.replace(first, message=f"{first.message}; {found}")
    return msgspec.structs.replace(judgement, reasons=(named, *rest))


def _examine(trial: ArtifactRun, backend: Backend, session: Session) -> None:
    """Everything there is to ask of a session that opened."""
    runner = trial.run(session)
    _check_values(trial)
    _remark_overlap(trial)
    with trial.apart():
        _check_invariants(trial, backend, runner)
        inspect_internals(trial, backend)


def _check_invariants(trial: ArtifactRun, backend: Backend, runner: BatchRunner) -> None:
    """What asks for more runs than the data: whether the file agrees with itself."""
    case, findings = trial.case, trial.findings
    precision, floor = case.request.artifact.precision, case.limits.scale_floor
    limit = self_consistency_limit(precision, case.limits)
    feeds = [probe.feed for probe in trial.probes]
    scales = trial.difference.magnitudes()
    itself = SelfConsistency(runner, feeds, findings, floor, limit, scales)
    itself.check_batch(PaddedBatch.of(case.processor, case.exported), case.answers.mixes)
    itself.check_repeatable()
    reference = [probe.outputs for probe in trial.probes]
    itself.check_swapped_tensors(case.exported.signature, reference)
    # Last: of a large model only one session fits into memory.
    load = partial(_load, backend, case.request, optimize=False)
    itself.check_optimizer(load, trial.runner)


def _check_values(trial: ArtifactRun) -> None:
    """NaN and constant outputs, and whether the reference's own outputs prove anything."""
    findings, difference = trial.findings, trial.difference
    bad, lacking = difference.not_finite(), difference.not_infinite()
    faults = [f"output {n!r} is NaN or infinite on {t[0]}" for n, t in bad.items()]
    faults += [f"output {n!r} lacks the reference's infinity on {t[0]}" for n, t in lacking.items()]
    findings.check("finite", not faults, "; ".join(faults) or "finite wherever the reference is")
    lost = difference.senseless()
    message = "; ".join(f"output {n!r} of the reference is {what}" for n, what in lost.items())
    findings.check("reference-finite", not lost, message or "the reference gives numbers")
    names = ", ".join(repr(name) for name in difference.still())
    message = f"output {names} is constant over all inputs" if names else ""
    findings.check("not-constant", not names, message or "outputs vary with their input")
    constant = _constant_reference(trial)
    if constant:
        findings.prove_nothing("EDGE-CHECK-022", constant)
    if not constant or not trial.case.answers.own_tensors:  # else its tensors are no measure
        _check_fields(trial)
    if difference.reference_still():
        findings.prove_nothing("EDGE-CHECK-021", "no output of the reference follows its input")
    for name, largest in difference.below_floor().items():
        if name in _evidence_outputs(trial.case):
            below = f"{largest:.2g}, below {trial.case.limits.scale_floor:g}"
            message = f"output {name!r} of the reference never exceeds {below}"
            findings.prove_nothing("EDGE-CHECK-020", message)


def _constant_reference(trial: ArtifactRun) -> str:
    """The remark about a server that answers the same to everything; empty of any other."""
    answers = trial.case.answers
    if answers.reference == PT2:
        return ""
    own = answers.own_tensors and trial.difference.server_is_constant(MIN_CONSTANT_ANSWERS)
    constant = own or trial.steady.steady
    return f"{answers.reference} returns a constant answer; the model does not" if constant else ""


def _check_fields(trial: ArtifactRun) -> None:
    """What no field may do; and, of a quantized file, fields that its noise cannot be told from."""
    findings, case = trial.findings, trial.case
    faults = trial.difference.faults()
    for name in ("field-moves", "constant-kept", "scores-spread"):
        message = "; ".join(fault.finding for fault in faults if fault.kind == name)
        findings.check(name, not message, message or "in each field as in the reference's")
    if case.decides or case.request.artifact.precision == "fp32":
        return
    for diff in trial.difference.silent():
        message = f"{describe_diff(diff)}: the reference's hardly move on these inputs"
        findings.prove_nothing("EDGE-CHECK-065", message)


def _evidence_outputs(case: ValidationCase) -> set[str]:
    """Outputs that must carry evidence: those that decisions are read from, or all."""
    steps = {name for step in case.exported.processing.outputs for name in step.outputs}
    return (steps if case.decides else set()) or {s.name for s in case.exported.signature.outputs}


def _remark_overlap(trial: ArtifactRun) -> None:
    """Boxes that match from an overlap of one half on may all be off by some of their size."""
    stats = trial.decisions
    name = tasks.schema(stats.task).overlap if stats else ""
    overlap = plain(stats.figures.get(name, 1.0)) if stats else 1.0
    if stats and overlap < _CLOSE_IOU:
        message = f"{stats.unit} that match overlap by {overlap:.2f} on average"
        trial.findings.remark("EDGE-CHECK-071", message)


def _evidence(trial: ArtifactRun) -> Evidence:
    case, difference = trial.case, trial.difference
    return Evidence(
        precision=case.request.artifact.precision,
        task=case.exported.task,
        limits=case.limits,
        outputs=(*difference.natural(), *difference.generated()),
        own_tensors=case.answers.own_tensors,
        decisions=trial.decisions,
        synthetic=trial.synthetic.decided() if len(trial.synthetic) else None,
        drift=trial.tally.drift(),
        broken=tuple(trial.findings.broken),
        vacuous=tuple(trial.findings.vacuous),
        remarks=(*case.answers.findings, *trial.findings.remarks),
        whole=tuple(diff for diff in difference.natural() if diff.snr is None),
        edges=frozenset(filler.name for filler in case.answers.fillers if filler.edge),
    )


def _report(trial: ArtifactRun, judgement: Judgement, started: float) -> Report:
    case, findings, answers = trial.case, trial.findings, trial.case.answers
    evidence = _evidence(trial)
    processing = case.exported.processing
    rule = decision_rule(case.exported.task, processing)
    thresholds = threshold_note(answers, rule, processing.task_output)
    seen = (*answers.notes, *findings.notes, *thresholds, *_drift_note(case, evidence))
    notes = (*case.exported.notes, *seen)
    largest = max((plain(diff.relative) for diff in evidence.outputs), default=0.0)
    # A text that is predicted is its own truth.
    predicted = ratio_stats("perplexity", trial.likelihood.costs, perplexity)
    error, worst = largest, worst_tensors(answers.samples, trial.by_id)
    if case.decides:
        error, worst = trial.error.largest(), trial.tally.worst(trial.by_id)
    return msgspec.structs.replace(
        bare_report(case.request, answers, judgement),
        inputs=_inputs(case),
        checks=tuple(findings.checks),
        outputs=trial.difference.natural(),
        decisions=evidence.decisions,
        worst=worst,
        seconds=number(time.monotonic() - started),
        generated=trial.difference.generated(),
        error=number(error),
        notes=notes,
        invariant_seconds=number(trial.apart_seconds),
        labels=label_stats(trial.tally.marked(case.exported.labels)),
        metrics=(*trial.truths.stats(), *([predicted] if predicted else [])),
    )


def _inputs(case: ValidationCase) -> str:
    """What it was judged on; lengths that were tried are named."""
    samples, fillers = case.answers.samples, case.answers.fillers
    groups = len({sample.group for sample in samples})
    some = f" ({groups} of them independent)" if groups < len(samples) else ""
    data = f"{len(samples)} inputs{some}; " if samples else ""
    lengths = [filler.name for filler in fillers if filler.of_length]
    tried = f", among them: {'; '.join(lengths)}" if lengths else ""
    return f"{data}{len(fillers)} generated{tried}"


def _drift_note(case: ValidationCase, evidence: Evidence) -> tuple[str, ...]:
    if evidence.own_tensors or evidence.drift is None:
        return ()
    drift = plain(evidence.drift)
    far = ", too much for its answers to count as reproduced" if evidence.drifts else ""
    what = "cosines" if tasks.needs_neighbours(case.exported.task) else "scores"
    return (f"{what} differ from those of {case.answers.reference} by up to {drift:.2g}{far}",)


def inspect_internals(trial: ArtifactRun, backend: Backend) -> None:
    """Remarks on what the file holds: stored weights, inner tensors, sums that may saturate."""
    request, exported = trial.case.request, trial.case.exported
    findings, root = trial.findings, Path(request.root)
    try:
        graph = backend.inspect(request.artifact, root)
        check_size(graph, exported.weights, findings)
        if layers := backend.saturating(request.artifact, root):
            more = f" and {len(layers) - 3} more" if len(layers) > 3 else ""
            names = f"{', '.join(layers[:3])}{more}"
            message = f"on x86 without VNNI 8-bit sums may saturate in {names}"
            findings.remark("EDGE-CHECK-069", message)
        _compare_activations(trial, backend, graph)
    except BackendError as error:
        findings.notes.append(f"activations were not inspected: {error.message}")


def _compare_activations(trial: ArtifactRun, backend: Backend, graph: Graph) -> None:
    request = trial.case.request
    reference = read_activations(Path(request.samples))
    taps = match_taps(graph, reference)
    if not taps or not trial.first:
        return
    load = partial(_load, backend, request, optimize=False)
    found = measure_activations(load, trial.runner, taps, reference, trial.first)
    off = max((plain(diff.relative) for diff in trial.difference.natural()), default=0.0)
    harmed = bool(trial.findings.broken) or off > GROSS_ERROR
    check_activations(taps, found, reference, request.artifact.precision, trial.findings, harmed)
