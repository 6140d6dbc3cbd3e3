"""The golden proof: does this engine decide as the server does, on the inputs shipped for it?"""

from __future__ import annotations

import io
import statistics
import time
import zipfile
from collections.abc import Sequence

import numpy as np

from edgeserve import decisions
from edgeserve.bundle import Model
from edgeserve.errors import ProcessingError
from edgeserve.types.base import Number, Value, number
from edgeserve.types.records import Classification, Record
from edgeserve.types.reports import Limits
from edgeserve.types.samples import GoldenCase
from edgeserve.wrapper.engine import Arrays, Engine

__all__ = ["Proof", "prove", "read_arrays"]

#: Runs that are timed: enough for a median, few enough for a first start.
_RUNS = 7
_SECONDS = 0.5
_FLOOR = Limits().scale_floor


class Proof(Value, frozen=True):
    """How the golden cases were answered.

    Attributes:
        passed: Cases answered as the reference did.
        total: Cases asked.
        min_margin: Smallest margin among the answers; None where the task has none.
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


class _Answer(Value, frozen=True):
    """One case: why it does not hold (empty if it does), the difference, the answer's margin."""

    wrong: str
    difference: float = 0.0
    margin: float | None = None


def prove(engine: Engine, model: Model) -> Proof:
    """Ask every golden case of ``model``, and time the engine if all of them hold.

    Raises:
        EdgeError: the runtime failed, or a case's member does not match its hash.
        ValueError: there are no golden cases.
    """
    golden = model.manifest.golden
    if golden is None or not golden.cases:
        raise ValueError("there are no golden cases to prove anything by")
    answers = [_ask(engine, model, case) for case in golden.cases]
    wrong = tuple(
        f"{case.input.path}: {answer.wrong or other}"
        for case, answer, other in zip(
            golden.cases, answers, _together(engine, model, golden.cases), strict=True
        )
        if answer.wrong or other
    )
    margins = [answer.margin for answer in answers if answer.margin is not None]
    return Proof(
        passed=len(answers) - len(wrong),
        total=len(answers),
        min_margin=number(min(margins)) if margins else None,
        max_difference=number(max(answer.difference for answer in answers)),
        wrong=wrong,
        run_ms=None if wrong else _clock(engine, _feed(engine, model, golden.cases[0])),
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


def _ask(engine: Engine, model: Model, case: GoldenCase) -> _Answer:
    outputs = engine.run(_feed(engine, model, case))
    if case.record is not None:
        try:
            answer = engine.finish(outputs)[0]
        except ProcessingError as error:  # NaN scores, or outputs of another shape than declared
            return _Answer(wrong=error.message, difference=float("inf"))
        return _compare_records(case.record, answer, case.tolerance)
    if case.outputs is not None:
        return _compare_arrays(read_arrays(model.read(case.outputs.path)), outputs, case.tolerance)
    return _Answer(wrong="the case holds no answer to compare with")


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
    for i, answer in zip(places, answers, strict=True):
        record = cases[i].record
        if record and (wrong := _compare_records(record, answer, cases[i].tolerance).wrong):
            told[i] = f"in a batch: {wrong}"
    return told


def _compare_records(reference: Record, answer: object, tolerance: float) -> _Answer:
    """The same decision, and for a classification a score within the tolerance (NaN never is)."""
    if not isinstance(answer, type(reference)):
        return _Answer(wrong=f"wanted a {type(reference).__name__}, got {type(answer).__name__}")
    difference = 0.0
    if isinstance(reference, Classification) and isinstance(answer, Classification):
        difference = abs(answer.score - reference.score)
    same = decisions.same(reference, answer)
    told = ""
    if not (same and difference <= tolerance):
        told = f"wanted {decisions.describe(reference)}, got {decisions.describe(answer)}"
        if same:
            told += f" (scores may differ by {tolerance:g})"
    return _Answer(wrong=told, difference=difference, margin=decisions.margin(answer))


def _compare_arrays(reference: Arrays, outputs: Arrays, tolerance: float) -> _Answer:
    """Each output's largest difference relative to its own scale, which has a floor."""
    worst, told = 0.0, ""
    for name, wanted in reference.items():
        got = outputs.get(name)
        if got is None or got.shape != wanted.shape:
            shape = "nothing" if got is None else f"shape {list(got.shape)}"
            return _Answer(wrong=f"output {name}: wanted shape {list(wanted.shape)}, got {shape}")
        difference = _relative(wanted, got)
        if not difference <= tolerance and not told:
            told = f"output {name}: wanted within {tolerance:g} of its scale, got {difference:g}"
        worst = max(worst, difference)
    return _Answer(wrong=told, difference=worst)


def _relative(wanted: np.ndarray, got: np.ndarray) -> float:
    """Largest difference over the largest wanted value; infinite where one is not finite."""
    if np.array_equal(wanted, got, equal_nan=wanted.dtype.kind in "fc"):
        return 0.0
    if wanted.dtype.kind not in "biufc" or not (np.isfinite(wanted) & np.isfinite(got)).all():
        return float("inf")
    exact, seen = wanted.astype(np.float64), got.astype(np.float64)
    return float(np.abs(exact - seen).max() / max(np.abs(exact).max(), _FLOOR))


def _clock(engine: Engine, feed: Arrays) -> float:
    """Median wall time of a few runs, milliseconds; the proof itself was the warm-up."""
    times: list[float] = []
    end = time.perf_counter() + _SECONDS
    while len(times) < _RUNS and (not times or time.perf_counter() < end):
        start = time.perf_counter()
        engine.run(feed)
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e3
