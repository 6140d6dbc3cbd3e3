"""What holds a sound: a WAV in bytes, at a path or in a file, or samples with their rate.

WAV files are read strictly: every size is compared with what is there before memory is taken.

Sources: Multimedia Programming Interface and Data Specifications 1.0 (RIFF, 1991); Multiple
channel audio data and WAVE files (WAVE_FORMAT_EXTENSIBLE). What is read and what refused stands
in ``spec/processing.md``.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from edgeserve.errors import InputError
from edgeserve.processing.inputs import bytes_of

_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
#: What follows the format's own number in the name of an extensible format.
_GUID_TAIL = bytes.fromhex("000000001000800000aa00389b71")
#: Bits of a sample that are read, by format.
_BITS = {_PCM: (8, 16, 24, 32), _FLOAT: (32, 64)}
_NAMES = {2: "ADPCM", 6: "A-law", 7: "mu-law", 17: "IMA ADPCM", 85: "MP3"}
#: Other containers by what they start with, so that the error can name them.
_OTHERS = {
    b"fLaC": "FLAC",
    b"OggS": "Ogg",
    b"ID3": "MP3",
    b"\xff\xfb": "MP3",
    b"FORM": "AIFF",
    b"RF64": "RF64",
    b"BW64": "BW64",
    b"RIFX": "big-endian WAV",
    b"\x1aE\xdf\xa3": "WebM",
    b"#!AMR": "AMR",
    b"\xff\xf1": "AAC",
    b"\xff\xf9": "AAC",
    b"caff": "CAF",
}
#: Samples of each channel that are mixed at once.
_BLOCK = 1 << 18
_WRITE = "ffmpeg -i INPUT -c:a pcm_s16le OUTPUT.wav"


class Wav(NamedTuple):
    """The header of a WAV, and where its samples lie.

    Attributes:
        rate: Samples a second, as the header has it.
        channels: How many.
        kind: 1 integers, 3 floats.
        bits: Of a sample.
        frames: Samples of each channel.
        data: The samples' bytes, channels in turn, little endian.
    """

    rate: int
    channels: int
    kind: int
    bits: int
    frames: int
    data: memoryview

    def mono(self, frames: int | None = None) -> np.ndarray:
        """The mean of the channels of the first ``frames`` samples (None: all), float32 [n].

        The channels are added up in float64 in their order, the sum is divided, and the quotient
        rounded once.

        Raises:
            InputError: EDGE-INPUT-037, NaN or infinity.
        """
        count = self.frames if frames is None else min(frames, self.frames)
        mixed = np.empty(count, np.float32)
        for at in range(0, count, _BLOCK):  # so that float64 takes no more memory than a block
            mixed[at : at + _BLOCK] = self._mixed(at, min(at + _BLOCK, count))
        if self.kind == _FLOAT and not np.isfinite(mixed).all():
            got = "NaN or infinity"
            hint = "look at what recorded it: such samples are silence to some, noise to others"
            raise InputError("EDGE-INPUT-037", "sound", wanted="finite samples", got=got, hint=hint)
        return mixed

    def _mixed(self, first: int, end: int) -> np.ndarray:
        size = self.channels * self.bits // 8
        raw = np.frombuffer(self.data[first * size : end * size], np.uint8)
        grid = raw.reshape(end - first, self.channels, self.bits // 8)
        total = np.zeros(end - first)
        for channel in range(self.channels):
            total += self._levels(grid[:, channel])
        with np.errstate(over="ignore", invalid="ignore"):
            return (total / (self.channels * self._full)).astype(np.float32)

    @property
    def _full(self) -> float:
        """The level that becomes 1."""
        return 1.0 if self.kind == _FLOAT else float(1 << (self.bits - 1))

    def _levels(self, column: np.ndarray) -> np.ndarray:
        """One channel's numbers as the file has them; ``column`` is uint8 [n, bytes]."""
        if self.bits == 8:  # the only ones without a sign
            return column[:, 0].astype(np.int16) - 128
        if self.bits == 24:  # as the upper bytes of 32 bits: their sign is at its place
            wide = np.zeros((len(column), 4), np.uint8)
            wide[:, 1:] = column
            return np.asarray(wide.view("<i4")[:, 0] >> 8)
        kind = "f" if self.kind == _FLOAT else "i"
        return np.ascontiguousarray(column).view(f"<{kind}{self.bits // 8}")[:, 0]


def read_wav(data: bytes) -> Wav:
    """Read the header of a WAV; no sample is looked at.

    Raises:
        InputError: EDGE-INPUT-030 another container, -031 damaged or cut off, -032 samples of a
            kind that is not read.
    """
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise _other(data)
    (size,) = struct.unpack_from("<I", data, 4)
    if size > len(data) - 8:
        raise _damaged(f"a header that tells of {size + 8} bytes, and {len(data)} are there")
    form: tuple[int, int, int, int] | None = None
    at, end = 12, size + 8
    while at + 8 <= end:
        name, length = data[at : at + 4], int.from_bytes(data[at + 4 : at + 8], "little")
        at += 8
        if length > end - at:
            raise _damaged(f"a chunk {ascii(name)[1:]} that ends behind the file")
        if name == b"fmt ":
            form = _form(memoryview(data)[at : at + length])
        elif name == b"data":
            return _samples(form, memoryview(data)[at : at + length])
        at += length + length % 2  # chunks begin at even places
    raise _damaged("no samples in it" if form else "no format in it")


