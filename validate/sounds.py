"""Made sounds: natural enough for a model of sounds to be sure of something, and nobody's voice.

Each is made from its number alone: a voice-like hum in syllables, a melody, a chirp, bursts of
noise, clicks or a chord, over faint noise. They are of the model's own rate and one channel, since
a server may take nothing else. The bytes are the same everywhere but for the last bits of `sin`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from edgeserve.processing.wav import write_wav
from edgeserve.types.processing import LogMel, Waveform
from edgeserve.types.source import Exported

__all__ = ["Range", "edges", "range_of", "sound", "wave"]

_Draw = Callable[[np.random.Generator, np.ndarray], np.ndarray]
#: Seconds of a sound where the model takes any: long enough for a word.
_SHORT, _LONG = 0.5, 3.0


@dataclass(frozen=True)
class Range:
    """How long sounds may be for a model.

    Attributes:
        rate: Samples a second.
        low: Fewest samples.
        high: Most samples.
        free: The model's input is as long as the sound.
    """

    rate: int
    low: int
    high: int
    free: bool


def range_of(exported: Exported) -> Range:
    """The range of the first input that is made from a sound.

    Where the processing fixes the length, sounds are a little shorter and longer than that.
    """
    made = exported.processing.inputs[0]
    wave, mel = made.steps[0], next((s for s in made.steps if isinstance(s, LogMel)), None)
    assert isinstance(wave, Waveform)
    rate, least = wave.rate, 1 if mel is None else mel.width
    if wave.length is not None:
        return Range(rate, max(least, wave.length * 3 // 5), wave.length * 6 // 5, False)
    if mel is not None and mel.frames is not None:
        return Range(rate, max(least, int(_SHORT * rate)), int(_LONG * rate), False)
    signature = exported.signature
    shape = signature.input(made.name).shape[1:]
    sizes = [dim for dim in shape if isinstance(dim, str)]
    low, high = signature.dims[sizes[0]] if sizes else (1, wave.max_length)
    if mel is not None:  # frames of one hop each, and what the last one needs
        rest = 0 if mel.center else mel.width
        low, high = ((frames - 1) * mel.hop + rest for frames in (low, high))
    high = min(high, wave.max_length)
    return Range(rate, max(low, least), high, True)


def sound(number: int, seed: int, of: Range) -> bytes:
    """The WAV of sound ``number``: 16 bits, one channel."""
    return write_wav(wave(number, seed, of), of.rate)


def wave(number: int, seed: int, of: Range) -> np.ndarray:
    """Its samples: int16 [n]."""
    rng = np.random.default_rng((seed, number))
    low, high = of.low, of.high
    if of.free:
        short, long = int(_SHORT * of.rate), int(_LONG * of.rate)
        low, high = max(low, short if short < high else low), max(low, min(high, long))
    time = np.arange(int(rng.integers(low, high + 1))) / of.rate
    made = _PATTERNS[number % len(_PATTERNS)](rng, time)
    made = made / max(float(np.abs(made).max()), 1e-9) * rng.uniform(0.1, 0.9)
    made = made + rng.normal(0, 10 ** rng.uniform(-4, -2), len(time))
    return np.asarray(np.rint(np.clip(made, -1, 1) * 32_767), np.int16)


def edges(of: Range) -> Iterator[tuple[str, bytes, bool]]:
    """Name and WAV of what is legal and rare, and whether it is there for its length."""
    some = min(of.high, max(of.low, of.rate))
    high = min(of.high, of.low + int(_LONG * of.rate)) if of.free else of.high
    clipped = np.where(np.arange(some) // 40 % 2, 32_767, -32_768).astype(np.int16)
    yield "silence", write_wav(np.zeros(some, np.int16), of.rate), False
    yield "clipped", write_wav(clipped, of.rate), False
    for word, size in {"the fewest": of.low, "the most": high}.items():
        exact = Range(of.rate, size, size, False)
        yield f"{size} samples, {word}", sound(0, 0, exact), True


def _sine(time: np.ndarray, pitch: np.ndarray | float) -> np.ndarray:
    """A sine whose pitch in Hz may move: its phase is what adds up."""
    step = float(time[1]) if len(time) > 1 else 0.0
    return np.asarray(np.sin(2 * np.pi * np.cumsum(np.broadcast_to(pitch, time.shape)) * step))


def _syllables(rng: np.random.Generator, time: np.ndarray) -> np.ndarray:
    """0 to 1: loud and quiet a few times a second."""
    return np.asarray(
        np.clip(np.sin(2 * np.pi * rng.uniform(1.5, 4) * time + rng.uniform(0, 6)), 0, 1)
    )


def _hum(rng: np.random.Generator, time: np.ndarray) -> np.ndarray:
    """Harmonics of a low pitch that wavers, in syllables: what speech looks like from afar."""
    pitch = rng.uniform(90, 260) * (1 + 0.06 * np.sin(2 * np.pi * rng.uniform(2, 6) * time))
    parts = [rng.uniform(0.2, 1) / k * _sine(time, k * pitch) for k in range(1, 9)]
    return np.asarray(np.sum(parts, axis=0) * _syllables(rng, time))


def _melody(rng: np.random.Generator, time: np.ndarray) -> np.ndarray:
    notes = 220 * 2 ** (rng.integers(0, 25, 16) / 12)
    return _sine(time, notes[(time * rng.uniform(2, 6)).astype(int) % 16])


def _chirp(rng: np.random.Generator, time: np.ndarray) -> np.ndarray:
    low, high = rng.uniform(100, 600), rng.uniform(900, 3500)
    share = time * rng.uniform(0.4, 2) % 1
    return _sine(time, low * (high / low) ** share)


def _bursts(rng: np.random.Generator, time: np.ndarray) -> np.ndarray:
    return np.asarray(rng.standard_normal(len(time)) * _syllables(rng, time))


def _clicks(rng: np.random.Generator, time: np.ndarray) -> np.ndarray:
    since = time * rng.uniform(2, 12) % 1
    return np.asarray(np.exp(-since * rng.uniform(20, 80)) * _sine(time, rng.uniform(300, 2500)))


def _chord(rng: np.random.Generator, time: np.ndarray) -> np.ndarray:
    pitches = rng.uniform(110, 440) * np.array([1, 1.25, 1.5, 2])
    return np.asarray(np.sum([_sine(time, p) for p in pitches], axis=0))


def _noise(rng: np.random.Generator, time: np.ndarray) -> np.ndarray:
    """Noise that a moving mean has made darker."""
    width = int(rng.integers(1, 12))
    return np.convolve(rng.standard_normal(len(time)), np.ones(width), "same")[: len(time)]


_PATTERNS: tuple[_Draw, ...] = (_hum, _melody, _bursts, _chirp, _clicks, _chord, _noise)
