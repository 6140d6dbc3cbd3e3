"""One probe: load an execution plan, check it on the golden cases, time it.

Here or as the verb of a child process.

The golden check answers one question: does this engine decide as the server does, on the inputs
shipped for it? The journal entry and the outcome are written by whoever probes, so that they are
on the disk before a driver can take the process down.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import statistics
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec
import numpy as np

from edgeserve import backends, jobs, tasks
from edgeserve.backends import Session
from edgeserve.bundle import Model, open_model
from edgeserve.durations import time_runs
from edgeserve.errors import BundleError, EdgeError, ProcessingError, WrapperError
from edgeserve.golden_compare import GoldenComparison, compare_arrays, compare_records
from edgeserve.processing import Processor
from edgeserve.types.base import Number, Value, number
from edgeserve.types.records import Record
from edgeserve.types.samples import GoldenCase
from edgeserve.wrapper.engine import Arrays, Engine
from edgeserve.wrapper.plans import ExecutionPlan
from edgeserve.wrapper.probe_store import ProbeBusy, ProbeCache, ProbeJournal, ProbeOutcome

VERB = "edgeserve.wrapper.probe:probe_all"


class ProbeRequest(Value, frozen=True):
    """What a child is to try.

    Attributes:
        bundle: Path of the bundle or workspace.
        folder: Folder of the outcomes and of the journal.
        limit_s: Seconds each candidate may take.
        candidates: In order.
    """

    bundle: str
    folder: str
    limit_s: float
    candidates: tuple[ExecutionPlan, ...]


class ProbeOutcomes(Value, frozen=True):
    """How the candidates did, in order."""

    outcomes: tuple[ProbeOutcome, ...]


def processor(model: Model) -> Processor:
    """The processing of an open model.

    Raises:
        ProcessingError: a step or task is not known, or what a step needs is not installed.
        BundleError: an asset's bytes do not match their hash.
    """
    of = model.manifest
    return Processor(of.processing, of.signature, of.task, of.labels, model.read)


def open_session(candidate: ExecutionPlan, model: Model) -> Session:
    """Open a candidate.

    Raises:
        WrapperError: EDGE-WRAPPER-007, the runtime took another delegate than the one asked for.
        EdgeError: the runtime refused, or the artifact's bytes do not match their hashes.
    """
    session = backends.get(candidate.artifact.format).load(
        candidate.artifact,
        model.local(candidate.artifact),
        delegate=candidate.delegate,
        threads=candidate.threads,
        verified=True,  # by `local`, just now
    )
    if session.delegate != candidate.delegate:
        taken = session.delegate
        session.close()
        wanted = f"delegate {candidate.delegate}"
        got = f"{taken}, which the runtime took instead"
        hint = "`edgeserve doctor` says what a delegate needs"
        raise WrapperError("EDGE-WRAPPER-007", candidate.name, wanted=wanted, got=got, hint=hint)
    return session


def probe_plan(
    candidate: ExecutionPlan, model: Model, around: Processor, tries: int = 0
) -> tuple[ProbeOutcome, Session | None]:
    """Load and prove one candidate in this process; its session comes back open if the proof holds.

    Args:
        candidate: What to try.
        model: The open bundle, with golden cases.
        around: Its processing.
        tries: How often in a row it has failed before.

    Raises:
        BundleError: the bundle's bytes do not match their hashes: no candidate's fault.
    """
    session = None
    try:
        session = open_session(candidate, model)
        engine = Engine(session, around, model.manifest.signature)
        proof = check_golden(engine, model)
    except BundleError:
        _close(session)
        raise
    except Exception as error:  # whatever a driver's binding raises costs this candidate only
        _close(session)
        reason = (
            error.message if isinstance(error, EdgeError) else f"{type(error).__name__}: {error}"
        )
        return candidate.outcome("failed", reason, tries=tries + 1), None
    figures = msgspec.structs.asdict(proof) | {"runtime": session.runtime}
    if wrong := figures.pop("wrong"):
        _close(session)
        reason = f"answered {len(wrong)} of {proof.total} golden cases wrongly; {wrong[0]}"
        return candidate.outcome("refused", reason, **figures), None
    return candidate.outcome("accepted", "", **figures), session


def _close(session: Session | None) -> None:
    if session is not None:
        session.close()


def run_probe(
    candidate: ExecutionPlan,
    model: Model,
    around: Processor,
    cache: ProbeCache,
    journal: ProbeJournal,
    limit_s: float,
    *,
    child: bool = False,
) -> tuple[ProbeOutcome, Session | None]:
    """`attempt` under the journal, its outcome kept.

    Where another process is trying the same, this one waits for ``limit_s`` and takes its outcome.
    In a child process a trial that takes longer than ``limit_s`` ends the process; anywhere else
    it is not ours to end, and the journal tells the next start.
    """
    before = cache.get(candidate.key)
    try:
        with journal.attempt(candidate.key, candidate.name, limit_s):
            now = cache.get(candidate.key)
            if now is not None and now != before:
                return now, None
            with _watchdog(candidate.key, limit_s) if child else contextlib.nullcontext():
                outcome, session = probe_plan(candidate, model, around, now.tries if now else 0)
            cache.put(outcome)
            if child:
                jobs.progress(candidate.key, 1, 1)
            return outcome, session
    except ProbeBusy:
        reason = f"another process has been trying it for {limit_s:.0f} s"
        return candidate.outcome("busy", reason), None


def probe_all(request: ProbeRequest) -> ProbeOutcomes:
    """The verb: try each candidate in turn."""
    cache, journal = ProbeCache(Path(request.folder)), ProbeJournal(Path(request.folder))
    outcomes = []
    with open_model(request.bundle) as model:
        around = processor(model)
        for candidate in request.candidates:
            outcome, session = run_probe(
                candidate, model, around, cache, journal, request.limit_s, child=True
            )
            _close(session)
            outcomes.append(outcome)
    return ProbeOutcomes(outcomes=tuple(outcomes))


@contextlib.contextmanager
def _watchdog(key: str, seconds: float) -> Iterator[None]:
    """Tell the waiting parent what is being tried, and end this process if that does not end.

    The timer is the interpreter's own thread in C: it also ends what a driver blocks.
    """
    jobs.progress(key, 0, 1)
    faulthandler.dump_traceback_later(seconds, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


#: Runs that are timed: enough for a median, few enough for a first start.
_TIMED_RUNS = 7
_TIMING_S = 0.5


class GoldenResult(Value, frozen=True):
    """How the golden cases were answered.

    Attributes:
        passed: Cases answered as the reference did.
        total: Cases asked.
        min_margin: Smallest margin among the answers, of embeddings among themselves; None where
            the task has none.
        max_difference: Largest difference from the reference, in the terms of the cases'
        tolerance.
        wrong: One line for each case that does not hold.
        run_ms: Median time of one run of the model on the first case, milliseconds; None where a
            case does not hold: speed is of no interest then.
    """

    passed: int
    total: int
    min_margin: Number | None
    max_difference: Number
    wrong: tuple[str, ...] = ()
    run_ms: float | None = None


def check_golden(engine: Engine, model: Model) -> GoldenResult:
    """Ask every golden case of ``model``, and time the engine if all of them hold.

    Raises:
        EdgeError: the runtime failed, or a case's member does not match its hash.
        ValueError: there are no golden cases.
    """
    golden = model.manifest.golden
    if golden is None or not golden.cases:
        raise ValueError("there are no golden cases to prove anything by")
    cases = golden.cases
    alone = _one_by_one(engine, model, cases)
    wrong = tuple(
        f"{case.input.path}: {answer.wrong or other}"
        for case, answer, other in zip(cases, alone, _in_batches(engine, model, cases), strict=True)
        if answer.wrong or other
    )
    margins = [answer.margin for answer in alone if answer.margin is not None]
    return GoldenResult(
        passed=len(cases) - len(wrong),
        total=len(cases),
        min_margin=number(min(margins)) if margins else None,
        max_difference=number(max(answer.difference for answer in alone)),
        wrong=wrong,
        run_ms=None if wrong else _median_run_ms(engine, _case_feed(engine, model, cases[0])),
    )


def read_arrays(data: bytes) -> Arrays:
    """Named arrays out of ``.npz`` bytes; pickled objects are refused.

    Raises:
        ValueError: the bytes are not an ``.npz`` of plain arrays.
    """
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as held:
            return {name: held[name] for name in held.files}
    except (AttributeError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"not an .npz of plain arrays ({error})") from error


def _case_feed(engine: Engine, model: Model, case: GoldenCase) -> Arrays:
    data = model.read(case.input.path)
    return engine.check(read_arrays(data)) if case.medium == "tensors" else engine.feed(data)


def _one_by_one(
    engine: Engine, model: Model, cases: Sequence[GoldenCase]
) -> list[GoldenComparison]:
    """Each case in a run of its own."""
    compared: dict[int, GoldenComparison] = {}
    decided: dict[int, object] = {}
    for i, case in enumerate(cases):
        feed = _case_feed(engine, model, case)
        outputs = engine.run(feed)
        if case.record is None:
            compared[i] = _compare_outputs(model, case, outputs)
            continue
        try:
            decided[i] = engine.finish(outputs, feed)[0]
        except ProcessingError as error:  # NaN scores, or outputs of another shape than declared
            compared[i] = GoldenComparison(wrong=error.message, difference=float("inf"))
    compared |= zip(decided, _compare_decisions(model, cases, decided), strict=True)
    return [compared[i] for i in range(len(cases))]


def _compare_outputs(model: Model, case: GoldenCase, outputs: Arrays) -> GoldenComparison:
    if case.outputs is None:
        return GoldenComparison(wrong="the case holds no answer to compare with")
    fields = model.manifest.golden.fields if model.manifest.golden else ()
    wanted = read_arrays(model.read(case.outputs.path))
    return compare_arrays(wanted, outputs, case.tolerance, fields)


def _compare_decisions(
    model: Model, cases: Sequence[GoldenCase], answers: Mapping[int, object]
) -> list[GoldenComparison]:
    """Compare the answers to those cases that have a record, by the cases' places."""
    asked = [cases[i] for i in answers]
    records = [
        _reference_record(model, case, case.record) for case in asked if case.record is not None
    ]
    rule = tasks.decision_rule(model.manifest.task, model.manifest.processing)
    tolerances = [case.tolerance for case in asked]
    return compare_records(records, list(answers.values()), tolerances, rule)


