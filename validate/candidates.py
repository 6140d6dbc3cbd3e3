"""Inputs that golden cases are chosen from, with what the reference says to them.

They are drawn while the reference is being asked anyway, and kept with its answers: starting its
engine a second time costs more than all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgeserve import decisions, jobs
from edgeserve.data import Feed, read_arrays, write_arrays
from edgeserve.data.reading import RawInput
from edgeserve.decisions import DECIDED_MARGIN, Rule
from edgeserve.errors import BackendError
from edgeserve.files import LOCAL, describe
from edgeserve.types.artifact import FileEntry
from edgeserve.types.base import number, plain
from edgeserve.types.records import Classification, Detection, Embedding, Record
from edgeserve.types.source import Exported
from edgeserve.types.tensors import Signature
from edgeserve.validate.feeds import in_batches
from edgeserve.validate.fillers import Statistics, fillers
from edgeserve.validate.generated import masks_of
from edgeserve.validate.oracle import Answered, Oracle
from edgeserve.validate.pictures import picture
from edgeserve.validate.request import Answers, Candidate
from edgeserve.validate.sounds import range_of, sound
from edgeserve.validate.store import filled, verified
from edgeserve.validate.texts import pairs

__all__ = ["SAFETY", "Drawn", "ask", "class_of", "draw", "keep", "raw_bytes", "recall"]

#: A margin must exceed this many times the error seen.
SAFETY = 3.0

_MOST_DRAWN = 192
_SOME = 32
#: Batches without a new class after which enough is enough.
_PATIENCE = 1
_FIRST = 1000  # not those that the gate compares on
_SEEDS = 8
_FILE = "candidates.npz"

_Asked = tuple[str, RawInput, str]
#: The input of each number.
_Make = Callable[[int], _Asked]


@dataclass(frozen=True)
class Drawn:
    """An input and what the reference says to it.

    Attributes:
        thing: What to call it.
        raw: The raw input.
        suffix: Of a file that holds it.
        record: The decision to hold a device to; None where there is none to rely on.
        margin: How far it is from flipping; -1 where there is no decision; of an embedding 0.
        program: Of an embedding, the exported program's.
        outputs: Output tensors.
        size: Length of the longest dynamic dimension, batch left out.
        error: How far an artifact moves the decision on this input; None: not known, the largest
            error on any input stands for it.
        answers: What each artifact answered, where it was asked and embeds.
    """

    thing: str
    raw: RawInput
    suffix: str
    record: Record | None
    margin: float
    program: Record | None
    outputs: Feed
    size: int
    error: float | None = None
    answers: tuple[Embedding | None, ...] = ()


def draw(
    oracle: Oracle, folder: Path, count: int, wanted: float, seed: int, least: float | None = None
) -> list[Drawn]:
    """Generate inputs and ask the reference, until there are enough good ones of enough classes.

    Args:
        oracle: The reference.
        folder: The folder of ``source.json``.
        count: How many cases are to be made of them.
        wanted: The margin above which an input is good.
        seed: Of what is generated.
        least: A margin that may do as well: once `_SOME` inputs have been drawn, so many with this
            margin are enough. None: none does.
    """
    if oracle.processor.medium == "image":
        make = _of_pictures(seed)
        return _made(oracle, count, wanted, least, make)
    if oracle.processor.medium == "audio":
        make = _of_sounds(oracle.exported, seed)
        return _made(oracle, count, wanted, least, make)
    if oracle.processor.medium == "text":
        texts = [text for both in pairs() for text in both]
        return ask(oracle, [(f"text {i}", text, ".txt") for i, text in enumerate(texts)])
    decides = oracle.exported.task in DECIDED_MARGIN
    return _rows(oracle, folder, _SEEDS * count if decides else count, seed)


def _of_pictures(seed: int) -> _Make:
    return lambda i: (f"picture {i}", picture(_FIRST + i, seed), ".png")


def _of_sounds(exported: Exported, seed: int) -> _Make:
    of = range_of(exported)
    return lambda i: (f"sound {i}", sound(_FIRST + i, seed, of), ".wav")


def _made(
    oracle: Oracle, count: int, wanted: float, least: float | None, make: _Make
) -> list[Drawn]:
    found: list[Drawn] = []
    stale, seen = 0, 0
    for batch in in_batches(_MOST_DRAWN):
        found += ask(oracle, [make(i) for i in batch])
        good = [each for each in found if each.margin > wanted]
        classes = len({class_of(each.record) for each in good})
        stale, seen = (0, classes) if classes > seen else (stale + 1, seen)
        jobs.progress("golden cases", min(classes, count), count)
        if classes >= count or (len(good) >= count and stale >= _PATIENCE):
            break
        usable = [each for each in found if least is not None and each.margin > least]
        embeds = isinstance(found[0].record, Embedding)  # whose margins are known among all
        if len(found) >= _SOME and (embeds or len(usable) >= count):
            break
    return found


def _rows(oracle: Oracle, folder: Path, count: int, seed: int) -> list[Drawn]:
    """Feeds at the example's statistics; those that the program refuses are passed over."""
    found: list[Drawn] = []
    for asked in _feeds(oracle.exported, folder, seed):
        if len(found) == count:
            break
        try:
            found += ask(oracle, [asked])
        except BackendError:
            continue
    return found


