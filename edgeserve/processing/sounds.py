"""From one sound to the inputs of a model: what `Processor` does where the medium is "audio"."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from edgeserve.errors import InputError, ProcessingError
from edgeserve.processing.clock import Clock
from edgeserve.processing.fit import check_names, check_task
from edgeserve.processing.mel import Mel
from edgeserve.processing.plan import step_name
from edgeserve.processing.resample import check_rate, needed, resample, resampled_length
from edgeserve.processing.sound import Heard, hear
from edgeserve.types.processing import InputProcessing
from edgeserve.types.sounds import LogMel, Waveform
from edgeserve.types.tensors import Signature, TensorSpec
from edgeserve.types.words import Task

__all__ = ["Sounds", "waveform"]


class Sounds:
    """Inputs made from a sound, compiled. Immutable, so threads may share it."""

    __slots__ = ("_tracks",)

    def __init__(self, inputs: Sequence[InputProcessing], signature: Signature, task: Task) -> None:
        """Check and compile.

        Raises:
            ProcessingError: EDGE-PROCESS-001 to 005.
        """
        check_task(task, "audio")
        check_names([each.name for each in inputs], signature, "sound")
        self._tracks = tuple(_Track(each, signature) for each in inputs)

    def __call__(self, raw: object, clock: Clock | None) -> dict[str, np.ndarray]:
        """One sample of one sound; see `Processor.prepare`."""
        heard = hear(raw)
        return {track.name: track(heard, clock) for track in self._tracks}


class _Track:
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

    def __call__(self, heard: Heard, clock: Clock | None) -> np.ndarray:
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


def waveform(step: Waveform, heard: Heard) -> np.ndarray:
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
    x = heard.mono(needed(kept, heard.rate, step.rate))
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


def _mel(name: str, wave: Waveform, step: LogMel | None) -> Mel | None:
    if step is None:
        return None
    try:
        mel = Mel(step, wave.rate)
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


def _made(wave: Waveform, step: LogMel | None, mel: Mel | None) -> tuple[int | None, ...]:
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
