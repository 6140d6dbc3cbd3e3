"""`make_golden`: inputs with the reference's answers, chosen so that no chip may answer otherwise.

A case is kept where the reference is at least three times as far from flipping as the worst error
that the gate has seen, so that a flip on a device is a fault and never bad luck. Cases are drawn,
or come from the folder that the user names for it; data given for validation never becomes one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgeserve import decisions, jobs
from edgeserve.data import Feed, Reader, load_data, read_arrays, write_arrays
from edgeserve.data.reading import RawInput
from edgeserve.decisions import DECIDED_MARGIN
from edgeserve.errors import BackendError, ValidateError
from edgeserve.files import LOCAL, describe, staged
from edgeserve.types.artifact import FileEntry
from edgeserve.types.base import number, plain
from edgeserve.types.records import Classification, Record
from edgeserve.types.samples import Golden, GoldenCase
from edgeserve.validate.feeds import in_batches
from edgeserve.validate.fillers import Statistics, fillers
from edgeserve.validate.oracle import Answered, Oracle
from edgeserve.validate.pictures import picture
from edgeserve.validate.request import GoldenRequest
from edgeserve.validate.server import check_reference
from edgeserve.validate.store import load_exported

__all__ = ["SAFETY", "make_golden"]

#: A margin must exceed this many times the error seen.
SAFETY = 3.0

#: Scores may differ by this much at least: another chip rounds otherwise.
_TOLERANCE = 0.01
#: Outputs of the ``tensors`` task likewise, relative to their scale.
_RELATIVE = 1e-3
_MOST_DRAWN = 192
#: Batches without a new class after which enough is enough.
_PATIENCE = 2
_FEWEST = 3
_FIRST_PICTURE = 1000  # not those that the gate compares on
_SEEDS = 8


@dataclass(frozen=True)
class _Candidate:
    """An input and what the reference says to it."""

    thing: str
    raw: RawInput
    suffix: str
    answered: Answered
    record: Record | None

    @property
    def margin(self) -> float:
        """How far from flipping; -1 where there is no decision to rely on."""
        return self.answered.margin if self.record and self.answered.margin is not None else -1.0


def make_golden(request: GoldenRequest) -> Golden:
    """Make golden cases and write them to ``out/golden``.

    Raises:
        DataError: a file of the given folder cannot be used.
        ValidateError: EDGE-VALIDATE-009 no input is decided well enough; and the reference's.
    """
    check_reference(request.reference)
    folder = Path(request.source_folder)
    exported = load_exported(folder)
    with Oracle(exported, folder, request.reference, Path(request.folder)) as oracle:
        if exported.task not in DECIDED_MARGIN:
            return _written(request, _tensor_cases(request, oracle), oracle)
        wanted = max(SAFETY * plain(request.error), DECIDED_MARGIN[exported.task])
        if request.given is not None:
            found = list(_given(request, oracle))
            chosen = [candidate for candidate in found if candidate.margin > wanted]
            asked = len(found)
        else:
            chosen = _choose(_drawn(request, oracle, wanted), request.count, wanted)
            asked = request.count
    if not chosen:
        raise _none(request, wanted)
    return _written(request, chosen, oracle, _note(len(chosen), asked, wanted))


def _none(request: GoldenRequest, wanted: float) -> ValidateError:
    what = f"inputs of {request.given}" if request.given else "generated inputs"
    return ValidateError(
        "EDGE-VALIDATE-009", "golden cases", wanted=f"a decision with a margin above {wanted:.3g}",
        got=f"none on {what}",
        hint="give --golden DIR: inputs that the model is sure of and that may be shipped",
    )  # fmt: skip


def _note(kept: int, asked: int, wanted: float) -> str:
    if kept >= asked:
        return ""
    few = "; give better ones with --golden DIR" if kept < _FEWEST else ""
    return f"{kept} of {asked} inputs are decided by a margin above {wanted:.3g}{few}"


def _drawn(request: GoldenRequest, oracle: Oracle, wanted: float) -> list[_Candidate]:
    """Generated candidates, until there are enough good ones of enough classes."""
    found: list[_Candidate] = []
    stale, seen = 0, 0
    for batch in in_batches(_MOST_DRAWN):
        raws = list(_generated(request, oracle, batch))
        if not raws:
            break
        found += _ask(oracle, raws)
        good = [candidate for candidate in found if candidate.margin > wanted]
        classes = len({_class(candidate) for candidate in good})
        stale, seen = (0, classes) if classes > seen else (stale + 1, seen)
        jobs.progress("golden cases", min(classes, request.count), request.count)
        if classes >= request.count or (len(good) >= request.count and stale >= _PATIENCE):
            break
    return found


def _generated(
    request: GoldenRequest, oracle: Oracle, batch: range
) -> Iterator[tuple[str, RawInput, str]]:
    """Drawn pictures; for a model that takes tensors, feeds at its example's statistics."""
    if oracle.processor.medium == "image":
        for i in batch:
            yield f"picture {i}", picture(_FIRST_PICTURE + i, request.seed), ".png"
    elif batch.start == 0:
        yield from _feeds(request, oracle)


