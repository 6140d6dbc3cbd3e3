"""Synthetic images, audio and texts: natural enough for a model to be sure of something.

Images are drawn from their number alone and are nobody's photo: a coloured gradient, soft
clouds, then shapes, stripes, checks or rings over it. The pixels are the same everywhere; the
PNG bytes may differ between versions of zlib.

Audio is made from its number alone and is nobody's voice: a voice-like hum in syllables, a
melody, a chirp, bursts of noise, clicks or a chord, over faint noise. It is of the model's own
rate and one channel, since a server may take nothing else. The bytes are the same everywhere but
for the last bits of `sin`.

Texts stand in for a user's own; beside them are those at the edges: empty, endless, of any
script. The ordinary ones lie in ``texts.txt``, two wordings of each. Texts of a wanted length
are cut from them by counting tokens, so that the shortest, the longest and an odd length between
are tried.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources

import numpy as np

from edgeserve.processing.audio.source import write_wav
from edgeserve.processing.steps.log_mel import LogMel
from edgeserve.processing.steps.waveform import Waveform
from edgeserve.types.source import Exported

_Grid = tuple[np.ndarray, np.ndarray]
_DrawImage = Callable[[np.random.Generator, _Grid], np.ndarray]


def synthetic_image(number: int, seed: int = 0) -> bytes:
    """The PNG of picture ``number``: 128 to 255 pixels a side."""
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(image_pixels(number, seed)).save(out, "PNG")
    return out.getvalue()


def image_pixels(number: int, seed: int = 0) -> np.ndarray:
    """Its pixels: uint8 RGB [height, width, 3]."""
    rng = np.random.default_rng((seed, number))
    height, width = (int(n) for n in rng.integers(128, 256, 2))
    y, x = np.mgrid[0:height, 0:width]
    grid = (y / height, x / width)
    image = _gradient(rng, grid)
    if rng.random() < 0.5:
        image = _blend(image, _clouds(rng, grid), rng.random(3))
    pattern = _IMAGE_PATTERNS[number % len(_IMAGE_PATTERNS)]
    for _ in range(int(rng.integers(1, 4))):
        image = _blend(image, pattern(rng, grid), rng.random(3))
    return np.asarray(np.rint(np.clip(image, 0, 1) * 255), np.uint8)


def _blend(image: np.ndarray, cover: np.ndarray, colour: np.ndarray) -> np.ndarray:
    """Lay ``colour`` over the picture where ``cover`` [height, width] is 1."""
    return np.asarray(image + cover[..., None] * (colour - image))


def _gradient(rng: np.random.Generator, grid: _Grid) -> np.ndarray:
    """Between two colours, along a random direction."""
    along = _ramp(rng, grid)
    first, second = rng.random(3), rng.random(3)
    return np.asarray(first + along[..., None] * (second - first))


def _ramp(rng: np.random.Generator, grid: _Grid) -> np.ndarray:
    """0 to 1 across the picture, in a random direction."""
    angle = rng.uniform(0, 2 * np.pi)
    along = np.sin(angle) * grid[0] + np.cos(angle) * grid[1]
    return np.asarray((along - along.min()) / np.ptp(along))


def _clouds(rng: np.random.Generator, grid: _Grid) -> np.ndarray:
    """Smooth noise: a coarse random grid, interpolated linearly."""
    cells = int(rng.integers(3, 9))
    coarse = rng.random((cells + 1, cells + 1))
    y, x = grid[0] * cells, grid[1] * cells
    top, left = y.astype(int), x.astype(int)
    down, right = y - top, x - left
    upper = coarse[top, left] * (1 - right) + coarse[top, left + 1] * right
    lower = coarse[top + 1, left] * (1 - right) + coarse[top + 1, left + 1] * right
    return np.asarray(upper * (1 - down) + lower * down)


def _disc(rng: np.random.Generator, grid: _Grid) -> np.ndarray:
    """An ellipse with a soft edge."""
    centre, radius = rng.uniform(0.2, 0.8, 2), rng.uniform(0.08, 0.45, 2)
    distance = np.hypot((grid[0] - centre[0]) / radius[0], (grid[1] - centre[1]) / radius[1])
    return np.asarray(np.clip((1 - distance) * 12, 0, 1))


def _box(rng: np.random.Generator, grid: _Grid) -> np.ndarray:
    centre, half = rng.uniform(0.2, 0.8, 2), rng.uniform(0.06, 0.4, 2)
    inside = (np.abs(grid[0] - centre[0]) < half[0]) & (np.abs(grid[1] - centre[1]) < half[1])
    return np.asarray(inside, float)


def _stripes(rng: np.random.Generator, grid: _Grid) -> np.ndarray:
    wave = np.sin(_ramp(rng, grid) * rng.uniform(6, 60) * np.pi)
    return np.asarray(wave > rng.uniform(-0.6, 0.6), float)


def _checks(rng: np.random.Generator, grid: _Grid) -> np.ndarray:
    cells = rng.integers(3, 24)
    return np.asarray(((grid[0] * cells).astype(int) + (grid[1] * cells).astype(int)) % 2, float)


def _rings(rng: np.random.Generator, grid: _Grid) -> np.ndarray:
    centre = rng.uniform(0.2, 0.8, 2)
    distance = np.hypot(grid[0] - centre[0], grid[1] - centre[1])
    return np.asarray((np.sin(distance * rng.uniform(20, 120)) + 1) / 2)


def _dots(rng: np.random.Generator, grid: _Grid) -> np.ndarray:
    cells = rng.uniform(4, 20)
    y, x = grid[0] * cells % 1 - 0.5, grid[1] * cells % 1 - 0.5
    return np.asarray((np.hypot(y, x) < rng.uniform(0.15, 0.45)), float)


_IMAGE_PATTERNS: tuple[_DrawImage, ...] = (_disc, _stripes, _checks, _rings, _dots, _box, _clouds)


_DrawAudio = Callable[[np.random.Generator, np.ndarray], np.ndarray]
#: Seconds of a sound where the model takes any: long enough for a word.
_MIN_SECONDS, _MAX_SECONDS = 0.5, 3.0


@dataclass(frozen=True)
class AudioRange:
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


def audio_range(exported: Exported) -> AudioRange:
    """The range of the first input that is made from a sound.

    Where the processing fixes the length, sounds are a little shorter and longer than that.
    """
    made = exported.processing.inputs[0]
    wave, mel = made.steps[0], next((s for s in made.steps if isinstance(s, LogMel)), None)
    assert isinstance(wave, Waveform)
    rate, least = wave.rate, 1 if mel is None else mel.width
    if wave.length is not None:
        return AudioRange(rate, max(least, wave.length * 3 // 5), wave.length * 6 // 5, False)
    if mel is not None and mel.frames is not None:
        low, high = int(_MIN_SECONDS * rate), int(_MAX_SECONDS * rate)
        return AudioRange(rate, max(least, low), high, False)
    signature = exported.signature
    shape = signature.input(made.name).shape[1:]
    sizes = [dim for dim in shape if isinstance(dim, str)]
    low, high = signature.dims[sizes[0]] if sizes else (1, wave.max_length)
    if mel is not None:  # frames of one hop each, and what the last one needs
        rest = 0 if mel.center else mel.width
        low, high = ((frames - 1) * mel.hop + rest for frames in (low, high))
    high = min(high, wave.max_length)
    return AudioRange(rate, max(low, least), high, True)


def synthetic_audio(number: int, seed: int, of: AudioRange) -> bytes:
    """The WAV of sound ``number``: 16 bits, one channel."""
    return write_wav(audio_samples(number, seed, of), of.rate)


def audio_samples(number: int, seed: int, of: AudioRange) -> np.ndarray:
    """Its samples: int16 [n]."""
    rng = np.random.default_rng((seed, number))
    low, high = of.low, of.high
    if of.free:
        short, long = int(_MIN_SECONDS * of.rate), int(_MAX_SECONDS * of.rate)
        low, high = max(low, short if short < high else low), max(low, min(high, long))
    time = np.arange(int(rng.integers(low, high + 1))) / of.rate
    made = _AUDIO_PATTERNS[number % len(_AUDIO_PATTERNS)](rng, time)
    made = made / max(float(np.abs(made).max()), 1e-9) * rng.uniform(0.1, 0.9)
    made = made + rng.normal(0, 10 ** rng.uniform(-4, -2), len(time))
    return np.asarray(np.rint(np.clip(made, -1, 1) * 32_767), np.int16)


def audio_edge_cases(of: AudioRange) -> Iterator[tuple[str, bytes, bool]]:
    """Name and WAV of what is legal and rare, and whether it is there for its length."""
    some = min(of.high, max(of.low, of.rate))
    high = min(of.high, of.low + int(_MAX_SECONDS * of.rate)) if of.free else of.high
    clipped = np.where(np.arange(some) // 40 % 2, 32_767, -32_768).astype(np.int16)
    yield "silence", write_wav(np.zeros(some, np.int16), of.rate), False
    yield "clipped", write_wav(clipped, of.rate), False
    for word, size in {"the fewest": of.low, "the most": high}.items():
        exact = AudioRange(of.rate, size, size, False)
        yield f"{size} samples, {word}", synthetic_audio(0, 0, exact), True


def _sine(time: np.ndarray, pitch: np.ndarray | float) -> np.ndarray:
    """A sine whose pitch in Hz may move: its phase is what adds up."""
    step = float(time[1]) if len(time) > 1 else 0.0
    return np.asarray(np.sin(2 * np.pi * np.cumsum(np.broadcast_to(pitch, time.shape)) * step))


def _syllables(rng: np.random.Generator, time: np.ndarray) -> np.ndarray:
    """0 to 1: loud and quiet a few times a second."""
    wave = np.sin(2 * np.pi * rng.uniform(1.5, 4) * time + rng.uniform(0, 6))
    return np.asarray(np.clip(wave, 0, 1))


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


_AUDIO_PATTERNS: tuple[_DrawAudio, ...] = (_hum, _melody, _bursts, _chirp, _clicks, _chord, _noise)


#: Tokens in a text, special ones included.
CountTokens = Callable[[str], int]

#: Words that most tokenizers know whole, to make up a length with.
_PADDING_WORDS = ("a", "the", "1", "and", ".")


@cache
def paraphrases() -> tuple[tuple[str, str], ...]:
    """The ordinary texts, each in two wordings."""
    text = (resources.files("edgeserve.validate") / "texts.txt").read_text("utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    blocks = [block.splitlines() for block in "\n".join(lines).strip().split("\n\n")]
    return tuple((first, second) for first, second in blocks)


def sentences() -> tuple[str, ...]:
    """The first wording of each."""
    return tuple(first for first, _ in paraphrases())


def text_edge_cases(longest: int) -> Iterator[tuple[str, str]]:
    """Name and text of what is legal and rare.

    Args:
        longest: Tokens beyond which a text is cut off.
    """
    yield "empty", ""
    yield "one character", "x"
    yield "blank", " \t\n "
    yield "repeated word", "very " * (longest // 4 + 2)
    yield "emoji", "👩🏽‍🚀🚀🌍 👍🏿 🏳️‍🌈 1️⃣ ❤️‍🔥"
    yield "accents, combined and not", "Café, cafe\u0301, Ångström, A\u030angstro\u0308m, naïve"
    yield "right to left", "السلام عليكم (abc 123) שלום עולם"
    yield "no spaces", "東京特許許可局長今日急遽休暇許可拒否。人工知能研究所"
    yield ("odd characters", "\u200b\ufeffzero\u00adwidth\u2028 \u202eabc\u202c \ufffd \x07")
    yield "longer than the model takes", " ".join(sentences()) * (longest // 400 + 1)


def text_of_length(wanted: int, count: CountTokens) -> str | None:
    """A text of so many tokens; None where none was found (a tokenizer that joins words).

    Args:
        wanted: Tokens, special ones included.
        count: The tokens of a text, at most those that the model takes.
    """
    words = " ".join(text for text in sentences() if text.isascii()).split()
    words *= wanted // len(words) + 1
    low, high = 0, len(words)
    while low < high:  # the most words that do not give too many tokens
        middle = (low + high + 1) // 2
        fits = count(" ".join(words[:middle])) <= wanted
        low, high = (middle, high) if fits else (low, middle - 1)
    for word in _PADDING_WORDS:
        longer = words[:low]
        while (got := count(" ".join(longer))) < wanted and len(longer) < low + wanted:
            longer.append(word)
        if got == wanted:
            return " ".join(longer)
    return None


def prime_between(low: int, high: int) -> int | None:
    """A prime near the middle of ``low`` and ``high`` and strictly between; None where none is.

    A length that nothing divides shows what silently assumes a multiple.
    """
    middle = (low + high) // 2
    for away in range(high - low):
        for size in (middle + away, middle - away):
            factors = range(2, int(max(size, 0) ** 0.5) + 1)
            if max(low, 1) < size < high and all(size % factor for factor in factors):
                return size
    return None
