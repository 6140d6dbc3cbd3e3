"""From one sound to the inputs of a model: what `Processor` does where the medium is "audio"."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgeserve.errors import ProcessingError
from edgeserve.processing.audio.source import AudioHeader, open_audio
from edgeserve.processing.inputs import StepTimer, check_names, check_task, wrong_order
from edgeserve.processing.steps.log_mel import LogMel, LogMelTransform
from edgeserve.processing.steps.waveform import Waveform, length_error, waveform
from edgeserve.types.processing import InputProcessing
from edgeserve.types.tensors import Signature, TensorSpec
from edgeserve.types.vocabulary import Task


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

    def __call__(self, raw: object, clock: StepTimer) -> dict[str, np.ndarray]:
        """One sample of one sound; see `Processor.prepare`."""
        audio = open_audio(raw)
        return {track.name: track(audio, clock) for track in self._tracks}


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

    def __call__(self, audio: AudioHeader, clock: StepTimer) -> np.ndarray:
        made = waveform(self._wave, audio, self.mel.bytes_per_sample if self.mel else 0.0)
        clock("waveform")
        if self.mel is not None:
            made = self.mel(made)
            clock("log_mel")
        sizes = iter(made.shape)
        shape = tuple(1 if dim == 1 else next(sizes) for dim in self._shape)
        for size, (low, high) in zip(shape, self._ranges, strict=True):
            if not low <= size <= high:
                raise length_error(f"{low} to {high}, along one axis of {self.name!r}", str(size))
        return made.reshape(shape)


def _in_order(processing: InputProcessing) -> tuple[Waveform, LogMel | None]:
    first, second, *rest = (*processing.steps, None, None)
    right = isinstance(second, LogMel | None) and not any(rest)
    if isinstance(first, Waveform) and right:
        return first, second
    hint = "put the steps in this order, each once"
    raise wrong_order(processing, "waveform, then log_mel or nothing", hint)


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
