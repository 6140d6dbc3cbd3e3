"""The processing vocabulary: what happens between raw bytes and tensors, as data.

Each step is a value with its own version in its tag (``resize/1``). An unknown step is refused
on reading, so that an old Wrapper never guesses. The steps before the model stand here, those
for sounds first; the output steps that read a task's record in the folder of their task.
What each computes, to the last bit, stands in ``docs/processing.md``; the code in
`edgeserve.processing`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from edgeserve.tasks.values import AnyTaskOutput
from edgeserve.types.artifact import FileEntry
from edgeserve.types.base import Value
from edgeserve.types.steps import FieldKind, InputStep, OutputStep, TaskOutput
from edgeserve.types.tensors import DType

__all__ = [
    "AnyOutputStep",
    "AnyStep",
    "Cast",
    "CenterCrop",
    "Color",
    "Decode",
    "Filter",
    "Fit",
    "InputProcessing",
    "L2Normalize",
    "Layout",
    "LogMel",
    "MelScale",
    "Normalize",
    "Pool",
    "PoolMode",
    "Processing",
    "Resize",
    "Rounding",
    "Softmax",
    "Tokenize",
    "TokenizePart",
    "TopK",
    "Waveform",
]


MelScale = Literal["slaney", "htk", "kaldi"]

#: Numbers that a row may have at most: nothing near it is a sound that one call is asked about.
_MOST_SAMPLES = 1 << 28


class Waveform(InputStep, frozen=True, tag_field="step", tag="waveform/1"):
    """A WAV, or samples with their rate, to mono float32 samples [n] at ``rate``.

    Attributes:
        rate: Samples a second of the result; sounds of other rates are resampled.
        length: Samples of every result: a longer sound is cut at its end, a shorter one gets zeros
            after it. None: as many as the sound has.
        max_length: Where ``length`` is None, a sound that would have more samples is refused.
        normalize: What happens to the sound's own samples, once cut: nothing, or
            ``(x - mean) / sqrt(variance + 1e-7)``; zeros that fill up are not among them.
    """

    rate: int
    length: int | None = None
    max_length: int = 28_800_000
    normalize: Literal["none", "zero-mean-unit-variance"] = "none"

    def __post_init__(self) -> None:
        if not 1000 <= self.rate <= 192_000:
            raise ValueError(f"rate {self.rate} is outside 1000..192000")
        for name in ("length", "max_length"):
            size = getattr(self, name)
            if size is not None and not 0 < size <= _MOST_SAMPLES:
                raise ValueError(f"{name} {size} is outside 1..{_MOST_SAMPLES}")


class LogMel(InputStep, frozen=True, tag_field="step", tag="log_mel/1"):
    """Samples [n] to the logarithm of their mel spectrum, float32.

    Attributes:
        mels: How many bands.
        n_fft: Length of the Fourier transform.
        frame_length: Samples of a frame, zeros after them up to ``n_fft``; None: ``n_fft``.
        hop: Samples from one frame to the next.
        window: "hann" is periodic, "hann-symmetric" is not.
        center: Frames are centred on multiples of ``hop``: the samples are mirrored at both ends.
        remove_dc: Each frame's mean is taken off it first.
        preemphasis: Then this share of each sample's predecessor.
        power: Of the spectrum's magnitude.
        scale: Of the bands; "kaldi" differs from "htk" in that its triangles are straight in mel.
        norm: "slaney" divides each band by its width in Hz.
        low: Where the lowest band begins, in Hz.
        high: Where the highest band ends, in Hz; None: half the rate.
        log: Of which base.
        floor: Smaller values are this before the logarithm is taken.
        frames: Frames of every result: what lies behind is cut off, zeros are put where none is
            left. None: as many as the sound has.
        below_max: Values further below the largest one than this are lifted to it; None: none are.
        mean: Subtracted at the end.
        std: Divides what is left.
        layout: Order of the axes.
    """

    mels: int = 80
    n_fft: int = 400
    frame_length: int | None = None
    hop: int = 160
    window: Literal["hann", "hann-symmetric"] = "hann"
    center: bool = True
    remove_dc: bool = False
    preemphasis: float = 0.0
    power: Literal[1, 2] = 2
    scale: MelScale = "slaney"
    norm: Literal["slaney", "none"] = "slaney"
    low: float = 0.0
    high: float | None = None
    log: Literal["log10", "ln"] = "log10"
    floor: float = 1e-10
    frames: int | None = None
    below_max: float | None = None
    mean: float = 0.0
    std: float = 1.0
    layout: Literal["mels-frames", "frames-mels"] = "mels-frames"

    def __post_init__(self) -> None:
        sizes = {"mels": self.mels, "n_fft": self.n_fft, "hop": self.hop, "frames": self.frames}
        for name, size in (sizes | {"frame_length": self.frame_length}).items():
            if size is not None and not 0 < size <= 65_536:
                raise ValueError(f"{name} {size} is outside 1..65536")
        if self.n_fft < 2 or not 2 <= self.width <= self.n_fft:
            raise ValueError(f"frames of {self.width} samples do not fit into {self.n_fft}")
        self._check_numbers()

    def _check_numbers(self) -> None:
        if not 0 <= self.preemphasis < 1:
            raise ValueError(f"preemphasis {self.preemphasis} is outside 0..1")
        if not 0 < self.floor < math.inf:
            raise ValueError(f"floor {self.floor} is not above 0")
        if not (math.isfinite(self.mean) and math.isfinite(self.std) and self.std):
            raise ValueError(f"mean {self.mean} and std {self.std} normalise nothing")
        if self.below_max is not None and not 0 < self.below_max < math.inf:
            raise ValueError(f"below_max {self.below_max} is not above 0")
        if not 0 <= self.low < (math.inf if self.high is None else self.high) <= math.inf:
            raise ValueError(f"bands from {self.low} to {self.high} Hz")

    @property
    def width(self) -> int:
        """Samples of a frame."""
        return self.frame_length or self.n_fft


Color = tuple[int, int, int]
Filter = Literal["nearest", "bilinear", "bicubic", "lanczos"]
Fit = Literal["exact", "shortest-edge", "letterbox"]
Rounding = Literal["floor", "half-even"]
PoolMode = Literal["mean", "cls", "max", "last"]
TokenizePart = Literal["ids", "attention_mask", "type_ids"]


def _check_color(name: str, color: Color) -> None:
    if not all(0 <= level <= 255 for level in color):
        raise ValueError(f"{name} {color} is outside 0..255")


class Decode(InputStep, frozen=True, tag_field="step", tag="decode/1"):
    """Encoded bytes to HWC uint8 RGB.

    Attributes:
        exif: Turn the picture upright as its EXIF orientation says.
        background: RGB that transparent pixels are laid over.
        max_pixels: A picture with more pixels is refused (decompression bombs).
    """

    exif: bool = True
    background: Color = (255, 255, 255)
    max_pixels: int = 178_956_970

    def __post_init__(self) -> None:
        _check_color("background", self.background)
        if self.max_pixels < 1:
            raise ValueError(f"max_pixels {self.max_pixels} is below 1")


class Resize(InputStep, frozen=True, tag_field="step", tag="resize/1"):
    """Resample HWC uint8 with Pillow's exact result.

    Attributes:
        height: Target height in pixels.
        width: Target width in pixels; for "shortest-edge" the target of the shorter side is
            ``min(height, width)``.
        fit: "exact" stretches; "shortest-edge" keeps the aspect ratio so that the shorter side
            fits; "letterbox" keeps the aspect ratio inside height x width and fills the rest.
        filter: Resampling kernel.
        fill: RGB of the letterbox's borders.
    """

    height: int
    width: int
    fit: Fit = "exact"
    filter: Filter = "bilinear"
    fill: Color = (114, 114, 114)

    def __post_init__(self) -> None:
        _check_color("fill", self.fill)
        if not (0 < self.height <= 65_535 and 0 < self.width <= 65_535):
            raise ValueError(f"resize to {self.height} x {self.width} is outside 1..65535")


class CenterCrop(InputStep, frozen=True, tag_field="step", tag="center_crop/1"):
    """Cut the middle ``height`` x ``width`` out of HWC uint8; smaller ones get zeros around.

    Attributes:
        height: Height of the result in pixels.
        width: Width of the result in pixels.
        rounding: Where the window starts when an odd number of pixels is cut off: "floor"
            (Hugging Face) or "half-even" (torchvision, timm).
    """

    height: int
    width: int
    rounding: Rounding = "floor"

    def __post_init__(self) -> None:
        if not (0 < self.height <= 65_535 and 0 < self.width <= 65_535):
            raise ValueError(f"center_crop to {self.height} x {self.width} is outside 1..65535")


class Normalize(InputStep, frozen=True, tag_field="step", tag="normalize/1"):
    """Rescale and normalise in one: ``float32(pixel) * scale + bias`` per channel, in float32.

    ``(x * rescale - mean) / std`` is ``scale = rescale / std``, ``bias = -mean / std``, both
    computed in float64 and rounded once to float32 (`edgeserve.processing.normalize_from`).
    """

    scale: tuple[float, ...]
    bias: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.scale) != len(self.bias) or not self.scale:
            raise ValueError("normalize needs as many scales as biases, at least one")
        if not all(math.isfinite(x) for x in (*self.scale, *self.bias)):
            raise ValueError("normalize needs finite scales and biases")


class Layout(InputStep, frozen=True, tag_field="step", tag="layout/1"):
    """Reorder the axes of an HWC sample (the batch axis is added by stacking samples)."""

    order: Literal["CHW", "HWC"]


class Cast(InputStep, frozen=True, tag_field="step", tag="dtype/1"):
    """Convert to ``dtype``: floats to integers round half to even and saturate."""

    dtype: DType


class Tokenize(InputStep, frozen=True, tag_field="step", tag="tokenize/1"):
    """Text to one row of integers, with the tokenizer's own library as truth.

    The only step of an input. A sample has as many numbers as the text has tokens;
    stacking samples pads them to the longest, or to the size that the signature fixes.

    Attributes:
        tokenizer: The ``tokenizer.json``, an asset (``assets/...``); its bytes are part of the
            model's identity.
        part: Which row: token ids, the attention mask (1 for tokens, 0 for padding) or type ids.
        max_length: Longest row, special tokens included; what is longer is truncated.
        pad_id: What the row is padded with: the pad token's id, 0 for a mask.
        padding: Side that is padded.
        truncation: Side that is cut off.
    """

    tokenizer: FileEntry
    part: TokenizePart
    max_length: int
    pad_id: int = 0
    padding: Literal["right", "left"] = "right"
    truncation: Literal["right", "left"] = "right"

    def __post_init__(self) -> None:
        if not 0 < self.max_length < 1 << 31:
            raise ValueError(f"max_length {self.max_length} is outside 1..2**31 - 1")
        if not 0 <= self.pad_id < 1 << 31:  # fits whatever integers a file takes
            raise ValueError(f"pad_id {self.pad_id} is outside 0..2**31 - 1")


class Softmax(OutputStep, frozen=True, tag_field="step", tag="softmax/1"):
    """Numerically stable softmax over ``axis`` of one sample's ``output``, in float32."""

    output: str
    axis: int = -1

    def field(self, integers: bool) -> FieldKind:
        """See `OutputStep.field`."""
        return FieldKind("logits", True, self.axis)