def _feeds(exported: Exported, folder: Path, seed: int) -> Iterator[_Asked]:
    example = read_arrays(folder / exported.examples.path)
    statistics = {name: Statistics() for name in example}
    for name, array in example.items():
        statistics[name].add(array)
    yield "example", {s.name: example[s.name] for s in exported.signature.inputs}, ".npz"
    for each in range(seed, seed + _SEEDS):
        for name, feed in fillers(
            exported.signature, example, statistics, each, masks_of(exported)
        ):
            if name.startswith("random"):
                yield f"{name} of seed {each - seed}", feed, ".npz"


def ask(oracle: Oracle, inputs: Sequence[_Asked]) -> list[Drawn]:
    """What the reference says; a decision counts where the exported program gives the same."""
    things, raws, suffixes = zip(*inputs, strict=True)
    feeds = [oracle.feed(raw, thing) for thing, raw, _ in inputs]
    answers = oracle.answer(things, raws, feeds)
    return [
        Drawn(
            thing,
            raw,
            suffix,
            record := _agreed(oracle.rule, answered),
            _margin(record, answered),
            answered.program if isinstance(record, Embedding) else None,
            answered.outputs,
            _size(oracle.exported, feed),
        )
        for thing, raw, suffix, answered, feed in zip(
            things, raws, suffixes, answers, feeds, strict=True
        )
    ]


def _agreed(rule: Rule, answered: Answered) -> Record | None:
    """The decision to hold a device to; its scores are the program's where a server tells none."""
    record, program = answered.record, answered.program
    if record is None or program is None:
        return None
    if isinstance(record, Embedding):  # whether both agree is known among the others only
        return record
    units = decisions.compare(rule, record, program)
    if units.decided_flips if decisions.is_many(rule.task) else units.flips:
        return None
    return record if answered.scored else program


def _margin(record: Record | None, answered: Answered) -> float:
    if isinstance(record, Embedding):
        return 0.0
    return answered.margin if record is not None and answered.margin is not None else -1.0


def _size(exported: Exported, feed: Feed) -> int:
    """How large the free dimensions are, as one number."""
    batch = exported.signature.batch_dim
    return max(
        (
            size
            for spec in exported.signature.inputs
            for dim, size in zip(spec.shape, feed[spec.name].shape, strict=True)
            if isinstance(dim, str) and dim != batch
        ),
        default=0,
    )


def class_of(record: Record | None) -> object:
    """What sets classes apart; the same for everything else."""
    if isinstance(record, Detection):
        return record.labels[int(record.scores.argmax())] if record.labels else None
    return (record.index, record.label) if isinstance(record, Classification) else None


def raw_bytes(raw: RawInput) -> bytes:
    """A raw input as the bytes of a file."""
    if isinstance(raw, dict):
        return write_arrays(raw)
    return raw.encode() if isinstance(raw, str) else raw


def keep(drawn: Sequence[Drawn], stage: Path) -> tuple[tuple[Candidate, ...], FileEntry | None]:
    """Write inputs, and outputs where many things are decided or none, into one ``.npz``."""
    if not drawn:
        return (), None
    arrays: Feed = {}
    for i, each in enumerate(drawn):
        arrays[f"{i}.raw"] = np.frombuffer(raw_bytes(each.raw), np.uint8)
        held = decisions.held_apart(each.record)
        arrays |= {f"{i}.{name}": array for name, array in held.items()}
        if not isinstance(each.record, Classification | Embedding):
            arrays |= {f"{i}.out.{j}": array for j, array in enumerate(each.outputs.values())}
    LOCAL.write(stage / _FILE, write_arrays(arrays))
    kept = tuple(
        Candidate(
            thing=each.thing,
            suffix=each.suffix,
            margin=number(each.margin),
            record=None if each.record is None else decisions.emptied(each.record),
            program=each.program,
            size=each.size,
        )
        for each in drawn
    )
    return kept, describe(stage, _FILE)


def recall(answers: Answers, folder: Path, signature: Signature) -> list[Drawn]:
    """What `keep` wrote.

    Raises:
        ValidateError: EDGE-VALIDATE-008, the file is not the one that was written.
    """
    if answers.candidates_file is None:
        return []
    arrays = verified(folder, answers.candidates_file)
    names = [spec.name for spec in signature.outputs]
    return [
        Drawn(
            thing=each.thing,
            raw=arrays[f"{i}.raw"].tobytes(),
            suffix=each.suffix,
            record=filled(each.record, i, arrays),
            margin=plain(each.margin),
            program=each.program,
            size=each.size,
            outputs={
                n: arrays[f"{i}.out.{j}"] for j, n in enumerate(names) if f"{i}.out.{j}" in arrays
            },
        )
        for i, each in enumerate(answers.candidates)
    ]
