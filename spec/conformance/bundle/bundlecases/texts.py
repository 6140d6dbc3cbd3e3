"""A base whose processing names a file of its own, a tokenizer, and manifests that name it wrongly.

The base holds a model that can be run: it gives each word of a text a vector.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bundlecases.case import Case, sealed
from bundlecases.changes import set_
from bundlecases.content import Json, dump, entry, sha256

__all__ = ["text_files", "text_manifest", "texts"]

_MODEL = Path(__file__).resolve().parents[1] / "assets" / "words.onnx"
_ASSET, _ENTRY = "assets/tokenizer.json", "artifacts/onnx-fp32/words.onnx"
_TEXT = b"Red red blue"
_VALUE, _STEP, _LIE = "EDGE-BUNDLE-037", "EDGE-BUNDLE-036", "EDGE-BUNDLE-038"
_SHA = sha256(b"another")
_TOKENIZER = "processing.inputs.0.steps.0.tokenizer"


def _tokenizer() -> bytes:
    """Words in lower case; what is no colour is unknown."""
    model = {
        "type": "WordLevel",
        "vocab": {"[UNK]": 0, "red": 1, "green": 2, "blue": 3},
        "unk_token": "[UNK]",
    }
    empty: Json = dict.fromkeys(["truncation", "padding", "post_processor", "decoder"])
    parts: Json = {"normalizer": {"type": "Lowercase"}, "pre_tokenizer": {"type": "Whitespace"}}
    return dump({"version": "1.0", "added_tokens": [], **empty, **parts, "model": model})


def _processing() -> Json:
    def step(part: str) -> Json:
        tokenizer = entry(_ASSET, _tokenizer())
        return {"step": "tokenize/1", "tokenizer": tokenizer, "part": part, "max_length": 16}

    return {
        "inputs": [
            {"name": "ids", "steps": [step("ids")]},
            {"name": "mask", "steps": [step("attention_mask")]},
        ],
        "outputs": [
            {"step": "pool/1", "output": "vectors", "mask": "mask", "mode": "mean"},
            {"step": "l2_normalize/1", "output": "vectors"},
        ],
    }


def _identity() -> Json:
    return {
        "weights": [],
        "graph_sha256": sha256(b"a vector for each word"),
        "processing": _processing(),
        "labels": [],
        "task": "feature-extraction",
    }


def text_files() -> dict[str, bytes]:
    """Members of the text base, manifest aside, sorted by path."""
    return {
        _ENTRY: _MODEL.read_bytes(),
        _ASSET: _tokenizer(),
        "golden/000.txt": _TEXT,
        "identity.json": dump(_identity()),
    }


def text_manifest() -> Json:
    """The manifest of the text base. Its golden vector is (2, 0, 1), made one long."""
    files = text_files()
    listed = {path: entry(path, data) for path, data in files.items()}
    io = {
        "inputs": [
            {"name": name, "dtype": "int64", "shape": ["n", "tokens"]} for name in ("ids", "mask")
        ],
        "outputs": [{"name": "vectors", "dtype": "float32", "shape": ["n", "tokens", 3]}],
    }
    vector = [round(x / math.sqrt(5), 6) for x in (2, 0, 1)]
    case = {
        "input": listed["golden/000.txt"],
        "medium": "text",
        "record": {"record": "embedding", "vector": vector},
        "tolerance": 0.0001,
    }
    said: Json = {
        "edgeserve": "1.0",
        "name": "words",
        "version": 1,
        "min_wrapper": "0.1.0",
        "model_id": sha256(files["identity.json"]),
        "task": "feature-extraction",
        "signature": io | {"dims": {"n": [1, 8], "tokens": [1, 16]}},
        "processing": _processing(),
        "files": list(listed.values()),
        "artifacts": [
            {
                "format": "onnx",
                "precision": "fp32",
                "entry": _ENTRY,
                "files": [listed[_ENTRY]],
                "io": io,
                "judgement": {"verdict": "pass"},
            }
        ],
        "golden": {"origin": "generated", "cases": [case]},
    }
    return copy.deepcopy(said)


def texts() -> Iterator[Case]:
    """The base as it is, and what must not be done with its asset."""
    files = text_files()
    yield Case("text", "the third base: a tokenizer is part of it", sealed(text_manifest(), files))
    for name, what, code, change in _CHANGES:
        manifest = text_manifest()
        change(manifest)
        yield Case(f"text-{name}", what, sealed(manifest, files), code)
    yield from _members(files)


def _golden(manifest: Json) -> None:
    set_(_TOKENIZER, manifest["files"][2])(manifest)


def _identity_as_asset(manifest: Json) -> None:
    set_(_TOKENIZER, manifest["files"][3])(manifest)


_CHANGES: list[tuple[str, str, str, Any]] = [
    ("other-hash", "an asset with another hash", _LIE, set_(f"{_TOKENIZER}.sha256", _SHA)),
    ("other-size", "an asset of another size", _LIE, set_(f"{_TOKENIZER}.size", 1)),
    ("unlisted", "an asset not listed", _LIE, set_(f"{_TOKENIZER}.path", "assets/other.json")),
    (
        "two-ways",
        "one asset with two hashes",
        _LIE,
        set_("processing.inputs.1.steps.0.tokenizer.sha256", _SHA),
    ),
    ("golden", "a golden case as an asset", _LIE, _golden),
    ("identity", "the identity as an asset", _LIE, _identity_as_asset),
    ("manifest", "the manifest as an asset", _LIE, set_(f"{_TOKENIZER}.path", "manifest.json")),
    ("folder", "an asset that is a folder", _LIE, set_(f"{_TOKENIZER}.path", "assets")),
    ("escapes", "one that escapes", _VALUE, set_(f"{_TOKENIZER}.path", "assets/../../etc/passwd")),
    ("absolute", "one at the root", _VALUE, set_(f"{_TOKENIZER}.path", "/etc/passwd")),
    ("backslash", "one with a backslash", _VALUE, set_(f"{_TOKENIZER}.path", "assets\\t.json")),
    ("url", "one in the network", _VALUE, set_(f"{_TOKENIZER}.path", "https://example.org/t")),
    ("name", "a path for a file's entry", _VALUE, set_(_TOKENIZER, _ASSET)),
    ("none", "no asset", _VALUE, set_(_TOKENIZER, None)),
    ("part", "an unknown part", _VALUE, set_("processing.inputs.0.steps.0.part", "offsets")),
    ("length-0", "no token at most", _VALUE, set_("processing.inputs.0.steps.0.max_length", 0)),
    ("length", "2**31 tokens", _VALUE, set_("processing.inputs.0.steps.0.max_length", 1 << 31)),
    ("pad", "padding below 0", _VALUE, set_("processing.inputs.0.steps.0.pad_id", -1)),
    ("side", "padding above", _VALUE, set_("processing.inputs.0.steps.0.padding", "top")),
    ("mode", "an unknown pooling", _VALUE, set_("processing.outputs.0.mode", "median")),
    ("code", "a field for code", _VALUE, set_("processing.inputs.0.steps.0.trust", True)),
    ("newer", "a newer step", _STEP, set_("processing.inputs.0.steps.0.step", "tokenize/2")),
    ("pool", "a newer pooling", _STEP, set_("processing.outputs.0.step", "pool/2")),
]


def _members(files: dict[str, bytes]) -> Iterator[Case]:
    """An asset whose bytes are others, told and untold, and one that is not there."""
    swapped = files[_ASSET].replace(b'"red":1,"green":2', b'"red":2,"green":1')
    others = files | {_ASSET: swapped}
    yield Case(
        "text-swapped",
        "two words swapped",
        sealed(text_manifest(), others),
        "EDGE-BUNDLE-004",
        read=_ASSET,
    )
    manifest = text_manifest()
    for i in range(2):
        manifest["processing"]["inputs"][i]["steps"][0]["tokenizer"] = entry(_ASSET, swapped)
    manifest["files"][1] = entry(_ASSET, swapped)
    told = "two words swapped and told everywhere but in the identity"
    yield Case("text-swapped-told", told, sealed(manifest, others), "EDGE-BUNDLE-040")
    less = {path: data for path, data in files.items() if path != _ASSET}
    yield Case("text-gone", "no asset", sealed(text_manifest(), less), "EDGE-BUNDLE-019")
