"""Right ZIP files whose manifest is wrong: as JSON, in its values, in what it points to."""

from __future__ import annotations

import copy
from collections.abc import Iterator

from bundlecases.case import Case, sealed
from bundlecases.changes import CHANGES, set_
from bundlecases.content import colour_files, colour_manifest, dump, entry, identity, sha256

__all__ = ["manifests"]

_NOT_JSON, _TWICE, _NAN, _DEEP = (f"EDGE-BUNDLE-03{n}" for n in (1, 2, 3, 4))
_VALUE, _IDENTITY = "EDGE-BUNDLE-037", "EDGE-BUNDLE-040"
_NAME, _MEET = "EDGE-BUNDLE-009", "EDGE-BUNDLE-010"


def manifests() -> Iterator[Case]:
    """All of them."""
    yield from _json()
    yield from _two_ways()
    for name, what, code, change in CHANGES:
        manifest = copy.deepcopy(colour_manifest())
        change(manifest)
        yield _case(name, what, dump(manifest), code)
    yield from _files()
    yield from _identities()


def _case(name: str, what: str, manifest: bytes, code: str) -> Case:
    return Case(f"manifest-{name}", what, sealed(manifest, colour_files()), code)


def _json() -> Iterator[Case]:
    """Bytes that are not JSON, or not an object."""
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
        (
            "octal",
            "a number with a zero in front",
            right.replace(b'"version":1', b'"version":01'),
            _NOT_JSON,
        ),
        ("line-break", "a line break in a string", right.replace(b"red", b"r\nd", 1), _NOT_JSON),
        (
            "bare-key",
            "a key without quotes",
            right.replace(b'"name":"colour"', b'name:"colour"'),
            _NOT_JSON,
        ),
        (
            "bad-escape",
            "an escape that JSON does not have",
            right.replace(b"red", b"r\\x64", 1),
            _NOT_JSON,
        ),
        ("surrogate", "half a surrogate pair", right.replace(b"red", b"r\\ud800", 1), _NOT_JSON),
        ("array", "an array", b"[]", _VALUE),
        ("null", "null", b"null", _VALUE),
        ("number", "a number", b"1", _VALUE),
    ):
        yield _case(name, what, data, code)


def _two_ways() -> Iterator[Case]:
    """JSON that two parsers would read in two ways, or that one of them does not survive."""
    right = dump(colour_manifest())
    for name, what, data, code in (
        ("twice", "a key twice", right[:-1] + b',"version":2}', _TWICE),
        ("twice-same", "a key twice with one value", right[:-1] + b',"version":1}', _TWICE),
        (
            "twice-escaped",
            "a key twice, once with an escape",
            right[:-1] + b',"\\u0076ersion":2}',
            _TWICE,
        ),
        (
            "twice-deep",
            "a hash twice",
            right.replace(b'"sha256":', b'"sha256":"00","sha256":', 1),
            _TWICE,
        ),
        ("twice-x", "a key twice under x", right[:-1] + b',"x":{"a":1,"a":1}}', _TWICE),
        ("nan", "NaN as a number", right.replace(b'"p50_ms":"nan"', b'"p50_ms":NaN'), _NAN),
        ("infinity", "Infinity", right.replace(b'"p50_ms":"nan"', b'"p50_ms":Infinity'), _NAN),
        (
            "minus-infinity",
            "-Infinity",
            right.replace(b'"p50_ms":"nan"', b'"p50_ms":-Infinity'),
            _NAN,
        ),
        ("nan-x", "NaN under x", right[:-1] + b',"x":{"a":[1,NaN]}}', _NAN),
        (
            "overflow",
            "a number beyond float64",
            right.replace(b'"p50_ms":"nan"', b'"p50_ms":1e999'),
            _VALUE,
        ),
        (
            "deep",
            "one level too deep",
            right[:-1] + b',"x":{"a":' + b"[" * 63 + b"]" * 63 + b"}}",
            _DEEP,
        ),
        ("deep-objects", "objects, far too deep", right[:-1] + b',"x":' + b'{"a":' * 1000, _DEEP),
        ("deep-cut", "ten thousand brackets", b"[" * 10000, _DEEP),
    ):
        yield _case(name, what, data, code)


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
        ("labels", "other labels than the identity", set_("labels", ["green", "red", "blue"])),
        ("task", "another task", set_("task", "tensors")),
        ("processing", "other processing", set_("processing.inputs.0.steps.1.filter", "nearest")),
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
