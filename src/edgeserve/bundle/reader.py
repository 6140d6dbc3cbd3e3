"""The strict reader: what lies where in a ``.edge`` file, or a coded error; no member is opened.

`scan` is our own parser, not a general ZIP library, because those are built to make the best of
what they find. Here one order of records, one value per field and no byte of slack are allowed,
so that every program that reads the file, front to back or from the directory at its end, sees
the same members. The order of the checks is part of the format (``spec/bundle.md``): one fault
gives one code everywhere.

It reads through `ByteSource`, by position, so that threads share one open file. The file is not
mapped: were it cut short by another program, a mapping would end this process with SIGBUS, a
read only comes back short.
"""

from __future__ import annotations

import os
import stat
import struct
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

from edgeserve.bundle import zipfmt
from edgeserve.bundle.manifest import MANIFEST
from edgeserve.bundle.rules import MAX_NAME, check_name, check_names
from edgeserve.bundle.zipfmt import CENTRAL, END, END64, LOCAL, LOCATOR, ZipMember, ZipRecord
from edgeserve.errors import BundleError

_CHUNK = 1 << 20
_SOURCE_HINT = "check the path; a bundle is a file that `edgeserve package` made"


class ByteSource:
    """An open regular file, read by offset.

    Attributes:
        path: Where it was opened.
        size: Its size when it was opened.
    """

    def __init__(self, path: Path) -> None:
        """Open ``path``.

        Raises:
            BundleError: EDGE-BUNDLE-001, not a regular file or not readable.
        """
        self.path = path
        flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
        try:
            self._fd = os.open(path, flags)
        except OSError as error:
            raise self._unreadable(error.strerror or str(error)) from error
        self.close = weakref.finalize(self, os.close, self._fd)
        status = os.fstat(self._fd)
        self.size = status.st_size
        self._lock = threading.Lock()
        if not stat.S_ISREG(status.st_mode):
            self.close()
            raise self._unreadable("not a regular file")

    def _unreadable(self, got: str) -> BundleError:
        return BundleError(
            "EDGE-BUNDLE-001", str(self.path), wanted="a bundle's file", got=got, hint=_SOURCE_HINT
        )

    def read(self, offset: int, size: int) -> bytes:
        """Exactly ``size`` bytes from ``offset``.

        Raises:
            BundleError: EDGE-BUNDLE-018, the file ended early, failed or was closed.
        """
        return b"".join(self.chunks(offset, size))

    def chunks(self, offset: int, size: int) -> Iterator[bytes]:
        """The same in pieces of at most 1 MiB."""
        end = offset + size
        while offset < end:
            data = self._some(offset, min(_CHUNK, end - offset))
            offset += len(data)
            yield data

    def _some(self, offset: int, size: int) -> bytes:
        if not self.close.alive:
            raise self._cut("a closed file")
        try:
            data = self._at(offset, size)
        except OSError as error:
            raise self._cut(error.strerror or str(error)) from error
        if not data:
            raise self._cut(f"the file's end at byte {offset}")
        return data

    def _at(self, offset: int, size: int) -> bytes:
        if hasattr(os, "pread"):
            return os.pread(self._fd, size, offset)
        with self._lock:  # Windows
            os.lseek(self._fd, offset, os.SEEK_SET)
            return os.read(self._fd, size)

    def _cut(self, got: str) -> BundleError:
        wanted = "the bytes that were there when it was opened"
        hint = "something changed the file while it was in use: get it again"
        return BundleError("EDGE-BUNDLE-018", str(self.path), got=got, wanted=wanted, hint=hint)


MAX_SIZE = 1 << 40
_FULL = 0xFFFF_FFFF
_MAX_CENTRAL = CENTRAL.size + MAX_NAME + 28

#: Fields whose other values mean something a reader must not do, looked at before all others.
_TELLING = {
    "flags": "EDGE-BUNDLE-012",
    "method": "EDGE-BUNDLE-011",
    "internal_attributes": "EDGE-BUNDLE-013",
    "external_attributes": "EDGE-BUNDLE-013",
}
_HINT = "the file is damaged or was repacked: get it again, or make it with `edgeserve package`"


def _bad(code: str, thing: str, wanted: object, got: object) -> BundleError:
    return BundleError(code, thing, wanted=str(wanted), got=str(got), hint=_HINT)


