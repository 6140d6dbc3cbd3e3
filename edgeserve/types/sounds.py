"""Steps that make a model input out of a sound.

What each computes stands in ``docs/processing.md``; the code in `edgeserve.processing`.
"""

from __future__ import annotations

import math
from typing import Literal

from edgeserve.types.base import Value

__all__ = ["LogMel", "MelScale", "Waveform"]

MelScale = Literal["slaney", "htk", "kaldi"]

#: Numbers that a row may have at most: nothing near it is a sound that one call is asked about.
_MOST = 1 << 28


class Waveform(Value, frozen=True, tag_field="step", tag="waveform/1"):
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
            if size is not None and not 0 < size <= _MOST:
                raise ValueError(f"{name} {size} is outside 1..{_MOST}")


class LogMel(Value, frozen=True, tag_field="step", tag="log_mel/1"):
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
