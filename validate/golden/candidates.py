"""Inputs that golden cases are chosen from, with what the reference says to them.

They are drawn while the reference is being asked anyway, and kept with its answers: starting its
engine a second time costs more than all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgeserve import jobs, tasks
from edgeserve.backends.batching import in_batches
from edgeserve.data import Feed, read_arrays, write_arrays
from edgeserve.data.reader import RawInput
from edgeserve.errors import BackendError
from edgeserve.files import LOCAL, describe
from edgeserve.tasks import DecisionRule
from edgeserve.tasks.classification import Classification
from edgeserve.tasks.embedding import Embedding
from edgeserve.types.artifact import FileEntry
from edgeserve.types.base import number, plain
from edgeserve.types.records import Record
from edgeserve.types.source import Exported
from edgeserve.types.tensors import Signature
from edgeserve.validate.inputs.generate import TensorInputs, mask_inputs
from edgeserve.validate.inputs.media import (
    audio_range,
    paraphrases,
    synthetic_audio,
    synthetic_image,
)
from edgeserve.validate.inputs.ranges import InputStatistics
from edgeserve.validate.reference.reference import Reference, ReferenceAnswer
from edgeserve.validate.reference_store import read_verified, with_stored_arrays
from edgeserve.validate.requests import Answers, StoredCandidate

#: A margin must exceed this many times the error seen.
SAFETY_FACTOR = 3.0

_MAX_CANDIDATES = 192
_MIN_CANDIDATES = 32
#: Batches without a new class after which enough is enough.
_PATIENCE = 1
_FIRST_NUMBER = 1000  # not those that the gate compares on
_SEEDS = 8
_FILE = "candidates.npz"

_Asked = tuple[str, RawInput, str]
#: The input of each number.
_Make = Callable[[int], _Asked]


@dataclass(frozen=True)
class GoldenCandidate:
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
        drift: How far the exported program's answer is from ``record``, as `tasks.gap` counts it;
            of an embedding 0, see ``program``.
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
    drift: float = 0.0
    error: float | None = None
    answers: tuple[Embedding | None, ...] = ()


def generate_candidates(
    oracle: Reference, folder: Path, count: int, wanted: float, seed: int, least: float | None
) -> list[GoldenCandidate]:
    """Generate inputs and ask the reference, until there are enough good ones of enough classes.

    Args:
        oracle: The reference.
        folder: The folder of ``source.json``.
        count: How many cases are to be made of them.
        wanted: The margin above which an input is good.
        seed: Of what is generated.
        least: A margin that may do as well: once `_MIN_CANDIDATES` inputs have been drawn, so many
            with this margin are enough. None: none does.
    """
    medium = oracle.processor.medium
    if medium in ("image", "audio"):
        make = _media_source(oracle.exported, seed, medium)
        return _media_candidates(oracle, count, wanted, least, make)
    if medium == "text":
        texts = [text for both in paraphrases() for text in both]
        return ask_reference(oracle, [(f"text {i}", text, ".txt") for i, text in enumerate(texts)])
    decides = tasks.decides(oracle.exported.task)
    return _tensor_candidates(oracle, folder, _SEEDS * count if decides else count, seed)


def _media_source(exported: Exported, seed: int, medium: str) -> _Make:
    if medium == "image":
        return lambda i: (f"picture {i}", synthetic_image(_FIRST_NUMBER + i, seed), ".png")
    of = audio_range(exported)
    return lambda i: (f"sound {i}", synthetic_audio(_FIRST_NUMBER + i, seed, of), ".wav")


def _media_candidates(
    oracle: Reference, count: int, wanted: float, least: float | None, make: _Make
) -> list[GoldenCandidate]:
    found: list[GoldenCandidate] = []
    stale, seen = 0, 0
    for batch in in_batches(_MAX_CANDIDATES):
        found += ask_reference(oracle, [make(i) for i in batch])
        good = [each for each in found if each.margin > wanted]
        classes = len({tasks.class_of(each.record) for each in good})
        stale, seen = (0, classes) if classes > seen else (stale + 1, seen)
        jobs.progress("golden cases", min(classes, count), count)
        if classes >= count or (len(good) >= count and stale >= _PATIENCE):
            break
        usable = [each for each in found if least is not None and each.margin > least]
        embeds = isinstance(found[0].record, Embedding)  # whose margins are known among all
        if len(found) >= _MIN_CANDIDATES and (embeds or len(usable) >= count):
            break
    return found


def _tensor_candidates(
    oracle: Reference, folder: Path, count: int, seed: int
) -> list[GoldenCandidate]:
    """Feeds at the example's statistics; those that the program refuses are passed over."""
    found: list[GoldenCandidate] = []
    for asked in _feeds(oracle, folder, seed):
        if len(found) == count:
            break
        try:
            found += ask_reference(oracle, [asked])
        except BackendError:
            continue
    return found


def _feeds(oracle: Reference, folder: Path, seed: int) -> Iterator[_Asked]:
    exported = oracle.exported
    example = read_arrays(folder / exported.examples.path)
    statistics = {name: InputStatistics() for name in example}
    for name, array in example.items():
        statistics[name].add(array)
    yield "example", {s.name: example[s.name] for s in exported.signature.inputs}, ".npz"
    masks, bounds = mask_inputs(exported, example), oracle.session.index_bounds()
    for each in range(seed, seed + _SEEDS):
        made = TensorInputs(exported.signature, example, statistics, each, masks, bounds)
        for name, feed in made.edges():
            if name.startswith("random"):
                yield f"{name} of seed {each - seed}", feed, ".npz"