def scan(source: ByteSource) -> dict[str, ZipMember]:
    """Parse and check every byte around the members' data.

    Returns:
        The members by name, in the order they lie in, ``manifest.json`` first.

    Raises:
        BundleError: EDGE-BUNDLE-002, -003 and -005 to -016, -020 and -021.
    """
    count, offset, size = _find_directory(source)
    entries = _read_directory(source.read(offset, size), count)
    _check_order([entry.name for entry in entries])
    _check_places(entries, offset)
    for entry in entries:
        _check_local(entry, source.read(entry.offset, entry.start - entry.offset))
    return {entry.name: entry for entry in entries}


def _find_directory(source: ByteSource) -> tuple[int, int, int]:
    """Number of members, offset and size of the central directory, from the records at the end."""
    if source.size > MAX_SIZE:
        raise _bad("EDGE-BUNDLE-014", "bundle", f"at most {MAX_SIZE} bytes", source.size)
    if source.size < END.size:
        raise _bad("EDGE-BUNDLE-002", "bundle", f"at least {END.size} bytes", source.size)
    at = source.size - END.size
    raw = source.read(at, END.size)
    end = END.unpack(raw)
    if end["signature"] != 0x0605_4B50:
        raise _bad("EDGE-BUNDLE-002", "end of the file", "a ZIP end record", "other bytes")
    count, size, offset = end["members"], end["directory_size"], end["directory_offset"]
    if count > zipfmt.MAX_MEMBERS:
        raise _bad("EDGE-BUNDLE-014", "bundle", f"at most {zipfmt.MAX_MEMBERS} members", count)
    if offset == _FULL:
        at, offset = _read_end64(source, at, count, size)
    _compare(END, zipfmt.end_bytes(count, size, offset), raw, "EDGE-BUNDLE-003")
    if offset + size != at:
        raise _bad("EDGE-BUNDLE-006", "central directory", f"an end at byte {at}", offset + size)
    if size > count * _MAX_CENTRAL:
        raise _bad("EDGE-BUNDLE-007", "central directory", f"{count} members", "bytes after them")
    return count, offset, size


def _read_end64(source: ByteSource, at: int, count: int, size: int) -> tuple[int, int]:
    """Where the ZIP64 end record stands, and the offset of the central directory that it gives."""
    length = END64.size + LOCATOR.size
    if at < length:
        raise _bad("EDGE-BUNDLE-005", "end of the file", "a ZIP64 end record", "none")
    raw = source.read(at - length, length)
    offset = END64.unpack(raw)["directory_offset"]
    if not _FULL <= offset <= source.size:
        wanted_offset = f"an offset from {_FULL} to {source.size}"
        raise _bad("EDGE-BUNDLE-005", END64.title, wanted_offset, offset)
    wanted = zipfmt.end64_bytes(count, size, offset)
    _compare(END64, wanted, raw, "EDGE-BUNDLE-005")
    _compare(LOCATOR, wanted[END64.size :], raw[END64.size :], "EDGE-BUNDLE-005")
    return at - length, offset


def _compare(record: ZipRecord, wanted: bytes, got: bytes, code: str, name: str = "") -> None:
    """Raise with the first field of a record that differs, the telling ones first."""
    if wanted[: record.size] == got[: record.size]:
        return
    want, have = record.unpack(wanted), record.unpack(got)
    for field in (*_TELLING, *record.fields):
        if field in want and want[field] != have[field]:
            thing = f"{record.title}{f' of {name!r}' if name else ''}, {field.replace('_', ' ')}"
            raise _bad(_TELLING.get(field, code), thing, hex(want[field]), hex(have[field]))


def _read_directory(data: bytes, count: int) -> list[ZipMember]:
    """Parse ``count`` entries, which must fill the central directory."""
    entries = []
    at = 0
    for index in range(count):
        entry, at = _read_entry(data, at, f"entry {index}")
        entries.append(entry)
    if at != len(data):
        raise _bad("EDGE-BUNDLE-007", "central directory", f"{count} members", "bytes after them")
    return entries


