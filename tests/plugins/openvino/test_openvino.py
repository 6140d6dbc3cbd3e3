"""A format of another package: one folder, no edit of edgeserve, from a source to a prediction.

The package is not installed: its metadata lie in a folder of ``sys.path``, for workers as well.
"""

from __future__ import annotations

import json
import os
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from testkit.command import command

from edgeserve import Wrapper, backends
from edgeserve.backends import Backend
from edgeserve.backends.contract import BackendContract, Case
from edgeserve.backends.reference import reference
from edgeserve.convert import ExportRequest, parse_source
from edgeserve.convert.source import export_source

HERE = Path(__file__).parent

NET = '''
"""Which of three colours a picture has most of: right by construction."""
import torch

LABELS = ["red", "green", "blue"]

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.head = torch.nn.Linear(3, 3)
        with torch.no_grad():
            self.head.weight.copy_(torch.eye(3) * 8)
            self.head.bias.zero_()

    def forward(self, image):
        texture = torch.relu(self.conv(image)).mean(dim=(1, 2, 3))
        return self.head(image.mean(dim=(2, 3))) + 0.01 * texture[:, None]

def build():
    steps = [
        {"step": "decode/1"},
        {"step": "resize/1", "height": 16, "width": 16},
        {"step": "normalize/1", "scale": [1 / 128] * 3, "bias": [-1.0] * 3},
        {"step": "layout/1", "order": "CHW"},
    ]
    options = {
        "input_names": ["image"], "output_names": ["logits"], "labels": LABELS,
        "dynamic_shapes": {"image": {0: ("batch", 1, 8)}}, "task": "image-classification",
        "processing": {
            "inputs": [{"name": "image", "steps": steps}],
            "outputs": [{"step": "softmax/1", "output": "logits"},
                        {"step": "top_k/1", "output": "logits", "k": 3}],
        },
    }
    return Net().eval(), (torch.rand(2, 3, 16, 16),), options
'''


def _site(folder: Path) -> list[str]:
    """Where Python finds the package and its metadata, as an installer would have laid them."""
    project = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    info = folder / "edgeserve_openvino-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    lines = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
        for group, points in project["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("".join(lines))
    return [str(folder), str(HERE)]


@pytest.fixture(scope="module", autouse=True)
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """The package, visible here and in workers; the value is the folders that make it so."""
    places = _site(tmp_path_factory.mktemp("site"))
    with pytest.MonkeyPatch.context() as patch:
        for place in places:
            patch.syspath_prepend(place)
        patch.setattr(backends, "_made", {})
        patch.setenv("PYTHONPATH", os.pathsep.join([*places, os.environ.get("PYTHONPATH", "")]))
        yield places


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("project")
    (folder / "net_of_colours.py").write_text(NET)
    rng = np.random.default_rng(0)
    for part in ("photos", "golden"):
        (folder / part).mkdir()
        for i in range(30 if part == "photos" else 4):
            levels = rng.integers(0, 60, (24, 20, 3))
            levels[..., i % 3] += 150
            Image.fromarray(levels.astype(np.uint8)).save(folder / part / f"{i:02}.png")
    return folder


@pytest.fixture(scope="module")
def edgeserve(project: Path) -> Callable[..., Any]:
    """``edgeserve("convert", ...)``: the command; the value is what it prints."""

    def run(*words: str) -> Any:
        done = command(*words, cwd=project)
        assert done.code == 0, done.out + done.err
        return done.json if "--json" in words else done.out + done.err

    return run


def _case(root: Path, location: str, folder: Path) -> Case:
    exported = export_source(ExportRequest(source=parse_source(location, folder), out=str(root)))
    backend, artifact = reference(exported)
    session = backend.load(artifact, root)
    feed = {"image": np.random.default_rng(1).normal(size=(3, 3, 16, 16)).astype(np.float32)}
    return Case(exported, root, feed, lambda fed: session.run(dict(fed)))


class TestOpenvino(BackendContract):
    """Made of a PyTorch program; the oracle is PyTorch."""

    @pytest.fixture(scope="class")
    @classmethod
    def backend(cls) -> Backend:
        return backends.get("openvino")

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, project: Path, tmp_path_factory: pytest.TempPathFactory) -> Case:
        return _case(tmp_path_factory.mktemp("source"), "net_of_colours:build", project)


