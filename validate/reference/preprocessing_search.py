"""Which step of the server's preprocessing differs from the packaged one, found by trying.

Where the server and the exported program answer inputs differently though their weights are the
same, the cause is a step before the model. For pictures, each way in which such steps are known to
differ is tried alone: if the program then answers as the server does, that step is named. The
decoding is told apart by another question: whether the server answers the same pixels alike when
they reach it as PNG. Several steps at once are not searched for.
"""

from __future__ import annotations

import io
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from edgeserve import tasks
from edgeserve.data import Feed
from edgeserve.data.reader import RawInput
from edgeserve.processing.image.pipeline import ImagePlan
from edgeserve.processing.steps.decode import Decode, decode
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
MEDIA_NAMES = {"image": "pictures", "audio": "sounds", "text": "texts", "tensors": "tensors"}


#: How many of the user's inputs are kept for the search: those that differ most.
KEPT_INPUTS = _PICTURES


@dataclass(frozen=True)
class AskedInput:
    """An input, its feed by the packaged processing, and what the server said to it.

    Attributes:
        difference: How far the program's answer is from the server's; see `distance`.
    """

    raw: RawInput
    feed: Feed
    answer: ReferenceAnswer
    difference: float

    @classmethod
    def of(
        cls, oracle: Reference, raw: RawInput, feed: Feed, answer: ReferenceAnswer
    ) -> AskedInput:
        """With the difference between the server and the program as they answered."""
        return cls(raw, feed, answer, distance(oracle, answer, answer))


def distance(oracle: Reference, answer: ReferenceAnswer, program: ReferenceAnswer) -> float:
    """How far the program's answer is from the server's: 0 the same, 1 or more all of it another.

    The largest difference of an output on its scale, of a class's score, or of a cosine; of many
    decisions the share that flips, and the largest difference of a score.
    """
    if answer.own:
        theirs = program.program_outputs
        return max(_apart(wanted, theirs[name]) for name, wanted in answer.outputs.items())
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


def search(oracle: Reference, asked: Sequence[AskedInput]) -> str:
    """Name the step whose change makes the program answer as the server does.

    Args:
        oracle: The server and the program.
        asked: Pictures that the server has answered.

    Returns:
        What the server does instead; "several steps, or other weights" where no single change
        explains the difference.
    """
    some = sorted(asked, key=lambda each: -each.difference)[:_PICTURES]
    best, left = "", _EXPLAINED * float(np.mean([each.difference for each in some]))
    plan = ImagePlan(oracle.exported.processing.inputs[0])
    raws = [each.raw for each in some if isinstance(each.raw, bytes)]
    images = [decode(plan.decode, raw) for raw in raws]
    began = time.monotonic()
    for change in (*_decodings(plan.decode, raws), *changes(plan)):
        if time.monotonic() - began > _SECONDS:
            break
        pictures = list(map(change.decode, raws)) if change.decode else images
        feeds = [_feed(plan, *each, change) for each in zip(some, pictures, strict=True)]
        after = float(np.mean(_distances(oracle, some, feeds)))
        if after < left:
            best, left = change.words, after
    if not best and _same_as_png(oracle, some, images, left):
        best = "another decoder of picture files: it answers the same pixels as PNG alike"
    return best or "several steps, or other weights"


#: JPEG decoders shrink a picture by up to this while they decode it.
_DRAFTS = (2, 4, 8)


def _decodings(step: Decode, raws: Sequence[bytes]) -> Iterator[ProcessingChange]:
    """Other ways to decode, where the files give reason for one."""
    from PIL import Image

    opened = [Image.open(io.BytesIO(raw)) for raw in raws]
    turned = msgspec.structs.replace(step, exif=not step.exif)
    if any(image.getexif().get(0x0112, 1) != 1 for image in opened):
        words = "the EXIF orientation ignored" if step.exif else "the EXIF orientation applied"
        yield ProcessingChange(words, decode=partial(decode, turned))
    if any("A" in image.mode or "transparency" in image.info for image in opened):
        for level in (0, 255):
            filled = msgspec.structs.replace(step, background=(level,) * 3)
            if filled != step:
                words = f"transparent pixels over the level {level}"
                yield ProcessingChange(words, decode=partial(decode, filled))
        yield ProcessingChange("transparency dropped", decode=_without_alpha)
    if any(image.format == "JPEG" for image in opened):
        for factor in _DRAFTS:
            words = f"JPEG decoded at 1/{factor} of its size"
            yield ProcessingChange(words, decode=partial(_draft, step, factor))


