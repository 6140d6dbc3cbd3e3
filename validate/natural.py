"""The fields of each output: declared, or inferred from the reference's first answers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from edgeserve.data import Feed
from edgeserve.types.source import Exported
from edgeserve.types.tensors import Signature
from edgeserve.validate.fields import Split, split_of
from edgeserve.validate.fields_declared import declared
from edgeserve.validate.request import Answers
from edgeserve.validate.store import FillerTensors, TensorReader

__all__ = ["first_answers", "splits_of"]


def first_answers(
    answers: Answers,
    folder: Path,
    fillers: Sequence[FillerTensors],
    signature: Signature,
    count: int,
) -> list[Feed]:
    """Outputs of at most ``count`` natural inputs: the data, or without data what stands in for it.

    Args:
        answers: What the reference answered.
        folder: Where its tensors lie.
        fillers: Those of the generated inputs.
        signature: The source's.
        count: How many.
    """
    if answers.samples and answers.chunks:
        reader = TensorReader(folder, answers.chunks[:1], signature)
        return list(islice(iter(reader.next, None), count))
    pairs = zip(answers.fillers, fillers, strict=True)
    return [each.outputs for filler, each in pairs if filler.natural][:count]


def splits_of(exported: Exported, outputs: Sequence[Feed]) -> dict[str, Split]:
    """How each output is taken apart.

    Args:
        exported: What is declared.
        outputs: The reference's answers to a few natural inputs, batch axis included.
    """
    known = declared(exported)
    return {
        spec.name: known.get(spec.name) or split_of(spec, [feed[spec.name] for feed in outputs])
        for spec in exported.signature.outputs
    }
