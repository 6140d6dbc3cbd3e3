"""A base with functions, states, layouts, a plan and features, and manifests that misuse them.

The base has a second function with a state and a chat template, artifacts whose image has its
channels last or is fed as levels, one with a plan, and one that needs a feature nobody has.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

from bundlecases.case import Case, sealed
from bundlecases.changes import set_
from bundlecases.content import (
    COLOURS,
    PROCESSING,
    Json,
    colour_files,
    colour_manifest,
    dump,
    entry,
    sha256,
)

__all__ = ["functions", "functions_files", "functions_manifest"]

_VALUE, _LIE, _IDENTITY = "EDGE-BUNDLE-037", "EDGE-BUNDLE-038", "EDGE-BUNDLE-040"
_PLAN = dump({"default": "w8a8", "ops": {"features.0": "fp16"}})
_PLAN_HASH = sha256(_PLAN)
_MIXED = f"artifacts/onnx-mixed-{_PLAN_HASH[:8]}"
_CHAT = b"{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
_CACHE: Json = {
    "name": "cache",
    "dtype": "float32",
    "shape": ["n", "past", 4],
    "dims": {"n": [1, 8], "past": [0, 64]},
}


def _tensor(name: str, shape: list[Any], dtype: str = "float32") -> Json:
    return {"name": name, "dtype": dtype, "shape": shape}


def _step_processing(files: dict[str, bytes]) -> Json:
    template = entry("assets/chat.jinja", files["assets/chat.jinja"])
    return {"chat": {"template": template, "eos": "<end>", "stop": ["<end>"]}}


def _identity(files: dict[str, bytes]) -> bytes:
    step = {
        "name": "step",
        "graph_sha256": sha256(b"one step of a decoder"),
        "processing": _step_processing(files),
    }
    return dump(
        {
            "weights": [],
            "graph_sha256": sha256(b"mean over height and width"),
            "processing": PROCESSING,
            "labels": COLOURS,
            "task": "image-classification",
            "functions": [step],
        }
    )


def functions_files() -> dict[str, bytes]:
    """Members of the base, manifest aside, sorted by path."""
    plain = colour_files()
    files = {
        "artifacts/coreml-fp16/colour.mlpackage/Manifest.json": b"{}",
        "artifacts/onnx-fp32/model.onnx": plain["artifacts/onnx-fp32/model.onnx"],
        "artifacts/onnx-fp32/step.onnx": b"one step",
        f"{_MIXED}/model.onnx": b"mixed",
        f"{_MIXED}/plan.json": _PLAN,
        "artifacts/onnx-w8/model.onnx": b"of a later version",
        "artifacts/tflite-fp32/model.tflite": b"one file, two signatures",
        "assets/chat.jinja": _CHAT,
        "golden/000.png": plain["golden/000.png"],
        "golden/step/000.npz": b"named tensors",
    }
    return dict(sorted((files | {"identity.json": _identity(files)}).items()))


def _step_io(state: Json) -> Json:
    return {
        "inputs": [_tensor("token", ["n", 1], "int32")],
        "outputs": [_tensor("logits", ["n", 8])],
        "states": {"cache": state},
    }


def _artifacts(listed: dict[str, Json]) -> list[Json]:
    """Each way in which an artifact can differ from a plain one."""
    first = colour_manifest()["artifacts"][0]

    def artifact(name: str, files: list[str], **fields: Any) -> Json:
        format_, precision = name.split("-")[:2]
        entries = [listed[f"artifacts/{name}/{file}"] for file in files]
        made: Json = {"format": format_, "precision": precision, "entry": entries[0]["path"]}
        return first | made | {"files": entries} | fields

    last = {"inputs": [_tensor("image", [1, 8, 8, 3])], "outputs": [_tensor("scores", [1, 3])]}
    levels = {"color": "rgb", "scale": [0.0078125] * 3, "bias": [-1.0] * 3}
    turned = {"layouts": {"image": [0, 2, 3, 1]}}
    image = last | {"inputs": [_tensor("image", [1, 8, 8, 3], "uint8")]} | turned
    fed = {"input": _tensor("past", ["n", "past", 4]), "output": _tensor("present", ["n", "m", 4])}
    package = artifact(
        "coreml-fp16",
        ["colour.mlpackage/Manifest.json"],
        entry="artifacts/coreml-fp16/colour.mlpackage",
        io=image | {"images": {"image": levels}},
        requires=["image-input", "tensor-layout"],
        functions=[{"name": "step", "io": _step_io({"held": "kv"}), "requires": ["states"]}],
    )
    onnx_step = {
        "name": "step",
        "entry": "artifacts/onnx-fp32/step.onnx",
        "io": _step_io(fed),
        "requires": ["states"],
    }
    tflite_step = {"name": "step", "io": _step_io(fed) | {"signature": "step"}}
    mixed = f"onnx-mixed-{_PLAN_HASH[:8]}"
    later = {"requires": ["telepathy"], "x": {"telepathy": {"range": 3}}}
    return [
        artifact("onnx-fp32", ["model.onnx", "step.onnx"], functions=[onnx_step]),
        package,
        artifact(mixed, ["model.onnx", "plan.json"], plan=listed[f"artifacts/{mixed}/plan.json"]),
        artifact(
            "tflite-fp32",
            ["model.tflite"],
            io=last | turned | {"signature": "main"},
            requires=["tensor-layout"],
            functions=[tflite_step | {"requires": ["states"]}],
        ),
        artifact("onnx-w8", ["model.onnx"], **later),
    ]


def functions_manifest() -> Json:
    """The manifest of the base."""
    files = functions_files()
    listed = {path: entry(path, data) for path, data in files.items()}
    manifest = colour_manifest(colour_files() | files)
    case = {"input": listed["golden/step/000.npz"], "medium": "tensors", "tolerance": 0.001}
    step = {
        "name": "step",
        "signature": {
            "inputs": [_tensor("token", ["n", 1], "int64")],
            "outputs": [_tensor("logits", ["n", 8])],
            "dims": {"n": [1, 8]},
            "states": ["cache"],
        },
        "processing": _step_processing(files),
        "golden": {"origin": "generated", "cases": [case]},
        "requires": ["states"],
    }
    manifest["files"] = list(listed.values())
    manifest["artifacts"] = _artifacts(listed)
    manifest["reports"] = []
    manifest["functions"], manifest["states"] = [step], [_CACHE]
    said: Json = json.loads(dump(manifest))  # no two places share a value that a case changes
    return said


def functions() -> Iterator[Case]:
    """The base as it is, and what must not be said with it."""
    files = functions_files()
    base = sealed(functions_manifest(), files)
    yield Case("functions", "a second function, a state, layouts, a plan, a later feature", base)
    for name, what, code, change in [*_FUNCTIONS, *_STATES, *_IO, *_ARTIFACTS, *_ASSETS]:
        manifest = functions_manifest()
        change(manifest)
        yield Case(f"functions-{name}", what, sealed(manifest, files), code)


def _twice(key: str) -> Any:
    return lambda manifest: manifest[key].append(copy.deepcopy(manifest[key][0]))


def _drop(path: str, key: str) -> Any:
    def change(manifest: Json) -> None:
        place: Any = manifest
        for step in path.split(".") if path else []:
            place = place[int(step)] if isinstance(place, list) else place[step]
        del place[key]

    return change


def _no_function(manifest: Json) -> None:
    """The identity has a function that the manifest keeps quiet about."""
    for artifact in manifest["artifacts"]:
        artifact.pop("functions", None)
    del manifest["functions"]


_STEP, _ONNX = "functions.0", "artifacts.0.functions.0"
_HELD, _FED = "artifacts.1.functions.0.io.states.cache", f"{_ONNX}.io.states.cache"

Row = tuple[str, str, str, Any]
_FUNCTIONS: list[Row] = [
    ("main", "a further function called main", _VALUE, set_(f"{_STEP}.name", "main")),
    ("dash", "a function's name with a dash", _VALUE, set_(f"{_STEP}.name", "a-b")),
    ("empty-name", "a function without a name", _VALUE, set_(f"{_STEP}.name", "")),
    ("twice", "a function twice", _VALUE, _twice("functions")),
    ("unnamed", "a file's function that the model has not", _VALUE, set_(f"{_ONNX}.name", "walk")),
    ("file-main", "the main function said again", _VALUE, set_(f"{_ONNX}.name", "main")),
    (
        "file-twice",
        "a file's function twice",
        _VALUE,
        lambda m: m["artifacts"][0]["functions"].append(m["artifacts"][0]["functions"][0]),
    ),
    (
        "rank",
        "an input of another rank than the function's",
        _VALUE,
        set_(f"{_ONNX}.io.inputs.0.shape", ["n"]),
    ),
    ("outputs", "an output less than the function's", _VALUE, set_(f"{_ONNX}.io.outputs", [])),
    ("entry", "an entry that is none of the files", _VALUE, set_(f"{_ONNX}.entry", "walk.onnx")),
    (
        "buckets",
        "an io that is not the last bucket",
        _VALUE,
        lambda m: m["artifacts"][0]["functions"][0].update(buckets=[m["artifacts"][0]["io"]]),
    ),
    ("field", "an unknown field of a function", _VALUE, set_(f"{_STEP}.telepathy", True)),
    ("no-signature", "a function without a signature", _VALUE, _drop(_STEP, "signature")),
    (
        "step",
        "an unknown processing step of a function",
        "EDGE-BUNDLE-036",
        set_(f"{_STEP}.processing.outputs", [{"step": "softmax/9", "output": "logits"}]),
    ),
    ("identity", "no function in the manifest", _IDENTITY, _no_function),
]
_STATES: list[Row] = [
    (
        "state-unknown",
        "a state that is not there",
        _VALUE,
        set_(f"{_STEP}.signature.states.0", "c"),
    ),
    ("state-twice", "a state twice", _VALUE, _twice("states")),
    (
        "state-named-twice",
        "a signature that names a state twice",
        _VALUE,
        set_(f"{_STEP}.signature.states", ["cache", "cache"]),
    ),
    ("state-dims", "two ranges of a dimension", _VALUE, set_(f"{_STEP}.signature.dims.n", [1, 4])),
    ("state-range", "a dimension without a range", _VALUE, set_("states.0.dims", {"n": [1, 8]})),
    ("state-initial", "an unknown initial value", _VALUE, set_("states.0.initial", "ones")),
    ("state-dtype", "an unknown dtype", _VALUE, set_("states.0.dtype", "float8")),
    ("state-field", "an unknown field of a state", _VALUE, set_("states.0.x", {})),
    (
        "state-main",
        "a main signature whose files lack it",
        _VALUE,
        set_("signature.states", ["cache"]),
    ),
    ("state-nothing", "a file that keeps it in no way", _VALUE, set_(_HELD, {})),
    ("state-both", "one held and fed", _VALUE, set_(f"{_FED}.held", "kv")),
    ("state-half", "one given and not fed", _VALUE, set_(f"{_FED}.input", None)),
    ("state-lacking", "a file without the state", _VALUE, set_(f"{_ONNX}.io.states", {})),
    (
        "state-more",
        "a file with another state",
        _VALUE,
        set_(f"{_ONNX}.io.states.b", {"held": "b"}),
    ),
    (
        "state-plain",
        "a state of a main signature without states",
        _VALUE,
        set_("artifacts.0.io.states", {"b": {"held": "b"}}),
    ),
    ("requires-states", "a file's function that does not say so", _VALUE, _drop(_ONNX, "requires")),
    ("function-requires", "a function that does not say so", _VALUE, _drop(_STEP, "requires")),
]
_TURNED, _LEVELS = "artifacts.3.io.layouts", "artifacts.1.io.images.image"
_IO: list[Row] = [
    ("layout-short", "an order of three of four axes", _VALUE, set_(f"{_TURNED}.image", [0, 2, 1])),
    ("layout-twice", "an axis twice", _VALUE, set_(f"{_TURNED}.image", [0, 2, 2, 1])),
    ("layout-beyond", "an axis that is not there", _VALUE, set_(f"{_TURNED}.image", [0, 2, 3, 4])),
    ("layout-negative", "an axis from the end", _VALUE, set_(f"{_TURNED}.image", [0, 2, -1, 1])),
    ("layout-word", "a word for an order", _VALUE, set_(f"{_TURNED}.image", "NHWC")),
    ("layout-other", "an order of no tensor", _VALUE, set_(f"{_TURNED}.photo", [0])),
    ("layout-unsaid", "an order that is not required", _VALUE, _drop("artifacts.3", "requires")),
    ("image-float", "an image of floats", _VALUE, set_("artifacts.1.io.inputs.0.dtype", "float32")),
    ("image-color", "an unknown order of channels", _VALUE, set_(f"{_LEVELS}.color", "cmyk")),
    ("image-gray", "three channels of gray", _VALUE, set_(f"{_LEVELS}.color", "gray")),
    ("image-bias", "two biases", _VALUE, set_(f"{_LEVELS}.bias", [-1.0, -1.0])),
    ("image-zero", "a scale of 0", _VALUE, set_(f"{_LEVELS}.scale", [0.0, 1.0, 1.0])),
    ("image-nan", "a scale that is no number", _VALUE, set_(f"{_LEVELS}.scale", ["nan", 1.0, 1.0])),
    (
        "image-channels",
        "channels that are not last",
        _VALUE,
        set_("artifacts.1.io.inputs.0.shape", [1, 3, 8, 8]),
    ),
    (
        "image-output",
        "an image that is an output",
        _VALUE,
        lambda m: m["artifacts"][1]["io"]["images"].update(
            scores=m["artifacts"][1]["io"]["images"]["image"]
        ),
    ),
    (
        "image-unsaid",
        "an image not required",
        _VALUE,
        set_("artifacts.1.requires", ["tensor-layout"]),
    ),
]
_ARTIFACTS: list[Row] = [
    ("requires-word", "a feature with a space", _VALUE, set_("artifacts.4.requires", ["a b"])),
    ("requires-twice", "a feature twice", _VALUE, set_("artifacts.4.requires", ["a", "a"])),
    ("requires-text", "a word for a list", _VALUE, set_("artifacts.4.requires", "telepathy")),
    ("requires-empty", "an empty feature", _VALUE, set_("artifacts.4.requires", [""])),
    ("artifact-field", "an unknown field not under x", _VALUE, set_("artifacts.4.telepathy", {})),
    ("plan-none", "a mixed artifact without a plan", _VALUE, _drop("artifacts.2", "plan")),
    ("plan-hash", "a plan with another hash", _VALUE, set_("artifacts.2.plan.sha256", "0" * 64)),
    (
        "plan-plain",
        "a plan of a plain artifact",
        _VALUE,
        lambda m: m["artifacts"][0].update(plan=m["artifacts"][2]["plan"]),
    ),
    (
        "plan-elsewhere",
        "a plan that is none of the artifact's files",
        _VALUE,
        lambda m: m["artifacts"][2].update(plan=m["artifacts"][0]["files"][0]),
    ),
    ("plan-precision", "a plan beside a precision", _VALUE, set_("artifacts.2.precision", "w8a8")),
]
_CHAT_AT = f"{_STEP}.processing.chat.template"
_ASSETS: list[Row] = [
    ("chat-hash", "a chat template with another hash", _LIE, set_(f"{_CHAT_AT}.sha256", "0" * 64)),
    (
        "chat-elsewhere",
        "a chat template that is no asset",
        _LIE,
        lambda m: m["functions"][0]["processing"]["chat"].update(template=m["files"][-1]),
    ),
    ("chat-text", "a chat template in the manifest", _VALUE, set_(_CHAT_AT, "{{ messages }}")),
    ("chat-other", "other words at the end", _IDENTITY, set_(f"{_STEP}.processing.chat.stop", [])),
    (
        "golden-elsewhere",
        "a golden case of a function that lies elsewhere",
        _LIE,
        lambda m: m["functions"][0]["golden"]["cases"][0].update(input=m["files"][-1]),
    ),
]
