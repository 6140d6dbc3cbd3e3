"""The committed schemas: what the types say today, and real documents fit them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from bundlecases.changes import CHANGES
from bundlecases.content import colour_manifest, folder_manifest, identity
from bundlecases.texts import text_manifest

from dev import schemas as schema
from edgeserve.bundle.manifest import read_manifest
from edgeserve.types.base import encode

FOLDER = Path(__file__).resolve().parents[2] / "spec" / "schema"
VALUE, STEP = "EDGE-BUNDLE-037", "EDGE-BUNDLE-036"


def validator(name: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(
        json.loads((FOLDER / f"{name}.schema.json").read_bytes())
    )


def test_the_committed_schemas_are_those_of_the_types() -> None:
    assert schema.check(FOLDER) == []


@pytest.mark.parametrize("name", schema.SCHEMAS)
def test_each_is_a_schema(name: str) -> None:
    validator(name).check_schema(validator(name).schema)


def test_real_documents_fit() -> None:
    for manifest in (colour_manifest(), folder_manifest(), text_manifest()):
        validator("manifest").validate(manifest)
        validator("manifest").validate(
            json.loads(encode(read_manifest(json.dumps(manifest).encode())))
        )
    validator("identity").validate(json.loads(identity()))


#: Rules that span fields or look into text, which the schema leaves to the reader.
BEYOND = {
    "version-digits",
    "version-line",
    "step-size",
    "step-channels",
    "step-top-0",
    "input-twice",
    "name-path",
    "wrapper-words",
    "verdict-fail",
    "verdict-none",
    "artifact-twice",
    "artifact-empty",
    "entry-elsewhere",
    "entry-escapes",
    "files-order",
    "dim-negative",
    "dim-unranged",
    "dim-turned",
    "input-twice-signed",
    "mask-ragged",
    "mask-fraction",
    "mask-large",
    "mask-huge",
    "mask-flat",
    "depth-overflow",
    "boxes-three",
    "record-nan",
    "io-no-input",
    "io-no-output",
    "io-rank",
    "io-more",
    "io-bucket",
    "io-last-bucket",
}


@pytest.mark.parametrize(
    ("name", "change"),
    [
        (name, change)
        for name, _, code, change in CHANGES
        if code in (VALUE, STEP) and name not in BEYOND
    ],
)
def test_what_the_reader_refuses_the_schema_refuses(name: str, change: Any) -> None:
    manifest = colour_manifest()
    change(manifest)
    with pytest.raises(jsonschema.ValidationError):
        validator("manifest").validate(manifest)


def test_stale_missing_and_foreign_schemas_are_found_and_put_right(tmp_path: Path) -> None:
    assert schema.main(["--write", str(tmp_path)]) == 0
    assert schema.main(["--check", str(tmp_path)]) == 0
    (tmp_path / "cli.schema.json").write_text("{}")
    (tmp_path / "report.schema.json").unlink()
    (tmp_path / "nothing.schema.json").write_text("{}")
    stale = ["cli.schema.json", "nothing.schema.json", "report.schema.json"]
    assert schema.check(tmp_path) == stale
    assert schema.main(["--check", str(tmp_path)]) == 1
    assert schema.main(["--write", str(tmp_path)]) == 0
    assert schema.check(tmp_path) == []
    assert schema.main(["--check"]) == 2


def test_the_command_that_ci_runs() -> None:
    command = [sys.executable, "-m", "dev.schemas", "--check", FOLDER]
    done = subprocess.run(command, capture_output=True, check=False, cwd=FOLDER.parents[1])
    assert (done.returncode, done.stderr) == (0, b"")
