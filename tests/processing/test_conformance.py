"""Every conformance case, and that the cases are what their generator makes."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "spec" / "conformance" / "processing"
LISTING = json.loads((FOLDER / "cases.json").read_text())
OUTPUTS = json.loads((FOLDER / "outputs.json").read_text())
TEXT = json.loads((FOLDER / "text.json").read_text())
VECTORS = json.loads((FOLDER / "vectors.json").read_text())
READINGS = json.loads((FOLDER / "readings.json").read_text())
SOUNDS = json.loads((FOLDER / "sounds.json").read_text())


@pytest.fixture(scope="module")
def blob() -> bytes:
    return (FOLDER / LISTING["blob"]).read_bytes()


@pytest.mark.parametrize("case", LISTING["cases"], ids=lambda case: case["id"])
def test_input_case(case: dict[str, Any], blob: bytes, runner: ModuleType) -> None:
    assert runner.check_input_case(case, blob) is None


@pytest.mark.parametrize("case", OUTPUTS["cases"], ids=lambda case: case["id"])
def test_output_case(case: dict[str, Any], runner: ModuleType) -> None:
    assert runner.check_output_case(case) is None


@pytest.mark.parametrize("case", TEXT["cases"], ids=lambda case: case["id"])
def test_text_case(case: dict[str, Any], runner: ModuleType) -> None:
    assert runner.check_text_case(case, TEXT["tokenizers"]) is None


@pytest.mark.parametrize("case", TEXT["batches"], ids=lambda case: case["id"])
def test_text_batch(case: dict[str, Any], runner: ModuleType) -> None:
    assert runner.check_batch_case(case, TEXT["tokenizers"]) is None


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: case["id"])
def test_vector_case(case: dict[str, Any], runner: ModuleType) -> None:
    assert runner.check_vector_case(case) is None


@pytest.mark.parametrize("case", READINGS["cases"], ids=lambda case: case["id"])
def test_reading_case(case: dict[str, Any], runner: ModuleType) -> None:
    assert runner.check_reading_case(case, READINGS["tolerance"]) is None


@pytest.mark.parametrize("case", SOUNDS["cases"], ids=lambda case: case["id"])
def test_sound_case(case: dict[str, Any], runner: ModuleType) -> None:
    blob = (FOLDER / SOUNDS["blob"]).read_bytes()
    assert runner.check_sound_case(case, blob) is None


@pytest.mark.parametrize("name", ["generate.py", "generate_sounds.py"])
def test_committed_is_generated(conformance: Path, name: str) -> None:
    command = [sys.executable, str(conformance / name), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_cases_are_unique_and_small(conformance: Path) -> None:
    listed = (LISTING, OUTPUTS, VECTORS, READINGS, SOUNDS, TEXT, {"cases": TEXT["batches"]})
    ids = [case["id"] for listing in listed for case in listing["cases"]]
    assert len(set(ids)) == len(ids)
    assert sum(f.stat().st_size for f in conformance.rglob("*") if f.is_file()) < 1_500_000


def test_hashes_hold(blob: bytes) -> None:
    import hashlib

    for case in LISTING["cases"]:
        if wanted := case.get("expected"):
            data = blob[wanted["offset"] : wanted["offset"] + wanted["bytes"]]
            assert hashlib.sha256(data).hexdigest() == wanted["sha256"], case["id"]


def test_the_runner_notices_a_wrong_byte(blob: bytes, runner: ModuleType) -> None:
    case = next(case for case in LISTING["cases"] if case["id"] == "decode small.png")
    wrong = bytearray(blob)
    wrong[case["expected"]["offset"]] ^= 1
    assert runner.check_input_case(case, bytes(wrong)) == "1 values differ, by 1 at most"
    renamed = {**case, "error": "EDGE-INPUT-002"}
    assert "instead of EDGE-INPUT-002" in runner.check_input_case(renamed, blob)


def test_the_runner_notices_a_wrong_token_and_a_wrong_number(runner: ModuleType) -> None:
    right = (TEXT["cases"][0], TEXT["batches"][0], VECTORS["cases"][0], READINGS["cases"][0])
    text, batch, vector, boxes = copy.deepcopy(right)
    boxes["expected"][0]["boxes"][0][2] += 0.01
    assert "boxes: gave" in runner.check_reading_case(boxes, READINGS["tolerance"])
    text["expected"]["ids"][1] += 1
    batch["expected"]["attention_mask"][0][-1] ^= 1
    vector["expected"]["values"][0] += 1e-3
    assert "ids: gave" in runner.check_text_case(text, TEXT["tokenizers"])
    assert "attention_mask: gave" in runner.check_batch_case(batch, TEXT["tokenizers"])
    assert "is off by" in runner.check_vector_case(vector)


def test_the_runner_notices_a_wrong_sample(runner: ModuleType) -> None:
    case = next(case for case in SOUNDS["cases"] if case["id"] == "samples of pcm16.wav")
    blob = bytearray((FOLDER / SOUNDS["blob"]).read_bytes())
    blob[case["expected"]["offset"]] ^= 1  # one unit in the last place of the first sample
    assert "values differ" in runner.check_sound_case(case, bytes(blob))
    renamed = {**case, "error": "EDGE-INPUT-031"}
    assert "instead of EDGE-INPUT-031" in runner.check_sound_case(renamed, bytes(blob))
