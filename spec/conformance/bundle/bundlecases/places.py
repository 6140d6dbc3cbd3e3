"""Files with members in the wrong place, bytes where none belong, names that escape, and lies."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from bundlecases.case import Case
from bundlecases.content import colour_files
from bundlecases.fields import colour, with_model
from bundlecases.rawzip import Member, Piece, build, join

__all__ = ["places"]

_OUTSIDE = "EDGE-BUNDLE-006"
_LIE = "EDGE-BUNDLE-015"

_NAMES = {
    "parent": b"../escape",
    "parent-within": b"artifacts/../../escape",
    "parent-last": b"artifacts/..",
    "absolute": b"/etc/passwd",
    "drive": b"C:/Windows/win.ini",
    "drive-relative": b"C:x",
    "backslash": b"artifacts\\model.onnx",
    "backslash-parent": b"..\\escape",
    "nul": b"model.onnx\0.png",
    "double-slash": b"artifacts//model.onnx",
    "dot": b"./model.onnx",
    "dot-within": b"a/./b",
    "folder": b"artifacts/onnx-fp32/",
    "hidden": b".hidden",
    "utf-8": "caf\u00e9.onnx".encode(),
    "not-utf-8": b"\xff\xfe",
    "space": b"a b",
    "empty": b"",
    "long": b"x" * 201,
    "device": b"con",
    "device-extension": b"artifacts/NUL.txt",
    "device-number": b"Com1",
    "end-dot": b"model.",
    "folder-end-dot": b"a./b",
    "stream": b"model.onnx:evil",
    "home": b"~x",
    "dash": b"-x",
    "line-break": b"a\nb",
    "escape-sequence": b"\x1b[2Ja",
    "url": b"http://example.org/x",
}


def places() -> Iterator[Case]:
    """All of them."""
    for name, given in _NAMES.items():
        pieces = build([*colour(), Member(given, b"x")])
        yield Case(f"name-{name}", f"a member named {given[:40]!r}", pieces, "EDGE-BUNDLE-009")
    yield from _meeting()
    yield from _order()
    yield from _outside()
    yield from _overlap()
    yield from _sizes()
    yield from _padding()
    yield from _truncated()
    yield from _bytes()


def _meeting() -> Iterator[Case]:
    for first, second, what in (
        (b"notes.txt", b"notes.txt", "two of one name"),
        (b"Notes.txt", b"notes.txt", "two that differ in case only"),
        (b"notes", b"notes/a.txt", "a file where a folder is"),
        (b"notes", b"NOTES/a.txt", "a file where a folder is, in another case"),
        (b"notes/a.txt", b"Notes/b.txt", "a folder spelled in two ways"),
        (b"manifest.json", b"zz", "a second manifest"),
        (b"Manifest.json", b"zz", "a second manifest in another case"),
        (b"manifest.json/a", b"zz", "a folder where the manifest is"),
        (b"golden/000.png", b"zz", "a second golden case of one name"),
    ):
        pieces = build([*colour(), Member(first, b"1"), Member(second, b"2")])
        yield Case(f"meet-{first.decode()}-{second.decode()}", what, pieces, "EDGE-BUNDLE-010")


def _order() -> Iterator[Case]:
    manifest, model, golden, identity = colour()
    for name, what, order, code in (
        (
            "unsorted",
            "members not in the order of names",
            [manifest, golden, model, identity],
            "021",
        ),
        ("manifest-second", "the manifest second", [model, manifest, golden, identity], "016"),
        ("manifest-last", "the manifest last", [model, golden, identity, manifest], "016"),
        ("no-manifest", "no manifest", [model, golden, identity], "016"),
        ("no-member", "no member at all", [], "016"),
        ("missing", "a member of the manifest missing", [manifest, model, identity], "019"),
        (
            "extra",
            "a member that the manifest does not list",
            [manifest, Member(b"artifacts/onnx-fp32/evil.onnx", b"evil"), model, golden, identity],
            "019",
        ),
    ):
        yield Case(name, what, build(order), f"EDGE-BUNDLE-{code}")
    other = Member(b"MANIFEST.json", manifest.data)
    yield Case(
        "manifest-case",
        "a manifest in capitals",
        build([other, model, golden, identity]),
        "EDGE-BUNDLE-016",
    )
    directory = build([manifest, golden, model, identity])[-3]
    assert isinstance(directory, bytes)
    pieces = build(colour(), directory=directory)
    yield Case("directory-order", "a directory in another order", pieces, "EDGE-BUNDLE-021")


def _outside() -> Iterator[Case]:
    right = build(colour())
    script: list[Piece] = [b"#!/bin/sh\nexit 1\n"]
    yield Case("prefix", "bytes before the first member", script + right, _OUTSIDE)
    yield Case("prefix-page", "16 KiB of zeros before it", [bytes(16384), *right], _OUTSIDE)
    yield Case("suffix", "a byte after the end", [*right, b"x"], "EDGE-BUNDLE-002")
    yield Case("suffix-line", "a line break after the end", [*right, b"\n"], "EDGE-BUNDLE-002")
    yield Case("suffix-zeros", "zeros after the end", [*right, bytes(512)], "EDGE-BUNDLE-002")
    comment = build(colour(), end={"comment_length": 5})
    yield Case("comment", "a comment", [*comment, b"hello"], "EDGE-BUNDLE-002")
    end = right[-1]
    holding = build(colour(), end={"comment_length": 22})
    yield Case("two-ends", "an end record in the comment of another", [*holding, end], _OUTSIDE)
    directory = right[-3]
    assert isinstance(directory, bytes)
    pieces = build(colour(), end={"directory_size": len(directory) + 22}, before_end=join([end]))
    yield Case(
        "end-in-directory", "an end record as part of the directory", pieces, "EDGE-BUNDLE-007"
    )
    yield Case(
        "before-end", "bytes before the end record", build(colour(), before_end=b"gap!"), _OUTSIDE
    )
    pieces = build(colour(), directory=directory + b"more")
    yield Case("directory-tail", "bytes after the last entry", pieces, "EDGE-BUNDLE-007")
    yield Case("gap", "bytes between two members", with_model(after=b"gap!"), _OUTSIDE)
    yield Case("gap-page", "16 KiB between two members", with_model(after=bytes(16384)), _OUTSIDE)
    last = colour()
    last[3].after = b"gap!"
    yield Case("gap-last", "bytes after the last member", build(last), _OUTSIDE)
    yield Case(
        "hidden", "a member that the directory does not list", with_model(hidden=True), _OUTSIDE
    )
    first = [Member(b"a", b"x", hidden=True), *colour()]
    yield Case("hidden-first", "such a member before the manifest", build(first), _OUTSIDE)
    yield Case("absent", "a directory entry without a member", with_model(absent=True), _OUTSIDE)


def _overlap() -> Iterator[Case]:
    for name, what, offset in (
        ("same-start", "two entries on one member", 0),
        ("within", "an entry on a place within another member", 16384),
        ("high", "an entry on the last byte", 0xFFFFFFFE),
    ):
        pieces = with_model(central={"offset": offset})
        yield Case(f"overlap-{name}", what, pieces, _OUTSIDE)
    found = colour()
    again = Member(b"z.onnx", found[1].data, absent=True, central={"offset": 16384 + 2048})
    yield Case(
        "overlap-again", "one more entry on the model's data", build([*found, again]), _OUTSIDE
    )


def _sizes() -> Iterator[Case]:
    size = len(colour_files()["artifacts/onnx-fp32/model.onnx"])
    for name, what, said, code in (
        ("one-more", "one byte more than there is", size + 1, _OUTSIDE),
        ("one-less", "one byte less", size - 1, _OUTSIDE),
        ("zero", "no bytes", 0, _OUTSIDE),
        ("page", "16 KiB more", size + 16384, _OUTSIDE),
        ("huge", "0xFFFFFFFE bytes", 0xFFFFFFFE, _LIE),
    ):
        both = {"size": said, "stored_size": said}
        pieces = with_model(local=both, central=both)
        yield Case(f"size-{name}", f"a model that says it has {what}", pieces, code)
    last = len(colour_files()["identity.json"])
    for name, said, code in (
        ("more", last + 1, _LIE),
        ("less", last - 1, _OUTSIDE),
        ("page", 1 << 20, _LIE),
    ):
        found = colour()
        found[3].local = found[3].central = {"size": said, "stored_size": said}
        yield Case(f"last-size-{name}", f"a last member that says {said} bytes", build(found), code)
    full = {"size": 0xFFFFFFFF, "stored_size": 0xFFFFFFFF}
    pieces = with_model(local=full, central=full)
    yield Case("size-full", "0xFFFFFFFF bytes without ZIP64", pieces, "EDGE-BUNDLE-005")
    bomb = {"method": 8, "size": 0xFFFFFFF0}
    pieces = with_model(local=bomb, central=bomb)
    yield Case("bomb", "4 GiB out of a hundred deflated bytes", pieces, "EDGE-BUNDLE-011")
    bomb = {"size": 0xFFFFFFF0}
    pieces = with_model(local=bomb, central=bomb)
    yield Case("bomb-stored", "4 GiB out of a hundred stored bytes", pieces, _LIE)
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    data = packer.compress(bytes(1 << 20)) + packer.flush()
    deflated = {"method": 8, "size": 1 << 20, "crc": zlib.crc32(bytes(1 << 20))}
    pieces = with_model(data=data, local=deflated, central=deflated)
    yield Case("deflated", "a really deflated member", pieces, "EDGE-BUNDLE-011")


def _padding() -> Iterator[Case]:
    header = build(colour())[3]
    assert isinstance(header, bytes)
    extra = header[30 + len("artifacts/onnx-fp32/model.onnx") :]
    rest = len(extra) - 4
    code = "EDGE-BUNDLE-020"
    two = rest - 8
    for name, what, wrong, expected in (
        ("not-zero", "a byte in the padding", extra[:-1] + b"\1", code),
        ("first-byte", "a byte at its start", extra[:4] + b"\1" + extra[5:], code),
        ("other-id", "another id", b"\x35\xd9" + extra[2:], code),
        (
            "length",
            "another length than it has",
            extra[:2] + (rest - 1).to_bytes(2, "little") + extra[4:],
            code,
        ),
        (
            "two-records",
            "two records",
            extra[:2] + (two).to_bytes(2, "little") + bytes(two) + b"ED\0\0ED\0\0"[:8],
            code,
        ),
        ("all-zero", "zeros that are no record", bytes(len(extra)), code),
        ("none", "no padding", b"", _OUTSIDE),
        (
            "short",
            "less than it takes",
            extra[:2] + (rest - 512).to_bytes(2, "little") + bytes(rest - 512),
            _OUTSIDE,
        ),
        (
            "long",
            "a page more than it takes",
            extra[:2] + (rest + 16384).to_bytes(2, "little") + bytes(rest + 16384),
            _OUTSIDE,
        ),
    ):
        yield Case(f"padding-{name}", what, with_model(local_extra=wrong), expected)
    pieces = with_model(local_name=b"artifacts/onnx-fp32/model.onnX")
    yield Case("local-name", "another name in the local header", pieces, "EDGE-BUNDLE-008")
    pieces = with_model(local_name=b"manifest.json")
    yield Case("local-name-short", "a shorter one", pieces, "EDGE-BUNDLE-008")


def _truncated() -> Iterator[Case]:
    whole = join(build(colour()))
    starts = [0, 1, 21, 22, 30, 16384, 16384 + 100, 32768 + 3, len(whole) - 300, len(whole) - 23]
    for length in (*starts, len(whole) - 22, len(whole) - 1):
        what = f"the first {length} bytes"
        yield Case(f"cut-{length}", what, [whole[:length]], "EDGE-BUNDLE-002")
    yield Case("cut-head", "all but the first byte", [whole[1:]], _OUTSIDE)
    yield Case("cut-page", "all but the first 16 KiB", [whole[16384:]], _OUTSIDE)
    yield Case(
        "cut-middle", "a byte missing in the middle", [whole[:20000] + whole[20001:]], _OUTSIDE
    )
    yield Case("doubled", "the file twice", [whole, whole], _OUTSIDE)


def _bytes() -> Iterator[Case]:
    """Data that are not what their hash or CRC says."""
    for index, name, code, when in (
        (0, "manifest", "017", None),
        (1, "model", "004", "artifacts/onnx-fp32/model.onnx"),
        (2, "golden", "004", "golden/000.png"),
        (3, "identity", "004", None),
    ):
        found = colour()
        data = found[index].data
        assert isinstance(data, bytes)
        flipped = data[:50] + bytes([data[50] ^ 4]) + data[51:]
        found[index].crc, found[index].data = found[index].checksum, flipped
        pieces = build(found)
        yield Case(f"flip-{name}", f"a bit of the {name}", pieces, f"EDGE-BUNDLE-{code}", when)
        if index:
            found[index].crc = None
            what = f"a bit of the {name}, and a CRC to match"
            yield Case(f"forged-{name}", what, build(found), "EDGE-BUNDLE-004", when)
        found = colour()
        found[index].crc = found[index].checksum ^ 1
        what = f"a wrong CRC of the {name}, in both headers"
        yield Case(f"crc-{name}", what, build(found), "EDGE-BUNDLE-017", when)
    big = Member(b"manifest.json", (16 << 20) + 1, crc=0)
    yield Case(
        "manifest-large",
        "a manifest of 16 MiB and a byte",
        build([big, *colour()[1:]]),
        "EDGE-BUNDLE-030",
    )
