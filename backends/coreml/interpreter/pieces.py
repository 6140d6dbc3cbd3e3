"""Weights of a package, read one at a time.

coremltools' reader maps the whole file: of gigabytes of weights its pages and the arrays made of
them are in memory together.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["PieceReader"]

#: After sentinel and type: how many bytes, and where.
_PLACE = struct.Struct("<8xQQ")

#: The dtype of what coremltools' methods give, by their names.
_READ = {
    "read_float_data": "<f4",
    "read_fp16_data": "<u2",
    "read_int8_data": "i1",
    "read_uint8_data": "u1",
    "read_int16_data": "<i2",
    "read_uint16_data": "<u2",
    "read_int32_data": "<i4",
    "read_uint32_data": "<u4",
}


class PieceReader:
    """Stands in for coremltools' reader of a file whose entries have been checked.

    Args:
        path: The file.
        whole: Makes coremltools' own reader, which is asked for elements of less than 8 bits.
    """

    def __init__(self, path: Path, whole: Callable[[str], Any]) -> None:
        self._path, self._whole = path, whole

    def __getattr__(self, name: str) -> Callable[[int], Any]:
        dtype = _READ.get(name)
        if dtype is None:
            return getattr(self._whole(str(self._path)), name)  # type: ignore[no-any-return]
        return lambda offset: self._read(offset, np.dtype(dtype))

    def _read(self, offset: int, dtype: np.dtype[Any]) -> np.ndarray:
        with self._path.open("rb") as file:
            file.seek(offset)
            length, start = _PLACE.unpack(file.read(_PLACE.size))
        return np.fromfile(self._path, dtype, length // dtype.itemsize, offset=start)