def _without_alpha(raw: bytes) -> PIL.Image.Image:
    from PIL import Image

    return Image.open(io.BytesIO(raw)).convert("RGB")


def _draft(step: Decode, factor: int, raw: bytes) -> PIL.Image.Image:
    """A JPEG as its decoder shrinks it, other files as they are."""
    from PIL import Image

    image = Image.open(io.BytesIO(raw))
    image.draft("RGB", (image.width // factor, image.height // factor))
    return decode(step, image)


def _same_as_png(
    oracle: Reference, some: Sequence[AskedInput], images: Sequence[PIL.Image.Image], left: float
) -> bool:
    """Whether the server and the program agree once the pixels reach the server as PNG."""
    pngs = []
    for image in images:
        out = io.BytesIO()
        image.save(out, "PNG")
        pngs.append(out.getvalue())
    if pngs == [each.raw for each in some]:
        return False
    feeds = [each.feed for each in some]
    answers = oracle.answer([f"picture {i} as PNG" for i in range(len(some))], pngs, feeds)
    return float(np.mean([distance(oracle, each, each) for each in answers])) < left


def _distances(
    oracle: Reference, asked: Sequence[AskedInput], feeds: Sequence[Feed]
) -> list[float]:
    """How far the program is from the server where it is given these feeds."""
    outputs = oracle.runner.run(feeds)
    programs = [oracle.program_answer(*pair) for pair in zip(outputs, feeds, strict=True)]
    pairs = zip(asked, programs, strict=True)
    return [distance(oracle, each.answer, program) for each, program in pairs]


def _feed(
    plan: ImagePlan, asked: AskedInput, image: PIL.Image.Image, change: ProcessingChange
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


def describe_difference(
    oracle: Reference, synthetic: Sequence[AskedInput], data: Sequence[AskedInput], limit: float
) -> str:
    """Tell how far the server and the packaged processing differ, and for pictures why.

    Args:
        oracle: The server and the program.
        synthetic: Synthetic inputs that the server has answered.
        data: The user's inputs that differ most.
        limit: Largest difference at which the user's data count as answered alike.

    Returns:
        A sentence; "" where they differ by rounding only, or nothing can be compared.
    """
    if not oracle.takes_raw_inputs:
        return ""
    drawn, seen = (max((e.difference for e in some), default=0.0) for some in (synthetic, data))
    if not max(drawn, seen) > SEEN:
        return ""
    medium = MEDIA_NAMES[oracle.processor.medium]
    where, worst, asked = f"synthetic {medium}", drawn, synthetic
    agree = "your data" if data and seen <= limit else ""
    if not drawn > SEEN:
        where, worst, asked = "your data", seen, data
        agree = f"synthetic {medium}" if synthetic else ""
    though = f", though they agree on {agree}" if agree else ""
    return (
        f"on {where} your server and the packaged processing differ by up to"
        f" {min(worst, 1.0):.2g} {_unit(oracle, asked[0].answer)}{though}{_step(oracle, asked)}"
    )


def _unit(oracle: Reference, answer: ReferenceAnswer) -> str:
    if answer.own:
        return "of an output's scale"
    task = oracle.exported.task
    return "in a cosine" if tasks.decides(task) and tasks.needs_neighbours(task) else "in a score"


def _step(oracle: Reference, asked: Sequence[AskedInput]) -> str:
    """The step that differs, where it can be searched for."""
    files = all(isinstance(each.raw, bytes) for each in asked)
    if (
        oracle.processor.medium != "image"
        or len(oracle.exported.processing.inputs) != 1
        or not files
    ):
        return ""
    return f"; the server's answers come back with: {search(oracle, asked)}"
