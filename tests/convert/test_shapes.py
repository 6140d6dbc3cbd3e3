"""Dynamic sizes on every format: what the module answers at a size, the files answer there too.

Sizes are the smallest, the largest, a prime and others between; PyTorch is the oracle.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edgeserve import backends
from edgeserve.backends.adapter import Adapter
from edgeserve.convert import ExportRequest, TargetRequest, parse_source
from edgeserve.convert.source import export_source
from edgeserve.convert.target import convert_target
from edgeserve.errors import EdgeError, InputError
from edgeserve.processing import Processor
from edgeserve.types.artifact import Artifact
from edgeserve.types.source import Exported

FORMATS = ("onnx", "tflite", "coreml")

NETS = '''
import torch
from torch import nn


class Masked(nn.Module):
    """A text encoder: attention that looks at what the mask lets it see."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.qkv = nn.Linear(16, 48)
        self.norm = nn.LayerNorm(16)

    def forward(self, ids, mask):
        x = self.embed(ids)
        q, k, v = (part.unsqueeze(1) for part in self.qkv(x).chunk(3, -1))
        seen = (mask > 0)[:, None, None, :]
        x = self.norm(x + nn.functional.scaled_dot_product_attention(q, k, v, seen).squeeze(1))
        weights = mask[..., None].float()
        return {"states": x, "mean": (x * weights).sum(1) / weights.sum(1)}


def masked():
    torch.manual_seed(1)
    ids = torch.randint(1, 50, (1, 9))
    dims = {0: ("batch", 1, 4), 1: ("length", 1, 40)}
    return Masked(), (ids, torch.ones_like(ids)), {"dynamic_shapes": {"ids": dims, "mask": dims}}


class Least(Masked):
    """Its mask is the least number added to the scores: a row without a token sees all places."""

    def forward(self, ids, mask):
        x = self.embed(ids)
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = q @ k.transpose(1, 2) / 4
        hidden = (1 - mask[:, None, :].float()) * torch.finfo(torch.float32).min
        return self.norm((scores + hidden).softmax(-1) @ v)


def least():
    torch.manual_seed(1)
    ids = torch.randint(1, 50, (1, 9))
    dims = {0: ("batch", 1, 4), 1: ("length", 1, 40)}
    return Least(), (ids, torch.ones_like(ids)), {"dynamic_shapes": {"ids": dims, "mask": dims}}


def conv1d():
    torch.manual_seed(2)
    net = nn.Sequential(nn.Conv1d(3, 8, 3, padding=1), nn.ReLU())
    shapes = {"input": {0: ("batch", 1, 4), 2: ("length", 5, 61)}}
    return net, (torch.randn(1, 3, 20),), {"dynamic_shapes": shapes, "output_names": ["out"]}


def two_convs():
    torch.manual_seed(3)
    net = nn.Sequential(
        nn.Conv1d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv1d(8, 2, 3, padding=1)
    )
    shapes = {"input": {2: ("length", 5, 61)}}
    return net, (torch.randn(1, 3, 20),), {"dynamic_shapes": shapes, "output_names": ["out"]}


class Pooled(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 5)
        with torch.no_grad():
            self.norm.running_mean.uniform_(-1, 1)
            self.norm.running_var.uniform_(0.5, 2)

    def forward(self, image):
        x = torch.relu(self.norm(self.conv(image)))
        return self.head(nn.functional.adaptive_avg_pool2d(x, 1).flatten(1))


def layer_norm():
    torch.manual_seed(4)
    net = nn.Sequential(nn.LayerNorm(12), nn.Linear(12, 4))
    shapes = {"input": {0: ("batch", 1, 17)}}
    return net, (torch.randn(1, 12),), {"dynamic_shapes": shapes, "output_names": ["out"]}


def pooled():
    torch.manual_seed(5)
    shapes = {"image": {0: ("batch", 1, 17)}}
    return Pooled(), (torch.randn(1, 3, 12, 12),), {"dynamic_shapes": shapes}


