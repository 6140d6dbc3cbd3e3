"""Manifests: the round trip, strictness, and what an error says."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from typing import Any

import msgspec
import pytest
from bundlecases.content import colour_manifest, dump
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeserve.bundle.manifest import check_json, check_wrapper, read_manifest, write_manifest
from edgeserve.errors import BundleError
from edgeserve.types.manifest import Manifest, unsupported_features

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


def right() -> Manifest:
    return read_manifest(dump(colour_manifest()))


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    labels=st.lists(TEXT, max_size=8),
    tools=st.dictionaries(TEXT, TEXT, max_size=4),
    x=st.dictionaries(TEXT, JSON, max_size=4),
    version=st.integers(1, 2**53),
    license_=st.none() | TEXT,
)
def test_what_is_written_is_read_again(
    labels: list[str], tools: dict[str, str], x: dict[str, Any], version: int, license_: str | None
) -> None:
    manifest = msgspec.structs.replace(
        right(), labels=tuple(labels), tools=tools, x=x, version=version, license=license_
    )
    data = write_manifest(manifest)
    back = read_manifest(data)
    bare = {"golden": None}  # records of golden cases hold arrays: compared by their bytes
    assert msgspec.structs.replace(back, **bare) == msgspec.structs.replace(manifest, **bare)
    assert write_manifest(back) == data
    assert json.loads(data)["labels"] == labels  # another parser reads the same


@settings(max_examples=120, deadline=None, derandomize=True)
@given(value=JSON, indent=st.sampled_from([None, 1]), ascii_=st.booleans())
def test_every_json_document_without_faults_is_let_pass(
    value: Any, indent: int | None, ascii_: bool
) -> None:
    check_json(json.dumps(value, indent=indent, ensure_ascii=ascii_).encode(), "document")


@settings(max_examples=120, deadline=None, derandomize=True)
@given(members=st.lists(st.tuples(TEXT, JSON), max_size=6), ascii_=st.booleans())
def test_a_key_said_twice_is_found_wherever_it_is(
    members: list[tuple[str, Any]], ascii_: bool
) -> None:
    """The oracle is Python's own parser, which hands out the pairs it found."""
    text = ",".join(
        f"{json.dumps(key, ensure_ascii=ascii_)}:{json.dumps(value)}" for key, value in members
    )
    document = f'[1, {{"outer": {{{text}}}}}]'
    repeated = []

    def pairs(found: list[tuple[str, Any]]) -> None:
        repeated.append(len({key for key, _ in found}) != len(found))

    json.loads(document, object_pairs_hook=pairs)
    if any(repeated):
        with pytest.raises(BundleError, match="EDGE-BUNDLE-032"):
            check_json(document.encode(), "document")
    else:
        check_json(document.encode(), "document")


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity"])
def test_what_is_no_number_is_found_and_named(text: str) -> None:
    with pytest.raises(BundleError) as refused:
        check_json(f'{{"a": {{"b": [1, {text}]}}}}'.encode(), "manifest.json")
    assert refused.value.code == "EDGE-BUNDLE-033"
    assert refused.value.thing == "manifest.json at $.a.b[...]"
    check_json(f'{{"{text}": "{text}"}}'.encode(), "manifest.json")


@pytest.mark.parametrize(
    ("document", "code"),
    [
        (b'"a":NaN', "033"),
        (b'"a":1,"a":2', "031"),
        (b"]]]]", "031"),
        (b'}"a":[', "031"),
        (b'{"a":1}]NaN', "033"),
        (b'{"\\x":1,"\\x":2}', "032"),
        (b"", "031"),
    ],
)
def test_what_is_not_json_never_crashes_the_first_look(document: bytes, code: str) -> None:
    with pytest.raises(BundleError, match=f"EDGE-BUNDLE-{code}"):
        read_manifest(document)


def test_the_deepest_level_is_64() -> None:
    check_json(b"[" * 64 + b"]" * 64, "document")
    with pytest.raises(BundleError, match="EDGE-BUNDLE-034"):
        check_json(b"[" * 65 + b"]" * 65, "document")