def _form(chunk: memoryview) -> tuple[int, int, int, int]:
    """Kind, channels, rate and bits."""
    if len(chunk) < 16:
        raise _damaged(f"a format of {len(chunk)} bytes")
    kind, channels, rate, _, align, bits = struct.unpack_from("<HHIIHH", chunk)
    if kind == _EXTENSIBLE:
        if len(chunk) < 40:
            raise _damaged(f"an extensible format of {len(chunk)} bytes")
        valid = int.from_bytes(chunk[18:20], "little")
        kind = int.from_bytes(chunk[24:26], "little")
        if bytes(chunk[26:40]) != _GUID_TAIL or kind == _EXTENSIBLE or valid > bits:
            raise _kind("an extensible format of another maker")
    if bits not in _BITS.get(kind, ()):
        raise _kind(_NAMES.get(kind) or f"format {kind} of {bits} bits")
    if not channels or align != channels * bits // 8:
        raise _damaged(f"{channels} channels of {bits} bits in {align} bytes")
    return kind, channels, rate, bits


def _samples(form: tuple[int, int, int, int] | None, data: memoryview) -> Wav:
    if form is None:
        raise _damaged("samples before their format")
    kind, channels, rate, bits = form
    frames, rest = divmod(len(data), channels * bits // 8)
    if rest:
        raise _damaged(f"{len(data)} bytes of samples, which is no whole number of them")
    if not frames:
        raise _damaged("no sample in it")
    return Wav(rate, channels, kind, bits, frames, data)


def write_wav(samples: np.ndarray, rate: int) -> bytes:
    """A WAV of one channel: int16 [n] as 16-bit integers, float32 [n] as floats.

    The same samples give the same bytes.
    """
    kind = _PCM if samples.dtype == np.int16 else _FLOAT
    width = 2 if kind == _PCM else 4
    data = samples.astype(f"<i{width}" if kind == _PCM else f"<f{width}").tobytes()
    form = struct.pack("<HHIIHH", kind, 1, rate, rate * width, width, 8 * width)
    chunks = b"WAVEfmt " + struct.pack("<I", len(form)) + form
    if kind == _FLOAT:
        chunks += b"fact" + struct.pack("<II", 4, len(samples))
    chunks += b"data" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", len(chunks)) + chunks


def _other(data: bytes) -> InputError:
    found = next((name for start, name in _OTHERS.items() if data.startswith(start)), None)
    if data[4:8] == b"ftyp":
        found = "MP4 (AAC)"
    if not data:
        found = "no bytes at all"
    got = found or f"{len(data)} bytes that start with {data[:8].hex(' ')}"
    hint = f"decode it where it comes from: {_WRITE}"
    return InputError("EDGE-INPUT-030", "sound", wanted="a WAV", got=got, hint=hint)


def _damaged(got: str) -> InputError:
    return InputError(
        "EDGE-INPUT-031",
        "sound",
        wanted="a whole WAV",
        got=got,
        hint="send the file again, whole; one that was written to a pipe has no sizes in its"
        " header: write it to a file",
    )


def _kind(got: str) -> InputError:
    wanted = "integers of 8, 16, 24 or 32 bits, or floats of 32 or 64"
    hint = f"write them anew: {_WRITE}"
    return InputError("EDGE-INPUT-032", "samples of the sound", wanted=wanted, got=got, hint=hint)


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
            InputError: EDGE-INPUT-034 or -035, as `open_audio`.
        """
        return write_wav(_checked(self), int(self.rate))


class AudioHeader:
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


def open_audio(raw: object) -> AudioHeader:
    """Look at a raw sound; no sample of a WAV is decoded yet.

    Raises:
        InputError: EDGE-INPUT-001 or 007, it cannot be read; -030 to -032, it is no WAV that is
            read; -034, an array of another kind; -035, an array without a rate.
    """
    if isinstance(raw, np.ndarray):
        raise _no_rate("none")
    if isinstance(raw, Sound):
        return AudioHeader(Sound(_checked(raw), raw.rate))
    return AudioHeader(read_wav(bytes_of(raw, "sound", "or an array with rate=")))


def _checked(sound: Sound) -> np.ndarray:
    array, rate = sound.samples, sound.rate
    if isinstance(rate, bool) or not isinstance(rate, int | np.integer) or rate < 1:
        raise _no_rate(repr(rate))
    plain = isinstance(array, np.ndarray) and not isinstance(array, np.ma.MaskedArray)
    right = plain and array.dtype == np.float32 and array.ndim == 1
    if right and array.size and np.isfinite(array).all():
        return array
    wanted = "finite float32 samples of shape [n], one channel"
    hint = _hint(array)
    raise InputError("EDGE-INPUT-034", "array", wanted=wanted, got=_array_form(array), hint=hint)


def _array_form(array: object) -> str:
    if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
        return f"{type(array).__module__}.{type(array).__qualname__}"
    if array.dtype == np.float32 and array.ndim == 1 and array.size:
        return "NaN or infinity among them"
    return f"{array.dtype} of shape {list(array.shape)}"


def _hint(array: object) -> str:
    if isinstance(array, np.ma.MaskedArray):
        return "say what masked samples are: array.filled(0)"
    if not isinstance(array, np.ndarray):
        return "convert it with np.asarray (a torch tensor with .numpy())"
    if array.ndim != 1:
        return "one channel: take the mean over the channels' axis; a list of arrays is a batch"
    if array.dtype.kind in "iu":
        return "bring full scale to 1: np.float32(array) / 32768 for 16 bits"
    return "convert it with .astype(np.float32), full scale from -1 to 1, without NaN"


def _no_rate(got: str) -> InputError:
    wanted = "samples a second, a whole number"
    hint = "say what the array was recorded at: predict(samples, rate=16000)"
    return InputError("EDGE-INPUT-035", "rate of an array", wanted=wanted, got=got, hint=hint)
