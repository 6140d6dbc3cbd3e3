"""Right ZIP files whose manifest is wrong: as JSON, in its values, in what it points to."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

from bundlecases.case import Case, sealed
from bundlecases.content import (
    Json,
    colour_files,
    colour_manifest,
    dump,
    entry,
    identity,
    sha256,
)

__all__ = ["manifests"]

_NOT_JSON, _TWICE, _NAN, _DEEP = (f"EDGE-BUNDLE-03{n}" for n in (1, 2, 3, 4))
_VERSION, _STEP, _VALUE = (f"EDGE-BUNDLE-03{n}" for n in (5, 6, 7))
_LIE, _WORKSPACE, _IDENTITY = "EDGE-BUNDLE-038", "EDGE-BUNDLE-039", "EDGE-BUNDLE-040"
_NAME, _MEET = "EDGE-BUNDLE-009", "EDGE-BUNDLE-010"
_SHA = sha256(b"another")


def manifests() -> Iterator[Case]:
    """All of them."""
    yield from _json()
    for name, what, code, change in (*_VERSIONS, *_STEPS, *_VALUES, *_RECORDS, *_POINTERS, *_LEFT):
        manifest = copy.deepcopy(colour_manifest())
        change(manifest)
        yield _case(name, what, dump(manifest), code)
    yield from _files()
    yield from _identities()


def _case(name: str, what: str, manifest: bytes, code: str) -> Case:
    return Case(f"manifest-{name}", what, sealed(manifest, colour_files()), code)


def _json() -> Iterator[Case]:
    """Bytes that are not JSON, or that two parsers would read in two ways."""
    right = dump(colour_manifest())
    for name, what, data, code in (
        ("empty", "no byte", b"", _NOT_JSON),
        ("space", "white space only", b" \n", _NOT_JSON),
        ("cut", "the first half", right[: len(right) // 2], _NOT_JSON),
        ("cut-brace", "the last brace missing", right[:-1], _NOT_JSON),
        ("trailing", "a word behind it", right + b" true", _NOT_JSON),
        ("two", "two documents", right + right, _NOT_JSON),
        ("nul", "a NUL behind it", right + b"\0", _NOT_JSON),
        ("bom", "a byte order mark", b"\xef\xbb\xbf" + right, _NOT_JSON),
        ("utf-16", "UTF-16", right.decode().encode("utf-16"), _NOT_JSON),
        ("not-utf-8", "a byte that is not UTF-8", right.replace(b"red", b"r\xffd", 1), _NOT_JSON),
        ("overlong", "an overlong UTF-8 form", right.replace(b"red", b"r\xc0\xafd", 1), _NOT_JSON),
        ("single-quotes", "single quotes", right.replace(b'"', b"'"), _NOT_JSON),
        ("comment", "a comment", b"/* hello */" + right, _NOT_JSON),
        ("comma", "a comma before a brace", right[:-1] + b",}", _NOT_JSON),
        ("plus", "a number with a plus", right.replace(b'"version":1', b'"version":+1'), _NOT_JSON),
        ("hex", "a hexadecimal number", right.replace(b'"version":1', b'"version":0x1'), _NOT_JSON),
        ("octal", "a number with a zero in front", right.replace(b'"version":1', b'"version":01'), _NOT_JSON),
        ("line-break", "a line break in a string", right.replace(b"red", b"r\nd", 1), _NOT_JSON),
        ("bare-key", "a key without quotes", right.replace(b'"name":"colour"', b'name:"colour"'), _NOT_JSON),
        ("bad-escape", "an escape that JSON does not have", right.replace(b"red", b"r\\x64", 1), _NOT_JSON),
        ("surrogate", "half a surrogate pair", right.replace(b"red", b"r\\ud800", 1), _NOT_JSON),
        ("array", "an array", b"[]", _VALUE),
        ("null", "null", b"null", _VALUE),
        ("number", "a number", b"1", _VALUE),
        ("twice", "a key twice", right[:-1] + b',"version":2}', _TWICE),
        ("twice-same", "a key twice with one value", right[:-1] + b',"version":1}', _TWICE),
        ("twice-escaped", "a key twice, once with an escape", right[:-1] + b',"\\u0076ersion":2}', _TWICE),
        ("twice-deep", "a hash twice", right.replace(b'"sha256":', b'"sha256":"00","sha256":', 1), _TWICE),
        ("twice-x", "a key twice under x", right[:-1] + b',"x":{"a":1,"a":1}}', _TWICE),
        ("nan", "NaN as a number", right.replace(b'"p50_ms":"nan"', b'"p50_ms":NaN'), _NAN),
        ("infinity", "Infinity", right.replace(b'"p50_ms":"nan"', b'"p50_ms":Infinity'), _NAN),
        ("minus-infinity", "-Infinity", right.replace(b'"p50_ms":"nan"', b'"p50_ms":-Infinity'), _NAN),
        ("nan-x", "NaN under x", right[:-1] + b',"x":{"a":[1,NaN]}}', _NAN),
        ("overflow", "a number beyond float64", right.replace(b'"p50_ms":"nan"', b'"p50_ms":1e999'), _VALUE),
        ("deep", "one level too deep", right[:-1] + b',"x":{"a":' + b"[" * 63 + b"]" * 63 + b"}}", _DEEP),
        ("deep-objects", "objects, far too deep", right[:-1] + b',"x":' + b'{"a":' * 1000, _DEEP),
        ("deep-cut", "ten thousand brackets", b"[" * 10000, _DEEP),
    ):  # fmt: skip
        yield _case(name, what, data, code)


Change = Callable[[Json], Any]
Row = tuple[str, str, str, Change]


def _set(path: str, value: Any) -> Change:
    """Set what lies at ``path`` (``artifacts.0.entry``)."""

    def change(manifest: Json) -> None:
        *way, last = path.split(".")
        place: Any = manifest
        for step in way:
            place = place[int(step)] if isinstance(place, list) else place[step]
        if isinstance(place, list):
            place[int(last)] = value
        else:
            place[last] = value

    return change


def _drop(key: str) -> Change:
    return lambda manifest: manifest.pop(key)


def _rows(code: str, *rows: tuple[str, str, Change]) -> list[Row]:
    return [(name, what, code, change) for name, what, change in rows]


_VERSIONS = [
    *_rows(
        _VERSION,
        ("major-2", "the next major version", _set("edgeserve", "2.0")),
        ("major-0", "an older one", _set("edgeserve", "0.9")),
        ("major-10", "a major that starts alike", _set("edgeserve", "10.0")),
        ("version-one-part", "no minor", _set("edgeserve", "1")),
        ("version-three-parts", "a third part", _set("edgeserve", "1.0.0")),
        ("version-zero", "a zero in front", _set("edgeserve", "01.0")),
        ("version-space", "a space in front", _set("edgeserve", " 1.0")),
        ("version-line", "a line break behind", _set("edgeserve", "1.0\n")),
        ("version-digits", "digits of another script", _set("edgeserve", "1.\u0663")),
        ("version-empty", "an empty one", _set("edgeserve", "")),
    ),
    *_rows(
        _VALUE,
        ("version-number", "a number", _set("edgeserve", 1.0)),
        ("version-null", "null", _set("edgeserve", None)),
        ("version-missing", "none", _drop("edgeserve")),
    ),
]

_FIRST = "processing.inputs.0.steps.0"
_STEPS = [
    *_rows(
        _STEP,
        ("step-newer", "a newer version of a step", _set("processing.inputs.0.steps.1.step", "resize/2")),
        ("step-unknown", "a step that nobody knows", _set(f"{_FIRST}.step", "warp/1")),
        ("step-bare", "a step without its version", _set(f"{_FIRST}.step", "decode")),
        ("step-output", "an output step that nobody knows", _set("processing.outputs.1.step", "top_k/9")),
        ("step-code", "a step that would be code", _set(f"{_FIRST}.step", "__import__('os')")),
    ),
    *_rows(
        _VALUE,
        ("step-untold", "a step without its name", lambda m: m["processing"]["inputs"][0]["steps"][0].pop("step")),
        ("step-number", "a number for a step's name", _set(f"{_FIRST}.step", 1)),
        ("step-field", "a field that the step does not have", _set(f"{_FIRST}.gamma", 2.2)),
        ("step-filter", "a filter that nobody knows", _set("processing.inputs.0.steps.1.filter", "sinc")),
        ("step-size", "a picture without a row", _set("processing.inputs.0.steps.1.height", 0)),
        ("step-channels", "more scales than biases",
         _set("processing.inputs.0.steps.2.scale", [1.0, 1.0, 1.0, 1.0])),
        ("step-top-0", "the best 0 classes", _set("processing.outputs.1.k", 0)),
        ("input-twice", "processing of an input twice",
         lambda m: m["processing"]["inputs"].append(m["processing"]["inputs"][0])),
    ),
]  # fmt: skip

_VALUES = _rows(
    _VALUE,
    ("unknown-field", "a field that nobody knows", _set("author", "me")),
    ("unknown-in-artifact", "one in an artifact", _set("artifacts.0.speed", 1)),
    ("unknown-in-file", "one in a file's entry", _set("files.0.mode", 511)),
    ("unknown-in-signature", "one in the signature", _set("signature.x", {})),
    ("missing-name", "no name", _drop("name")),
    ("missing-signature", "no signature", _drop("signature")),
    ("missing-task", "no task", _drop("task")),
    ("name-empty", "an empty name", _set("name", "")),
    ("name-path", "a name that is a path", _set("name", "../colour")),
    ("name-slash", "a name with a slash", _set("name", "a/b")),
    ("name-long", "a name of 129 characters", _set("name", "n" * 129)),
    ("name-number", "a number for a name", _set("name", 7)),
    ("version-0", "version 0", _set("version", 0)),
    ("version-fraction", "version 1.5", _set("version", 1.5)),
    ("version-true", "version true", _set("version", True)),
    ("version-text", "version as text", _set("version", "1")),
    ("wrapper-words", "no release for min_wrapper", _set("min_wrapper", "latest")),
    ("task-unknown", "a task that nobody knows", _set("task", "mind-reading")),
    ("format-unknown", "a format that nobody knows", _set("artifacts.0.format", "exe")),
    ("precision-unknown", "a precision that nobody knows", _set("artifacts.0.precision", "fp7")),
    ("verdict-unknown", "a verdict that nobody knows", _set("artifacts.0.judgement.verdict", "fine")),
    ("verdict-fail", "an artifact that failed", _set("artifacts.0.judgement.verdict", "fail")),
    ("verdict-none", "an artifact that nobody judged", _set("artifacts.0.judgement", None)),
    ("artifact-twice", "an artifact twice", lambda m: m["artifacts"].append(m["artifacts"][0])),
    ("artifact-empty", "an artifact without a file", _set("artifacts.0.files", [])),
    ("entry-elsewhere", "an entry that is no file of it", _set("artifacts.0.entry", "artifacts/onnx-fp32/x.onnx")),
    ("entry-escapes", "an entry that escapes", _set("artifacts.0.entry", "../model.onnx")),
    ("size-negative", "a negative size", _set("files.0.size", -1)),
    ("size-fraction", "a size of 149.5 bytes", _set("files.0.size", 149.5)),
    ("size-huge", "a size of 2**80", _set("files.0.size", 1 << 80)),
    ("sha-short", "a hash of 8 digits", _set("files.0.sha256", "0" * 8)),
    ("sha-capitals", "a hash in capitals", _set("files.0.sha256", _SHA.upper())),
    ("sha-not-hex", "a hash of other letters", _set("files.0.sha256", "g" * 64)),
    ("path-escapes", "a file that escapes", _set("files.0.path", "../../etc/passwd")),
    ("path-absolute", "a file at the root", _set("files.0.path", "/etc/passwd")),
    ("path-backslash", "a file with a backslash", _set("files.0.path", "artifacts\\model.onnx")),
    ("path-drive", "a file on a drive", _set("files.0.path", "C:/model.onnx")),
    ("path-empty", "a file without a name", _set("files.0.path", "")),
    ("files-null", "null for files", _set("files", None)),
    ("files-order", "files in another order", lambda m: m["files"].reverse()),
    ("labels-numbers", "numbers for labels", _set("labels", [1, 2, 3])),
    ("dtype-unknown", "a dtype that nobody knows", _set("signature.inputs.0.dtype", "float8")),
    ("dim-negative", "a negative dimension", _set("signature.inputs.0.shape", [-1, 3, 8, 8])),
    ("dim-unranged", "a dimension without a range", _set("signature.dims", {})),
    ("dim-turned", "a range that ends before it starts", _set("signature.dims", {"n": [8, 1]})),
    ("input-twice-signed", "two inputs of one name",
     lambda m: m["signature"]["inputs"].append(m["signature"]["inputs"][0])),
    ("x-list", "a list for x", _set("x", [])),
)  # fmt: skip

_RECORD = "golden.cases.0.record"
_RECORDS = _rows(
    _VALUE,
    ("record-unknown", "a record that nobody knows", _set(f"{_RECORD}.record", "hologram")),
    ("record-score", "a score in words", _set(f"{_RECORD}.score", "high")),
    ("record-nan", "a score of nan", _set(f"{_RECORD}.score", "nan")),
    ("mask-ragged", "a mask with rows of two lengths",
     _set(_RECORD, {"record": "segmentation", "mask": [[1], [1, 2]], "labels": []})),
    ("mask-words", "a mask of words", _set(_RECORD, {"record": "segmentation", "mask": [["a"]], "labels": []})),
    ("mask-digits", "a mask of digits in quotes",
     _set(_RECORD, {"record": "segmentation", "mask": [["1"]], "labels": []})),
    ("mask-fraction", "a mask with half a class",
     _set(_RECORD, {"record": "segmentation", "mask": [[0.5]], "labels": []})),
    ("mask-large", "a class beyond int32",
     _set(_RECORD, {"record": "segmentation", "mask": [[1 << 40]], "labels": []})),
    ("mask-huge", "a class beyond int64",
     _set(_RECORD, {"record": "segmentation", "mask": [[1 << 100]], "labels": []})),
    ("mask-flat", "a mask without rows", _set(_RECORD, {"record": "segmentation", "mask": [1], "labels": []})),
    ("depth-null", "a depth of null", _set(_RECORD, {"record": "depth", "map": [[None]]})),
    ("depth-object", "a depth of an object", _set(_RECORD, {"record": "depth", "map": {"a": 1}})),
    ("depth-overflow", "a depth beyond float32", _set(_RECORD, {"record": "depth", "map": [[1e300]]})),
    ("boxes-three", "a box of three corners",
     _set(_RECORD, {"record": "detection", "boxes": [[1, 2, 3]], "scores": [0.5], "labels": ["a"]})),
    ("medium-unknown", "a medium that nobody knows", _set("golden.cases.0.medium", "smell")),
    ("origin-unknown", "golden cases from nowhere", _set("golden.origin", "internet")),
)  # fmt: skip


def _moved(manifest: Json) -> None:
    manifest["golden"]["cases"][0]["input"]["path"] = "identity.json"
    manifest["golden"]["cases"][0]["input"] |= manifest["files"][-1]


_POINTERS = _rows(
    _LIE,
    ("artifact-unlisted", "an artifact's file that is not listed",
     lambda m: (_set("artifacts.0.files.0.path", "artifacts/onnx-fp32/n.onnx")(m),
                _set("artifacts.0.entry", "artifacts/onnx-fp32/n.onnx")(m))),
    ("artifact-other-hash", "an artifact's file with another hash than listed", _set("artifacts.0.files.0.sha256", _SHA)),
    ("artifact-other-size", "or another size", _set("artifacts.0.files.0.size", 1)),
    ("artifact-elsewhere", "an artifact in another's folder", _set("artifacts.0.precision", "w8")),
    ("artifact-torch", "an artifact that is the exported source",
     lambda m: (_set("artifacts.0.format", "torch")(m), None)),
    ("golden-unlisted", "a golden case that is not listed", _set("golden.cases.0.input.path", "golden/001.png")),
    ("golden-other-hash", "a golden case with another hash", _set("golden.cases.0.input.sha256", _SHA)),
    ("golden-elsewhere", "a golden case outside golden/", _moved),
    ("golden-outputs", "outputs of a golden case that are not listed",
     _set("golden.cases.0.outputs", {"path": "golden/000.npz", "size": 1, "sha256": _SHA})),
)  # fmt: skip

_REFUSED = {
    "format": "onnx",
    "precision": "w8",
    "verdict": "fail",
    "code": "EDGE-CHECK-001",
    "message": "does not load",
    "hint": "",
}
_LEFT = [
    *_rows(
        _WORKSPACE,
        ("reference", "the user's server named in a bundle", _set("reference", "server:predict")),
        ("refused-path", "the place of a failed artifact", _set("refused", [_REFUSED | {"path": "failed/onnx-w8"}])),
    ),
    *_rows(_NAME, ("refused-escapes", "one that escapes", _set("refused", [_REFUSED | {"path": "../x"}]))),
    *_rows(_LIE, ("refused-elsewhere", "one in a wrong place", _set("refused", [_REFUSED | {"path": "golden/x"}]))),
    *_rows(_IDENTITY, ("model-id", "another model_id", _set("model_id", _SHA))),
]  # fmt: skip


def _files() -> Iterator[Case]:
    """Lists of files that do not fit the members, or each other."""
    right = colour_files()
    listed = [entry(path, data) for path, data in right.items()]
    other = {"path": "zz.txt", "size": 5, "sha256": sha256(b"other")}
    for name, what, code, files in (
        ("file-twice", "a file twice", _MEET, [*listed, listed[-1]]),
        (
            "file-case",
            "two files that differ in case",
            _MEET,
            [*listed, other | {"path": "identity.jsoN"}],
        ),
        ("file-in-file", "a file in a file", _MEET, [*listed, other | {"path": "identity.json/a"}]),
        ("file-manifest", "itself", _MEET, [*listed, other | {"path": "manifest.json"}]),
        (
            "file-device",
            "a file that Windows takes for a device",
            _NAME,
            [*listed, other | {"path": "nul"}],
        ),
        ("file-long", "a name of 201 characters", _NAME, [*listed, other | {"path": "z" * 201}]),
        ("file-extra", "a file that is not there", "EDGE-BUNDLE-019", [*listed, other]),
        ("identity-unlisted", "no identity among the files", _IDENTITY, listed[:-1]),
    ):
        data = dump(colour_manifest() | {"files": files})
        yield _case(name, what, data, code)
    yield _sized("file-size-less", "a size that is one too small", -1)
    yield _sized("file-size-more", "a size that is one too large", 1)


def _sized(name: str, what: str, change: int) -> Case:
    """The picture's size wrong wherever the manifest says it: only the ZIP knows better."""
    manifest = colour_manifest()
    for place in (manifest["files"][1], manifest["golden"]["cases"][0]["input"]):
        place["size"] += change
    return _case(name, what, dump(manifest), "EDGE-BUNDLE-019")


def _identities() -> Iterator[Case]:
    """Manifests that say something else than the identity that they are known by."""
    for name, what, change in (
        ("labels", "other labels than the identity", _set("labels", ["green", "red", "blue"])),
        ("task", "another task", _set("task", "tensors")),
        ("processing", "other processing", _set("processing.inputs.0.steps.1.filter", "nearest")),
    ):
        manifest = colour_manifest()
        change(manifest)
        yield _case(f"identity-{name}", what, dump(manifest), _IDENTITY)
    said = identity()
    for name, what, data, code in (
        ("not-json", "an identity that is not JSON", b"colour", _NOT_JSON),
        ("twice", "one that says its labels twice", said[:-1] + b',"labels":[]}', _TWICE),
        ("array", "an identity that is an array", b"[]", _IDENTITY),
        ("cut", "an identity without labels", b'{"task":"tensors"}', _IDENTITY),
    ):
        files = colour_files() | {"identity.json": data}
        pieces = sealed(colour_manifest(files), files)
        yield Case(f"identity-{name}", what, pieces, code)
