"""Files in which one field of one record has another value than its only one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bundlecases.case import Case, members
from bundlecases.content import colour_files, colour_manifest
from bundlecases.good import big_members
from bundlecases.rawzip import (
    CENTRAL,
    END,
    END64,
    FULL,
    LOCAL,
    LOCATOR,
    Fields,
    Member,
    Piece,
    build,
    zip64_extra,
)

__all__ = ["fields"]

_TELLING = {
    "flags": "EDGE-BUNDLE-012",
    "method": "EDGE-BUNDLE-011",
    "internal_attributes": "EDGE-BUNDLE-013",
    "external_attributes": "EDGE-BUNDLE-013",
}
_CENTRAL = _TELLING | {
    "crc": "EDGE-BUNDLE-008",  # a right entry of its own, but not what the local header says
    "stored_size": "EDGE-BUNDLE-015",
    "size": "EDGE-BUNDLE-015",
    "offset": "EDGE-BUNDLE-006",
}
_END = {
    "signature": "EDGE-BUNDLE-002",
    "directory_size": "EDGE-BUNDLE-006",
    "directory_offset": "EDGE-BUNDLE-006",
}


def fields() -> Iterator[Case]:
    """Every field of every record, then the values that mean something."""
    yield from _every("local", LOCAL, _TELLING, "EDGE-BUNDLE-008")
    yield from _every("central", CENTRAL, _CENTRAL, "EDGE-BUNDLE-007")
    yield from _every("end", END, _END, "EDGE-BUNDLE-003")
    yield from _every("end64", END64, {}, "EDGE-BUNDLE-005")
    yield from _every("locator", LOCATOR, {}, "EDGE-BUNDLE-005")
    yield from _flags_and_methods()
    yield from _attributes()
    yield from _zip64()
    yield from _counts()


def colour() -> list[Member]:
    """The members of the first base; the model is the second of four."""
    return members(colour_manifest(), colour_files())


def with_model(**wrong: Any) -> list[Piece]:
    """The first base with something wrong about the model's member."""
    found = colour()
    for name, value in wrong.items():
        setattr(found[1], name, value)
    return build(found)


def _every(
    kind: str, layout: Mapping[str, str], codes: Mapping[str, str], otherwise: str
) -> Iterator[Case]:
    right = _right_values(kind)
    for name in layout:
        wrong: Fields = {name: right[name] + 1}
        if kind in ("local", "central"):
            pieces = with_model(**{kind: wrong})
        elif kind == "end":
            pieces = build(colour(), end=wrong)
        else:
            pieces = build(big_members(), **{kind: wrong})  # type: ignore[arg-type]
        what = f"{kind} record: {name.replace('_', ' ')} is one too high"
        big = kind in ("end64", "locator")
        yield Case(
            f"{kind}-{name.replace('_', '-')}", what, pieces, codes.get(name, otherwise), big=big
        )


def _right_values(kind: str) -> dict[str, int]:
    """The fields of a right file's record, read back from the file."""
    layout = {"local": LOCAL, "central": CENTRAL, "end": END, "end64": END64, "locator": LOCATOR}[
        kind
    ]
    probe = build(big_members() if kind in ("end64", "locator") else colour())
    if kind == "local":
        return unpack(layout, probe[3])
    if kind == "central":
        entries = probe[-3]
        assert isinstance(entries, bytes)
        return unpack(layout, entries[46 + len(b"manifest.json") :])
    tail = probe[-1]
    assert isinstance(tail, bytes)
    return unpack(layout, tail[{"end": -22, "end64": 0, "locator": 56}[kind] :])


def unpack(layout: Mapping[str, str], data: Piece) -> dict[str, int]:
    """The fields at the start of ``data``."""
    assert isinstance(data, bytes)
    values = {}
    for name, letter in layout.items():
        size = {"H": 2, "I": 4, "Q": 8}[letter]
        values[name] = int.from_bytes(data[:size], "little")
        data = data[size:]
    return values


def _both(name: str, what: str, code: str, **values: int) -> Case:
    """A field with one other value in the local header and the directory alike."""
    return Case(name, what, with_model(local=values, central=values), code)


def _flags_and_methods() -> Iterator[Case]:
    for flags, name in (
        (0x1, "encrypted"),
        (0x8, "data-descriptor"),
        (0x41, "strong-encryption"),
        (0x800, "utf-8"),
        (0x2000, "masked-headers"),
        (0x6, "compression-level"),
    ):
        yield _both(
            f"flag-{name}", f"general purpose flags {flags:#x}", "EDGE-BUNDLE-012", flags=flags
        )
    for method, name in (
        (8, "deflate"),
        (9, "deflate64"),
        (12, "bzip2"),
        (14, "lzma"),
        (93, "zstandard"),
        (99, "aes"),
    ):
        yield _both(f"method-{name}", f"method {method}", "EDGE-BUNDLE-011", method=method)
    nothing = {"crc": 0, "size": 0, "stored_size": 0, "flags": 8}
    right = unpack(LOCAL, build(colour())[3])
    after = b"PK\x07\x08" + b"".join(
        right[name].to_bytes(4, "little") for name in ("crc", "stored_size", "size")
    )
    pieces = with_model(local=nothing, central={"flags": 8}, after=after)
    yield Case("streamed", "sizes only in a descriptor behind the data", pieces, "EDGE-BUNDLE-012")
    yield _both("dated", "a date of its own", "EDGE-BUNDLE-007", date=0x5A21, time=0x6000)
    yield _both("version-20", "needs ZIP 2.0 only", "EDGE-BUNDLE-007", version=20)


