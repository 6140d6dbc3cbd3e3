"""waveform/1: mono samples at the model's rate.

Another rate is reached by a polyphase windowed sinc, whose definition stands in
``spec/processing.md``: a sinc under a Kaiser window, centred, with zeros outside of the sound.
Method: R. E. Crochiere, L. R. Rabiner, *Multirate Digital Signal Processing*, Prentice-Hall 1983,
chapter 2.
"""

from __future__ import annotations

import math
from functools import lru_cache
from math import gcd
from typing import ClassVar, Literal

import numpy as np

from edgeserve.errors import InputError
from edgeserve.processing.audio.source import AudioHeader
from edgeserve.types.steps import InputStep

#: Numbers that a row may have at most: nothing near it is a sound that one call is asked about.
_MOST_SAMPLES = 1 << 28
#: Rates of sounds that are taken, in Hz: from worse than a telephone to better than a studio.
RATES = (1000, 768_000)
#: Largest number of the ratio of two rates, in lowest terms: the filter has 20 times as many taps.
_FINEST = 50_000
#: Most bytes that a sound whose length the step leaves open may take until it is a tensor.
_MOST_BYTES = 240 << 20
#: Zero crossings of the sinc on each side, and the Kaiser window's shape.
_CROSSINGS, _BETA = 10, 5.0


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

    medium: ClassVar = "audio"

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


def _check_rate(rate: int, wanted: int) -> None:
    """See that a sound of ``rate`` can be brought to ``wanted``.

    Raises:
        InputError: EDGE-INPUT-033.
    """
    up, down = _ratio(rate, wanted) if rate > 0 else (0, 0)
    if not RATES[0] <= rate <= RATES[1] or max(up, down) > _FINEST:
        odd = f"{rate} Hz" if not up else f"{rate} Hz, which is {down}:{up} of {wanted}"
        raise InputError(
            "EDGE-INPUT-033",
            "rate of the sound",
            wanted=f"{RATES[0]} to {RATES[1]} Hz, in a ratio of numbers up to {_FINEST}",
            got=odd,
            hint=f"see that the rate is right, and resample the sound to {wanted} Hz yourself",
        )


def resampled_length(length: int, rate: int, wanted: int) -> int:
    """Samples that ``length`` samples of ``rate`` become: ``ceil(length * wanted / rate)``."""
    up, down = _ratio(rate, wanted)
    return -(-length * up // down)


def samples_needed(length: int, rate: int, wanted: int) -> int:
    """How many samples of the sound the first ``length`` of the result look at."""
    up, down = _ratio(rate, wanted)
    if up == down:
        return length
    return ((length - 1) * down + _half(up, down)) // up + 1


def resample(x: np.ndarray, rate: int, wanted: int, length: int | None = None) -> np.ndarray:
    """The first ``length`` samples (None: all) of a sound at another rate, float32.

    ``y[j] = sum over i of x[i] * h[j * down - i * up]``, in float64 and rounded once.

    Args:
        x: float32 [n], n at least 1.
        rate: Its rate.
        wanted: The result's.
        length: Samples to make; what lies behind `resampled_length` is not made.
    """
    up, down = _ratio(rate, wanted)
    made = resampled_length(len(x), rate, wanted)
    made = made if length is None else min(made, length)
    if up == down:
        return np.ascontiguousarray(x[:made])
    half, filters = _half(up, down), _filters(up, down)
    taps = filters.shape[1]
    # Output j looks at the taps samples from first(j) on; zeros lie where there are none.
    before = half // up
    behind = ((made - 1) * down - half) // up + taps + 1
    padded = np.zeros(before + max(len(x), behind) + 1)
    padded[before : before + len(x)] = x
    y = np.empty(made, np.float32)
    for phase in range(min(up, made)):
        first = -((half - phase * down) // up) + before
        count = -(-(made - phase) // up)
        windows = np.lib.stride_tricks.sliding_window_view(padded[first:], taps)[::down][:count]
        y[phase::up] = windows @ filters[phase]
    return y


def _ratio(rate: int, wanted: int) -> tuple[int, int]:
    """Up and down, in lowest terms."""
    common = gcd(rate, wanted)
    return wanted // common, rate // common


def _half(up: int, down: int) -> int:
    """Taps on each side of the middle one."""
    return _CROSSINGS * max(up, down)


@lru_cache(maxsize=8)
def _filters(up: int, down: int) -> np.ndarray:
    """For each phase the taps in the order of the samples: float64 [phases, taps]."""
    half, widest = _half(up, down), max(up, down)
    at = np.arange(-half, half + 1)
    whole = np.sinc(at / widest) * np.kaiser(2 * half + 1, _BETA)
    whole *= up / whole.sum()
    taps = 2 * half // up + 1
    # Of phase p the first sample looked at lies ceil((p * down - half) / up) from its place.
    places = np.arange(up) * down
    first = -((half - places) // up)
    at = places[:, None] - (first[:, None] + np.arange(taps)) * up + half
    found = np.where((at >= 0) & (at <= 2 * half), whole[np.clip(at, 0, 2 * half)], 0.0)
    return found


def waveform(step: Waveform, audio: AudioHeader, later: float = 0.0) -> np.ndarray:
    """waveform/1: mono float32 [n] at the step's rate.

    Args:
        step: Its parameters.
        audio: The sound.
        later: Bytes that the steps after it take for each sample.

    Raises:
        InputError: EDGE-INPUT-033 the rate, -036 too long, -037 NaN or infinity.
    """
    _check_rate(audio.rate, step.rate)
    length = resampled_length(audio.frames, audio.rate, step.rate)
    if step.length is None and length > step.max_length:
        most = f"at most {step.max_length} samples at {step.rate} Hz"
        raise length_error(f"{most} ({step.max_length / step.rate:.3g} s)", str(length))
    kept = length if step.length is None else min(length, step.length)
    # What lies behind is not even decoded: an hour costs no more than the seconds that are used.
    used = min(audio.frames, samples_needed(kept, audio.rate, step.rate))
    if step.length is None:
        _check_cost(step, used, kept, audio.rate != step.rate, later)
    x = audio.mono(used)
    x = resample(x, audio.rate, step.rate, kept)
    if step.normalize != "none":
        x = _normalized(x)
    if step.length is not None and kept < step.length:
        x = np.concatenate([x, np.zeros(step.length - kept, np.float32)])
    return x.copy() if not x.flags.owndata else x


def _check_cost(step: Waveform, used: int, made: int, resampled: bool, later: float) -> None:
    """Refuse a sound that would take too much memory, told from its header.

    Raises:
        InputError: EDGE-INPUT-036.
    """
    each = 4 + (16 if step.normalize != "none" else 0) + later
    cost = used * (13 if resampled else 4) + made * each
    if cost > _MOST_BYTES:
        got = f"{made} samples at {step.rate} Hz, which take {int(cost) >> 20} MiB"
        raise length_error(f"a sound that takes at most {_MOST_BYTES >> 20} MiB", got)


def _normalized(x: np.ndarray) -> np.ndarray:
    wide = x.astype(np.float64)
    wide -= wide.mean()
    return np.asarray(wide / math.sqrt(float((wide * wide).mean()) + 1e-7), np.float32)


def length_error(wanted: str, got: str) -> InputError:
    """EDGE-INPUT-036, a sound of another length than wanted."""
    hint = "send a sound of another length: cut a long one into parts"
    return InputError("EDGE-INPUT-036", "sound", wanted=wanted, got=got, hint=hint)
