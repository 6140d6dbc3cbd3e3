"""JSON Schemas of what edgeserve writes, made from the types: ``spec/schema/*.schema.json``.

    python -m dev.schemas --write spec/schema     # after a type has changed
    python -m dev.schemas --check spec/schema     # what CI runs; exit 1 if one is stale

A schema says what the types say: fields, types, closed sets of words. Rules that span fields (a
reference is listed, names do not meet) stand in ``spec/bundle.md``; the readers hold to both.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from edgeserve.bundle.rules import MAX_NAME, MODEL_NAME, Identity
from edgeserve.files import write_atomic
from edgeserve.tasks.values import AnyRecord
from edgeserve.types.artifact import MEMBER_NAME, PrecisionPlan
from edgeserve.types.cli_json import Output
from edgeserve.types.manifest import Manifest
from edgeserve.types.profile import DeviceProfile, WorkloadProfile
from edgeserve.types.reports import Measurement, Report
from edgeserve.types.samples import StoredAnswer
from edgeserve.types.source import Exported

_Json = dict[str, Any]

#: File name (before ``.schema.json``), what the schema is of, and its type.
SCHEMAS: dict[str, tuple[str, Any]] = {
    "answer": ("A stored answer of the reference", StoredAnswer),
    "cli": ("What the commands print with --json", Output),
    "device": ("A device profile", DeviceProfile),
    "exported": ("source/source.json of a workspace", Exported),
    "identity": ("identity.json of a workspace or bundle", Identity),
    "manifest": ("manifest.json of a workspace or bundle", Manifest),
    "measurement": ("reports/*.measure.json of a workspace", Measurement),
    "plan": ("The plan file of a mixed artifact", PrecisionPlan),
    "record": ("A result of predict", AnyRecord),
    "report": ("reports/*.validate.json of a workspace", Report),
    "workload": ("A workload profile", WorkloadProfile),
}

#: What the types check in code and a schema can say too, by structure and field.
_REFINED: dict[tuple[str, str], _Json] = {
    ("FileEntry", "path"): {"pattern": f"^{MEMBER_NAME.pattern}$", "maxLength": MAX_NAME},
    ("FileEntry", "sha256"): {"pattern": "^[0-9a-f]{64}$"},
    ("FileEntry", "size"): {"minimum": 0, "maximum": 2**53 - 1},
    ("Manifest", "edgeserve"): {"pattern": r"^1\.(0|[1-9][0-9]*)$"},
    ("Manifest", "model_id"): {"pattern": "^[0-9a-f]{64}$"},
    ("Manifest", "name"): {"pattern": f"^{MODEL_NAME.pattern}$"},
    ("Manifest", "version"): {"minimum": 1},
}


def _arrays(type_: type) -> _Json:
    """Arrays are nested lists of numbers; one that is not finite is a word, as in `Number`."""
    if issubclass(type_, np.ndarray):
        return {"$ref": "#/$defs/Array"}
    raise NotImplementedError(f"{type_!r} has no schema")


_ARRAY: _Json = {
    "description": "Numbers in nested lists, outermost axis first.",
    "type": "array",
    "items": {
        "anyOf": [{"type": "number"}, {"enum": ["-inf", "inf", "nan"]}, {"$ref": "#/$defs/Array"}]
    },
}


def schema(name: str) -> _Json:
    """The JSON Schema (draft 2020-12) called ``name`` in `SCHEMAS`."""
    title, type_ = SCHEMAS[name]
    (root,), parts = msgspec.json.schema_components(
        [type_], schema_hook=_arrays, ref_template="#/$defs/{name}"
    )
    for (structure, field), more in _REFINED.items():
        if structure in parts:
            parts[structure]["properties"][field] |= more
    if "#/$defs/Array" in json.dumps(parts):
        parts["Array"] = _ARRAY
    root.pop("title", None)
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title}
    return head | root | {"$defs": dict(sorted(parts.items()))}


def schemas() -> dict[str, bytes]:
    """Every schema's file name and bytes."""
    return {
        f"{name}.schema.json": json.dumps(schema(name), indent=2).encode() + b"\n"
        for name in SCHEMAS
    }


def check(folder: Path) -> list[str]:
    """Names of the files in ``folder`` that are missing, stale, or the schema of nothing."""
    wanted = schemas()
    there = {path.name: path.read_bytes() for path in folder.glob("*.schema.json")}
    return sorted(n for n in wanted.keys() | there.keys() if wanted.get(n) != there.get(n))


def main(arguments: list[str]) -> int:
    """``--check FOLDER`` or ``--write FOLDER``; exit code 1 when a schema is stale, 2 for usage."""
    if len(arguments) != 2 or arguments[0] not in ("--check", "--write"):
        print("usage: python -m dev.schemas --check|--write FOLDER", file=sys.stderr)
        return 2
    folder = Path(arguments[1])
    stale = check(folder)
    if arguments[0] == "--check":
        for name in stale:
            print(f"{folder / name} is stale: run --write", file=sys.stderr)
        return 1 if stale else 0
    wanted = schemas()
    for name in stale:
        if name in wanted:
            write_atomic(folder / name, wanted[name])
        else:
            (folder / name).unlink()
    print(f"{len(wanted)} schemas, {len(stale)} changed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
