"""Mutations of every kind: the reader answers or refuses, in little memory."""

from __future__ import annotations

import contextlib
import random
import tracemalloc
import zlib
from pathlib import Path

import pytest
from bundlecases.content import colour_files, colour_manifest, dump
from bundlecases.rawzip import CENTRAL, LOCAL, Member, build, join

from edgeserve.bundle import Bundle
from edgeserve.bundle.manifest import read_manifest
from edgeserve.errors import BundleError
from edgeserve.types.manifest import Manifest


def mutated(data: bytes, rng: random.Random) -> bytes:
    """A copy with a few edits: bytes set, cut out, doubled, moved, or set to what counts."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(out) + 1)
        span = rng.choice((1, 2, 4, 8, 30, 46, 300))
        edit = rng.randrange(6)
        if edit == 0:
            out[at : at + 1] = bytes([rng.randrange(256)])
        elif edit == 1:
            del out[at : at + span]
        elif edit == 2:
            out[at:at] = out[at : at + span]
        elif edit == 3:
            start = rng.randrange(len(out) + 1)
            out[at : at + span] = out[start : start + span]
        elif edit == 4:
            out[at : at + 4] = rng.choice(
                (b"\xff\xff\xff\xff", bytes(4), b"PK\x01\x02", b"\x7f\xff")
            )
        else:
            out[at:at] = rng.randbytes(span)
    return bytes(out)


def interesting(whole: bytes, places: list[range], rng: random.Random) -> bytes:
    """A mutation of one stretch that is not padding."""
    stretch = rng.choice(places)
    part = mutated(whole[stretch.start : stretch.stop], rng)
    return whole[: stretch.start] + part + whole[stretch.stop :]


def test_mutated_bundles_are_refused(folder: Path, tmp_path: Path) -> None:
    whole = folder.read_bytes()
    with Bundle(folder) as bundle:
        entries = list(bundle.members.values())
    stretches = [range(e.offset, e.offset + 100) for e in entries]
    stretches += [range(e.start, e.end) for e in entries]
    stretches += [range(entries[-1].end, len(whole))] * len(entries)
    rng = random.Random(2)
    path = tmp_path / "mutated.edge"
    refused = 0
    tracemalloc.start()
    for count in range(2500):
        if (
            count == 500
        ):  # enough for the memory, and every allocation costs time while it is traced
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        data = interesting(whole, stretches, rng)
        path.write_bytes(data)
        refused += data == whole or isinstance(outcome(path), BundleError)
    assert refused == 2500
    assert peak < 8 << 20


def outcome(path: Path) -> BundleError | None:
    """What opening a file and reading every member of it ends with."""
    try:
        with Bundle(path) as bundle:
            bundle.verify()
    except BundleError as error:
        return error
    return None


def test_mutated_manifests_are_read_or_refused() -> None:
    right = dump(colour_manifest())
    rng = random.Random(3)
    read = 0
    for _ in range(3000):
        with contextlib.suppress(BundleError):
            read += isinstance(read_manifest(mutated(right, rng)), Manifest)
    assert read > 0  # some mutations only touch a label


def test_random_fields_with_right_sums_are_refused(tmp_path: Path) -> None:
    """Mutations behind the CRC: headers set to values that look like others."""
    rng = random.Random(5)
    path = tmp_path / "fields.edge"
    values = (0, 1, 8, 0x14, 0x2D, 0x21, 149, 0xFFFF, 0x10000, 0x7FFFFFFF, 0xFFFFFFFE, 0xFFFFFFFF)
    right = join(build(members()))
    for _ in range(1000):
        found = members()
        target = found[rng.randrange(len(found))]
        kind, layout = rng.choice((("local", LOCAL), ("central", CENTRAL)))
        wrong = {}
        for name in rng.sample(list(layout), rng.randint(1, 3)):
            wrong[name] = rng.choice(values) & (0xFFFF if layout[name] == "H" else 0xFFFFFFFF)
        setattr(target, kind, wrong)
        data = join(build(found))
        path.write_bytes(data)
        if data == right:
            Bundle(path).close()
            continue
        with pytest.raises(BundleError):
            Bundle(path)


def members() -> list[Member]:
    files = [Member(name.encode(), data) for name, data in colour_files().items()]
    return [Member(b"manifest.json", dump(colour_manifest())), *files]


@pytest.mark.parametrize(
    "piece", [b"[", b'{"a":', b'"', b'"a",', b"1,", b'"\\', b"[],", b"{},", b'{"a":[1]},', b" "]
)
def test_a_hostile_manifest_costs_little(piece: bytes, tmp_path: Path) -> None:
    """256 KiB of whatever makes parsers slow or large; time is left to the test's own limit."""
    data = piece * ((1 << 18) // len(piece))
    path = tmp_path / "hostile.edge"
    path.write_bytes(join(build([Member(b"manifest.json", data, crc=zlib.crc32(data))])))
    tracemalloc.start()
    with pytest.raises(BundleError):
        Bundle(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20