def _feeds(request: GoldenRequest, oracle: Oracle) -> Iterator[tuple[str, RawInput, str]]:
    exported = oracle.exported
    example = read_arrays(Path(request.source_folder) / exported.examples.path)
    statistics = {name: Statistics() for name in example}
    for name, array in example.items():
        statistics[name].add(array)
    yield "example", example, ".npz"
    for seed in range(_SEEDS):
        for name, feed in fillers(exported.signature, example, statistics, request.seed + seed):
            if name.startswith("random"):
                yield f"{name} of seed {seed}", feed, ".npz"


def _given(request: GoldenRequest, oracle: Oracle) -> Iterator[_Candidate]:
    samples = load_data(Path(request.given or ""), oracle.exported.signature)
    with Reader(oracle.exported.signature) as reader:
        for batch in in_batches(len(samples)):
            some = [samples[i] for i in batch]
            suffixes = [".npz" if s.row is not None else _suffix(s.path or ".txt") for s in some]
            raws = [reader.read(sample) for sample in some]
            yield from _ask(oracle, list(zip([s.id for s in some], raws, suffixes, strict=True)))
            jobs.progress("golden cases", batch.stop, len(samples))


def _suffix(path: str) -> str:
    return Path(path).suffix.lower()


def _ask(oracle: Oracle, inputs: Sequence[tuple[str, RawInput, str]]) -> list[_Candidate]:
    """What the reference says; a decision counts where the exported program gives the same."""
    things = [thing for thing, _, _ in inputs]
    raws = [raw for _, raw, _ in inputs]
    feeds = [oracle.feed(raw, thing) for thing, raw, _ in inputs]
    programs = [oracle.of_program(outputs) for outputs in oracle.run(feeds)]
    answers = oracle.answer(things, raws, feeds) if oracle.is_server else programs
    return [
        _Candidate(thing, raw, suffix, answered, _agreed(answered, program))
        for (thing, raw, suffix), answered, program in zip(inputs, answers, programs, strict=True)
    ]


def _agreed(answered: Answered, program: Answered) -> Record | None:
    """The decision to hold a device to; its scores are the program's where a server tells none."""
    if answered.record is None or program.record is None:
        return None
    if not decisions.same(answered.record, program.record):
        return None
    return answered.record if answered.scored else program.record


def _class(candidate: _Candidate) -> object:
    record = candidate.record
    return (record.index, record.label) if isinstance(record, Classification) else None


def _choose(found: Sequence[_Candidate], count: int, wanted: float) -> list[_Candidate]:
    """The best of each class first, best margin first; then the best of the rest."""
    good = sorted((c for c in found if c.margin > wanted), key=lambda c: -c.margin)
    seen: set[object] = set()
    firsts: list[_Candidate] = []
    rest: list[_Candidate] = []
    for candidate in good:
        (rest if _class(candidate) in seen else firsts).append(candidate)
        seen.add(_class(candidate))
    return (firsts + rest)[:count]


def _tensor_cases(request: GoldenRequest, oracle: Oracle) -> list[_Candidate]:
    """For the ``tensors`` task: every given row, or the example and some random inputs."""
    if request.given is not None:
        return list(_given(request, oracle))
    found: list[_Candidate] = []
    for thing, raw, suffix in _feeds(request, oracle):
        if len(found) == request.count:
            break
        try:
            found += _ask(oracle, [(thing, raw, suffix)])
        except BackendError:  # the program refuses this one: another will do
            continue
    return found


def _written(
    request: GoldenRequest, chosen: Sequence[_Candidate], oracle: Oracle, note: str = ""
) -> Golden:
    """Write the cases as ``golden/001.png`` and so on; paths are relative to the workspace."""
    error = SAFETY * plain(request.error)
    decides = oracle.exported.task in DECIDED_MARGIN
    with staged(Path(request.out) / "golden") as stage:
        cases = []
        for i, candidate in enumerate(chosen, 1):
            name = f"{i:03d}"
            LOCAL.write(stage / f"{name}{candidate.suffix}", _bytes(candidate.raw))
            outputs = None
            if not decides:
                LOCAL.write(stage / f"{name}.out.npz", write_arrays(candidate.answered.outputs))
                outputs = _entry(stage, f"{name}.out.npz")
            cases.append(
                GoldenCase(
                    input=_entry(stage, f"{name}{candidate.suffix}"),
                    medium=oracle.processor.medium,
                    record=candidate.record,
                    outputs=outputs,
                    margin=number(candidate.margin) if decides else 0.0,
                    tolerance=max(error, _TOLERANCE if decides else _RELATIVE),
                )
            )
    return Golden(
        origin="generated" if request.given is None else "given", cases=tuple(cases), note=note
    )


def _bytes(raw: RawInput) -> bytes:
    if isinstance(raw, dict):
        feed: Feed = raw
        return write_arrays(feed)
    return raw.encode() if isinstance(raw, str) else raw


def _entry(stage: Path, name: str) -> FileEntry:
    entry = describe(stage, name)
    return FileEntry(path=f"golden/{name}", size=entry.size, sha256=entry.sha256)