@pytest.mark.parametrize(
    ("change", "code", "where"),
    [
        ({"author": "me"}, "EDGE-BUNDLE-037", "manifest.json at $"),
        ({"version": "1"}, "EDGE-BUNDLE-037", "manifest.json at $.version"),
        ({"edgeserve": "2.0"}, "EDGE-BUNDLE-035", "manifest.json at $.edgeserve"),
        ({"signature": 1}, "EDGE-BUNDLE-037", "manifest.json at $.signature"),
        (
            {"processing": {"outputs": [{"step": "argmax/1", "output": "a"}]}},
            "EDGE-BUNDLE-036",
            "manifest.json at $.processing.outputs[0]",
        ),
    ],
)
def test_an_error_names_the_place_and_a_remedy(
    change: dict[str, Any], code: str, where: str
) -> None:
    with pytest.raises(BundleError) as refused:
        read_manifest(dump(colour_manifest() | change))
    assert (refused.value.code, refused.value.thing) == (code, where)
    assert refused.value.hint


def test_an_unknown_step_is_named() -> None:
    manifest = colour_manifest()
    manifest["processing"]["inputs"][0]["steps"][1]["step"] = "resize/2"
    with pytest.raises(BundleError) as refused:
        read_manifest(dump(manifest))
    assert refused.value.code == "EDGE-BUNDLE-036"
    assert refused.value.got == "'resize/2'"


def test_a_manifest_that_no_reader_takes_is_not_written() -> None:
    with pytest.raises(BundleError, match="EDGE-BUNDLE-037"):
        write_manifest(msgspec.structs.replace(right(), name="a/b"))
    with pytest.raises(BundleError, match="EDGE-BUNDLE-037"):
        write_manifest(msgspec.structs.replace(right(), x={"figure": float("nan")}))
    with pytest.raises(BundleError, match="EDGE-BUNDLE-040"):
        write_manifest(msgspec.structs.replace(right(), model_id="0" * 64))


@pytest.mark.parametrize(
    ("needed", "version", "fits"),
    [
        ("0.1.0", "0.1.0", True),
        ("0.1", "0.1.0", True),
        ("0.1.0", "0.1", True),
        ("0.2.0", "0.1.9", False),
        ("0.10.0", "0.9.0", False),
        ("1.0.0", "1.0.0rc1", True),
        ("1.0.1", "1.0", False),
        ("0.1.0", "0.1.1.dev3+g12ab", True),
    ],
)
def test_an_older_wrapper_is_refused(needed: str, version: str, fits: bool) -> None:
    manifest = msgspec.structs.replace(right(), min_wrapper=needed)
    if fits:
        check_wrapper(manifest, version)
    else:
        with pytest.raises(BundleError, match="EDGE-BUNDLE-041"):
            check_wrapper(manifest, version)


#: sha256 of what the first version that had no functions, states or features wrote for each base.
_BEFORE = {"colour": "856b74be84eed486", "folder": "30a632d2f7035a5e", "text": "0e23306f582eb419"}


@pytest.mark.parametrize("name", _BEFORE)
def test_fields_that_are_not_used_change_no_byte(name: str, bases: dict[str, bytes]) -> None:
    with zipfile.ZipFile(io.BytesIO(bases[name])) as archive:
        manifest = read_manifest(archive.read("manifest.json"))
    assert hashlib.sha256(write_manifest(manifest)).hexdigest()[:16] == _BEFORE[name]


def test_what_is_used_is_written_and_read_again(bases: dict[str, bytes]) -> None:
    with zipfile.ZipFile(io.BytesIO(bases["functions"])) as archive:
        manifest = read_manifest(archive.read("manifest.json"))
    data = write_manifest(manifest)
    assert write_manifest(read_manifest(data)) == data
    assert list(manifest.signatures) == ["main", "step"]
    assert [a.name for a in manifest.artifacts][2].startswith("onnx-mixed-")
    lacking = {a.name: unsupported_features(a) for a in manifest.artifacts}
    assert lacking["onnx-fp32"] == ()
    assert lacking["coreml-fp16"] == ("image-input", "tensor-layout")
    assert lacking["onnx-w8"] == ("telepathy",)


def test_an_artifact_that_moves_takes_its_plan_and_functions_along(bases: dict[str, bytes]) -> None:
    with zipfile.ZipFile(io.BytesIO(bases["functions"])) as archive:
        manifest = read_manifest(archive.read("manifest.json"))
    plain, mixed = manifest.artifacts[0].moved("elsewhere"), manifest.artifacts[2].moved("b")
    assert plain.functions[0].entry == "elsewhere/step.onnx"  # type: ignore[index]
    assert mixed.plan in mixed.files
    assert (mixed.name, mixed.sha256) == (manifest.artifacts[2].name, manifest.artifacts[2].sha256)
