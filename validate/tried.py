"""How far each artifact moves each candidate: what makes an input a golden case for all of them.

The largest error of an artifact over all inputs says little about the inputs that it is sure of: an
8-bit network moves a score by a third where two classes compete, and by a hundredth where one wins.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from edgeserve import backends, decisions, jobs
from edgeserve.data import Feed
from edgeserve.data.reading import RawInput
from edgeserve.errors import BackendError, ProcessingError
from edgeserve.processing import Processor
from edgeserve.types.records import Embedding, Record
from edgeserve.types.source import Exported
from edgeserve.validate.candidates import Drawn
from edgeserve.validate.deciding import decision
from edgeserve.validate.feeds import Runner, feed_of
from edgeserve.validate.request import Placed
from edgeserve.validate.spread import score_gap

__all__ = ["tried"]

#: What a backend says when it cannot run a good file here; it is asked on the device.
_NOT_HERE = ("EDGE-BACKEND-004", "EDGE-BACKEND-005")


def tried(
    found: Sequence[Drawn], artifacts: Sequence[Placed], exported: Exported, processor: Processor
) -> list[Drawn]:
    """Candidates with what the artifacts make of them.

    A classification gets its error: the largest change of a score, or no margin at all where an
    artifact decides otherwise. Embeddings get the artifacts' vectors.

    Raises:
        DataError: a candidate cannot be prepared.
    """
    feeds = [feed_of(processor, _raw(each), each.thing) for each in found]
    columns = []
    for place, each in enumerate(artifacts):
        jobs.progress("golden cases on each artifact", place, len(artifacts))
        answers = _answers(each, feeds, exported, processor)
        if answers is not None:
            columns.append(answers)
    if not columns:
        return list(found)
    return [_noted(each, answers) for each, *answers in zip(found, *columns, strict=True)]


def _raw(each: Drawn) -> RawInput:
    """The raw input, which lies as the bytes of a file where it was made earlier."""
    if not isinstance(each.raw, bytes) or each.suffix not in (".txt", ".npz"):
        return each.raw
    if each.suffix == ".txt":
        return each.raw.decode()
    with np.load(io.BytesIO(each.raw), allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def _answers(
    placed: Placed, feeds: Sequence[Feed], exported: Exported, processor: Processor
) -> list[Record | None] | None:
    """What one artifact decides; None where it cannot be run here."""
    backend = backends.get(placed.artifact.format)
    try:
        session = backend.load(placed.artifact, Path(placed.root))
    except BackendError as error:
        if error.code in _NOT_HERE:
            return None
        raise
    with session:
        runner = Runner(session, exported.signature, exported.processing.padding)
        return [_answer(runner, feed, processor) for feed in feeds]


def _answer(runner: Runner, feed: Feed, processor: Processor) -> Record | None:
    try:
        (outputs,) = runner.run([feed])
        return decision(processor, outputs, feed)
    except (BackendError, ProcessingError):
        return None


def _noted(each: Drawn, answers: Sequence[Record | None]) -> Drawn:
    record = each.record
    if isinstance(record, Embedding):
        vectors = tuple(a if isinstance(a, Embedding) else None for a in answers)
        return dataclasses.replace(each, answers=vectors)
    if record is None or any(a is None or not decisions.same(record, a) for a in answers):
        return dataclasses.replace(each, margin=-1.0)
    return dataclasses.replace(each, error=max(score_gap(record, a) for a in answers))