def _attributes() -> Iterator[Case]:
    unix = 3 << 8 | 45
    for mode, name in (
        (0o120777, "link"),
        (0o100644, "unix-file"),
        (0o104755, "setuid"),
        (0o010644, "pipe"),
        (0o060644, "device"),
        (0o040755, "unix-folder"),
    ):
        wrong = {"made_by": unix, "external_attributes": mode << 16}
        yield Case(
            f"mode-{name}", f"Unix mode {mode:o}", with_model(central=wrong), "EDGE-BUNDLE-013"
        )
    for bits, name in ((0x10, "dos-folder"), (0x01, "read-only"), (0x400, "reparse-point")):
        wrong = {"external_attributes": bits}
        what = f"DOS attributes {bits:#x}"
        yield Case(f"dos-{name}", what, with_model(central=wrong), "EDGE-BUNDLE-013")
    wrong = {"made_by": unix}
    yield Case(
        "made-by-unix",
        "no attributes, but a Unix host",
        with_model(central=wrong),
        "EDGE-BUNDLE-007",
    )


def _zip64() -> Iterator[Case]:
    size = len(colour_files()["artifacts/onnx-fp32/model.onnx"])
    full = {"size": FULL, "stored_size": FULL}
    code = "EDGE-BUNDLE-005"

    def central(name: str, what: str, code: str, extra: bytes, **values: int) -> Case:
        return Case(name, what, with_model(central=values, central_extra=extra), code)

    yield central(
        "zip64-needless", "ZIP64 sizes that fit 32 bits", code, zip64_extra(size, size), **full
    )
    yield central(
        "zip64-unused",
        "a ZIP64 record that no field points to",
        "EDGE-BUNDLE-007",
        zip64_extra(size, size),
    )
    yield central("zip64-missing", "sizes of 0xFFFFFFFF, no record", code, b"", **full)
    yield central("zip64-cut", "a ZIP64 record that is too short", code, zip64_extra(size), **full)
    yield central(
        "zip64-huge",
        "a member of 2**63 bytes",
        "EDGE-BUNDLE-015",
        zip64_extra(1 << 63, 1 << 63),
        **full,
    )
    yield central(
        "zip64-far", "an offset of 2**63", "EDGE-BUNDLE-015", zip64_extra(1 << 63), offset=FULL
    )
    yield central(
        "zip64-max",
        "a member of 2**64 - 1 bytes",
        "EDGE-BUNDLE-015",
        zip64_extra((1 << 64) - 1, (1 << 64) - 1),
        **full,
    )
    yield central(
        "zip64-two-sizes",
        "two ZIP64 sizes",
        "EDGE-BUNDLE-015",
        zip64_extra(FULL + 1, FULL + 2),
        **full,
    )
    wrong_id = zip64_extra(FULL + 5, FULL + 5).replace(b"\x01\x00", b"\x02\x00", 1)
    yield central("zip64-other-id", "a record with another id in its place", code, wrong_id, **full)
    yield central(
        "central-extra",
        "an extra record (a Unix time)",
        "EDGE-BUNDLE-007",
        b"UT\x05\x00\x01\x00\x00\x00\x00",
    )
    yield Case(
        "end64-needless",
        "ZIP64 end records that are not needed",
        build(colour(), force64=True),
        "EDGE-BUNDLE-006",
    )
    pieces = build(colour(), force64=True, end={"directory_offset": FULL})
    yield Case("end64-small", "ZIP64 end records with a small offset", pieces, code)
    pieces = build(colour(), end={"directory_offset": FULL})
    yield Case("end64-missing", "an end record that points to ZIP64, and none", pieces, code)
    pieces = [bytes(40), *build([], end={"directory_offset": FULL})]
    yield Case("end64-no-room", "no room for ZIP64 end records", pieces, code)
    pieces = build(big_members(), end64={"directory_offset": (1 << 64) - 1})
    yield Case("end64-wraps", "an offset that wraps with the size", pieces, code, big=True)
    found = big_members()
    found[2].local_extra = zip64_extra((1 << 32) + 1, (1 << 32) + 1) + _rest(found)
    yield Case(
        "zip64-local", "another ZIP64 size in the local header", build(found), code, big=True
    )


def _rest(found: list[Member]) -> bytes:
    """The alignment record of the big member."""
    header = build(found)[6]
    assert isinstance(header, bytes)
    return header[30 + len(found[2].name) + 20 :]


def _counts() -> Iterator[Case]:
    for count in (4097, 65535):
        wrong = {"members": count, "disk_members": count}
        yield Case(
            f"count-{count}", f"{count} members said", build(colour(), end=wrong), "EDGE-BUNDLE-014"
        )
    for count, name in ((3, "low"), (5, "high"), (0, "none")):
        wrong = {"members": count, "disk_members": count}
        pieces = build(colour(), end=wrong)
        yield Case(f"count-{name}", f"{count} members said, 4 there", pieces, "EDGE-BUNDLE-007")
