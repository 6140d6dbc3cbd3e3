"""Exported packages beside eager PyTorch, and beside coremltools' own reader of the files."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from torch import nn

from edgeserve import backends
from edgeserve.backends.coreml.coremltools_import import coremltools
from edgeserve.errors import BackendError, ConvertError
from edgeserve.files import describe
from edgeserve.installation import install_command

BATCH = {0: ("batch", 1, 8)}
NETS = ("conv", "difference", "nested", "tied", "audio", "edges", "tower")


@pytest.mark.parametrize("name", NETS)
def test_float32_answers_as_pytorch(packages: Any, name: str) -> None:
    assert packages(name).error() <= 1e-6


@pytest.mark.parametrize("name", ["conv", "tied", "tower"])
def test_float16_answers_as_pytorch_up_to_its_rounding(packages: Any, name: str) -> None:
    package = packages(name, "fp16")
    assert 0 < package.error() <= 3e-3
    io = package.artifact.io
    assert all("16" not in spec.dtype for spec in (*io.inputs, *io.outputs))
    assert "float16" in {
        w.dtype for w in packages.backend.inspect(package.artifact, package.root).weights
    }


@pytest.mark.parametrize("name", ["conv", "tower"])
def test_the_second_route_answers_as_pytorch(packages: Any, name: str) -> None:
    package = packages(name, route="core-aten")
    assert package.error() <= 1e-6
    assert package.artifact.provenance.route == "core-aten"


def test_a_batch_is_split_into_samples(packages: Any) -> None:
    package = packages("conv")
    assert [spec.shape for spec in package.artifact.io.inputs] == [(1, 3, 12, 10)]
    feed = {"image": np.random.default_rng(0).normal(size=(3, 3, 12, 10)).astype(np.float32)}
    assert package.error(feed) <= 1e-6


@pytest.mark.parametrize("name", NETS)
def test_names_and_order_are_the_signatures(packages: Any, name: str) -> None:
    """Read by coremltools: the inputs and outputs that the file itself declares."""
    package = packages(name)
    description, signature = package.spec.description, package.net.exported.signature
    assert [each.name for each in description.input] == [s.name for s in signature.inputs]
    assert [each.name for each in description.output] == [s.name for s in signature.outputs]
    arrays = [each.type.multiArrayType for each in (*description.input, *description.output)]
    io = (*package.artifact.io.inputs, *package.artifact.io.outputs)
    fixed = {i for i, s in enumerate(io) if not any(isinstance(dim, str) for dim in s.shape)}
    assert [tuple(arrays[i].shape) for i in fixed] == [io[i].shape for i in fixed]
    kinds = {65568: "float32", 131104: "int32"}
    assert [kinds[a.dataType] for a in arrays] == [spec.dtype for spec in io]


def test_integers_and_truth_values_become_int32(packages: Any) -> None:
    assert packages("tied").artifact.io.inputs[0].dtype == "int32"
    assert [spec.dtype for spec in packages("nested").artifact.io.outputs] == [
        "float32",
        "float32",
        "int32",
    ]


def test_a_boolean_input_is_taken_as_int32(packages: Any) -> None:
    class Masked(nn.Module):
        def forward(self, x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
            return torch.where(keep, x, -x)

    keep = torch.tensor([[True, False, True]])
    net = packages.export(Masked(), (torch.randn(1, 3), keep), {"x": BATCH, "keep": BATCH})
    package = packages.make(net)
    assert package.artifact.io.inputs[1].dtype == "int32"
    assert package.error() == 0


def test_names_that_a_program_cannot_have_are_changed_in_the_file_alone(packages: Any) -> None:
    net = packages.zoo.net("conv")
    signature = net.exported.signature
    odd = msgspec.structs.replace(
        signature,
        inputs=(msgspec.structs.replace(signature.inputs[0], name="image-1"),),
        outputs=(msgspec.structs.replace(signature.outputs[0], name="logits.raw"),),
    )
    data = dict(np.load(net.root / net.exported.examples.path))
    root = packages._fresh()
    shutil.copytree(net.root, root)
    np.savez(root / "odd.npz", **{"image-1": data["image"]})
    changed = msgspec.structs.replace(
        net.exported, signature=odd, examples=describe(root, "odd.npz")
    )
    out = packages._fresh()
    artifact = packages.backend.export(changed, root, out)
    assert [spec.name for spec in artifact.io.inputs] == ["image_1"]
    assert [spec.name for spec in artifact.io.outputs] == ["logits_raw"]


def test_sizes_that_are_fixed_are_said(packages: Any, capsys: pytest.CaptureFixture[str]) -> None:
    packages.make(packages.export(nn.ReLU(), (torch.randn(1, 4, 16),), {"input": {2: "length"}}))
    assert "dimension 'length' is fixed at 16, as in the example inputs" in capsys.readouterr().out


def test_the_oldest_system_that_serves_is_asked_for(packages: Any) -> None:
    package = packages("conv")
    assert package.spec.specificationVersion == coremltools().target.iOS16.value
    assert package.artifact.provenance.recipe.options == {"target": "iOS16"}
    newer = packages("conv", target="iOS17")
    assert newer.spec.specificationVersion == coremltools().target.iOS17.value
    assert newer.artifact.provenance.recipe.options == {"target": "iOS17"}
    assert newer.error() <= 1e-6


def test_the_package_is_one_that_coremltools_opens(packages: Any) -> None:
    package = packages("conv")
    model = coremltools().models.MLModel(str(package.folder), skip_model_load=True)
    assert model.get_spec() == package.spec
    manifest = json.loads((package.folder / "Manifest.json").read_bytes())
    items = manifest["itemInfoEntries"]
    assert items[manifest["rootModelIdentifier"]]["path"] == "com.apple.CoreML/model.mlmodel"
    assert sorted(each["name"] for each in items.values()) == ["model.mlmodel", "weights"]


def test_a_package_without_weights_has_no_file_of_them(packages: Any) -> None:
    package = packages("difference")
    assert [entry.path for entry in package.artifact.files] == [
        "model.mlpackage/Data/com.apple.CoreML/model.mlmodel",
        "model.mlpackage/Manifest.json",
    ]
    found = {p.relative_to(package.root).as_posix() for p in package.root.rglob("*") if p.is_file()}
    assert found == {entry.path for entry in package.artifact.files}


def test_the_same_source_gives_the_same_bytes_in_another_process(packages: Any) -> None:
    """Another process with other hashes of strings, another folder, another time."""
    package = packages("tower", "fp16")
    source, out = packages._fresh(), packages._fresh()
    shutil.copytree(package.net.root, source)
    (source / "exported.json").write_bytes(msgspec.json.encode(package.net.exported))
    code = (
        "import sys, msgspec\n"
        "from pathlib import Path\n"
        "from edgeserve import backends\n"
        "from edgeserve.types.source import Exported\n"
        "root, out = map(Path, sys.argv[1:])\n"
        "exported = msgspec.json.decode((root / 'exported.json').read_bytes(), type=Exported)\n"
        "print(backends.get('coreml').export(exported, root, out, precision='fp16').sha256)\n"
    )
    command = [sys.executable, "-P", "-W", "ignore", "-c", code, str(source), str(out)]
    env = {**os.environ, "PYTHONHASHSEED": "7"}
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.stdout.split()[-1:] == [package.artifact.sha256], done.stderr


def test_nothing_of_this_machine_or_day_is_in_it(packages: Any) -> None:
    package = packages("conv")
    data = b"".join(path.read_bytes() for path in package.folder.rglob("*") if path.is_file())
    for private in (
        b"conversion_date",
        str(Path.home()).encode(),
        b".py",
        b"/tmp",
        b"site-packages",
    ):
        assert private not in data, private


def test_the_package_describes_itself(packages: Any) -> None:
    labels = ("ant", "bee", "cat", "dog", "élan")
    net = packages.export(
        nn.Sequential(nn.Flatten(), nn.Linear(12, 5)),
        (torch.randn(1, 3, 4),),
        ({0: "batch"},),
        task="image-classification",
        labels=labels,
        fields={"output": "logits"},
    )
    package = packages.make(net, name="tagger", license="MIT", author="Ada")
    metadata = package.spec.description.metadata
    assert metadata.shortDescription == "tagger: image-classification model with 5 labels"
    assert (metadata.license, metadata.author) == ("MIT", "Ada")
    notes = dict(metadata.userDefined)
    assert json.loads(notes["edgeserve.labels"]) == list(labels)
    assert notes["edgeserve.task"] == "image-classification"
    assert json.loads(notes["edgeserve.fields"]) == {"output": "logits"}
    assert json.loads(notes["edgeserve.modules"]) == {"linear": "1", "flatten": "0"}
    assert package.artifact.provenance.recipe.options["license"] == "MIT"
    plain = packages("difference").spec.description.metadata
    assert plain.shortDescription == "model"
    assert set(plain.userDefined) == {"edgeserve.sources", "edgeserve.task", "edgeserve.processing"}


# what is kept whole


class Recurrent(nn.Module):
    """A recurrent layer whose last state is returned too."""

    def __init__(self, kind: Any, **options: Any) -> None:
        super().__init__()
        self.layer = kind(6, 5, batch_first=True, **options)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)[0]


@pytest.mark.parametrize(
    ("module", "op", "count"),
    [
        (Recurrent(nn.LSTM), "lstm", 1),
        (Recurrent(nn.LSTM, num_layers=2, bidirectional=True), "lstm", 2),
        (Recurrent(nn.GRU), "sigmoid", 14),  # unrolled: Core ML's own lacks a bias
    ],
)
def test_recurrent_layers(packages: Any, module: nn.Module, op: str, count: int) -> None:
    package = packages.make(packages.export(module, (torch.randn(1, 7, 6),), ({0: "batch"},)))
    assert package.error() <= 1e-6
    graph = packages.backend.inspect(package.artifact, package.root)
    assert graph.op_counts[op] == count


def test_attention_stays_whole_but_for_grouped_heads(packages: Any) -> None:
    class Attention(nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
            grouped = q.shape[1] != k.shape[1]
            return nn.functional.scaled_dot_product_attention(q, k, k, enable_gqa=grouped)

    for heads, ops in ((4, 4), (2, 10)):
        examples = (torch.randn(1, 4, 5, 8), torch.randn(1, heads, 5, 8))
        package = packages.make(packages.export(Attention(), examples))
        assert package.error() <= 1e-6
        graph = packages.backend.inspect(package.artifact, package.root)
        assert (len(graph.ops) <= ops) == (heads == 4), graph.op_counts


def test_operators_that_stay_whole_answer_as_pytorch(packages: Any) -> None:
    class Many(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 8, 3, padding=1)
            self.group, self.instance = nn.GroupNorm(2, 8), nn.InstanceNorm2d(8)

        def forward(self, x: torch.Tensor, grid: torch.Tensor) -> tuple[torch.Tensor, ...]:
            f = nn.functional
            y = f.silu(self.instance(f.hardswish(self.group(self.conv(x)))))
            y = f.interpolate(f.interpolate(y, scale_factor=2.0), (11, 13), mode="bilinear")
            sampled = f.grid_sample(x, grid, align_corners=False)
            return (
                f.adaptive_avg_pool2d(y, (1, 1)),
                f.mish(y),
                f.hardtanh(4 * y, 0.0, 6.0),
                f.hardsigmoid(y),
                f.pixel_shuffle(y, 2),
                f.pixel_unshuffle(x, 2),
                sampled,
                f.adaptive_avg_pool1d(x[0], 1),
            )

    torch.manual_seed(0)
    examples = (torch.randn(1, 3, 6, 8), torch.rand(1, 4, 4, 2) * 2.4 - 1.2)
    package = packages.make(packages.export(Many(), examples))
    assert package.error() <= 1e-5  # mish through exp and log
    counts = packages.backend.inspect(package.artifact, package.root).op_counts
    assert {"relu6", "silu", "pixel_shuffle", "resample", "instance_norm"} <= set(counts)
    assert package.artifact.provenance.rewrites == ("canonicalize_relu6",)


def test_a_run_knows_nothing_of_the_one_before(packages: Any) -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count[1].copy_(x.sum())
            return x + self.count[1]

    net = packages.export(Counter(), (torch.tensor([[1.0, 2.0]]),))
    package = packages.make(net)
    assert package.spec.specificationVersion == coremltools().target.iOS16.value
    for _ in range(2):
        np.testing.assert_array_equal(package.answer(net.feed)["output"], [[4, 5]])


# pictures

RGB = {
    "inputs": [
        {
            "name": "image",
            "steps": [
                {"step": "decode/1"},
                {"step": "normalize/1", "scale": [1 / 128] * 3, "bias": [-1.0, -0.5, 0.25]},
                {"step": "layout/1", "order": "CHW"},
            ],
        }
    ]
}


def pictured(packages: Any, steps: Any, shape: tuple[int, ...] = (1, 3, 12, 10)) -> Any:
    from edgeserve.types.processing import Processing

    processing = msgspec.convert({"inputs": [{"name": "image", "steps": steps}]}, Processing)
    net = packages.zoo.net("conv")
    changed = type(net)(net.module, net.examples, net.exported, net.root, net.feed)
    changed.exported = msgspec.structs.replace(net.exported, processing=processing)
    return changed


def test_a_picture_is_normalised_by_the_package_as_declared(packages: Any) -> None:
    steps = RGB["inputs"][0]["steps"]
    package = packages.make(pictured(packages, steps), image="image")
    feature = package.spec.description.input[0].type.imageType
    assert (feature.height, feature.width, feature.colorSpace) == (12, 10, feature.RGB)
    assert package.artifact.io.inputs[0].dtype == "uint8"
    assert package.artifact.io.inputs[0].shape == (1, 12, 10, 3)
    pixels = np.random.default_rng(0).integers(0, 256, (1, 12, 10, 3), dtype=np.uint8)
    levels = pixels.astype(np.float32).transpose(0, 3, 1, 2)
    bias = np.float32([-1.0, -0.5, 0.25]).reshape(1, 3, 1, 1)
    right = package.net.oracle({"image": levels / np.float32(128) + bias})["logits"]
    with packages.backend.load(package.artifact, package.root) as session:
        got = session.run({"image": pixels})["logits"]
    assert float(np.abs(got - right).max()) <= 1e-6 * float(np.abs(right).max())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda steps: [s for s in steps if s["step"] != "normalize/1"], "no normalize step"),
        (lambda steps: [*steps, {"step": "dtype/1", "dtype": "float16"}], "another dtype"),
        (lambda steps: [steps[0], steps[1] | {"scale": [1.0, 2.0, 1.0]}, steps[2]], "scales"),
        (lambda steps: [*steps[:2], {"step": "layout/1", "order": "HWC"}], "last place"),
    ],
)
def test_a_picture_that_would_only_come_near_is_refused(
    packages: Any, change: Any, said: str
) -> None:
    net = pictured(packages, change(RGB["inputs"][0]["steps"]))
    with pytest.raises(ConvertError) as error:
        packages.make(net, image="image")
    assert error.value.code == "EDGE-CONVERT-050"
    assert said in error.value.message


@pytest.mark.parametrize("name", ["nothing", "image"])
def test_a_picture_needs_an_input_with_processing(packages: Any, name: str) -> None:
    with pytest.raises(ConvertError) as error:
        packages.make(packages.zoo.net("conv"), image=name)
    assert error.value.code == "EDGE-CONVERT-050"


# what is refused


def test_an_unknown_option_is_refused(packages: Any) -> None:
    with pytest.raises(BackendError) as error:
        packages("conv", picture="image")
    assert error.value.code == "EDGE-BACKEND-040"
    assert "image" in error.value.message


def test_a_precision_that_derives_from_float32_is_not_exported(packages: Any) -> None:
    with pytest.raises(BackendError) as error:
        packages("conv", "w8")
    assert error.value.code == "EDGE-BACKEND-006"


@pytest.mark.parametrize("target", ["iOS15", "ios16", ""])
def test_an_unknown_target_is_refused(packages: Any, target: str) -> None:
    with pytest.raises(ConvertError) as error:
        packages("conv", target=target)
    assert error.value.code == "EDGE-CONVERT-054"
    assert "iOS16" in error.value.message


def test_packages_that_are_missing_are_named(
    packages: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "coremltools" else real(name)
    )
    backend, package = backends.get("coreml"), packages("conv")
    assert backend.missing() == backend.missing_tools() == install_command("coreml")
    for attempt in (
        lambda: backend.export(package.net.exported, package.net.root, tmp_path),
        lambda: backend.load(package.artifact, package.root),
    ):
        with pytest.raises(BackendError) as error:
            attempt()
        assert error.value.code == "EDGE-BACKEND-004"
        assert install_command("coreml") in str(error.value)