def test_from_a_source_to_a_prediction(edgeserve: Callable[..., Any], project: Path) -> None:
    said = edgeserve(
        "convert", "net_of_colours:build", "-o", "out", "--to", "ov,onnx", "--precision",
        "fp32,fp16", "--data", "photos", "--json",
    )  # fmt: skip
    verdicts = {(a["format"], a["precision"]): a["verdict"] for a in said["artifacts"]}
    assert verdicts[("openvino", "fp32")] == "pass"
    assert ("openvino", "fp16") in verdicts
    said = edgeserve("validate", "out", "--golden", "golden", "--json")
    assert {a["format"] for a in said["artifacts"]} == {"openvino", "onnx"}
    said = edgeserve("package", "out", "-o", "net.edge", "--target", "linux", "--json")
    assert "openvino-fp32" in said["artifacts"]
    said = edgeserve("package", "out", "-o", "phone.edge", "--target", "android", "--json")
    assert said["artifacts"]
    assert not any(name.startswith("openvino") for name in said["artifacts"])
    with Wrapper(project / "net.edge", format="ov", precision="fp32", threads=1) as net:
        assert net.ran_on.runtime.name == "openvino"
        assert net.ran_on.proof == "golden"
        for i in range(3):
            answer = net.predict(project / "golden" / f"{i:02}.png")
            assert answer.label == ("red", "green", "blue")[i]
    report = edgeserve("report", "out", "-o", "report.html")
    assert "OpenVINO fp32" in (project / "report.html").read_text(), report
    assert "pass" in edgeserve("verify", "net.edge")


def test_without_the_package_the_rest_of_the_bundle_is_used(
    edgeserve: Callable[..., Any], project: Path, plugin: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bundle of the test before, on a device whose app knows nothing of OpenVINO."""
    bundle = project / "net.edge"
    if not bundle.exists():
        test_from_a_source_to_a_prediction(edgeserve, project)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in plugin])
    monkeypatch.setattr(backends, "_made", {})
    kept = [p for p in os.environ["PYTHONPATH"].split(os.pathsep) if p not in plugin]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(kept))
    assert "openvino" not in backends.formats()
    with Wrapper(bundle, threads=1) as net:
        assert net.ran_on.format == "onnx"
        assert "openvino-fp32: no installed package has the format openvino" in net.ran_on.note
        assert net.predict(project / "golden" / "01.png").label == "green"


def test_from_an_onnx_file(edgeserve: Callable[..., Any], project: Path) -> None:
    """An ONNX file as the source; ONNX Runtime on that very file is the reference."""
    edgeserve("convert", "net_of_colours:build", "-o", "made", "--to", "onnx")
    processing = json.loads((project / "made" / "manifest.json").read_bytes())["processing"]
    (project / "steps.json").write_text(json.dumps(processing))
    said = edgeserve(
        "convert", "made/artifacts/onnx-fp32/model.onnx", "-o", "again", "--to", "openvino",
        "--preprocess", "steps.json", "--task", "image-classification", "--json",
    )  # fmt: skip
    assert [(a["format"], a["verdict"]) for a in said["artifacts"]] == [("openvino", "pass")]
    edgeserve("validate", "again", "--json")
    edgeserve("package", "again", "-o", "again.edge", "--json")
    with Wrapper(project / "again.edge", threads=1) as net:
        assert net.ran_on.runtime.name == "openvino"
        assert len(net.predict(project / "golden" / "00.png").top) == 3
