"""The golden proof: does this engine decide as the server does, on the inputs shipped for it?"""

from __future__ import annotations

import io
import statistics
import time
import zipfile
from collections.abc import Mapping, Sequence

import numpy as np

from edgeserve import decisions
from edgeserve.bundle import Model
from edgeserve.errors import ProcessingError
from edgeserve.types.base import Number, Value, number
from edgeserve.types.records import Record
from edgeserve.types.samples import GoldenCase
from edgeserve.wrapper.compare import Compared, compare_arrays, compare_records
from edgeserve.wrapper.engine import Arrays, Engine

__all__ = ["Proof", "prove", "read_arrays"]

#: Runs that are timed: enough for a median, few enough for a first start.
_RUNS = 7
_SECONDS = 0.5


class Proof(Value, frozen=True):
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


def prove(engine: Engine, model: Model) -> Proof:
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
        for case, answer, other in zip(cases, alone, _together(engine, model, cases), strict=True)
        if answer.wrong or other
    )
    margins = [answer.margin for answer in alone if answer.margin is not None]
    return Proof(
        passed=len(cases) - len(wrong),
        total=len(cases),
        min_margin=number(min(margins)) if margins else None,
        max_difference=number(max(answer.difference for answer in alone)),
        wrong=wrong,
        run_ms=None if wrong else _clock(engine, _feed(engine, model, cases[0])),
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


def _feed(engine: Engine, model: Model, case: GoldenCase) -> Arrays:
    data = model.read(case.input.path)
    return engine.check(read_arrays(data)) if case.medium == "tensors" else engine.feed(data)


def _one_by_one(engine: Engine, model: Model, cases: Sequence[GoldenCase]) -> list[Compared]:
    """Each case in a run of its own."""
    compared: dict[int, Compared] = {}
    decided: dict[int, object] = {}
    for i, case in enumerate(cases):
        feed = _feed(engine, model, case)
        outputs = engine.run(feed)
        if case.record is None:
            compared[i] = _arrays(model, case, outputs)
            continue
        try:
            decided[i] = engine.finish(outputs, feed)[0]
        except ProcessingError as error:  # NaN scores, or outputs of another shape than declared
            compared[i] = Compared(wrong=error.message, difference=float("inf"))
    compared |= zip(decided, _decisions(model, cases, decided), strict=True)
    return [compared[i] for i in range(len(cases))]


def _arrays(model: Model, case: GoldenCase, outputs: Arrays) -> Compared:
    if case.outputs is None:
        return Compared(wrong="the case holds no answer to compare with")
    fields = model.manifest.golden.fields if model.manifest.golden else ()
    wanted = read_arrays(model.read(case.outputs.path))
    return compare_arrays(wanted, outputs, case.tolerance, fields)


def _decisions(
    model: Model, cases: Sequence[GoldenCase], answers: Mapping[int, object]
) -> list[Compared]:
    """Compare the answers to those cases that have a record, by the cases' places."""
    asked = [cases[i] for i in answers]
    records = [_record(model, case, case.record) for case in asked if case.record is not None]
    rule = decisions.rule_of(model.manifest.task, model.manifest.processing)
    tolerances = [case.tolerance for case in asked]
    return compare_records(records, list(answers.values()), tolerances, rule)


def _record(model: Model, case: GoldenCase, record: Record) -> Record:
    """The reference's decision, with the arrays that lie apart."""
    if case.outputs is None:
        return record
    return decisions.filled(record, read_arrays(model.read(case.outputs.path)))


def _together(engine: Engine, model: Model, cases: Sequence[GoldenCase]) -> list[str]:
    """Why each case does not hold in a batch, the other way in which `predict` runs the model."""
    told = [""] * len(cases)
    places = [i for i, case in enumerate(cases) if case.record and case.medium != "tensors"]
    if engine.largest == 1 or len(places) < 2:
        return told
    try:
        answers = engine.many([model.read(cases[i].input.path) for i in places])
    except ProcessingError as error:
        return [f"in a batch: {error.message}"] * len(cases)
    decided = dict(zip(places, answers, strict=True))
    for i, answer in zip(places, _decisions(model, cases, decided), strict=True):
        told[i] = f"in a batch: {answer.wrong}" if answer.wrong else ""
    return told


def _clock(engine: Engine, feed: Arrays) -> float:
    """Median wall time of a few runs, milliseconds; the proof itself was the warm-up."""
    times: list[float] = []
    end = time.perf_counter() + _SECONDS
    while len(times) < _RUNS and (not times or time.perf_counter() < end):
        start = time.perf_counter()
        engine.run(feed)
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e3
