"""WAV files written by hand, good and bad, with the samples that lie in them."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

__all__ = ["SoundFile", "chunk", "files", "form", "levels", "riff", "tone", "wav"]

_TAIL = bytes.fromhex("000000001000800000aa00389b71")


class SoundFile(NamedTuple):
    """A file, and its rate and samples float64 [n, channels]; None where it is bad."""

    name: str
    data: bytes
    rate: int = 0
    samples: np.ndarray | None = None


def chunk(name: bytes, body: bytes) -> bytes:
    """A chunk with the byte that makes its size even."""
    return name + struct.pack("<I", len(body)) + body + b"\0" * (len(body) % 2)


def riff(*chunks: bytes, size: int | None = None) -> bytes:
    """A RIFF file; ``size`` is what its header says, if not the truth."""
    body = b"WAVE" + b"".join(chunks)
    return b"RIFF" + struct.pack("<I", len(body) if size is None else size) + body


def form(
    kind: int, channels: int, rate: int, bits: int, extensible: bool = False, tail: bytes = _TAIL
) -> bytes:
    """A format chunk."""
    align = channels * bits // 8
    plain = (channels, rate, rate * align % (1 << 32), align, bits)
    if not extensible:
        return chunk(b"fmt ", struct.pack("<HHIIHH", kind, *plain))
    head = struct.pack("<HHIIHH", 0xFFFE, *plain)
    return chunk(b"fmt ", head + struct.pack("<HHIH", 22, bits, 0, kind) + tail)


def levels(samples: np.ndarray, bits: int) -> np.ndarray:
    """Samples from -1 to 1 as the numbers in a file: int64, or float64 where bits is negative."""
    if bits < 0:
        return samples.astype(f"<f{-bits // 8}").astype(np.float64)
    full = 2 ** (bits - 1)
    return np.clip(np.rint(samples * full), -full, full - 1).astype(np.int64)


def packed(numbers: np.ndarray, bits: int) -> bytes:
    """The bytes of `levels`."""
    if bits < 0:
        return numbers.astype(f"<f{-bits // 8}").tobytes()
    shifted = numbers + (128 if bits == 8 else 0)
    wide = np.frombuffer(shifted.astype("<i8").tobytes(), np.uint8)
    return wide.reshape(-1, 8)[:, : bits // 8].tobytes()


def wav(samples: np.ndarray, rate: int, bits: int, extensible: bool = False) -> bytes:
    """Samples float64 [n] or [n, channels] as a WAV: floats where bits is negative."""
    grid = samples.reshape(len(samples), -1)
    header = form(3 if bits < 0 else 1, grid.shape[1], rate, abs(bits), extensible)
    return riff(header, chunk(b"data", packed(levels(grid, bits), bits)))


def tone(count: int, rate: int, seed: int = 0) -> np.ndarray:
    """A few partials over noise, float64 [count], below 1."""
    rng = np.random.default_rng(seed)
    time = np.arange(count) / rate
    made = 0.02 * rng.standard_normal(count)
    for _ in range(4):
        made += 0.15 * np.sin(2 * np.pi * rng.uniform(60, rate / 3) * time + rng.uniform(0, 6))
    return np.clip(made, -0.99, 0.99)


def files() -> Iterator[SoundFile]:
    """All of them."""
    yield from _depths()
    yield from _rates()
    yield from _chunks()
    yield from _bad()


def _stored(name: str, samples: np.ndarray, rate: int, bits: int, **more: bool) -> SoundFile:
    grid = samples.reshape(len(samples), -1)
    full = 1 if bits < 0 else 2 ** (bits - 1)
    return SoundFile(name, wav(grid, rate, bits, **more), rate, levels(grid, bits) / full)


def _depths() -> Iterator[SoundFile]:
    ends = np.array([-1.0, 1.0, 0.0, 0.5, -0.5, 1e-3, -1e-3])
    one = np.concatenate([ends, tone(57, 8000)])
    two = np.stack([one, tone(64, 8000, 1)], axis=1)
    for bits in (8, 16, 24, 32, -32, -64):
        name = f"{'float' if bits < 0 else 'pcm'}{abs(bits)}"
        yield _stored(f"{name}.wav", one, 8000, bits)
        yield _stored(f"{name}-stereo.wav", two, 8000, bits)
        yield _stored(f"{name}-extensible.wav", two, 8000, bits, extensible=True)
    five = np.stack([tone(33, 8000, seed) for seed in range(5)], axis=1)
    yield _stored("five-channels.wav", five, 8000, 24)
    yield _stored("loud.wav", np.array([3.5, -2.25, 1e-30]), 8000, -32)
    yield _stored("one-sample.wav", np.array([0.25]), 8000, 16)
    yield _stored("silence.wav", np.zeros(800), 8000, 16)


def _rates() -> Iterator[SoundFile]:
    yield _stored("8k.wav", tone(800, 8000, 2), 8000, 16)
    yield _stored("16k.wav", tone(4000, 16_000, 3), 16_000, 16)
    yield _stored("11k.wav", tone(600, 11_025, 4), 11_025, 16)
    stereo = np.stack([tone(2205, 44_100, 5), tone(2205, 44_100, 6)], axis=1)
    yield _stored("44k-stereo.wav", stereo, 44_100, 16)
    yield _stored("48k.wav", tone(2400, 48_000, 7), 48_000, 24)


def _chunks() -> Iterator[SoundFile]:
    """Legal and rare: chunks in between, an odd one, bytes behind the end."""
    samples = tone(40, 8000, 8)
    numbers = levels(samples[:, None], 16)
    head, data = form(1, 1, 8000, 16), chunk(b"data", packed(numbers, 16))
    held = (8000, numbers / 32768)
    yield SoundFile("odd-chunk.wav", riff(chunk(b"LIST", b"abc"), head, data), *held)
    yield SoundFile("chunk-behind.wav", riff(head, data, chunk(b"id3 ", b"x" * 9)), *held)
    yield SoundFile("bytes-behind.wav", riff(head, data) + b"data" * 5, *held)
    eight = levels(samples[:39, None], 8)
    bare = riff(form(1, 1, 8000, 8), chunk(b"data", packed(eight, 8))[:-1])
    yield SoundFile("no-pad-byte.wav", bare, 8000, eight / 128)


def _bad() -> Iterator[SoundFile]:
    head, data = form(1, 1, 8000, 16), chunk(b"data", bytes(64))
    good = riff(head, data)
    starts = {"flac": b"fLaC", "ogg": b"OggS", "mp3": b"ID3\4", "aiff": b"FORM", "rf64": b"RF64"}
    for name, start in starts.items():
        yield SoundFile(f"other.{name}", start + bytes(60))
    yield SoundFile("other.m4a", b"\0\0\0\x20ftypM4A \0\0\0\0")
    yield SoundFile("empty.wav", b"")
    yield SoundFile("cut.wav", good[:-9])
    yield SoundFile("cut-header.wav", good[:20])
    yield SoundFile("pipe.wav", riff(head, data, size=0xFFFFFFFF))
    long = b"data" + struct.pack("<I", 66) + bytes(64)
    yield SoundFile("data-too-long.wav", riff(head, long))
    yield SoundFile("no-data.wav", riff(head))
    yield SoundFile("no-format.wav", riff(chunk(b"LIST", b"abcd")))
    yield SoundFile("data-first.wav", riff(data, head))
    yield SoundFile("no-samples.wav", riff(head, chunk(b"data", b"")))
    yield SoundFile("half-sample.wav", riff(head, chunk(b"data", bytes(63))))
    yield SoundFile("short-format.wav", riff(chunk(b"fmt ", bytes(14)), data))
    yield SoundFile("no-channel.wav", riff(form(1, 0, 8000, 16), data))
    lies = form(1, 2, 8000, 16).replace(struct.pack("<HH", 4, 16), struct.pack("<HH", 6, 16))
    yield SoundFile("align.wav", riff(lies, data))
    short = chunk(b"fmt ", form(1, 1, 8000, 16, True)[8:40])
    yield SoundFile("short-extensible.wav", riff(short, data))
    for name, kind, bits in (("alaw", 6, 8), ("mulaw", 7, 8), ("adpcm", 2, 4)):
        yield SoundFile(f"{name}.wav", riff(form(kind, 1, 8000, bits), data))
    for bits in (12, 20, 64):
        yield SoundFile(f"pcm{bits}.wav", riff(form(1, 1, 8000, bits), data))
    yield SoundFile("float16.wav", riff(form(3, 1, 8000, 16), data))
    yield SoundFile("other-maker.wav", riff(form(1, 1, 8000, 16, True, bytes(14)), data))
    for rate in (0, 999, 768_001, 4_294_967_295, 383_999):
        yield SoundFile(f"rate-{rate}.wav", riff(form(1, 1, rate, 16), data))
    for name, value in (("nan", np.nan), ("inf", -np.inf)):
        numbers = np.array([0.5, value], "<f4").tobytes()
        yield SoundFile(f"{name}.wav", riff(form(3, 1, 8000, 32), chunk(b"data", numbers)))
