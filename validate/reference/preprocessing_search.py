"""Which step of the server's preprocessing differs from the packaged one, found by trying.

Where the server and the exported program answer pictures differently though their weights are the
same, the cause is a step before the model. Each way in which such steps are known to differ is
tried alone: if the program then answers as the server does, that step is named. Several steps at
once are not searched for.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from edgeserve import tasks
from edgeserve.data import Feed
from edgeserve.data.reader import RawInput
from edgeserve.processing.image.pipeline import ImagePlan
from edgeserve.processing.steps.decode import decode
from edgeserve.tasks.classification import Classification
from edgeserve.tasks.embedding import Embedding
from edgeserve.tasks.embedding.device import cosine_distances
from edgeserve.validate.reference.preprocessing_changes import (
    ProcessingChange,
    changes,
    packaged_levels,
)
from edgeserve.validate.reference.reference import Reference, ReferenceAnswer

if TYPE_CHECKING:
    import PIL.Image

#: Differences below this are rounding, and need no explanation.
SEEN = 1e-3
#: A change explains the difference where no more than this share of it is left.
_EXPLAINED = 0.1
#: Pictures that each change is tried on: those that differ most.
_PICTURES = 8
_SECONDS = 30.0


@dataclass(frozen=True)
class AskedPicture:
    """A picture, its feed by the packaged processing, and what the server said to it."""

    raw: RawInput
    feed: Feed
    answer: ReferenceAnswer


def distance(oracle: Reference, answer: ReferenceAnswer, program: ReferenceAnswer) -> float:
    """How far the program's answer is from the server's: 0 the same, 1 or more all of it another.

    The largest difference of an output on its scale, of a class's score, or of a cosine; of many
    decisions the share that flips, and the largest difference of a score.
    """
    if answer.own:
        return max(_apart(answer.outputs[name], program.outputs[name]) for name in answer.outputs)
    record, other = answer.record, program.program
    if record is None or other is None:
        return 0.0
    if isinstance(record, Embedding):
        if not isinstance(other, Embedding) or record.vector.shape != other.vector.shape:
            return 1.0
        return float(cosine_distances(record.vector[None], other.vector[None])[0])
    if isinstance(record, Classification) and isinstance(other, Classification) and answer.scored:
        return _scores_apart(record, other)
    units = tasks.compare(oracle.rule, record, other)
    flips = units.flips / units.n if units.n else 0.0
    return flips + (tasks.gap(oracle.rule, record, other) if answer.scored else 0.0)


def _scores_apart(record: Classification, other: Classification) -> float:
    """The largest difference of a class's score, of the classes that both list."""
    scores = dict(other.top) | {other.label: other.score}
    both = {**dict(record.top), record.label: record.score}
    known = [abs(score - scores[label]) for label, score in both.items() if label in scores]
    return max(known, default=1.0)


def _apart(wanted: np.ndarray, got: np.ndarray) -> float:
    scale = float(np.abs(wanted).max(initial=0.0)) or 1.0
    return float(np.abs(wanted.astype(np.float64) - got).max(initial=0.0)) / scale


def search(oracle: Reference, asked: Sequence[AskedPicture], apart: Sequence[float]) -> str:
    """Name the step whose change makes the program answer as the server does.

    Args:
        oracle: The server and the program.
        asked: Pictures that the server has answered.
        apart: How far the program's answer to each is from the server's.

    Returns:
        What the server does instead; "several steps, or other weights" where no single change
        explains the difference.
    """
    order = np.argsort(apart)[::-1][:_PICTURES]
    some = [asked[i] for i in order]
    best, left = "", _EXPLAINED * float(np.mean([apart[i] for i in order]))
    plan = ImagePlan(oracle.exported.processing.inputs[0])
    images = [decode(plan.decode, each.raw) for each in some]
    began = time.monotonic()
    for change in changes(plan):
        if time.monotonic() - began > _SECONDS:
            break
        feeds = [_feed(plan, *each, change) for each in zip(some, images, strict=True)]
        after = float(np.mean(_distances(oracle, some, feeds)))
        if after < left:
            best, left = change.words, after
    return best or "several steps, or other weights"


def _distances(
    oracle: Reference, asked: Sequence[AskedPicture], feeds: Sequence[Feed]
) -> list[float]:
    """How far the program is from the server where it is given these feeds."""
    outputs = oracle.runner.run(feeds)
    programs = [oracle.program_answer(*pair) for pair in zip(outputs, feeds, strict=True)]
    pairs = zip(asked, programs, strict=True)
    return [distance(oracle, each.answer, program) for each, program in pairs]


def _feed(
    plan: ImagePlan, asked: AskedPicture, image: PIL.Image.Image, change: ProcessingChange
) -> Feed:
    """The packaged processing's feed, with the tensor that the change makes."""
    feed = dict(asked.feed)
    levels = (change.levels or packaged_levels(plan))(image)
    scale, bias = change.affine or plan.tail.affine
    tensor = (levels * scale + bias).astype(np.float32)
    tensor = tensor[..., ::-1] if change.reverse else tensor
    made = tensor.transpose(2, 0, 1) if plan.tail.planar else tensor
    name = plan.name
    if feed[name].shape[1:] == made.shape:
        feed[name] = np.ascontiguousarray(made[None]).astype(feed[name].dtype)
    return feed


def swapped_labels(labels: Mapping[tuple[str, str], int]) -> str:
    """Tell of two labels that look swapped; "" where none do.

    Args:
        labels: How often the server gave one label and the program another or the same.
    """
    flips = {pair: count for pair, count in labels.items() if pair[0] != pair[1]}
    for one, other in flips:
        mutual = flips.get((one, other), 0) + flips.get((other, one), 0)
        same = labels.get((one, one), 0) + labels.get((other, other), 0)
        if (other, one) in flips and mutual == sum(flips.values()) > 2 + same:
            text = f"all {mutual} flips are {one!r} for {other!r} or {other!r} for {one!r}"
            return f"{text}: two labels look swapped"
    return ""


def describe_difference(oracle: Reference, asked: Sequence[AskedPicture], data_agrees: bool) -> str:
    """Tell how far the server and the packaged processing differ on synthetic pictures, and why.

    Args:
        oracle: The server and the program.
        asked: Synthetic pictures that the server has answered.
        data_agrees: Both agree on the user's data.

    Returns:
        A sentence; "" where they differ by rounding only, or nothing can be compared.
    """
    comparable = oracle.takes_raw_inputs and oracle.processor.medium == "image"
    known = [each for each in asked if each.answer.record is not None or each.answer.own]
    if not comparable or not known or len(oracle.exported.processing.inputs) != 1:
        return ""
    apart = _distances(oracle, known, [each.feed for each in known])
    worst = max(apart)
    if not worst > SEEN:
        return ""
    unit = "of an output's scale" if known[0].answer.own else "in a score"
    if tasks.decides(oracle.exported.task) and tasks.needs_neighbours(oracle.exported.task):
        unit = "in a cosine"
    though = ", though they agree on your data" if data_agrees else ""
    step = search(oracle, known, apart)
    return (
        "on synthetic pictures your server and the packaged processing differ by up to"
        f" {min(worst, 1.0):.2g} {unit}{though}; the server's answers come back with: {step}"
    )
