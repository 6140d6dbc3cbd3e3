"""The small parts: member names, identity, ZIP records."""

from __future__ import annotations

import hashlib
import json
import struct

import msgspec
import pytest
from bundlecases.content import colour_manifest, dump
from bundlecases.good import big_members
from bundlecases.rawzip import Member, build
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeserve.bundle import zipfmt
from edgeserve.bundle.rules import check_name, check_names, identity_bytes, model_id
from edgeserve.errors import BundleError
from edgeserve.types.artifact import FileEntry
from edgeserve.types.source import Exported, Source, Weight

NAMES = st.from_regex(
    r"[A-Za-z][A-Za-z0-9_-]{0,3}(/[A-Za-z][A-Za-z0-9_]{0,2}){0,2}", fullmatch=True
)


@settings(max_examples=120, deadline=None, derandomize=True)
@given(st.lists(NAMES, max_size=6))
def test_names_that_meet_are_found(names: list[str]) -> None:
    """The oracle lays the names out as a tree of dictionaries that ignores case."""
    meets = False
    tree: dict[str, object] = {}
    spelled: dict[str, str] = {}
    for name in names:
        here = tree
        parts = name.split("/")
        for depth, part in enumerate(parts, 1):
            prefix = "/".join(parts[:depth])
            meets |= spelled.setdefault(prefix.lower(), prefix) != prefix
            last = depth == len(parts)
            found = here.get(part.lower())
            if found is None:
                found = here[part.lower()] = "file" if last else {}
            elif last or found == "file":
                meets = True
            if not isinstance(found, dict):
                break
            here = found
    if meets:
        with pytest.raises(BundleError, match="EDGE-BUNDLE-010"):
            check_names(names)
    else:
        check_names(names)


@pytest.mark.parametrize(
    "name", ["a", "a.b", "A-b_c/0.x", "x" * 200, "console", "com.apple", "com10", "a..b"]
)
def test_names_that_every_system_keeps(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize(
    "name", ["", "/", "..", "a/..", "Con.txt", "a/LPT1", "a.", "\u202egnp.exe", "a\r", "x" * 201]
)
def test_names_that_some_system_reads_otherwise(name: str) -> None:
    with pytest.raises(BundleError) as refused:
        check_name(name)
    assert refused.value.code == "EDGE-BUNDLE-009"
    assert refused.value.message.isascii()
    assert refused.value.message.isprintable()


def exported(**changes: object) -> Exported:
    manifest = colour_manifest()
    weights = [
        {
            "name": name,
            "dtype": "float32",
            "shape": [2, 3],
            "sha256": hashlib.sha256(name.encode()).hexdigest(),
        }
        for name in ("b", "a")
    ]
    file = FileEntry(path="model.pt2", size=1, sha256="0" * 64)
    data = {
        "source": msgspec.to_builtins(Source(kind="factory", location="demo:make")),
        "program": msgspec.to_builtins(file),
        "examples": msgspec.to_builtins(file),
        "weights": weights,
        "graph_sha256": "1" * 64,
    } | {name: manifest[name] for name in ("signature", "task", "processing", "labels")}
    return msgspec.structs.replace(msgspec.convert(data, Exported), **changes)


def test_the_identity_lists_what_makes_the_model() -> None:
    data = identity_bytes(exported())
    said = json.loads(data)
    assert list(said) == ["weights", "graph_sha256", "processing", "labels", "task"]
    assert [weight["name"] for weight in said["weights"]] == ["a", "b"]
    assert data == dump(said)  # compact, and nothing that another JSON writer would write otherwise
    assert model_id(data) == hashlib.sha256(data).hexdigest()


def test_the_identity_follows_what_matters_and_nothing_else() -> None:
    one = exported()
    same = identity_bytes(one)
    assert identity_bytes(msgspec.structs.replace(one, weights=one.weights[::-1])) == same
    assert (
        identity_bytes(exported(tools={"torch": "9"}, notes=("static",), reference="a:b")) == same
    )
    other_weight = Weight(name="b", dtype="float32", shape=(3, 2), sha256=one.weights[0].sha256)
    for changed in (
        exported(labels=("blue",)),
        exported(task="tensors"),
        exported(graph_sha256="2" * 64),
        exported(weights=(other_weight, one.weights[1])),
    ):
        assert identity_bytes(changed) != same


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    st.lists(
        st.tuples(NAMES, st.integers(0, 40_000), st.integers(0, 2**32 - 1)), min_size=1, max_size=5
    )
)
def test_the_records_are_those_that_the_generator_writes(
    members: list[tuple[str, int, int]],
) -> None:
    entries = zipfmt.plan(members)
    raw = build(Member(name.encode(), size, crc=crc) for name, size, crc in members)
    for index, entry in enumerate(entries):
        assert zipfmt.local_bytes(entry) == raw[3 * index]
        assert entry.start % zipfmt.ALIGNMENT == 0
    directory = b"".join(zipfmt.central_bytes(entry) for entry in entries)
    assert directory == raw[-3]
    ends = (len(entries), len(directory), entries[-1].end)
    assert zipfmt.end64_bytes(*ends) + zipfmt.end_bytes(*ends) == raw[-1]


@pytest.mark.parametrize("size", [0xFFFFFFFE, 0xFFFFFFFF, 0x1_0000_0000, 1 << 39])
def test_zip64_starts_where_32_bits_end(size: int) -> None:
    members = [("manifest.json", 5, 1), ("big", size, 2), ("small", 3, 4)]
    entries = zipfmt.plan(members)
    raw = build(Member(name.encode(), length, crc=crc) for name, length, crc in members)
    assert [zipfmt.local_bytes(entry) for entry in entries] == [raw[0], raw[3], raw[6]]
    directory = b"".join(zipfmt.central_bytes(entry) for entry in entries)
    assert directory == raw[-3]
    ends = (3, len(directory), entries[-1].end)
    assert zipfmt.end64_bytes(*ends) + zipfmt.end_bytes(*ends) == raw[-1]
    assert struct.pack("<Q", size) in zipfmt.local_bytes(entries[1]) or size < 0xFFFFFFFF


def test_the_big_base_is_planned_alike() -> None:
    members = big_members()
    entries = zipfmt.plan((m.name.decode(), m.size, m.checksum) for m in members)
    assert [zipfmt.local_bytes(e) for e in entries] == build(members)[0:-3:3]