def picture():
    torch.manual_seed(6)
    shapes = {"image": {2: ("height", 8, 40), 3: ("width", 8, 40)}}
    return Pooled(), (torch.randn(1, 3, 16, 24),), {"dynamic_shapes": shapes}
'''


class Made:
    """A net, its export, and its artifacts, each made once."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self.name = folder, name
        source = parse_source(f"shape_nets:{name}", folder)
        self.source = folder / name / "source"
        self.exported = export_source(ExportRequest(source=source, out=str(self.source)))
        module = importlib.import_module("shape_nets")
        self.module = getattr(module, name)()[0].eval()
        self._files: dict[str, Artifact] = {}

    def artifact(self, format: str) -> tuple[Artifact, Path]:
        out = self._folder / self.name / format
        if format not in self._files:
            request = TargetRequest(str(self.source), format, "fp32", str(out))  # type: ignore[arg-type]
            self._files[format] = convert_target(request)
        return self._files[format], out

    def answer(self, format: str, feed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """By a file, through the check that every caller's tensors go through."""
        exported: Exported = self.exported
        feed = Processor(exported.processing, exported.signature, exported.task).check_feed(feed)
        artifact, root = self.artifact(format)
        with backends.get(format).load(artifact, root, threads=1) as session:
            return Adapter(session, exported.signature).run(feed)

    def right(self, feed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        with torch.no_grad():
            found = self.module(*(torch.from_numpy(array) for array in feed.values()))
        found = (
            found if isinstance(found, dict) else {self.exported.signature.outputs[0].name: found}
        )
        return {name: tensor.numpy() for name, tensor in found.items()}

    def check(self, format: str, feed: dict[str, np.ndarray]) -> None:
        got, right = self.answer(format, feed), self.right(feed)
        assert list(got) == list(right)
        for name, wanted in right.items():
            assert got[name].shape == wanted.shape
            np.testing.assert_allclose(got[name], wanted, rtol=0, atol=2e-5)


@pytest.fixture(scope="module")
def nets(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("shapes")
    (folder / "shape_nets.py").write_text(NETS)
    made: dict[str, Made] = {}
    sys.path.append(str(folder))

    def net(name: str) -> Made:
        return made.setdefault(name, made.get(name) or Made(folder, name))

    yield net
    sys.path.remove(str(folder))
    sys.modules.pop("shape_nets", None)


Nets = Callable[[str], Made]


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("format", FORMATS)
def test_a_text_encoder_with_a_mask_answers_at_every_length(nets: Nets, format: str) -> None:
    net = nets("masked")
    assert net.exported.signature.padded == ("length",)
    for rows, length in [(1, 1), (2, 2), (1, 7), (3, 16), (1, 17), (2, 31), (1, 39), (4, 40)]:
        ids = np.random.default_rng(length).integers(1, 50, (rows, length))
        mask = np.ones_like(ids)
        mask[:, max(1, length - 2) :] = 0
        net.check(format, {"ids": ids, "mask": mask})


@pytest.mark.parametrize("format", ["tflite", "coreml"])
def test_a_mask_of_zeros_is_answered_as_by_the_source_or_refused(nets: Nets, format: str) -> None:
    net = nets("least")
    assert net.exported.signature.padded == ("length",)
    assert net.exported.signature.nonempty == ("mask",)
    for rows, length in [(1, 1), (2, 7), (3, 16), (2, 31), (4, 40)]:
        ids = np.random.default_rng(length).integers(1, 50, (rows, length))
        mask = np.ones_like(ids)
        mask[:, 1::2] = 0
        net.check(format, {"ids": ids, "mask": mask})
        mask[0] = 0
        if format == "coreml" or length in (16, 40):  # nothing is added
            net.check(format, {"ids": ids, "mask": mask})
            continue
        with pytest.raises(EdgeError) as error:
            net.answer(format, {"ids": ids, "mask": mask})
        assert error.value.code == "EDGE-BACKEND-022"


@pytest.mark.parametrize("format", FORMATS)
def test_a_convolution_over_time_answers_at_every_length(nets: Nets, format: str) -> None:
    net = nets("conv1d")
    assert net.exported.signature.padded == ("length",)
    for rows, length in [(1, 5), (2, 13), (1, 16), (3, 17), (1, 20), (2, 33), (1, 60), (4, 61)]:
        net.check(format, {"input": numbers(rows, 3, length)})


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(("name", "shape"), [("layer_norm", (12,)), ("pooled", (3, 12, 12))])
def test_every_batch_is_answered(
    nets: Nets, format: str, name: str, shape: tuple[int, ...]
) -> None:
    net = nets(name)
    key = net.exported.signature.inputs[0].name
    for rows in (1, 2, 3, 5, 8, 13, 16, 17):
        net.check(format, {key: numbers(rows, *shape)})


@pytest.mark.parametrize("format", ["onnx", "coreml"])
def test_heights_and_widths_stay_open_where_a_format_holds_ranges(nets: Nets, format: str) -> None:
    net = nets("picture")
    assert net.exported.signature.padded == ()  # a mean over the picture counts what is added
    for height, width in [(8, 8), (8, 40), (13, 29), (16, 24), (31, 9), (39, 40), (40, 40)]:
        net.check(format, {"image": numbers(1, 3, height, width)})


def test_a_picture_net_is_fixed_where_a_format_has_no_ranges(nets: Nets) -> None:
    net = nets("picture")
    net.check("tflite", {"image": numbers(1, 3, 16, 24)})
    for height, width in [(8, 8), (16, 23), (40, 40)]:
        with pytest.raises(EdgeError) as error:
            net.answer("tflite", {"image": numbers(1, 3, height, width)})
        assert error.value.code == "EDGE-BACKEND-020"


def test_where_zeros_reach_the_answers_nothing_is_padded(nets: Nets) -> None:
    """The second convolution sees what the first made of the filling: not zero, but its bias."""
    net = nets("two_convs")
    assert net.exported.signature.padded == ()
    net.check("tflite", {"input": numbers(1, 3, 20)})
    with pytest.raises(EdgeError) as error:
        net.answer("tflite", {"input": numbers(1, 3, 19)})
    assert error.value.code == "EDGE-BACKEND-020"
    for length in (5, 7, 19, 20, 31, 60, 61):
        net.check("onnx", {"input": numbers(1, 3, length)})
        net.check("coreml", {"input": numbers(1, 3, length)})


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("length", [4, 62])
def test_sizes_outside_the_range_are_refused(nets: Nets, format: str, length: int) -> None:
    net = nets("conv1d")
    with pytest.raises(InputError) as error:
        net.answer(format, {"input": numbers(1, 3, length)})
    assert error.value.code == "EDGE-INPUT-015"
    artifact, root = net.artifact(format)
    if format == "onnx":  # the file itself takes any size: what its sizes mean is the signature's
        return
    with backends.get(format).load(artifact, root, threads=1) as session:
        adapter = Adapter(session, net.exported.signature)
        if length > 61:
            with pytest.raises(EdgeError) as error:
                adapter.run({"input": numbers(1, 3, length)})
            assert error.value.code in ("EDGE-BACKEND-020", "EDGE-MIL-007")


def test_the_buckets_of_a_file_share_their_weights(nets: Nets) -> None:
    artifact, root = nets("masked").artifact("tflite")
    assert [io.signature for io in artifact.buckets] == ["len_16", "len_32", "len_40"]
    single = 4 * sum(p.numel() for p in nets("masked").module.parameters())
    graph = backends.get("tflite").inspect(artifact, root)
    assert graph.weight_bytes <= 1.1 * single


def test_ranges_are_in_the_package(nets: Nets) -> None:
    artifact, _ = nets("picture").artifact("coreml")
    assert artifact.io.inputs[0].shape == (1, 3, "height", "width")
    assert artifact.io.outputs[0].shape == (1, 5)
