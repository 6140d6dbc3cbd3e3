"""`Engine`: a loaded session between the processing before it and after it, one input or many.

The session runs behind an `Adapter`: whatever sizes and integer types its file is fixed to, it is
fed and answers as the source's signature declares.

The golden check answers one question: does this engine decide as the server does, on the inputs
shipped for it?
"""

from __future__ import annotations

import io
import statistics
import zipfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeVar

import numpy as np

from edgeserve import backends, tasks
from edgeserve.backends import Session, batching
from edgeserve.backends.adapter import Adapter, Arrays
from edgeserve.bundle import Model
from edgeserve.durations import time_runs
from edgeserve.errors import BackendError, EdgeError, ProcessingError, WrapperError, revive
from edgeserve.golden_compare import GoldenComparison, compare_arrays, compare_records
from edgeserve.processing import Processor, Raw
from edgeserve.types.base import Number, Value, number
from edgeserve.types.records import Record, Runtime, Tensors
from edgeserve.types.samples import GoldenCase
from edgeserve.types.tensors import Signature
from edgeserve.verified_files import CHANGED

if TYPE_CHECKING:
    from edgeserve.wrapper.plans import ExecutionPlan

__all__ = [
    "Arrays",
    "Engine",
    "GoldenResult",
    "ProbeOutcome",
    "ProbeState",
    "check_golden",
    "open_session",
    "processor",
    "read_arrays",
    "zero_feed",
]

X = TypeVar("X")
Y = TypeVar("Y")

#: Runs that are timed: enough for a median, few enough for a first start.
_TIMED_RUNS = 7
_TIMING_S = 0.5
#: Times that files which change while they are loaded are taken anew.
_LOADS = 10
#: A dynamic size that a feed of zeros takes, within its range: short texts, small batches.
_TYPICAL_SIZE = 64
#: No batch is made larger than this: on processors the gain ends at 4, and memory grows with it.
_MAX_BATCH = 8


class Engine:
    """Answers raw inputs and named tensors; threads may share it.

    Attributes:
        check: Named tensors of a caller made into a feed of the signature's dtypes (`InputError`).
        run: One run of the model, batched feed to batched outputs, both of the source's signature.
        finish: Batched outputs, and their feed, to one record a sample.
        largest: Samples that go through the model together at most.
    """

    def __init__(self, session: Session, processor: Processor, signature: Signature) -> None:
        self.session = session
        self.check, self.finish = processor.check_feed, processor.finish
        self.run = Adapter(session, signature, processor.padding).run
        self._prepare, self._stack = processor.prepare, processor.batch
        self._of_text = processor.medium == "text"
        self._smallest, high = batching.batch_range(signature)
        self.largest = max(self._smallest, min(high, _MAX_BATCH))
        self._stacks = signature.batch_dim is not None

    def feed(self, raw: Raw) -> Arrays:
        """The batched feed of one raw input.

        Raises:
            InputError: it cannot be read, or the model's processing does not accept it.
        """
        return self._batch([self._prepare(raw)])

    def named(self, feed: Mapping[str, np.ndarray]) -> Arrays:
        """Run named tensors as they are: no processing before or after.

        Raises:
            InputError: a tensor is missing, unknown, or not of the signature's dtype and shape.
        """
        return self.run(self.check(feed))

    def one(self, raw: Raw) -> Record | Tensors:
        """Answer one raw input (errors as `feed`)."""
        feed = self.feed(raw)
        return self.finish(self.run(feed), feed)[0]

    def many(self, raws: Sequence[Raw]) -> list[Record | Tensors]:
        """Answer raw inputs in order, in batches within the model's limits.

        Images are prepared as their batch is filled, so that a long list needs no more memory.
        Texts are sorted by length first, so that no batch is padded more than it must be.

        Raises:
            EdgeError: as `feed`, with the number of the item.
        """
        samples = (_item(i, self._prepare, raw) for i, raw in enumerate(raws))
        if not self._of_text:
            batches = batching.grouped(samples, self.largest, batching.same_shapes)
            return [answer for batch in batches for answer in self._answer(batch)]
        texts = list(samples)
        order = sorted(range(len(texts)), key=lambda i: max(x.size for x in texts[i].values()))
        answers: dict[int, Record | Tensors] = {}
        for batch in batching.in_batches(len(order), self.largest):
            indexes = [order[i] for i in batch]
            answers |= zip(indexes, self._answer([texts[i] for i in indexes]), strict=True)
        return [answers[i] for i in range(len(texts))]

    def many_named(self, feeds: Sequence[Mapping[str, np.ndarray]]) -> list[Arrays]:
        """`named` for each, in order; feeds that differ in the batch axis only share a run."""
        checked = (_item(i, self.check, feed) for i, feed in enumerate(feeds))
        rows = batching.row_count if self._stacks else lambda _: self.largest
        answers: list[Arrays] = []
        for group in batching.grouped(list(checked), self.largest, _differ_in_rows, rows):
            outputs = self.run(batching.join(group))
            sizes = [*map(batching.row_count, group)]
            answers += batching.split(outputs, sizes) if group[1:] else [outputs]
        return answers

    def _answer(self, samples: list[Arrays]) -> list[Record | Tensors]:
        feed = self._batch(samples)
        return self.finish(self.run(feed), feed)[: len(samples)]

    def _batch(self, samples: list[Arrays]) -> Arrays:
        """Stack samples; fewer than the smallest batch are filled up with the last one."""
        return self._stack(samples + [samples[-1]] * (self._smallest - len(samples)))


