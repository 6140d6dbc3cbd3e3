"""The files of weights beside a program: entries are checked, and read one at a time.

A file starts with a header of 64 bytes. An entry is a record of 64 bytes at the offset that the
program gives (sentinel, type, bytes, offset of the data, bits of padding), and data elsewhere in
the file. Lengths are little-endian. coremltools' reader maps the whole file: of gigabytes of
weights its pages and the arrays made of them are in memory together. `EntryReader` stands in for
it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from edgeserve.backends.coreml.spec import bits_of
from edgeserve.errors import MilError

_HEADER = 64
_RECORD = struct.Struct("<IIQQQ")
_SENTINEL = 0xDEADBEEF

#: The entry's type number, by the program's name of the type; 5 is no type.
_TYPES = {
    name: number
    for number, name in enumerate(
        "FLOAT16 FLOAT32 UINT8 INT8 - INT16 UINT16 INT4 UINT1 UINT2 UINT4 UINT3 UINT6 INT32 "
        "UINT32".split(),
        start=1,
    )
}


class WeightFiles:
    """The weight files of one package; `check` compares a declared constant with its entry."""

    def __init__(self, folder: Path, package: str) -> None:
        self._folder, self._package = folder, package
        self._size = cache(self._measure)

    def check(self, name: str, offset: int, dtype: str, elements: int) -> int:
        """Check that the entry at ``offset`` holds exactly what the program declares.

        Args:
            name: The program's path of the file ("@model_path/weights/weight.bin").
            offset: Where the entry's record starts.
            dtype: The program's name of the type ("FLOAT16").
            elements: How many elements the program declares.

        Returns:
            The bytes of the entry's data.

        Raises:
            MilError: EDGE-MIL-003, the file is missing or the entry is not what is declared.
        """
        path = self._path(name)
        size = self._size(path)
        if dtype not in _TYPES:
            raise self._lie(path, f"weights of type {dtype}")
        if offset % _HEADER or not _HEADER <= offset <= size - _HEADER:
            raise self._lie(path, f"an entry at {offset} of {size} bytes")
        with path.open("rb") as file:
            file.seek(offset)
            sentinel, kind, length, start, padding = _RECORD.unpack(file.read(_RECORD.size))
        number, bits = _TYPES[dtype], bits_of(dtype)
        wanted = (elements * bits + 7) // 8
        odd_padding = padding not in (0, wanted * 8 - elements * bits)
        if sentinel != _SENTINEL or kind != number or length != wanted or odd_padding:
            raise self._lie(path, f"{length} bytes of type {kind} for {elements} x {dtype}")
        if start < _HEADER or start > size or length > size - start:
            raise self._lie(path, f"data at {start}, {length} long, in {size} bytes")
        return int(length)

    def total(self) -> int:
        """Bytes of all the files that were checked."""
        return sum(path.stat().st_size for path in self._folder.glob("*") if path.is_file())

    def _path(self, name: str) -> Path:
        parts = PurePosixPath(name).parts
        if len(parts) != 3 or parts[:2] != ("@model_path", "weights") or parts[2] in ("..", "."):
            raise self._lie(self._folder, f"weights in {name!r}")
        return self._folder / parts[2]

    def _measure(self, path: Path) -> int:
        try:
            if not (path.is_symlink() or path.parent.is_symlink()) and path.is_file():
                return path.stat().st_size
        except (ValueError, OSError):  # no name that a file could have
            pass
        raise self._lie(path, "no such file")

    def _lie(self, path: Path, got: str) -> MilError:
        thing = f"weights {path.name!r} of package {self._package!r}"
        wanted = "the entry that the program declares"
        hint = "copy the whole package again, with its weights folder, or make it again"
        return MilError("EDGE-MIL-003", thing, wanted=wanted, got=got, hint=hint)


#: After sentinel and type: how many bytes, and where.
_DATA_RANGE = struct.Struct("<8xQQ")

#: The dtype of what coremltools' methods give, by their names.
_READ_DTYPES = {
    "read_float_data": "<f4",
    "read_fp16_data": "<u2",
    "read_int8_data": "i1",
    "read_uint8_data": "u1",
    "read_int16_data": "<i2",
    "read_uint16_data": "<u2",
    "read_int32_data": "<i4",
    "read_uint32_data": "<u4",
}


class EntryReader:
    """Stands in for coremltools' reader of a file whose entries have been checked.

    Args:
        path: The file.
        whole: Makes coremltools' own reader, which is asked for elements of less than 8 bits.
    """

    def __init__(self, path: Path, whole: Callable[[str], Any]) -> None:
        self._path, self._whole = path, whole

    def __getattr__(self, name: str) -> Callable[[int], Any]:
        dtype = _READ_DTYPES.get(name)
        if dtype is None:
            return getattr(self._whole(str(self._path)), name)  # type: ignore[no-any-return]
        return lambda offset: self._read(offset, np.dtype(dtype))

    def _read(self, offset: int, dtype: np.dtype[Any]) -> np.ndarray:
        with self._path.open("rb") as file:
            file.seek(offset)
            length, start = _DATA_RANGE.unpack(file.read(_DATA_RANGE.size))
        return np.fromfile(self._path, dtype, length // dtype.itemsize, offset=start)
