"""The ZIP records of a bundle, byte for byte: given the members, there is one way to write each.

`plan` places the members, and `local_bytes`, `central_bytes` and `end_bytes` give the bytes around
their data. The writer writes those; the reader takes a member's name, size, CRC and offset from the
central directory, makes the records again and compares. So a field that no reader looks at cannot
differ.

Field names and sizes are those of PKWARE's APPNOTE, 4.3.7 (local header), 4.3.12 (central
directory), 4.3.14 to 4.3.16 (end records) and 4.5.3 (ZIP64). ``spec/bundle.md`` lists every value.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field

#: Every member's data starts at a multiple of this: the largest page size of phones.
ALIGNMENT = 16_384
MAX_MEMBERS = 4_096

_VERSION = 45  # of the ZIP format: the one that knows ZIP64
_TIME, _DATE = 0, 0x21  # 1980-01-01 00:00:00, the earliest there is
_PADDING_ID = 0x4445  # "ED": no registered record uses it
_ZIP64_ID = 1
#: From this value on, a 32-bit field holds this value and the real one stands in a ZIP64 record.
_FULL = 0xFFFF_FFFF


@dataclass(frozen=True, slots=True)
class ZipRecord:
    """A fixed-size record: title, layout for `struct`, and names of its fields in order."""

    title: str
    layout: struct.Struct
    fields: tuple[str, ...]

    @property
    def size(self) -> int:
        """Bytes of the fixed part."""
        return self.layout.size

    def unpack(self, data: bytes) -> dict[str, int]:
        """The fields of the first `size` bytes, by name."""
        return dict(zip(self.fields, self.layout.unpack(data[: self.size]), strict=True))


def _record(title: str, layout: str, fields: str) -> ZipRecord:
    return ZipRecord(title, struct.Struct("<" + layout), tuple(fields.split()))


LOCAL = _record(
    "local header",
    "IHHHHHIIIHH",
    "signature version flags method time date crc stored_size size name_length extra_length",
)
CENTRAL = _record(
    "central directory",
    "IHHHHHHIIIHHHHHII",
    "signature made_by version flags method time date crc stored_size size name_length extra_length"
    " comment_length disk internal_attributes external_attributes offset",
)
END = _record(
    "end record",
    "IHHHHIIH",
    "signature disk directory_disk disk_members members directory_size directory_offset"
    " comment_length",
)
END64 = _record(
    "ZIP64 end record",
    "IQHHIIQQQQ",
    "signature record_size made_by version disk directory_disk disk_members members directory_size"
    " directory_offset",
)
LOCATOR = _record("ZIP64 locator", "IIQI", "signature disk end_offset disks")


@dataclass(frozen=True, slots=True)
class ZipMember:
    """A member and where it lies.

    Attributes:
        name: ASCII.
        size: Bytes of data, stored as they are.
        crc: CRC-32 of the data.
        offset: Where the local header starts.
        padding: Bytes of the padding record, its own four included: always there, and as short as
            can be.
        start: Where the data start, a multiple of `ALIGNMENT`.
    """

    name: str
    size: int
    crc: int
    offset: int
    padding: int = field(init=False)
    start: int = field(init=False)

    def __post_init__(self) -> None:
        header = LOCAL.size + len(self.name) + (20 if self.size >= _FULL else 0)
        short = -(self.offset + header) % ALIGNMENT
        padding = short if short >= 4 else short + ALIGNMENT
        object.__setattr__(self, "padding", padding)
        object.__setattr__(self, "start", self.offset + header + padding)

    @property
    def end(self) -> int:
        """The first byte after the data."""
        return self.start + self.size


def plan(members: Iterable[tuple[str, int, int]]) -> list[ZipMember]:
    """Place members of (name, size, crc) one behind the other, from offset 0."""
    entries: list[ZipMember] = []
    for name, size, crc in members:
        entries.append(ZipMember(name, size, crc, entries[-1].end if entries else 0))
    return entries


def local_bytes(entry: ZipMember) -> bytes:
    """Local header, name and extra records: all that stands before a member's data."""
    zip64 = b""
    shown = entry.size
    if entry.size >= _FULL:
        shown = _FULL
        zip64 = struct.pack("<HHQQ", _ZIP64_ID, 16, entry.size, entry.size)
    padding = struct.pack("<HH", _PADDING_ID, entry.padding - 4) + bytes(entry.padding - 4)
    sizes = (entry.crc, shown, shown, len(entry.name), len(zip64) + len(padding))
    fixed = LOCAL.layout.pack(0x0403_4B50, _VERSION, 0, 0, _TIME, _DATE, *sizes)
    return fixed + entry.name.encode("ascii") + zip64 + padding


def central_bytes(entry: ZipMember) -> bytes:
    """A member's entry in the central directory."""
    real = [entry.size, entry.size] if entry.size >= _FULL else []
    real += [entry.offset] if entry.offset >= _FULL else []
    zip64 = struct.pack(f"<HH{len(real)}Q", _ZIP64_ID, 8 * len(real), *real) if real else b""
    shown = min(entry.size, _FULL)
    sizes = (entry.crc, shown, shown, len(entry.name), len(zip64))
    rest = (0, 0, 0, 0, min(entry.offset, _FULL))
    fixed = CENTRAL.layout.pack(0x0201_4B50, _VERSION, _VERSION, 0, 0, _TIME, _DATE, *sizes, *rest)
    return fixed + entry.name.encode("ascii") + zip64


def end_bytes(members: int, size: int, offset: int) -> bytes:
    """The end record, for a central directory of ``size`` bytes at ``offset``."""
    return END.layout.pack(0x0605_4B50, 0, 0, members, members, size, min(offset, _FULL), 0)


def end64_bytes(members: int, size: int, offset: int) -> bytes:
    """ZIP64 end record and locator; empty where ``offset`` fits the end record."""
    if offset < _FULL:
        return b""
    record = END64.layout.pack(
        0x0606_4B50, END64.size - 12, _VERSION, _VERSION, 0, 0, members, members, size, offset
    )
    return record + LOCATOR.layout.pack(0x0706_4B50, 0, offset + size, 1)
