"""``.npz`` files without pickle: written whole and reproducibly, read whole or row by row.

An ``.npz`` is a zip whose member ``NAME.npy`` holds one array in the format that the documentation
of `numpy.lib.format` describes. `Rows` reads it as a stream, so that a data set larger than memory
is checked and used in pieces.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from edgeserve.files import Closing

_CHUNK = 8 << 20  # bytes of rows held at once


def write_arrays(arrays: Mapping[str, np.ndarray]) -> bytes:
    """The bytes of an ``.npz``: stored members in the mapping's order, the same bytes every time.

    `numpy.savez` takes names as keyword arguments, which an array called ``file`` breaks.

    Raises:
        ValueError: an array holds objects.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            member = zipfile.ZipInfo(f"{name}.npy")  # its date is 1980, whatever today is
            with archive.open(member, "w", force_zip64=True) as out:
                np.lib.format.write_array(out, np.asarray(array), allow_pickle=False)
    return buffer.getvalue()


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """All arrays of an ``.npz`` by name.

    Raises:
        ValueError, OSError, zipfile.BadZipFile: it is not one, or it holds objects.
    """
    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


@dataclass(frozen=True)
class ArrayHeader:
    """What an array's header says, before any of its data is read."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool


class Rows(Closing):
    """The arrays of one ``.npz``, read along their first axis. A context manager.

    Reading rows in rising order reads the file once; going back starts that array again.
    """

    def __init__(self, path: Path) -> None:
        """Open the file and read the headers.

        Raises:
            ValueError, OSError, zipfile.BadZipFile: it is not an ``.npz``.
        """
        self._zip = zipfile.ZipFile(path)
        self._open: dict[str, tuple[IO[bytes], int]] = {}
        self._whole: dict[str, np.ndarray] = {}
        try:
            self.headers = {n.removesuffix(".npy"): self._header(n) for n in self._members()}
        except BaseException:
            self._zip.close()
            raise

    def close(self) -> None:
        """Close the file."""
        for stream, _ in self._open.values():
            stream.close()
        self._zip.close()

    def _members(self) -> list[str]:
        names = self._zip.namelist()
        if len(set(names)) != len(names):
            raise ValueError("two arrays have the same name")
        if strange := [n for n in names if not n.endswith(".npy")]:
            raise ValueError(f"{strange[0]!r} is no array")
        return names

    def _header(self, member: str) -> ArrayHeader:
        with self._zip.open(member) as stream:
            return _read_header(stream)

    def rows(self, name: str, start: int, count: int) -> np.ndarray:
        """``count`` rows of an array from row ``start``: shape ``(count, ...)``, the file's dtype.

        Raises:
            ValueError: the array holds objects, or the file ends early.
        """
        header = self.headers[name]
        if header.dtype.hasobject:
            raise ValueError(f"{name!r} holds Python objects")
        if header.fortran:  # its rows do not lie together
            return self._array(name)[start : start + count]
        size = header.dtype.itemsize * int(np.prod(header.shape[1:], dtype=np.int64))
        data = self._read(name, start * size, count * size)
        return np.frombuffer(data, header.dtype).reshape(count, *header.shape[1:])

    def chunks(self, name: str) -> Iterator[tuple[int, np.ndarray]]:
        """The whole array in pieces of a few MiB, each with its first row's number."""
        header = self.headers[name]
        total = header.shape[0]
        row = max(1, header.dtype.itemsize * int(np.prod(header.shape[1:], dtype=np.int64)))
        step = max(1, _CHUNK // row)
        for start in range(0, total, step):
            yield start, self.rows(name, start, min(step, total - start))

    def _array(self, name: str) -> np.ndarray:
        if name not in self._whole:
            with self._zip.open(f"{name}.npy") as stream:
                whole = np.lib.format.read_array(stream, allow_pickle=False)
            self._whole[name] = np.asarray(whole)
        return self._whole[name]

    def _read(self, name: str, start: int, size: int) -> bytes:
        """Bytes ``start`` to ``start + size`` of an array's data."""
        stream, at = self._open.pop(name, (None, 0))
        if stream is None or at > start:
            if stream is not None:
                stream.close()
            stream, at = self._zip.open(f"{name}.npy"), 0
            _read_header(stream)
        while at < start:
            at += len(_exactly(stream, name, min(_CHUNK, start - at)))
        data = _exactly(stream, name, size)
        self._open[name] = (stream, start + size)
        return data


def _exactly(stream: IO[bytes], name: str, size: int) -> bytes:
    data = stream.read(size)
    if len(data) != size:
        raise ValueError(f"{name!r} ends early")
    return data


def _read_header(stream: IO[bytes]) -> ArrayHeader:
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    elif version == (2, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_2_0(stream)
    else:  # 3.0 differs for structured arrays only, which are no tensors
        raise ValueError(f"an array has the format version {version}")
    return ArrayHeader(dtype=dtype, shape=shape, fortran=fortran and len(shape) > 1)