def _reference_record(model: Model, case: GoldenCase, record: Record) -> Record:
    """The reference's decision, with the arrays that lie apart."""
    if case.outputs is None:
        return record
    return tasks.attach_arrays(record, read_arrays(model.read(case.outputs.path)))


def _in_batches(engine: Engine, model: Model, cases: Sequence[GoldenCase]) -> list[str]:
    """Why each case does not hold in a batch, the other way in which `predict` runs the model."""
    faults = [""] * len(cases)
    places = [i for i, case in enumerate(cases) if case.record and case.medium != "tensors"]
    if engine.largest == 1 or len(places) < 2:
        return faults
    try:
        answers = engine.many([model.read(cases[i].input.path) for i in places])
    except ProcessingError as error:
        return [f"in a batch: {error.message}"] * len(cases)
    decided = dict(zip(places, answers, strict=True))
    for i, answer in zip(places, _compare_decisions(model, cases, decided), strict=True):
        faults[i] = f"in a batch: {answer.wrong}" if answer.wrong else ""
    return faults


def _median_run_ms(engine: Engine, feed: Arrays) -> float:
    """Median wall time of a few runs, milliseconds; the proof itself was the warm-up."""
    times = time_runs(partial(engine.run, feed), _TIMING_S, at_least=1, at_most=_TIMED_RUNS)
    return statistics.median(times) * 1e3
