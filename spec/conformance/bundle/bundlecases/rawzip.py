"""Writes ZIP files byte by byte, right or wrong: every field of every record can be set.

Standard library only and nothing of edgeserve: what a bundle must look like is said here a second
time, straight from spec/bundle.md.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

__all__ = [
    "CENTRAL",
    "END",
    "END64",
    "FULL",
    "LOCAL",
    "LOCATOR",
    "Member",
    "Piece",
    "build",
    "join",
    "record",
    "zip64_extra",
]

FULL = 0xFFFFFFFF
#: Bytes, or a number of zero bytes.
Piece = bytes | int
Fields = Mapping[str, int]
NONE: Fields = MappingProxyType({})

LOCAL = {
    "signature": "I",
    "version": "H",
    "flags": "H",
    "method": "H",
    "time": "H",
    "date": "H",
    "crc": "I",
    "stored_size": "I",
    "size": "I",
    "name_length": "H",
    "extra_length": "H",
}
CENTRAL = {
    "signature": "I",
    "made_by": "H",
    "version": "H",
    "flags": "H",
    "method": "H",
    "time": "H",
    "date": "H",
    "crc": "I",
    "stored_size": "I",
    "size": "I",
    "name_length": "H",
    "extra_length": "H",
    "comment_length": "H",
    "disk": "H",
    "internal_attributes": "H",
    "external_attributes": "I",
    "offset": "I",
}
END = {
    "signature": "I",
    "disk": "H",
    "directory_disk": "H",
    "disk_members": "H",
    "members": "H",
    "directory_size": "I",
    "directory_offset": "I",
    "comment_length": "H",
}
END64 = {
    "signature": "I",
    "record_size": "Q",
    "made_by": "H",
    "version": "H",
    "disk": "I",
    "directory_disk": "I",
    "disk_members": "Q",
    "members": "Q",
    "directory_size": "Q",
    "directory_offset": "Q",
}
LOCATOR = {"signature": "I", "disk": "I", "end_offset": "Q", "disks": "I"}


@dataclass
class Member:
    """A member and what is to be wrong with it.

    Attributes:
        name: As it stands in both headers.
        data: Its bytes, or a number of zeros (whose CRC must then be given).
        crc: CRC-32; None: of the data.
        local: Fields of the local header to set.
        central: Fields of the directory entry to set.
        local_name: Another name in the local header.
        local_extra: Extra bytes of the local header instead of the right ones.
        central_extra: Likewise of the directory entry.
        after: Bytes between the data and whatever follows.
        hidden: No directory entry.
        absent: No local header and data.
    """

    name: bytes
    data: Piece
    crc: int | None = None
    local: Fields = field(default_factory=dict)
    central: Fields = field(default_factory=dict)
    local_name: bytes | None = None
    local_extra: bytes | None = None
    central_extra: bytes | None = None
    after: bytes = b""
    hidden: bool = False
    absent: bool = False

    @property
    def size(self) -> int:
        return self.data if isinstance(self.data, int) else len(self.data)

    @property
    def checksum(self) -> int:
        if self.crc is not None:
            return self.crc
        assert isinstance(self.data, bytes)
        return zlib.crc32(self.data)


def record(layout: Mapping[str, str], values: Fields) -> bytes:
    """One record, its fields in order, little-endian."""
    return struct.pack("<" + "".join(layout.values()), *(values[name] for name in layout))


def zip64_extra(*values: int) -> bytes:
    """The ZIP64 extra record; empty without values."""
    return struct.pack(f"<HH{len(values)}Q", 1, 8 * len(values), *values) if values else b""


def _padding(position: int) -> bytes:
    """The alignment record that stands at ``position``: 0x4445, its length, zeros up to 16 KiB."""
    length = -(position + 4) % 16384
    return struct.pack("<HH", 0x4445, length) + bytes(length)


def _local(member: Member, offset: int) -> bytes:
    big = member.size >= FULL
    name = member.name if member.local_name is None else member.local_name
    extra = member.local_extra
    if extra is None:
        zip64 = zip64_extra(member.size, member.size) if big else b""
        extra = zip64 + _padding(offset + 30 + len(name) + len(zip64))
    shown = min(member.size, FULL)
    values = {
        "signature": 0x04034B50,
        "version": 45,
        "flags": 0,
        "method": 0,
        "time": 0,
        "date": 0x21,
        "crc": member.checksum,
        "stored_size": shown,
        "size": shown,
        "name_length": len(name),
        "extra_length": len(extra),
    }
    return record(LOCAL, values | dict(member.local)) + name + extra


def _central(member: Member, offset: int) -> bytes:
    big = [member.size, member.size] if member.size >= FULL else []
    big += [offset] if offset >= FULL else []
    extra = zip64_extra(*big) if member.central_extra is None else member.central_extra
    shown = min(member.size, FULL)
    values = {
        "signature": 0x02014B50,
        "made_by": 45,
        "version": 45,
        "flags": 0,
        "method": 0,
        "time": 0,
        "date": 0x21,
        "crc": member.checksum,
        "stored_size": shown,
        "size": shown,
        "name_length": len(member.name),
        "extra_length": len(extra),
        "comment_length": 0,
        "disk": 0,
        "internal_attributes": 0,
        "external_attributes": 0,
        "offset": min(offset, FULL),
    }
    return record(CENTRAL, values | dict(member.central)) + member.name + extra


def build(
    members: Iterable[Member],
    *,
    end: Fields = NONE,
    end64: Fields = NONE,
    locator: Fields = NONE,
    force64: bool = False,
    directory: bytes | None = None,
    before_end: bytes = b"",
) -> list[Piece]:
    """A ZIP file in pieces.

    Args:
        members: In file order.
        end: Fields of the end record to set.
        end64: Fields of the ZIP64 end record to set.
        locator: Fields of its locator to set.
        force64: Write the ZIP64 records where they are not needed.
        directory: Another central directory.
        before_end: Bytes between the central directory and the records at the end.
    """
    pieces: list[Piece] = []
    entries = []
    at = 0
    for member in members:
        if not member.hidden:
            entries.append(_central(member, at))
        if not member.absent:
            pieces += [_local(member, at), member.data, member.after]
            at += len(pieces[-3]) + member.size + len(member.after)  # type: ignore[arg-type]
    central = b"".join(entries) if directory is None else directory
    pieces += [central, before_end]
    pieces.append(_ends(len(entries), len(central), at, end, end64, locator, force64))
    return pieces


def _ends(
    count: int, size: int, offset: int, end: Fields, end64: Fields, locator: Fields, force64: bool
) -> bytes:
    tail = b""
    if offset >= FULL or force64:
        values = {
            "signature": 0x06064B50,
            "record_size": 44,
            "made_by": 45,
            "version": 45,
            "disk": 0,
            "directory_disk": 0,
            "disk_members": count,
            "members": count,
            "directory_size": size,
            "directory_offset": offset,
        }
        place = {"signature": 0x07064B50, "disk": 0, "end_offset": offset + size, "disks": 1}
        tail = record(END64, values | dict(end64)) + record(LOCATOR, place | dict(locator))
    values = {
        "signature": 0x06054B50,
        "disk": 0,
        "directory_disk": 0,
        "disk_members": count,
        "members": count,
        "directory_size": size,
        "directory_offset": min(offset, FULL),
        "comment_length": 0,
    }
    return tail + record(END, values | dict(end))


def join(pieces: Iterable[Piece]) -> bytes:
    """The pieces as bytes; for files that fit into memory."""
    return b"".join(bytes(p) if isinstance(p, int) else p for p in pieces)
