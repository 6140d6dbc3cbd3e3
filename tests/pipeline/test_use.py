"""The commands after convert: validate, measure, report, package, predict, verify, inspect, run."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

Run = Callable[..., Any]


@pytest.fixture
def bundle(workspace: Path, edgeserve: Run, tmp_path: Path) -> Path:
    path = tmp_path / "toy.edge"
    done = edgeserve("package", str(workspace), "-o", str(path))
    assert done.code == 0, done.err
    return path


def test_validate_again_with_stored_answers(workspace: Path, edgeserve: Run) -> None:
    done = edgeserve("validate", str(workspace), "--require", "pass", "--json")
    assert done.code == 0, done.err
    assert done.json["artifacts"][0]["verdict"] == "pass"


def test_validate_with_another_reference_moves_a_failure(workspace: Path, edgeserve: Run) -> None:
    junit = workspace / "junit.xml"
    words = ["--reference", "toy:liar", "--data", "photos", "--junit", str(junit), "--json"]
    done = edgeserve("validate", str(workspace), *words, "--against", str(workspace))
    assert done.code == 1, done.err
    assert done.json["error"]["code"] == "EDGE-CHECK-901"
    assert "pass before, fail now" in done.json["error"]["message"]
    assert done.json["artifacts"] == []
    assert (workspace / "failed" / "onnx-fp32").is_dir()
    suite, against = ElementTree.parse(junit).getroot()
    assert [case.get("name") for case in against.findall("testcase/failure/..")] == ["onnx-fp32"]
    failures = int(suite.attrib["failures"])
    assert failures == len(suite.findall(".//failure")) >= 1
    assert int(suite.attrib["tests"]) == len(suite.findall("testcase"))


@pytest.mark.parametrize("server", ["stuck", "bare", "zeros"])
def test_a_server_that_answers_one_thing_proves_nothing(
    workspace: Path, edgeserve: Run, server: str
) -> None:
    words = ["--reference", f"toy:{server}", "--data", "photos", "--json"]
    done = edgeserve("validate", str(workspace), *words)
    assert done.code == 0, done.out + done.err
    (artifact,) = done.json["artifacts"]
    assert artifact["verdict"] == "unproven"
    assert artifact["reasons"][0]["code"] == "EDGE-CHECK-022"
    assert f"toy:{server}" in artifact["reasons"][0]["message"]
    assert (workspace / "artifacts" / "onnx-fp32").is_dir()
    manifest = json.loads((workspace / "manifest.json").read_bytes())
    assert {c["record"]["label"] for c in manifest["golden"]["cases"]} != {"green"}, "as before"


def test_a_later_run_says_whose_refusal_it_repeats(workspace: Path, edgeserve: Run) -> None:
    asked = ["--reference", "toy:liar", "--data", "photos"]
    assert edgeserve("validate", str(workspace), *asked).code == 1
    later = edgeserve("validate", str(workspace), "--reference", "pt2", "--json")
    assert later.code == 1
    assert re.search(r"on \d{4}-\d\d-\d\d against toy:liar", later.json["refused"][0]["message"])
    assert "against toy:liar" in later.err
    kept = (workspace / "manifest.json").read_text()
    assert "against toy:liar" not in kept, "a bundle carries refusals, and no reference"


def test_a_changed_byte_never_reaches_a_runtime(workspace: Path, edgeserve: Run) -> None:
    manifest = json.loads((workspace / "manifest.json").read_bytes())
    entry = workspace / manifest["artifacts"][0]["entry"]
    sound = entry.read_bytes()
    entry.write_bytes(sound[:-1] + bytes([sound[-1] ^ 1]))
    report = ["report", "-o", str(workspace / "report.html")]
    for words in (["validate"], ["measure"], ["verify"], ["inspect"], report):
        done = edgeserve(*words, str(workspace), "--json")
        assert done.code == 3, (words, done.out)
        assert done.json["error"]["code"].startswith("EDGE-BUNDLE-"), words


def test_golden_cases_given_by_the_user(workspace: Path, edgeserve: Run, project: Path) -> None:
    given = workspace / "given"
    given.mkdir()
    for name in ("00.png", "01.png", "02.png"):
        (given / name).write_bytes((project / "photos" / name).read_bytes())
    done = edgeserve("validate", str(workspace), "--golden", str(given), "--json")
    assert done.code == 0, done.err
    golden = json.loads((workspace / "manifest.json").read_bytes())["golden"]
    assert golden["origin"] == "given"
    assert [case["record"]["label"] for case in golden["cases"]] == ["red", "green", "blue"]


def test_measure_writes_figures(workspace: Path, edgeserve: Run) -> None:
    done = edgeserve("measure", str(workspace), "--seconds", "0.3", "--json")
    assert done.code == 0, done.err
    (measured,) = done.json["measurements"]
    assert measured["run"]["wall"]["n"] >= 20
    assert measured["runtime"]["name"] == "onnxruntime"
    assert {"decode", "resize"} <= set(measured["split"])
    manifest = json.loads((workspace / "manifest.json").read_bytes())
    assert manifest["reports"][0]["figures"]["p50_ms"] == measured["run"]["wall"]["p50"]
    assert "max_abs" in manifest["reports"][0]["figures"]


def test_report_is_one_file_without_links_outside(workspace: Path, edgeserve: Run) -> None:
    page = workspace.parent / "report.html"
    done = edgeserve("report", str(workspace), "-o", str(page), "--json")
    assert done.code == 0, done.err
    html = page.read_text()
    assert "onnx" in html
    assert 'src="http' not in html
    assert "<link" not in html


@pytest.mark.parametrize("colour", [0, 1, 2])
def test_predict_answers_the_colour(
    bundle: Path, edgeserve: Run, tmp_path: Path, colour: int
) -> None:
    pixels = np.zeros((33, 21, 3), np.uint8)
    pixels[..., colour] = 220
    photo = tmp_path / "photo.png"
    Image.fromarray(pixels).save(photo)
    done = edgeserve("predict", str(bundle), str(photo), str(photo), "--json")
    assert done.code == 0, done.err
    labels = [a["answer"]["label"] for a in done.json["answers"]]
    assert labels == [["red", "green", "blue"][colour]] * 2
    assert done.json["answers"][0]["answer"]["ran_on"]["proof"] == "golden"


def test_verify_prints_a_certificate(bundle: Path, edgeserve: Run) -> None:
    done = edgeserve("verify", str(bundle), "--json")
    assert done.code == 0, done.err
    certificate = done.json["certificate"]
    assert certificate["verdict"] == "pass"
    assert certificate["proofs"][0]["passed"] == certificate["proofs"][0]["total"] >= 3
    plain = edgeserve("verify", str(bundle))
    assert "pass" in plain.out


def test_inspect_reads_every_hash_and_the_graph(bundle: Path, edgeserve: Run) -> None:
    done = edgeserve("inspect", str(bundle), "--graph", "--json")
    assert done.code == 0, done.err
    assert done.json["kind"] == "bundle"
    (graph,) = done.json["graphs"]
    assert graph["ops"]["Conv"] == 1
    plain = edgeserve("inspect", str(bundle))
    assert "golden cases" in plain.out


def test_run_does_what_the_file_declares(
    project: Path, edgeserve_process: Run, tmp_path: Path
) -> None:
    config = tmp_path / "edgeserve.toml"
    config.write_text(
        f"""
        [convert]
        source = "toy:build"
        out = "ws"
        data = {str(project / "photos")!r}
        require = "pass"
        [measure]
        seconds = 0.2
        [package]
        bundle = "toy.edge"
        [report]
        report = "report.html"
        """
    )
    done = edgeserve_process("run", str(config), "--json")
    assert done.code == 0, done.err
    assert (tmp_path / "toy.edge").exists()
    assert (tmp_path / "report.html").exists()


@pytest.mark.parametrize(
    "text",
    ["[convert", "[convert]\nsource='a:b'", "[nonsense]\nx=1", "[convert]\nout='o'\nsorce=1"],
)
def test_a_wrong_config_is_refused_before_anything_runs(
    text: str, tmp_path: Path, edgeserve: Run
) -> None:
    config = tmp_path / "edgeserve.toml"
    config.write_text(text)
    done = edgeserve("run", str(config), "--json")
    assert done.code == 2
    assert done.json["error"]["code"] == "EDGE-USAGE-004"
    assert list(tmp_path.iterdir()) == [config]


def test_doctor_profiles_and_explain(edgeserve: Run) -> None:
    doctor = edgeserve("doctor", "--json")
    assert doctor.code == 0, doctor.out
    assert any(c["name"] == "format onnx" and c["ok"] for c in doctor.json["checks"])
    profiles = edgeserve("profiles", "--json").json["profiles"]
    assert len([p for p in profiles if "chip" in p]) >= 8
    assert len([p for p in profiles if "limits" in p]) >= 3
    story = edgeserve("explain", "EDGE-USAGE-001")
    assert story.code == 0
    assert "What to do" in story.out
    assert edgeserve("explain", "EDGE-NOPE-001").code == 2
    assert "EDGE-USAGE-001" in edgeserve("explain").out


def test_help_and_version(edgeserve_process: Run) -> None:
    assert "convert" in edgeserve_process("--help").out
    assert edgeserve_process("--version").out.startswith("edgeserve 0.")
    assert edgeserve_process("no-such-command").code == 2


def test_the_list_of_commands_says_what_the_commands_say() -> None:
    import importlib

    from edgeserve.cli.app import COMMANDS

    for name, (module, line) in COMMANDS.items():
        function = importlib.import_module(f"edgeserve.cli.{module}").COMMANDS[name]()
        assert function.__doc__ == line, name


def test_every_stage_takes_a_relative_workspace(workspace: Path, edgeserve: Run) -> None:
    for words in (
        ["validate", "ws"],
        ["measure", "ws", "--seconds", "0.1"],
        ["report", "ws", "-o", "r.html"],
        ["package", "ws", "-o", "m.edge"],
        ["verify", "ws"],
        ["inspect", "ws", "--graph"],
    ):
        done = edgeserve(*words, cwd=workspace.parent)
        assert done.code == 0, (words, done.err)


def test_another_preprocessing_is_named_as_the_cause(workspace: Path, edgeserve: Run) -> None:
    words = ["--reference", "toy:dim", "--data", "photos", "--json"]
    done = edgeserve("validate", str(workspace), *words)
    reasons = [r["code"] for a in done.json["artifacts"] for r in a["reasons"]]
    assert reasons[0] == "EDGE-CHECK-046"
    assert done.json["artifacts"][0]["verdict"] != "pass"


def test_golden_cases_given_once_are_kept(workspace: Path, edgeserve: Run, project: Path) -> None:
    given = workspace / "given"
    given.mkdir()
    (given / "a.png").write_bytes((project / "photos" / "00.png").read_bytes())
    assert edgeserve("validate", str(workspace), "--golden", str(given)).code == 0
    assert edgeserve("validate", str(workspace)).code == 0
    golden = json.loads((workspace / "manifest.json").read_bytes())["golden"]
    assert golden["origin"] == "given"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["frob"], "EDGE-USAGE-006"),
        (["predict", "model.edge"], "EDGE-USAGE-006"),
        (["measure", "ws", "--threads", "0"], "EDGE-USAGE-006"),
        (["convert", "toy:build", "-o", ""], "EDGE-USAGE-005"),
        (["convert", "toy:build", "-o", "x", "--to", ","], "EDGE-USAGE-005"),
        (["convert", "toy:build", "-o", "x", "--name", "ü x"], "EDGE-USAGE-005"),
        (["convert", "toy:build", "-o", "x", "--timeout", "0"], "EDGE-USAGE-005"),
    ],
)
def test_a_wrong_command_line_is_one_json_object_too(
    words: list[str], code: str, edgeserve: Run, tmp_path: Path
) -> None:
    done = edgeserve(*words, "--json", cwd=tmp_path)
    assert done.code == 2, done.err
    assert done.json["error"]["code"] == code
    assert list(tmp_path.iterdir()) == []


def test_a_refused_artifact_stays_refused_until_it_is_converted_again(
    workspace: Path, edgeserve: Run
) -> None:
    """A second, friendlier run must not turn a red check green by having nothing left to judge."""
    words = ["validate", str(workspace), "--data", "photos", "--json"]
    assert edgeserve(*words, "--reference", "toy:liar").code == 1
    again = edgeserve(*words, "--reference", "pt2", "--require", "pass")
    assert again.code == 1
    assert [r["format"] for r in again.json["refused"]] == ["onnx"]


def test_labels_that_were_changed_by_hand_are_refused(workspace: Path, edgeserve: Run) -> None:
    manifest = json.loads((workspace / "manifest.json").read_bytes())
    manifest["labels"] = manifest["labels"][1:] + manifest["labels"][:1]
    (workspace / "manifest.json").write_text(json.dumps(manifest, separators=(",", ":")))
    done = edgeserve("verify", str(workspace), "--json")
    assert done.code == 3
    assert done.json["error"]["code"] == "EDGE-BUNDLE-040"


def test_a_tensor_model_takes_an_npz(edgeserve: Run, tmp_path: Path) -> None:
    out = str(tmp_path / "ws")
    assert edgeserve("convert", "toy:tensors", "-o", out).code == 0
    np.savez(tmp_path / "in.npz", image=np.ones((2, 3, 16, 16), np.float32))
    done = edgeserve("predict", out, str(tmp_path / "in.npz"), "--json")
    assert done.code == 0, done.err
    assert np.shape(done.json["answers"][0]["answer"]["logits"]) == (2, 3)
