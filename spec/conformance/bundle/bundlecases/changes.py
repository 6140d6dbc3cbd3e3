"""Changes to a right manifest, each with the code that it is refused with.

A path such as ``artifacts.0.entry`` says where; the tables go from the version to the references.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bundlecases.content import Json, sha256

__all__ = ["CHANGES", "set_"]

_VERSION, _STEP, _VALUE = (f"EDGE-BUNDLE-03{n}" for n in (5, 6, 7))
_LIE, _WORKSPACE, _IDENTITY = "EDGE-BUNDLE-038", "EDGE-BUNDLE-039", "EDGE-BUNDLE-040"
_NAME = "EDGE-BUNDLE-009"
_SHA = sha256(b"another")
_EXTRA = {"name": "more", "dtype": "float32", "shape": ["n", 3, 8, 8]}
_NAMED = {"signature": "len_16"}

Change = Callable[[Json], Any]
Row = tuple[str, str, str, Change]


def set_(path: str, value: Any) -> Change:
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
        ("major-2", "the next major version", set_("edgeserve", "2.0")),
        ("major-0", "an older one", set_("edgeserve", "0.9")),
        ("major-10", "a major that starts alike", set_("edgeserve", "10.0")),
        ("version-one-part", "no minor", set_("edgeserve", "1")),
        ("version-three-parts", "a third part", set_("edgeserve", "1.0.0")),
        ("version-zero", "a zero in front", set_("edgeserve", "01.0")),
        ("version-space", "a space in front", set_("edgeserve", " 1.0")),
        ("version-line", "a line break behind", set_("edgeserve", "1.0\n")),
        ("version-digits", "digits of another script", set_("edgeserve", "1.\u0663")),
        ("version-empty", "an empty one", set_("edgeserve", "")),
    ),
    *_rows(
        _VALUE,
        ("version-number", "a number", set_("edgeserve", 1.0)),
        ("version-null", "null", set_("edgeserve", None)),
        ("version-missing", "none", _drop("edgeserve")),
    ),
]

_FIRST = "processing.inputs.0.steps.0"
_STEPS = [
    *_rows(
        _STEP,
        (
            "step-newer",
            "a newer version of a step",
            set_("processing.inputs.0.steps.1.step", "resize/2"),
        ),
        ("step-unknown", "a step that nobody knows", set_(f"{_FIRST}.step", "warp/1")),
        ("step-bare", "a step without its version", set_(f"{_FIRST}.step", "decode")),
        (
            "step-output",
            "an output step that nobody knows",
            set_("processing.outputs.1.step", "top_k/9"),
        ),
        ("step-code", "a step that would be code", set_(f"{_FIRST}.step", "__import__('os')")),
    ),
    *_rows(
        _VALUE,
        (
            "step-untold",
            "a step without its name",
            lambda m: m["processing"]["inputs"][0]["steps"][0].pop("step"),
        ),
        ("step-number", "a number for a step's name", set_(f"{_FIRST}.step", 1)),
        ("step-field", "a field that the step does not have", set_(f"{_FIRST}.gamma", 2.2)),
        (
            "step-filter",
            "a filter that nobody knows",
            set_("processing.inputs.0.steps.1.filter", "sinc"),
        ),
        ("step-size", "a picture without a row", set_("processing.inputs.0.steps.1.height", 0)),
        (
            "step-channels",
            "more scales than biases",
            set_("processing.inputs.0.steps.2.scale", [1.0, 1.0, 1.0, 1.0]),
        ),
        ("step-top-0", "the best 0 classes", set_("processing.outputs.1.k", 0)),
        (
            "input-twice",
            "processing of an input twice",
            lambda m: m["processing"]["inputs"].append(m["processing"]["inputs"][0]),
        ),
    ),
]

_VALUES = _rows(
    _VALUE,
    ("unknown-field", "a field that nobody knows", set_("author", "me")),
    ("unknown-in-artifact", "one in an artifact", set_("artifacts.0.speed", 1)),
    ("unknown-in-file", "one in a file's entry", set_("files.0.mode", 511)),
    ("unknown-in-signature", "one in the signature", set_("signature.x", {})),
    ("missing-name", "no name", _drop("name")),
    ("missing-signature", "no signature", _drop("signature")),
    ("missing-task", "no task", _drop("task")),
    ("name-empty", "an empty name", set_("name", "")),
    ("name-path", "a name that is a path", set_("name", "../colour")),
    ("name-slash", "a name with a slash", set_("name", "a/b")),
    ("name-long", "a name of 129 characters", set_("name", "n" * 129)),
    ("name-number", "a number for a name", set_("name", 7)),
    ("version-0", "version 0", set_("version", 0)),
    ("version-fraction", "version 1.5", set_("version", 1.5)),
    ("version-true", "version true", set_("version", True)),
    ("version-text", "version as text", set_("version", "1")),
    ("wrapper-words", "no release for min_wrapper", set_("min_wrapper", "latest")),
    ("task-unknown", "a task that nobody knows", set_("task", "mind-reading")),
    ("format-empty", "an empty word for a format", set_("artifacts.0.format", "")),
    ("format-case", "a format in upper case", set_("artifacts.0.format", "ONNX")),
    ("format-path", "a format that is a path", set_("artifacts.0.format", "../onnx")),
    ("format-hyphen", "a format with a hyphen", set_("artifacts.0.format", "core-ml")),
    ("format-line", "a format with a line break behind", set_("artifacts.0.format", "onnx\n")),
    ("format-long", "a format of 33 letters", set_("artifacts.0.format", "f" * 33)),
    ("format-digit", "a format that starts with a digit", set_("artifacts.0.format", "7z")),
    ("precision-case", "a precision in upper case", set_("artifacts.0.precision", "FP32")),
    ("precision-space", "a precision with a space", set_("artifacts.0.precision", "fp 32")),
    ("precision-number", "a number for a precision", set_("artifacts.0.precision", 32)),
    (
        "verdict-unknown",
        "a verdict that nobody knows",
        set_("artifacts.0.judgement.verdict", "fine"),
    ),
    ("verdict-fail", "an artifact that failed", set_("artifacts.0.judgement.verdict", "fail")),
    ("verdict-none", "an artifact that nobody judged", set_("artifacts.0.judgement", None)),
    ("artifact-twice", "an artifact twice", lambda m: m["artifacts"].append(m["artifacts"][0])),
    ("artifact-empty", "an artifact without a file", set_("artifacts.0.files", [])),
    (
        "entry-elsewhere",
        "an entry that is no file of it",
        set_("artifacts.0.entry", "artifacts/onnx-fp32/x.onnx"),
    ),
    ("entry-escapes", "an entry that escapes", set_("artifacts.0.entry", "../model.onnx")),
    ("size-negative", "a negative size", set_("files.0.size", -1)),
    ("size-fraction", "a size of 149.5 bytes", set_("files.0.size", 149.5)),
    ("size-huge", "a size of 2**80", set_("files.0.size", 1 << 80)),
    ("sha-short", "a hash of 8 digits", set_("files.0.sha256", "0" * 8)),
    ("sha-capitals", "a hash in capitals", set_("files.0.sha256", _SHA.upper())),
    ("sha-not-hex", "a hash of other letters", set_("files.0.sha256", "g" * 64)),
    ("path-escapes", "a file that escapes", set_("files.0.path", "../../etc/passwd")),
    ("path-absolute", "a file at the root", set_("files.0.path", "/etc/passwd")),
    ("path-backslash", "a file with a backslash", set_("files.0.path", "artifacts\\model.onnx")),
    ("path-drive", "a file on a drive", set_("files.0.path", "C:/model.onnx")),
    ("path-empty", "a file without a name", set_("files.0.path", "")),
    ("files-null", "null for files", set_("files", None)),
    ("files-order", "files in another order", lambda m: m["files"].reverse()),
    ("labels-numbers", "numbers for labels", set_("labels", [1, 2, 3])),
    ("dtype-unknown", "a dtype that nobody knows", set_("signature.inputs.0.dtype", "float8")),
    ("dim-negative", "a negative dimension", set_("signature.inputs.0.shape", [-1, 3, 8, 8])),
    ("dim-unranged", "a dimension without a range", set_("signature.dims", {})),
    ("dim-turned", "a range that ends before it starts", set_("signature.dims", {"n": [8, 1]})),
    ("io-no-input", "a file without inputs", set_("artifacts.0.io.inputs", [])),
    ("io-no-output", "a file without outputs", set_("artifacts.0.io.outputs", [])),
    ("io-rank", "a file with flat pictures", set_("artifacts.0.io.inputs.0.shape", ["n", 192])),
    (
        "io-more",
        "a file with one more input",
        lambda m: m["artifacts"][0]["io"]["inputs"].append(_EXTRA),
    ),
    (
        "io-bucket",
        "a bucket without outputs before the last one",
        lambda m: set_(
            "artifacts.0.buckets",
            [m["artifacts"][0]["io"] | {"outputs": []}, m["artifacts"][0]["io"]],
        )(m),
    ),
    (
        "io-last-bucket",
        "a last bucket that is not io",
        lambda m: set_(
            "artifacts.0.buckets", [m["artifacts"][0]["io"], m["artifacts"][0]["io"] | _NAMED]
        )(m),
    ),
    (
        "input-twice-signed",
        "two inputs of one name",
        lambda m: m["signature"]["inputs"].append(m["signature"]["inputs"][0]),
    ),
    ("x-list", "a list for x", set_("x", [])),
)

_RECORD = "golden.cases.0.record"
_RECORDS = _rows(
    _VALUE,
    ("record-unknown", "a record that nobody knows", set_(f"{_RECORD}.record", "hologram")),
    ("record-score", "a score in words", set_(f"{_RECORD}.score", "high")),
    ("record-nan", "a score of nan", set_(f"{_RECORD}.score", "nan")),
    (
        "mask-ragged",
        "a mask with rows of two lengths",
        set_(_RECORD, {"record": "segmentation", "mask": [[1], [1, 2]], "labels": []}),
    ),
    (
        "mask-words",
        "a mask of words",
        set_(_RECORD, {"record": "segmentation", "mask": [["a"]], "labels": []}),
    ),
    (
        "mask-digits",
        "a mask of digits in quotes",
        set_(_RECORD, {"record": "segmentation", "mask": [["1"]], "labels": []}),
    ),
    (
        "mask-fraction",
        "a mask with half a class",
        set_(_RECORD, {"record": "segmentation", "mask": [[0.5]], "labels": []}),
    ),
    (
        "mask-large",
        "a class beyond int32",
        set_(_RECORD, {"record": "segmentation", "mask": [[1 << 40]], "labels": []}),
    ),
    (
        "mask-huge",
        "a class beyond int64",
        set_(_RECORD, {"record": "segmentation", "mask": [[1 << 100]], "labels": []}),
    ),
    (
        "mask-flat",
        "a mask without rows",
        set_(_RECORD, {"record": "segmentation", "mask": [1], "labels": []}),
    ),
    ("depth-null", "a depth of null", set_(_RECORD, {"record": "depth", "map": [[None]]})),
    ("depth-object", "a depth of an object", set_(_RECORD, {"record": "depth", "map": {"a": 1}})),
    (
        "depth-overflow",
        "a depth beyond float32",
        set_(_RECORD, {"record": "depth", "map": [[1e300]]}),
    ),
    (
        "boxes-three",
        "a box of three corners",
        set_(
            _RECORD, {"record": "detection", "boxes": [[1, 2, 3]], "scores": [0.5], "labels": ["a"]}
        ),
    ),
    ("medium-unknown", "a medium that nobody knows", set_("golden.cases.0.medium", "smell")),
    ("origin-unknown", "golden cases from nowhere", set_("golden.origin", "internet")),
)


def _moved(manifest: Json) -> None:
    manifest["golden"]["cases"][0]["input"]["path"] = "identity.json"
    manifest["golden"]["cases"][0]["input"] |= manifest["files"][-1]


_POINTERS = _rows(
    _LIE,
    (
        "artifact-unlisted",
        "an artifact's file that is not listed",
        lambda m: (
            set_("artifacts.0.files.0.path", "artifacts/onnx-fp32/n.onnx")(m),
            set_("artifacts.0.entry", "artifacts/onnx-fp32/n.onnx")(m),
        ),
    ),
    (
        "artifact-other-hash",
        "an artifact's file with another hash than listed",
        set_("artifacts.0.files.0.sha256", _SHA),
    ),
    ("artifact-other-size", "or another size", set_("artifacts.0.files.0.size", 1)),
    ("artifact-elsewhere", "an artifact in another's folder", set_("artifacts.0.precision", "w8")),
    (
        "artifact-torch",
        "an artifact that is the exported source",
        lambda m: (set_("artifacts.0.format", "torch")(m), None),
    ),
    (
        "golden-unlisted",
        "a golden case that is not listed",
        set_("golden.cases.0.input.path", "golden/001.png"),
    ),
    (
        "golden-other-hash",
        "a golden case with another hash",
        set_("golden.cases.0.input.sha256", _SHA),
    ),
    ("golden-elsewhere", "a golden case outside golden/", _moved),
    (
        "golden-outputs",
        "outputs of a golden case that are not listed",
        set_("golden.cases.0.outputs", {"path": "golden/000.npz", "size": 1, "sha256": _SHA}),
    ),
)

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
        ("reference", "the user's server named in a bundle", set_("reference", "server:predict")),
        (
            "refused-path",
            "the place of a failed artifact",
            set_("refused", [_REFUSED | {"path": "failed/onnx-w8"}]),
        ),
    ),
    *_rows(
        _NAME,
        ("refused-escapes", "one that escapes", set_("refused", [_REFUSED | {"path": "../x"}])),
    ),
    *_rows(
        _LIE,
        (
            "refused-elsewhere",
            "one in a wrong place",
            set_("refused", [_REFUSED | {"path": "golden/x"}]),
        ),
    ),
    *_rows(_IDENTITY, ("model-id", "another model_id", set_("model_id", _SHA))),
]

#: (name, what, code, change) of each.
_PRIVACY = "EDGE-BUNDLE-044"
#: Statements about privacy that a reader does not understand.
_STATEMENTS: list[tuple[str, str, str, Change]] = [
    ("local-only-number", "local_only is 1", _PRIVACY, set_("x", {"local_only": 1})),
    ("local-only-text", "local_only is a text", _PRIVACY, set_("x", {"local_only": "true"})),
    ("local-only-null", "local_only is null", _PRIVACY, set_("x", {"local_only": None})),
    ("local-only-list", "local_only is a list", _PRIVACY, set_("x", {"local_only": [True]})),
    ("local-only-dash", "local-only", _PRIVACY, set_("x", {"local-only": True})),
    ("local-only-camel", "localOnly", _PRIVACY, set_("x", {"localOnly": True})),
    ("local-only-case", "LOCAL_ONLY", _PRIVACY, set_("x", {"LOCAL_ONLY": True})),
    ("never-cloud", "never_cloud", _PRIVACY, set_("x", {"never_cloud": True})),
    ("privacy", "privacy", _PRIVACY, set_("x", {"privacy": {"level": "strict"}})),
    (
        "local-only-of-artifact",
        "local_only under an artifact",
        _PRIVACY,
        set_("artifacts.0.x", {"local_only": True}),
    ),
]

CHANGES = [*_VERSIONS, *_STATEMENTS, *_STEPS, *_VALUES, *_RECORDS, *_POINTERS, *_LEFT]