class TopK(OutputStep, frozen=True, tag_field="step", tag="top_k/1"):
    """The ``k`` highest scores of ``output``, ties going to the lower index."""

    output: str
    k: int = 5

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError(f"top_k needs k >= 1, not {self.k}")


class Pool(OutputStep, frozen=True, tag_field="step", tag="pool/1"):
    """Token vectors [tokens, d] of one sample's ``output`` to one vector [d], in float32.

    A sample without tokens pools to zeros.

    Attributes:
        output: The output to pool; its result takes the output's place.
        mask: The input that holds the attention mask (1 for tokens, 0 for padding).
        mode: "mean" of the tokens' vectors, "cls" the first token's, "max" the largest of each
            component over the tokens, "last" the last token's.
    """

    output: str
    mask: str
    mode: PoolMode = "mean"

    def field(self, integers: bool) -> FieldKind:
        """See `OutputStep.field`."""
        return FieldKind("embedding")


class L2Normalize(OutputStep, frozen=True, tag_field="step", tag="l2_normalize/1"):
    """Divide one sample's ``output`` by its L2 norm over the last axis, which is at least 1e-12."""

    output: str

    def field(self, integers: bool) -> FieldKind:
        """See `OutputStep.field`."""
        return FieldKind("embedding")


if TYPE_CHECKING:
    AnyStep = InputStep
    AnyOutputStep = OutputStep
