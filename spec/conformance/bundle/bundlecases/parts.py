"""Case files as parts: ranges of a base, hex and runs of zeros, which every language can make."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable

from bundlecases.rawzip import Piece

__all__ = ["Part", "apply", "parts_of"]

#: ["base", start, end], ["hex", digits] or ["zeros", count].
Part = list[str | int]

_BLOCK = 16
_SHORTEST = 48
_ZEROS = re.compile(rb"\x00{48,}")


def parts_of(pieces: Iterable[Piece], base: bytes) -> list[Part]:
    """Describe a file by what it has in common with ``base``."""
    parts: list[Part] = []
    where = _index(base)
    for piece in _joined(pieces):
        if isinstance(piece, int):
            _add(parts, ["zeros", piece])
        else:
            for part in _describe(piece, base, where):
                _add(parts, part)
    return parts


def _joined(pieces: Iterable[Piece]) -> list[Piece]:
    """Neighbouring bytes as one piece; few zeros count as bytes."""
    out: list[Piece] = []
    for piece in pieces:
        data = bytes(piece) if isinstance(piece, int) and piece < 1 << 20 else piece
        if isinstance(data, bytes) and out and isinstance(out[-1], bytes):
            out[-1] += data
        else:
            out.append(data)
    return out


@functools.cache
def _index(base: bytes) -> dict[bytes, int]:
    """Where each block of 16 bytes of the base first starts, zeros aside."""
    where: dict[bytes, int] = {}
    for at in range(len(base) - _BLOCK + 1):
        block = base[at : at + _BLOCK]
        if block.strip(b"\0"):
            where.setdefault(block, at)
    return where


def _describe(data: bytes, base: bytes, where: dict[bytes, int]) -> Iterable[Part]:
    at = literal = 0
    while at < len(data):
        if zeros := _ZEROS.match(data, at):
            part: Part = ["zeros", zeros.end() - at]
            length = zeros.end() - at
        else:
            start = where.get(data[at : at + _BLOCK], -1)
            length = _common(data, at, base, start) if start >= 0 else 0
            part = ["base", start, start + length]
        if length < _SHORTEST:
            at += 1
            continue
        if literal < at:
            yield ["hex", data[literal:at].hex()]
        yield part
        at += length
        literal = at
    if literal < len(data):
        yield ["hex", data[literal:].hex()]


def _common(data: bytes, at: int, base: bytes, start: int) -> int:
    """How many bytes of ``data`` from ``at`` equal those of ``base`` from ``start``."""
    low, high = 0, min(len(data) - at, len(base) - start)
    while low < high:
        middle = (low + high + 1) // 2
        if data[at : at + middle] == base[start : start + middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _add(parts: list[Part], part: Part) -> None:
    """Append, joining what follows on from the last part."""
    last = parts[-1] if parts else None
    if last and last[0] == part[0] != "base":
        last[1] += part[1]  # type: ignore[operator]
    elif last and last[0] == part[0] == "base" and last[2] == part[1]:
        last[2] = part[2]
    else:
        parts.append(part)


def apply(parts: Iterable[Part], base: bytes) -> Iterable[Piece]:
    """The file that the parts describe, in pieces."""
    for part in parts:
        if part[0] == "base":
            yield base[int(part[1]) : int(part[2])]
        elif part[0] == "hex":
            yield bytes.fromhex(str(part[1]))
        else:
            yield int(part[1])
