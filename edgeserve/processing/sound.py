"""What holds a sound: a WAV in bytes, at a path or in a file, or samples with their rate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgeserve.errors import InputError
from edgeserve.processing.raw import bytes_of
from edgeserve.processing.wav import Wav, read_wav, write_wav

__all__ = ["Heard", "Sound", "hear"]


@dataclass(frozen=True, eq=False)
class Sound:
    """Samples that are decoded already.

    Attributes:
        samples: Mono, float32 [n], full scale from -1 to 1.
        rate: Samples a second.
    """

    samples: np.ndarray
    rate: int

    def wav(self) -> bytes:
        """The sound as a WAV of floats, which loses nothing.

        Raises:
            InputError: EDGE-INPUT-034 or -035, as `hear`.
        """
        return write_wav(_checked(self), int(self.rate))


class Heard:
    """A raw sound whose header or array has been looked at.

    Attributes:
        rate: Samples a second.
        frames: How many samples there are.
    """

    __slots__ = ("_held", "frames", "rate")

    def __init__(self, held: Wav | Sound) -> None:
        self._held = held
        self.rate = int(held.rate)
        self.frames = held.frames if isinstance(held, Wav) else len(held.samples)

    def mono(self, frames: int | None = None) -> np.ndarray:
        """The first ``frames`` samples (None: all), float32 [n].

        Raises:
            InputError: EDGE-INPUT-037, NaN or infinity.
        """
        return self._held.mono(frames) if isinstance(self._held, Wav) else self._held.samples


def hear(raw: object) -> Heard:
    """Look at a raw sound; no sample of a WAV is decoded yet.

    Raises:
        InputError: EDGE-INPUT-001 or 007, it cannot be read; -030 to -032, it is no WAV that is
            read; -034, an array of another kind; -035, an array without a rate.
    """
    if isinstance(raw, np.ndarray):
        raise _no_rate("none")
    if isinstance(raw, Sound):
        return Heard(Sound(_checked(raw), raw.rate))
    return Heard(read_wav(bytes_of(raw, "sound", "or an array with rate=")))


def _checked(sound: Sound) -> np.ndarray:
    array, rate = sound.samples, sound.rate
    if isinstance(rate, bool) or not isinstance(rate, int | np.integer) or rate < 1:
        raise _no_rate(repr(rate))
    right = isinstance(array, np.ndarray) and array.dtype == np.float32 and array.ndim == 1
    if right and array.size and np.isfinite(array).all():
        return array
    raise InputError(
        "EDGE-INPUT-034",
        "array",
        wanted="finite float32 samples of shape [n], one channel",
        got=_form(array),
        hint=_hint(array),
    )


def _form(array: object) -> str:
    if not isinstance(array, np.ndarray):
        return f"{type(array).__module__}.{type(array).__qualname__}"
    if array.dtype == np.float32 and array.ndim == 1 and array.size:
        return "NaN or infinity among them"
    return f"{array.dtype} of shape {list(array.shape)}"


def _hint(array: object) -> str:
    if not isinstance(array, np.ndarray):
        return "convert it with np.asarray (a torch tensor with .numpy())"
    if array.ndim != 1:
        return "one channel: take the mean over the channels' axis; a list of arrays is a batch"
    if array.dtype.kind in "iu":
        return "bring full scale to 1: np.float32(array) / 32768 for 16 bits"
    return "convert it with .astype(np.float32), full scale from -1 to 1, without NaN"


def _no_rate(got: str) -> InputError:
    return InputError(
        "EDGE-INPUT-035",
        "rate of an array",
        wanted="samples a second, a whole number",
        got=got,
        hint="say what the array was recorded at: predict(samples, rate=16000)",
    )
