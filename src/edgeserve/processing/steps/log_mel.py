"""log_mel/1: samples to the logarithm of their mel spectrum.

The two known sets of filters are those of M. Slaney, *Auditory Toolbox*, Technical Report 1998-010,
Interval Research, and of S. Young et al., *The HTK Book*, section 5.4. All is computed in float64
and rounded once.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import numpy as np

from edgeserve.errors import InputError
from edgeserve.types.steps import InputStep

MelScale = Literal["slaney", "htk", "kaldi"]

#: Frames that are transformed at once: bounds memory, changes no value.
_BLOCK = 512
#: Slaney's scale is straight up to 1000 Hz, then logarithmic: 27 bands for a factor of 6.4.
_KNEE_HZ, _HZ_A_MEL = 1000.0, 200.0 / 3
_KNEE, _STEP = _KNEE_HZ / _HZ_A_MEL, np.log(6.4) / 27


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

    medium: ClassVar = "audio"

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


class LogMelTransform:
    """The step for one rate, compiled. Immutable, so threads may share it."""

    __slots__ = ("_filters", "_step", "_window")

    def __init__(self, step: LogMel, rate: int) -> None:
        """Make the window and filters.

        Raises:
            ValueError: a band reaches beyond half the rate.
        """
        self._step = step
        self._window = _window(step)
        self._filters = mel_filters(step, rate)

    def frames(self, length: int) -> int:
        """How many frames ``length`` samples have, before any is cut off or put behind."""
        ends = 2 * (self._step.width // 2) if self._step.center else 0
        return max(0, (length + ends - self._step.width) // self._step.hop + 1)

    @property
    def least(self) -> int:
        """Samples that a sound must have."""
        # Mirroring needs one sample more than it puts before them.
        return self._step.width // 2 + 1 if self._step.center else self._step.width

    @property
    def bytes_per_sample(self) -> float:
        """Memory for each sample at most: two in float64, and of each band as many."""
        return 16 + 16 * self._step.mels / self._step.hop

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Samples float32 [n] to float32 [mels, frames] or [frames, mels].

        Raises:
            InputError: EDGE-INPUT-036, fewer samples than a frame needs.
        """
        step = self._step
        if len(x) < self.least:
            wanted = f"at least {self.least} samples, for one frame"
            hint = "send a longer sound"
            raise InputError("EDGE-INPUT-036", "sound", wanted=wanted, got=str(len(x)), hint=hint)
        powers = self._powers(x.astype(np.float64))
        raised = np.maximum(powers, step.floor)
        logs = np.log10(raised) if step.log == "log10" else np.log(raised)
        if step.frames is not None and len(logs) < step.frames:
            logs = np.pad(logs, ((0, step.frames - len(logs)), (0, 0)))
        if step.below_max is not None:
            logs = np.maximum(logs, logs.max() - step.below_max)
        made = ((logs - step.mean) / step.std).astype(np.float32)
        return np.ascontiguousarray(made.T if step.layout == "mels-frames" else made)

    def _powers(self, x: np.ndarray) -> np.ndarray:
        """Energy of each frame in each band: float64 [frames, mels]."""
        step = self._step
        if step.center:
            x = np.pad(x, step.width // 2, mode="reflect")
        views = np.lib.stride_tricks.sliding_window_view(x, step.width)[:: step.hop]
        views = views[: step.frames]
        blocks = [views[i : i + _BLOCK] for i in range(0, len(views), _BLOCK)]
        return np.concatenate([self._spectrum(block) @ self._filters for block in blocks])

    def _spectrum(self, frames: np.ndarray) -> np.ndarray:
        step = self._step
        if step.remove_dc:
            frames = frames - frames.mean(axis=1, keepdims=True)
        if step.preemphasis:
            before = np.concatenate([frames[:, :1], frames[:, :-1]], axis=1)
            frames = frames - step.preemphasis * before
        size = np.abs(np.fft.rfft(frames * self._window, step.n_fft))
        return np.asarray(size if step.power == 1 else size * size)


def mel_filters(step: LogMel, rate: int) -> np.ndarray:
    """What each bin of the transform counts in each band: float64 [n_fft // 2 + 1, mels].

    Raises:
        ValueError: a band reaches beyond half the rate.
    """
    high = rate / 2 if step.high is None else step.high
    if not step.low < high <= rate / 2:
        raise ValueError(f"bands from {step.low} to {high} Hz, and the rate is {rate}")
    ends = _to_mel(np.array([step.low, high]), step.scale)
    corners = np.linspace(ends[0], ends[1], step.mels + 2)
    bins = np.arange(step.n_fft // 2 + 1) * (rate / step.n_fft)
    hertz = _from_mel(corners, step.scale)
    if step.scale == "kaldi":  # straight in mel, not in Hz
        found = _triangles(_to_mel(bins, step.scale), corners)
    else:
        found = _triangles(bins, hertz)
    return found * (2 / (hertz[2:] - hertz[:-2])) if step.norm == "slaney" else found


def _triangles(places: np.ndarray, corners: np.ndarray) -> np.ndarray:
    """From 0 at a corner over 1 at the next one to 0 at the one after it: [places, bands]."""
    widths, apart = np.diff(corners), corners - places[:, None]
    rising, falling = -apart[:, :-2] / widths[:-1], apart[:, 2:] / widths[1:]
    return np.asarray(np.maximum(0, np.minimum(rising, falling)))


def _to_mel(hertz: np.ndarray, scale: MelScale) -> np.ndarray:
    """Hz to mel, float64."""
    if scale == "htk":
        return np.asarray(2595 * np.log10(1 + hertz / 700))
    if scale == "kaldi":
        return np.asarray(1127 * np.log(1 + hertz / 700))
    upper = _KNEE + np.log(np.maximum(hertz, _KNEE_HZ) / _KNEE_HZ) / _STEP
    return np.where(hertz < _KNEE_HZ, hertz / _HZ_A_MEL, upper)


def _from_mel(mel: np.ndarray, scale: MelScale) -> np.ndarray:
    """Mel to Hz, float64."""
    if scale == "htk":
        return np.asarray(700 * (10 ** (mel / 2595) - 1))
    if scale == "kaldi":
        return np.asarray(700 * (np.exp(mel / 1127) - 1))
    upper = _KNEE_HZ * np.exp(_STEP * (np.maximum(mel, _KNEE) - _KNEE))
    return np.where(mel < _KNEE, mel * _HZ_A_MEL, upper)


def _window(step: LogMel) -> np.ndarray:
    length = step.width if step.window == "hann" else step.width - 1
    return np.asarray(0.5 - 0.5 * np.cos(2 * np.pi * np.arange(step.width) / length))
