"""Files that open, the odd ones too."""

from __future__ import annotations

import json
from collections.abc import Iterator

from bundlecases.case import Case, members, sealed
from bundlecases.content import (
    Json,
    artifact,
    colour_files,
    colour_manifest,
    dump,
    entry,
    folder_files,
    folder_manifest,
)
from bundlecases.rawzip import Member, build

__all__ = ["BIG", "BIG_CRC", "BIG_SHA256", "big_members", "good"]

#: 4 GiB of zeros: too large for a 32-bit size, and whatever follows for a 32-bit offset.
BIG = 1 << 32
BIG_PATH = "artifacts/onnx-fp32/model.onnx.data"
BIG_SHA256 = "8479e43911dc45e89f934fe48d01297e16f51d17aa561d4d1c216b1ae0fcddca"
BIG_CRC = 0xD202EF8D


def good() -> Iterator[Case]:
    """Every file here opens and every member of it can be read."""
    files = colour_files()
    manifest = colour_manifest()
    yield Case("colour", "the first base as it is", sealed(manifest, files))
    yield Case("folder", "the second base as it is", sealed(folder_manifest(), folder_files()))
    indented = json.dumps(manifest, indent=2).encode() + b"\n"
    yield Case("white-space", "an indented manifest", sealed(indented, files))
    turned = dump(dict(reversed(manifest.items())))
    yield Case("key-order", "keys of the manifest in another order", sealed(turned, files))
    escaped = dump(manifest).replace(b'"labels"', b'"\\u006cabels"')
    yield Case("escaped-key", "a key written with an escape", sealed(escaped, files))
    minor = manifest | {"edgeserve": "1.999999"}
    yield Case("newer-minor", "a newer minor version", sealed(minor, files))
    yield Case("depth-64", "as deep as may be", sealed(manifest | {"x": _nested(62)}, files))
    yield from _unreferenced(manifest, files)
    yield from _of_later_versions(manifest, files)
    yield from _alignments(manifest, files)
    yield Case("zip64", "a member of 4 GiB, ZIP64 records", build(big_members()), big=True)


def _nested(depth: int) -> Json:
    value: Json = {}
    for _ in range(depth - 1):
        value = {"deeper": value}
    return {"example.org": value}


def _of_later_versions(manifest: Json, files: dict[str, bytes]) -> Iterator[Case]:
    """One more artifact, in words that a reader may not know: the bundle opens all the same."""
    for name, what, format_, precision in (
        ("format-unknown", "a format that nobody knows", "execu_torch2", "fp32"),
        ("format-longest", "a format of 32 letters", "f" * 32, "fp32"),
        ("precision-unknown", "a precision that nobody knows", "onnx", "nf4"),
    ):
        path = f"artifacts/{format_}-{precision}/model.bin"
        more = dict(sorted((files | {path: b"of a later version"}).items()))
        listed = [entry(each, data) for each, data in more.items()]
        placed = next(each for each in listed if each["path"] == path)
        artifacts = [*manifest["artifacts"], artifact(format_, precision, path, [placed])]
        changed = manifest | {"files": listed, "artifacts": artifacts}
        yield Case(name, what, sealed(changed, more))


def _unreferenced(manifest: Json, files: dict[str, bytes]) -> Iterator[Case]:
    name = "z" + "/a-long_name.0123" * 11 + "/last-of-all"
    assert len(name) == 200, len(name)
    more = files | {name: b"listed, and of no use to this version"}
    listed = manifest | {"files": [entry(path, data) for path, data in more.items()]}
    yield Case("unreferenced", "a listed member of 200 characters", sealed(listed, more))


def _alignments(manifest: Json, files: dict[str, bytes]) -> Iterator[Case]:
    """The second member's header ends 0 to 4 bytes before a multiple of 16 KiB."""
    second = 30 + len("artifacts/onnx-fp32/model.onnx")
    for gap in (0, 1, 2, 3, 4, 5):
        data = dump(manifest)
        data += b" " * (-(len(data) + second + gap) % 16384)
        yield Case(f"padding-{gap}", f"{gap} bytes before alignment", sealed(data, files))


def big_members() -> list[Member]:
    """A bundle with one member of 4 GiB."""
    files = colour_files()
    manifest = colour_manifest()
    zeros = {"path": BIG_PATH, "size": BIG, "sha256": BIG_SHA256}
    artifact = manifest["artifacts"][0]
    artifact["files"].append(zeros)
    manifest["files"].insert(1, zeros)
    placed = members(manifest, files)
    placed.insert(2, Member(BIG_PATH.encode(), BIG, crc=BIG_CRC))
    return placed
