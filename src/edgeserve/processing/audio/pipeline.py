"""From one sound to the inputs of a model: waveform/1 with its resampling, then log_mel/1.

What `Processor` does where the medium is "audio". Another rate is reached by a polyphase
windowed sinc, whose definition stands in ``spec/processing.md``: a sinc under a Kaiser window,
centred, with zeros outside of the sound. Method: R. E. Crochiere, L. R. Rabiner, *Multirate
Digital Signal Processing*, Prentice-Hall 1983, chapter 2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from math import gcd

import numpy as np

from edgeserve.errors import InputError, ProcessingError
from edgeserve.processing.audio.log_mel import LogMelTransform
from edgeserve.processing.audio.source import AudioHeader, open_audio
from edgeserve.processing.steps import StepTimer, check_names, check_task, step_name
from edgeserve.types.processing import InputProcessing, LogMel, Waveform
from edgeserve.types.tensors import Signature, TensorSpec
from edgeserve.types.vocabulary import Task

__all__ = [
    "RATES",
    "AudioPipeline",
    "check_rate",
    "resample",
    "resampled_length",
    "samples_needed",
    "waveform",
]


#: Rates of sounds that are taken, in Hz: from worse than a telephone to better than a studio.
RATES = (1000, 768_000)
#: Largest number of the ratio of two rates, in lowest terms: the filter has 20 times as many taps.
_FINEST = 50_000
#: Zero crossings of the sinc on each side, and the Kaiser window's shape.
_CROSSINGS, _BETA = 10, 5.0


def check_rate(rate: int, wanted: int) -> None:
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


class AudioPipeline:
    """Inputs made from a sound, compiled. Immutable, so threads may share it."""

    __slots__ = ("_tracks",)

    def __init__(self, inputs: Sequence[InputProcessing], signature: Signature, task: Task) -> None:
        """Check and compile.

        Raises:
            ProcessingError: EDGE-PROCESS-001 to 005.
        """
        check_task(task, "audio")
        check_names([each.name for each in inputs], signature, "sound")
        self._tracks = tuple(_AudioInput(each, signature) for each in inputs)

    def __call__(self, raw: object, clock: StepTimer | None) -> dict[str, np.ndarray]:
        """One sample of one sound; see `Processor.prepare`."""
        heard = open_audio(raw)
        return {track.name: track(heard, clock) for track in self._tracks}


class _AudioInput:
    """One input's steps."""

    __slots__ = ("_ranges", "_shape", "_wave", "mel", "name")

    def __init__(self, processing: InputProcessing, signature: Signature) -> None:
        self.name = processing.name
        self._wave, step = _in_order(processing)
        self.mel = _mel(self.name, self._wave, step)
        spec = signature.input(self.name)
        self._shape = spec.shape[1:]
        self._ranges = [signature.dims[d] if isinstance(d, str) else (d, d) for d in self._shape]
        _check_tensor(spec, self._ranges, _made(self._wave, step, self.mel))

    def __call__(self, heard: AudioHeader, clock: StepTimer | None) -> np.ndarray:
        made = waveform(self._wave, heard)
        if clock:
            clock("waveform")
        if self.mel is not None:
            made = self.mel(made)
            if clock:
                clock("log_mel")
        sizes = iter(made.shape)
        shape = tuple(1 if dim == 1 else next(sizes) for dim in self._shape)
        for size, (low, high) in zip(shape, self._ranges, strict=True):
            if not low <= size <= high:
                raise _length_error(f"{low} to {high}, along one axis of {self.name!r}", str(size))
        return made.reshape(shape)


def waveform(step: Waveform, heard: AudioHeader) -> np.ndarray:
    """waveform/1: mono float32 [n] at the step's rate.

    Raises:
        InputError: EDGE-INPUT-033 the rate, -036 too long, -037 NaN or infinity.
    """
    check_rate(heard.rate, step.rate)
    length = resampled_length(heard.frames, heard.rate, step.rate)
    if step.length is None and length > step.max_length:
        most = f"at most {step.max_length} samples at {step.rate} Hz"
        raise _length_error(f"{most} ({step.max_length / step.rate:.3g} s)", str(length))
    kept = length if step.length is None else min(length, step.length)
    # What lies behind is not even decoded: an hour costs no more than the seconds that are used.
    x = heard.mono(samples_needed(kept, heard.rate, step.rate))
    x = resample(x, heard.rate, step.rate, kept)
    if step.normalize != "none":
        x = _normalized(x)
    if step.length is not None and kept < step.length:
        x = np.concatenate([x, np.zeros(step.length - kept, np.float32)])
    return x.copy() if not x.flags.owndata else x


def _normalized(x: np.ndarray) -> np.ndarray:
    wide = x.astype(np.float64)
    wide -= wide.mean()
    return np.asarray(wide / math.sqrt(float((wide * wide).mean()) + 1e-7), np.float32)


def _in_order(processing: InputProcessing) -> tuple[Waveform, LogMel | None]:
    first, second, *rest = (*processing.steps, None, None)
    right = isinstance(second, LogMel | None) and not any(rest)
    if isinstance(first, Waveform) and right:
        return first, second
    raise ProcessingError(
        "EDGE-PROCESS-001",
        f"steps of input {processing.name!r}",
        wanted="waveform, then log_mel or nothing",
        got=", ".join(map(step_name, processing.steps)) or "no steps",
        hint="put the steps in this order, each once",
    )


def _mel(name: str, wave: Waveform, step: LogMel | None) -> LogMelTransform | None:
    if step is None:
        return None
    try:
        mel = LogMelTransform(step, wave.rate)
        if wave.length is not None and wave.length < mel.least:
            raise ValueError(f"{wave.length} samples, and one frame needs {mel.least}")
    except ValueError as error:
        raise ProcessingError(
            "EDGE-PROCESS-004",
            f"step 'log_mel/1' of input {name!r}",
            wanted="bands up to half the rate, and samples for a frame",
            got=str(error),
            hint="take the numbers from the model's own feature extractor",
        ) from error
    return mel


def _made(
    wave: Waveform, step: LogMel | None, mel: LogMelTransform | None
) -> tuple[int | None, ...]:
    """Sizes of every result; None where the sound says it."""
    if step is None or mel is None:
        return (wave.length,)
    frames = step.frames
    if frames is None and wave.length is not None:
        frames = mel.frames(wave.length)
    return (step.mels, frames) if step.layout == "mels-frames" else (frames, step.mels)


def _check_tensor(
    spec: TensorSpec, ranges: list[tuple[int, int]], made: tuple[int | None, ...]
) -> None:
    """The signature takes it, axes of size 1 put in wherever it fixes one."""
    wanted = [span for span, dim in zip(ranges, spec.shape[1:], strict=True) if dim != 1]
    fits = len(wanted) == len(made) and all(
        size is None or low <= size <= high for size, (low, high) in zip(made, wanted, strict=True)
    )
    if spec.dtype != "float32" or not fits or len(spec.shape) < 2:
        sizes = ", ".join("any" if size is None else str(size) for size in made)
        raise ProcessingError(
            "EDGE-PROCESS-003",
            f"steps of input {spec.name!r}",
            wanted=f"{spec.dtype} {list(spec.shape)}",
            got=f"float32 [batch, {sizes}]",
            hint="change the step's length, frames, mels or layout, or export the model with what"
            " they make",
        )


def _length_error(wanted: str, got: str) -> InputError:
    return InputError(
        "EDGE-INPUT-036",
        "sound",
        wanted=wanted,
        got=got,
        hint="send a sound of another length: cut a long one into parts",
    )
