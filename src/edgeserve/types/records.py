"""Result records: one per task, the thing that `predict` returns and the gate compares.

Arrays have fixed dtypes, given per field; in JSON they are nested lists. Two records are compared
by `edgeserve.tasks`, never with ``==`` (arrays).
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from edgeserve.types.base import Value

__all__ = [
    "Classification",
    "Depth",
    "Detection",
    "Embedding",
    "RanOn",
    "Record",
    "Runtime",
    "Segmentation",
    "Span",
    "Tensors",
    "Text",
    "Tokens",
    "Voice",
]


class Runtime(Value, frozen=True):
    """The engine that ran: name, version and the delegate (execution provider) really used."""

    name: str
    version: str
    delegate: str


class RanOn(Value, frozen=True):
    """Where an answer came from.

    Attributes:
        where: "device" or "cloud".
        format: Format of the artifact.
        precision: Precision of the artifact.
        sha256: The artifact's sha256.
        runtime: Engine and delegate that really ran.
        model_id: Identity of the model that answered.
        proof: "golden" (the golden cases passed here), "none" (nothing to choose between, or no
        cases).
        note: Anything the caller should know, e.g. why the first choice was not used.
        why: Under a contract with an endpoint, the trigger for which one was asked; empty: none.
        took_ms: Under a contract, from the call of `predict` to the answer.
        attempts: Requests that were sent to endpoints.
        endpoint: Who answered, scheme and host alone; empty: the device.
        sent_bytes: What left the device for this answer.
    """

    where: str
    format: str
    precision: str
    sha256: str
    runtime: Runtime
    model_id: str
    proof: str = "none"
    note: str = ""
    why: str = ""
    took_ms: float = 0.0
    attempts: int = 0
    endpoint: str = ""
    sent_bytes: int = 0


class _Result(Value, frozen=True, eq=False, kw_only=True):
    ran_on: RanOn | None = None

    def _hold(self, field: str, dtype: type[np.generic], rank: int) -> None:
        """Give an array its declared dtype (JSON has none), refusing what would change value."""
        given = np.asarray(getattr(self, field))
        with np.errstate(over="ignore", invalid="ignore"):
            held = given.astype(dtype, copy=False)
        if np.issubdtype(dtype, np.integer):
            same = np.array_equal(held, given)
        else:
            same = np.array_equal(np.isfinite(held), np.isfinite(given))
        if not same or (given.ndim != rank and given.size):
            raise ValueError(f"{field} wants {dtype.__name__} values in {rank} dimensions")
        # A frozen struct: the one place where a field is set after all.
        msgspec.structs.force_setattr(self, field, held)


class Classification(_Result, frozen=True, kw_only=True, tag_field="record", tag="classification"):
    """Best class, its probability, and the best ``k`` as (label, score), best first.

    ``index`` is the class index of the best one, -1 where unknown; ``indexes`` those of ``top``,
    empty where unknown. Labels may repeat, indexes do not.
    """

    label: str
    score: float
    top: tuple[tuple[str, float], ...]
    index: int = -1
    indexes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.indexes and len(self.indexes) != len(self.top):
            raise ValueError(f"{len(self.indexes)} indexes for {len(self.top)} entries of top")


class Detection(_Result, frozen=True, kw_only=True, tag_field="record", tag="detection"):
    """Boxes float32 [n, 4] xyxy in pixels of the upright photo, scores float32 [n], labels [n].

    ``floor`` is the score from which boxes are listed, where some below the detector's threshold
    are: a reference says so what it nearly found. None: only what it found.
    """

    boxes: np.ndarray
    scores: np.ndarray
    labels: tuple[str, ...]
    floor: float | None = None

    def __post_init__(self) -> None:
        self._hold("boxes", np.float32, 2)
        self._hold("scores", np.float32, 1)
        if self.boxes.size and self.boxes.shape[1] != 4:
            raise ValueError(f"boxes of {self.boxes.shape[1]} numbers, not 4")
        msgspec.structs.force_setattr(self, "boxes", self.boxes.reshape(-1, 4))
        if not len(self.boxes) == len(self.scores) == len(self.labels):
            counts = (len(self.boxes), len(self.scores), len(self.labels))
            raise ValueError("{} boxes, {} scores and {} labels".format(*counts))


class Segmentation(_Result, frozen=True, kw_only=True, tag_field="record", tag="segmentation"):
    """Class index of each pixel, int32 [H, W], and the labels the indexes point into.

    ``margin``, float32 [H, W], is how far each pixel's best class leads its second (of
    probabilities); None where that is not known.
    """

    mask: np.ndarray
    labels: tuple[str, ...]
    margin: np.ndarray | None = None

    def __post_init__(self) -> None:
        self._hold("mask", np.int32, 2)
        if self.margin is not None:
            self._hold("margin", np.float32, 2)
            if self.margin.shape != self.mask.shape:
                raise ValueError(f"margin {self.margin.shape} for a mask {self.mask.shape}")


class Depth(_Result, frozen=True, kw_only=True, tag_field="record", tag="depth"):
    """Depth float32 [H, W]."""

    map: np.ndarray

    def __post_init__(self) -> None:
        self._hold("map", np.float32, 2)


class Embedding(_Result, frozen=True, kw_only=True, tag_field="record", tag="embedding"):
    """Vector float32 [d]."""

    vector: np.ndarray

    def __post_init__(self) -> None:
        self._hold("vector", np.float32, 1)


class Span(Value, frozen=True):
    """A labelled span of characters, ``text[start:end]``."""

    start: int
    end: int
    label: str
    score: float


class Tokens(_Result, frozen=True, kw_only=True, tag_field="record", tag="tokens"):
    """Labelled spans, in order of start.

    ``unsure`` lists the places [start, end) of tokens whose best label leads the second by a
    probability below 0.05; None where that is not known.
    """

    spans: tuple[Span, ...]
    unsure: tuple[tuple[int, int], ...] | None = None


class Text(_Result, frozen=True, kw_only=True, tag_field="record", tag="text"):
    """Token ids and the text they spell.

    ``margins`` says for each token how far it leads the second best (of probabilities); empty where
    that is not known. ``unsure`` lists, for text read by CTC, the gaps between tokens in which a
    frame might as well have put one more in, by a probability below 0.05: gap k lies before token
    k, the last one behind all. None where that is not known.
    """

    tokens: tuple[int, ...]
    text: str
    margins: tuple[float, ...] = ()
    unsure: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.margins and len(self.margins) != len(self.tokens):
            raise ValueError(f"{len(self.margins)} margins for {len(self.tokens)} tokens")


class Voice(_Result, frozen=True, kw_only=True, tag_field="record", tag="voice"):
    """Speech probability per frame, float32 [n], and the frames' step in seconds."""

    prob: np.ndarray
    step_s: float

    def __post_init__(self) -> None:
        self._hold("prob", np.float32, 1)


Record = Classification | Detection | Segmentation | Depth | Embedding | Tokens | Text | Voice


class Tensors(dict[str, Any]):
    """Named output tensors (the ``tensors`` task): a dict of arrays that also knows `ran_on`."""

    ran_on: RanOn | None = None
