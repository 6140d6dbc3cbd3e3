"""Inputs that models are judged on, what is true of them, and golden cases.

A `Sample` (of a data set) holds the ground truth that its model's task asks for: boxes, classes
of pixels, spans, segments of speech. A class, or the words of a transcript, is its ``label``.
Masks stay in their file or in the form they are drawn in: one image at a time is made of them. A
`GoldenCase` is shipped as proof.
"""

from __future__ import annotations

import math
from typing import Literal

from edgeserve.tasks.values import AnyRecord, Truth
from edgeserve.types.artifact import FileEntry
from edgeserve.types.base import Number, Value

Half = Literal["calibration", "evaluation"]


class Sample(Value, frozen=True):
    """One input of a data set.

    Exactly one of ``path`` (a file of raw bytes), ``text`` and ``row`` (an index into the ``.npz``
    at ``path``) says what the input is.

    Attributes:
        id: Unique within the data set, shown in reports: relative path or row number.
        group: What the sample belongs to (photo, speaker); samples of a group are not independent.
        path: Absolute path of the file.
        text: The text itself.
        row: Row of the ``.npz``.
        label: True label, where known.
        truth: What else is true of it, for the task that it was read for; None: nothing is known.
    """

    id: str
    group: str
    path: str | None = None
    text: str | None = None
    row: int | None = None
    label: str | None = None
    truth: Truth | None = None


class StoredAnswer(Value, frozen=True):
    """What the reference answered to one input; kept so that `validate` can compare without it.

    Attributes:
        input_sha256: sha256 of the raw bytes (of the text in UTF-8; of a row's arrays in order).
        record: The decision, for a task that has one.
        margin: How sure the reference was (`edgeserve.tasks.margin`); where it tells no scores,
            how sure the exported program is.
        scored: The reference told its scores; else those of ``record`` are 0 and mean nothing.
    """

    input_sha256: str
    record: AnyRecord | None
    margin: Number | None
    scored: bool = True


class GoldenCase(Value, frozen=True):
    """One golden case: raw input and the reference's decision, chosen to be stable on any chip.

    Attributes:
        input: The raw input's member (image, audio, UTF-8 text), or an ``.npz`` of named tensors
            (members are stored, never pickled).
        medium: How the input is to be read.
        record: The reference's decision; None for the ``tensors`` task. Masks, depths and frames
            are empty in it, and lie in ``outputs``.
        outputs: ``.npz`` member of the reference's named outputs, for the ``tensors`` task; else of
            the arrays that are left out of ``record``, by field (`edgeserve.tasks.attach_arrays`).
        margin: How far the decision is from flipping; of an `Embedding`, how much nearer its
            nearest neighbour among the cases is than the next.
        tolerance: Largest difference allowed: of scores for a `Classification`, of an `Embedding`
            its cosine distance from ``record``, for ``tensors`` relative to each output's scale.
            Of other records, the margin from which no decision may be another.
    """

    input: FileEntry
    medium: Literal["image", "audio", "text", "tensors"]
    record: AnyRecord | None = None
    outputs: FileEntry | None = None
    margin: Number = 0.0
    tolerance: float = 1e-3


class GoldenField(Value, frozen=True):
    """A part of an output with a scale of its own: boxes beside scores, for the ``tensors`` task.

    Attributes:
        output: The output's name.
        word: What it holds, as reports call it ("scores", "values").
        axis: Of the channels, the batch counted; None: the whole output is one field.
        runs: Which channels, half-open; empty: all.
        scale: What differences are divided by, or the field's largest number in a case where that
            is larger; of whole numbers 1, whatever they are.
    """

    output: str
    word: str
    scale: float
    axis: int | None = None
    runs: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        if not 0 < self.scale < math.inf:
            raise ValueError(f"scale {self.scale} of a field")
        if self.runs and (self.axis is None or self.axis < 0):
            raise ValueError("channels without an axis")
        if any(not 0 <= start < stop for start, stop in self.runs):
            raise ValueError(f"channels {self.runs}")


class Golden(Value, frozen=True):
    """All golden cases and where they came from.

    Attributes:
        origin: "generated" or "given" (from ``--golden DIR``: that is the consent).
        cases: In order.
        note: Why there are fewer cases than asked for; empty where there are not.
        fields: For the ``tensors`` task, the parts that its outputs are compared by; of an output
            that is not there, all of it.
    """

    origin: Literal["generated", "given"]
    cases: tuple[GoldenCase, ...]
    note: str = ""
    fields: tuple[GoldenField, ...] = ()
