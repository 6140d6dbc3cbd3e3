"""Bundles that earlier revisions made: they open for good, and answer their golden cases.

Each folder of ``tests/fixtures/bundles`` is called after the revision that made its bundles with
``dev/fixtures/make.py``, one a task. The files never change: their hashes lie beside them.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from edgeserve import Wrapper
from edgeserve.bundle import open_model
from edgeserve.profiles import devices
from edgeserve.types.vocabulary import TASKS
from edgeserve.wrapper.certificate import certify
from edgeserve.wrapper.engine import processor

FOLDER = Path(__file__).parents[1] / "fixtures" / "bundles"
BUNDLES = sorted(FOLDER.rglob("*.edge"))
#: The tasks that the first of these revisions had.
FIRST = {
    "image-classification", "text-classification", "audio-classification", "object-detection",
    "image-segmentation", "depth-estimation", "feature-extraction", "token-classification",
    "automatic-speech-recognition", "voice-activity", "text-generation", "tensors",
}  # fmt: skip


def said(bundle: Path) -> Any:
    """The manifest as Python's own ZIP and JSON readers see it."""
    with zipfile.ZipFile(bundle) as archive:
        return json.loads(archive.read("manifest.json"))


def raw(bundle: Path, case: Any) -> Any:
    """A golden case's input as an app has it: bytes, and text as a str."""
    with zipfile.ZipFile(bundle) as archive:
        data = archive.read(case["input"]["path"])
    return data.decode() if case["medium"] == "text" else data


def test_there_is_one_for_each_task_and_none_has_changed() -> None:
    assert set(TASKS) >= FIRST
    for folder in {bundle.parent for bundle in BUNDLES}:
        made = [bundle for bundle in BUNDLES if bundle.parent == folder]
        assert sorted(said(bundle)["task"] for bundle in made) == sorted(FIRST)
        lines = dict(
            line.split()[::-1] for line in (folder / "SHA256SUMS").read_text().splitlines()
        )
        assert {b.name: hashlib.sha256(b.read_bytes()).hexdigest() for b in made} == lines
        sizes = [bundle.stat().st_size for bundle in made]
        assert max(sizes) <= 300_000
        assert sum(sizes) <= 4_000_000


@pytest.mark.parametrize("bundle", BUNDLES, ids=lambda b: f"{b.parent.name}-{b.stem}")
def test_every_artifact_answers_the_golden_cases(bundle: Path) -> None:
    """Also those of a format that only an interpreter carries out here."""
    manifest = said(bundle)
    assert len(manifest["golden"]["cases"]) >= 4
    names = {f"{a['format']}-{a['precision']}" for a in manifest["artifacts"]}
    assert {"onnx-fp32", "tflite-fp32"} <= names
    with open_model(bundle) as model:
        certificate = certify(model, processor(model), threads=1)
    assert certificate.not_run == ()
    assert {f"{p.format}-{p.precision}" for p in certificate.proofs} == names
    assert [p.reason for p in certificate.proofs if p.verdict != "pass"] == []
    assert all(p.passed == p.total == len(manifest["golden"]["cases"]) for p in certificate.proofs)


@pytest.mark.parametrize("bundle", BUNDLES, ids=lambda b: f"{b.parent.name}-{b.stem}")
def test_predict_answers_with_the_record_of_the_task(bundle: Path) -> None:
    """What is a word or a number of things in the old record is the same in the new one."""
    manifest = said(bundle)
    with Wrapper(bundle, format="onnx", precision="fp32", threads=1) as model:
        assert model.ran_on.proof == "golden"
        assert model.manifest.model_id == manifest["model_id"]
        for case in manifest["golden"]["cases"]:
            wanted = case["record"]
            if case["medium"] == "tensors":
                assert wanted is None
                continue
            answer = model.predict(raw(bundle, case))
            assert type(answer).__name__.lower() == wanted["record"]
            for field in ("label", "index", "labels", "text", "tokens"):
                if field in wanted:
                    assert json.loads(json.dumps(getattr(answer, field))) == wanted[field], field
            if "spans" in wanted:
                found = [(s.start, s.end, s.label) for s in answer.spans]
                assert found == [(s["start"], s["end"], s["label"]) for s in wanted["spans"]]


@pytest.mark.parametrize("name", list(devices()))
def test_a_device_profile_finds_its_artifacts(name: str) -> None:
    """On a host with a processor alone every profile runs each of its formats that the host has."""
    bundle = next(b for b in BUNDLES if b.stem == "image-classification")
    case = said(bundle)["golden"]["cases"][0]
    engines = {"onnx": "onnxruntime", "tflite": "litert", "coreml": "edgeserve-mil"}
    profile = devices()[name]
    for format in profile.formats:
        with Wrapper(bundle, format=format, profile=name, threads=1) as model:
            assert model.ran_on.format == format
            assert model.ran_on.runtime.name == engines[format]
            assert model.ran_on.proof == "golden"
            assert model.predict(raw(bundle, case)).label == case["record"]["label"]
    with Wrapper(bundle, profile=name, threads=1) as model:
        assert model.ran_on.format in set(profile.formats) - {"coreml"}
