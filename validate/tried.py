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
from edgeserve.decisions import Rule
from edgeserve.errors import BackendError, ProcessingError
from edgeserve.processing import Processor
from edgeserve.types.records import Classification, Embedding, Record
from edgeserve.types.source import Exported
from edgeserve.validate.candidates import SAFETY, Drawn
from edgeserve.validate.deciding import decision
from edgeserve.validate.feeds import Runner, feed_of
from edgeserve.validate.request import Placed

__all__ = ["tried"]

#: What an artifact decides, and what it would decide further off.
_Pair = tuple[Record | None, Record | None]

#: What a backend says when it cannot run a good file here; it is asked on the device.
_NOT_HERE = ("EDGE-BACKEND-004", "EDGE-BACKEND-005")


def tried(
    found: Sequence[Drawn], artifacts: Sequence[Placed], exported: Exported, processor: Processor
) -> list[Drawn]:
    """Candidates with what the artifacts make of them.

    All but embeddings get their error: the largest change of a score, or no margin at all where an
    artifact decides otherwise. Embeddings get the artifacts' vectors.

    Raises:
        DataError: a candidate cannot be prepared.
    """
    feeds = [feed_of(processor, _raw(each), each.thing) for each in found]
    columns = []
    for place, each in enumerate(artifacts):
        jobs.progress("golden cases on each artifact", place, len(artifacts))
        outputs = _outputs(each, feeds, exported)
        if outputs is not None:
            columns.append(_pairs(found, feeds, outputs, processor))
    if not columns:
        return list(found)
    rule = decisions.rule_of(exported.task, exported.processing)
    return [_noted(rule, each, answers) for each, *answers in zip(found, *columns, strict=True)]


def _raw(each: Drawn) -> RawInput:
    """The raw input, which lies as the bytes of a file where it was made earlier."""
    if not isinstance(each.raw, bytes) or each.suffix not in (".txt", ".npz"):
        return each.raw
    if each.suffix == ".txt":
        return each.raw.decode()
    with np.load(io.BytesIO(each.raw), allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def _outputs(placed: Placed, feeds: Sequence[Feed], exported: Exported) -> list[Feed | None] | None:
    """What one artifact gives, None for what it fails on; None where it cannot run here."""
    backend = backends.get(placed.artifact.format)
    try:
        session = backend.load(placed.artifact, Path(placed.root))
    except BackendError as error:
        if error.code in _NOT_HERE:
            return None
        raise
    with session:
        runner = Runner(session, exported.signature, exported.processing.padding)
        return [_run(runner, feed) for feed in feeds]


def _run(runner: Runner, feed: Feed) -> Feed | None:
    try:
        (outputs,) = runner.run([feed])
        return outputs
    except BackendError:
        return None


def _pairs(
    found: Sequence[Drawn],
    feeds: Sequence[Feed],
    outputs: Sequence[Feed | None],
    processor: Processor,
) -> list[_Pair]:
    """What an artifact decides, and what it would decide if it were three times as far off."""
    pairs: list[_Pair] = []
    for each, feed, given in zip(found, feeds, outputs, strict=True):
        answer = _decide(processor, given, feed)
        single = isinstance(each.record, Classification | Embedding) or not each.outputs
        far = None if single or given is None else _further(each.outputs, given)
        pairs.append((answer, answer if far is None else _decide(processor, far, feed) or answer))
    return pairs


def _further(reference: Feed, outputs: Feed) -> Feed:
    """Outputs moved on in their own direction, to `SAFETY` times their distance."""
    return {
        name: reference[name] + np.float32(SAFETY) * (array - reference[name])
        if array.dtype.kind == "f"
        else array
        for name, array in outputs.items()
    }


def _decide(processor: Processor, outputs: Feed | None, feed: Feed) -> Record | None:
    try:
        return None if outputs is None else decision(processor, outputs, feed)
    except ProcessingError:  # of outputs that were moved: a probability beyond 1
        return None


def _noted(rule: Rule, each: Drawn, pairs: Sequence[_Pair]) -> Drawn:
    record = each.record
    answers = [answer for answer, _ in pairs]
    if isinstance(record, Embedding):
        vectors = tuple(a if isinstance(a, Embedding) else None for a in answers)
        return dataclasses.replace(each, answers=vectors)
    if record is None:
        return dataclasses.replace(each, margin=-1.0)
    error = max(decisions.gap(rule, record, answer) for answer in answers)
    if any(_otherwise(rule, record, answer, SAFETY * error) for pair in pairs for answer in pair):
        return dataclasses.replace(each, margin=-1.0)
    return dataclasses.replace(each, error=error)


def _otherwise(rule: Rule, record: Record, answer: Record | None, error: float) -> bool:
    """Whether an artifact decides otherwise; of many decisions one that a case would rest on."""
    units = decisions.compare(rule, record, answer, max(rule.sure, error))
    return bool(units.decided_flips if decisions.is_many(rule.task) else units.flips)