else:
    AnyStep = (
        Decode | Resize | CenterCrop | Normalize | Layout | Cast | Tokenize | Waveform | LogMel
    )
    AnyOutputStep = Softmax | TopK | Pool | L2Normalize | AnyTaskOutput


class InputProcessing(Value, frozen=True):
    """The steps that make one model input out of the raw medium."""

    name: str
    steps: tuple[AnyStep, ...]


class Processing(Value, frozen=True):
    """All processing of a model: per input before it, in order after it.

    Attributes:
        inputs: One entry per model input made from the raw medium. Empty: callers bring tensors.
        outputs: Steps on the model's outputs, in order. The decision record of the task is read
            from their result.
    """

    inputs: tuple[InputProcessing, ...] = ()
    outputs: tuple[AnyOutputStep, ...] = ()

    def __post_init__(self) -> None:
        names = [i.name for i in self.inputs]
        if len(set(names)) != len(names):
            raise ValueError(f"processing names an input twice: {names}")

    @property
    def task_output(self) -> TaskOutput | None:
        """The step that reads the task's record; None where the model has none."""
        return next((step for step in self.outputs if isinstance(step, TaskOutput)), None)

    @property
    def padding(self) -> dict[str, Tokenize]:
        """For each input that may be padded, the step that says with what and on which side."""
        return {
            each.name: step
            for each in self.inputs
            for step in each.steps
            if isinstance(step, Tokenize)
        }

    @property
    def assets(self) -> tuple[FileEntry, ...]:
        """Each file that the steps name, once, sorted by path."""
        steps = (*(step for each in self.inputs for step in each.steps), *self.outputs)
        named = {file for step in steps for file in step.files.values()}
        return tuple(sorted(named, key=lambda entry: (entry.path, entry.sha256)))