def _differ_in_rows(one: Arrays, other: Arrays) -> bool:
    return all(one[name].shape[1:] == x.shape[1:] for name, x in other.items())


def _item(i: int, make: Callable[[X], Y], x: X) -> Y:
    """``make(x)``, its error naming the item of the batch."""
    try:
        return make(x)
    except EdgeError as error:
        fields = error.fields() | {"thing": f"item {i}: {error.thing}"}
        raise revive(fields) from error


def processor(model: Model) -> Processor:
    """The processing of an open model.

    Raises:
        ProcessingError: a step or task is not known, or what a step needs is not installed.
        BundleError: an asset's bytes do not match their hash.
    """
    of = model.manifest
    return Processor(of.processing, of.signature, of.task, of.labels, model.read)


def zero_feed(signature: Signature) -> dict[str, np.ndarray]:
    """A feed of zeros (of empty strings) of the smallest batch and otherwise typical sizes."""
    sizes = {
        name: low if name == signature.batch_dim else min(high, max(low, _TYPICAL_SIZE))
        for name, (low, high) in signature.dims.items()
    }
    feed = {}
    for spec in signature.inputs:
        shape = [sizes.get(dim, 1) if isinstance(dim, str) else dim for dim in spec.shape]
        feed[spec.name] = np.zeros(shape, spec.dtype)
    return feed


def open_session(candidate: ExecutionPlan, model: Model) -> Session:
    """Open a candidate.

    Raises:
        WrapperError: EDGE-WRAPPER-007, the runtime took another delegate than the one asked for.
        EdgeError: the runtime refused, or the artifact's bytes do not match their hashes.
    """
    session = _load(candidate, model)
    if session.delegate != candidate.delegate:
        taken = session.delegate
        session.close()
        wanted = f"delegate {candidate.delegate}"
        got = f"{taken}, which the runtime took instead"
        hint = "`edgeserve doctor` says what a delegate needs"
        raise WrapperError("EDGE-WRAPPER-007", candidate.name, wanted=wanted, got=got, hint=hint)
    return session


def _load(candidate: ExecutionPlan, model: Model) -> Session:
    """Load the files that the model gives; those that are changed meanwhile it gives anew.

    Raises:
        BundleError: EDGE-BUNDLE-018, they were changed each time.
    """
    of, threads = candidate.artifact, candidate.threads
    backend, left = backends.get(of.format), _LOADS
    while True:
        left -= 1
        try:
            return backend.load(of, model.local(of), delegate=candidate.delegate, threads=threads)
        except BackendError as error:
            if error.code != CHANGED:
                raise
            if not left:
                hint = "find the program that changes it, or set EDGESERVE_CACHE to another folder"
                fields = error.fields() | {"code": "EDGE-BUNDLE-018", "kind": None, "hint": hint}
                raise revive(fields) from error


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


#: accepted: the proof holds. refused: it does not. failed: an error before there was an answer.
#: crashed, hung: the attempt never came back. busy: another process is still at it. deferred: the
#: machine failed, which says nothing of the candidate. The last two are never kept.
ProbeState = Literal["accepted", "refused", "failed", "crashed", "hung", "busy", "deferred"]


class ProbeOutcome(Value, frozen=True):
    """How one candidate did on the golden cases of this device.

    Attributes:
        key: Which candidate, on what device and with which versions (`edgeserve.wrapper.plans`).
        name: The same for people: "onnx-fp32 on cpu, 2 threads".
        state: See `State`.
        runtime: The engine that answered; None where it never came so far.
        passed: Golden cases answered as the reference did.
        total: Golden cases asked.
        min_margin: Smallest margin among the answers; None where the task has none.
        max_difference: Largest difference from the reference, as the cases' tolerance counts it.
        run_ms: Median time of one run of the model, milliseconds; None where it was not timed.
        reason: Why it is not accepted, in one line; empty when it is.
        tries: How often in a row it was not accepted.
        made: When, seconds since the epoch.
        trouble: Of a deferred one, the fields of the machine's error.
        seal: Of one that is kept, what proves that this user's edgeserve wrote it.
        rehearsed: Whether it also ran zeros of typical sizes, in a process of its own.
        memory: Bytes that this process grew by; 0: not known.
    """

    key: str
    name: str
    state: ProbeState
    runtime: Runtime | None = None
    passed: int = 0
    total: int = 0
    min_margin: Number | None = None
    max_difference: Number = 0.0
    run_ms: float | None = None
    reason: str = ""
    tries: int = 0
    made: float = 0.0
    trouble: dict[str, str | None] | None = None
    seal: str = ""
    rehearsed: bool = False
    memory: int = 0


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