def _read_entry(data: bytes, at: int, thing: str) -> tuple[ZipMember, int]:
    """One entry of the central directory and where the next one starts."""
    taker = _taker(data, at, thing)
    raw = taker(CENTRAL.size)
    fields = CENTRAL.unpack(raw)
    if fields["signature"] != 0x0201_4B50:
        raise _bad("EDGE-BUNDLE-007", thing, "a central directory entry", "other bytes")
    name = taker(fields["name_length"]).decode("latin-1")
    check_name(name)
    extra = taker(fields["extra_length"])
    entry = _entry(name, fields, extra)
    wanted = zipfmt.central_bytes(entry)
    got = raw + name.encode("latin-1") + extra
    _compare(CENTRAL, wanted, got, "EDGE-BUNDLE-007", name)
    if wanted != got:
        raise _bad("EDGE-BUNDLE-005", f"member {name!r}", "no extra but a needed ZIP64 one", "it")
    return entry, at + len(got)


def _taker(data: bytes, at: int, thing: str) -> Callable[[int], bytes]:
    """A function that takes the next ``n`` bytes from ``at`` on, or refuses."""

    def take(size: int) -> bytes:
        nonlocal at
        taken = data[at : at + size]
        if len(taken) != size:
            raise _bad("EDGE-BUNDLE-007", thing, f"{size} more bytes", len(taken))
        at += size
        return taken

    return take


def _entry(name: str, fields: dict[str, int], extra: bytes) -> ZipMember:
    """The member that an entry describes, its ZIP64 values read where the fields point to them."""
    full = [field for field in ("size", "stored_size", "offset") if fields[field] == _FULL]
    real = dict(fields)
    if full:
        layout = struct.Struct(f"<HH{len(full)}Q")
        if len(extra) != layout.size:
            got = f"{len(extra)} bytes"
            raise _bad("EDGE-BUNDLE-005", f"member {name!r}", "a ZIP64 record", got)
        real |= zip(full, layout.unpack(extra)[2:], strict=True)
        if min(real[field] for field in full) < _FULL:
            raise _bad("EDGE-BUNDLE-005", f"member {name!r}", "ZIP64 where needed", "elsewhere")
    if real["size"] != real["stored_size"] and not real["method"]:
        raise _bad("EDGE-BUNDLE-015", f"member {name!r}", "one size", "two")
    if max(real["size"], real["offset"]) > MAX_SIZE:
        wanted = "a place within the file"
        raise _bad("EDGE-BUNDLE-015", f"member {name!r}", wanted, "one beyond it")
    return ZipMember(name, real["size"], real["crc"], real["offset"])


def _check_order(names: list[str]) -> None:
    if not names or names[0] != MANIFEST:
        got = ascii(names[0]) if names else "no member"
        raise _bad("EDGE-BUNDLE-016", "first member", MANIFEST, got)
    check_names(names)
    if names[1:] != sorted(names[1:]):
        raise _bad("EDGE-BUNDLE-021", "members", "the order of their names", "another")


def _check_places(entries: list[ZipMember], directory: int) -> None:
    """One member behind the other from byte 0 to the central directory: no gap and no overlap."""
    at = 0
    for entry in entries:
        if entry.offset != at:
            raise _bad("EDGE-BUNDLE-006", f"member {entry.name!r}", f"offset {at}", entry.offset)
        if entry.end > directory:
            wanted = f"data that end by byte {directory}"
            raise _bad("EDGE-BUNDLE-015", f"member {entry.name!r}", wanted, entry.end)
        at = entry.end
    if at != directory:
        raise _bad("EDGE-BUNDLE-006", "central directory", f"offset {at}", directory)


def _check_local(entry: ZipMember, got: bytes) -> None:
    """Everything before a member's data is as the central directory says."""
    wanted = zipfmt.local_bytes(entry)
    if wanted == got:
        return
    _compare(LOCAL, wanted, got, "EDGE-BUNDLE-008", entry.name)
    named = LOCAL.size + len(entry.name)
    if wanted[:named] != got[:named]:
        raise _bad("EDGE-BUNDLE-008", f"member {entry.name!r}", "one name", "another at its data")
    padding = len(wanted) - entry.padding
    code = "EDGE-BUNDLE-005" if wanted[:padding] != got[:padding] else "EDGE-BUNDLE-020"
    raise _bad(code, f"member {entry.name!r}", "its one alignment record of zeros", "other bytes")