def ask_reference(oracle: Reference, inputs: Sequence[_Asked]) -> list[GoldenCandidate]:
    """What the reference says; a decision counts where the exported program gives the same."""
    things, raws, suffixes = zip(*inputs, strict=True)
    feeds = [oracle.feed(raw, thing) for thing, raw, _ in inputs]
    answers = oracle.answer(things, raws, feeds)
    return [
        GoldenCandidate(
            thing,
            raw,
            suffix,
            record := _agreed_record(oracle.rule, answered),
            _margin(record, answered),
            answered.program if isinstance(record, Embedding) else None,
            answered.outputs,
            _dynamic_size(oracle.exported, feed),
            0.0 if record is None else answer_drift(oracle.rule, record, answered.program),
        )
        for thing, raw, suffix, answered, feed in zip(
            things, raws, suffixes, answers, feeds, strict=True
        )
    ]


def _agreed_record(rule: DecisionRule, answered: ReferenceAnswer) -> Record | None:
    """The decision to hold a device to; its scores are the program's where a server tells none."""
    record, program = answered.record, answered.program
    if record is None or program is None:
        return None
    if isinstance(record, Embedding):  # whether both agree is known among the others only
        return record
    held = record if answered.scored else program
    if decides_otherwise(rule, record, program) or not _is_close(rule, held, program):
        return None
    return held


#: Boxes and poses of a golden case overlap by so much at least, on average.
_LEAST_OVERLAP = 0.9


def answer_drift(rule: DecisionRule, record: Record, answer: Record | None) -> float:
    """How far an answer is from the record; infinite where a golden case would not allow it."""
    if isinstance(record, Embedding):
        return 0.0
    if not isinstance(answer, type(record)):
        return float("inf")
    units, of = tasks.compare(rule, record, answer), tasks.schema(rule.task)
    flipped = of.most_flips is not None and units.flips > of.most_flips * units.n
    apart = units.figures.get(of.overlap, 1.0) < _LEAST_OVERLAP
    return float("inf") if flipped or apart else tasks.gap(rule, record, answer)


def _is_close(rule: DecisionRule, record: Record, program: Record) -> bool:
    """Whether the exported program answers so closely that artifacts can hold the case as well."""
    return answer_drift(rule, record, program) <= tasks.schema(rule.task).most_drift / 2


def decides_otherwise(
    rule: DecisionRule, record: Record, answer: Record | None, error: float = 0.0
) -> bool:
    """Whether an answer flips a decision; of many decisions, one whose margin exceeds ``error``."""
    units = tasks.compare(rule, record, answer, max(rule.sure, error))
    return bool(units.decided_flips if tasks.has_many_decisions(rule.task) else units.flips)


def _margin(record: Record | None, answered: ReferenceAnswer) -> float:
    if isinstance(record, Embedding):
        return 0.0
    return answered.margin if record is not None and answered.margin is not None else -1.0


def _dynamic_size(exported: Exported, feed: Feed) -> int:
    """How large the free dimensions are, as one number."""
    batch = exported.signature.batch_dim
    sizes = (
        size
        for spec in exported.signature.inputs
        for dim, size in zip(spec.shape, feed[spec.name].shape, strict=True)
        if isinstance(dim, str) and dim != batch
    )
    return max(sizes, default=0)


def raw_bytes(raw: RawInput) -> bytes:
    """A raw input as the bytes of a file."""
    if isinstance(raw, dict):
        return write_arrays(raw)
    return raw.encode() if isinstance(raw, str) else raw


def save_candidates(
    drawn: Sequence[GoldenCandidate], stage: Path
) -> tuple[tuple[StoredCandidate, ...], FileEntry | None]:
    """Write inputs, and outputs where many things are decided or none, into one ``.npz``."""
    if not drawn:
        return (), None
    arrays: Feed = {}
    for i, each in enumerate(drawn):
        arrays[f"{i}.raw"] = np.frombuffer(raw_bytes(each.raw), np.uint8)
        held = tasks.sidecar_arrays(each.record)
        arrays |= {f"{i}.{name}": array for name, array in held.items()}
        if not isinstance(each.record, Classification | Embedding):
            arrays |= {f"{i}.out.{j}": array for j, array in enumerate(each.outputs.values())}
    LOCAL.write(stage / _FILE, write_arrays(arrays))
    kept = tuple(
        StoredCandidate(
            thing=each.thing,
            suffix=each.suffix,
            margin=number(each.margin),
            record=None if each.record is None else tasks.detach_arrays(each.record),
            program=each.program,
            size=each.size,
            drift=number(each.drift),
        )
        for each in drawn
    )
    return kept, describe(stage, _FILE)


def load_candidates(answers: Answers, folder: Path, signature: Signature) -> list[GoldenCandidate]:
    """Read the candidates that `save_candidates` wrote.

    Raises:
        ValidateError: EDGE-VALIDATE-008, the file is not the one that was written.
    """
    if answers.candidates_file is None:
        return []
    arrays = read_verified(folder, answers.candidates_file)
    names = [spec.name for spec in signature.outputs]
    return [
        GoldenCandidate(
            thing=each.thing,
            raw=arrays[f"{i}.raw"].tobytes(),
            suffix=each.suffix,
            record=with_stored_arrays(each.record, i, arrays),
            margin=plain(each.margin),
            program=each.program,
            size=each.size,
            drift=plain(each.drift),
            outputs={
                n: arrays[f"{i}.out.{j}"] for j, n in enumerate(names) if f"{i}.out.{j}" in arrays
            },
        )
        for i, each in enumerate(answers.candidates)
    ]
