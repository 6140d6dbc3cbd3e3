"""What the exporter writes: right answers for every kind of net, names, sizes and sources."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from torch import nn

from edgeserve import backends
from edgeserve.backends.sizes import plan_sizes
from edgeserve.backends.tflite.schema import read_model
from edgeserve.backends.torch.export.export import ExportOptions


def compare(made: Any, feed: dict[str, np.ndarray], tolerance: float = 1e-5) -> None:
    got, right = made.run(feed), made.net.oracle(feed)
    assert list(got) == list(right)
    for name, array in right.items():
        assert got[name].shape == array.shape
        np.testing.assert_allclose(got[name], array, rtol=0, atol=tolerance, err_msg=name)


@pytest.mark.parametrize("name", ["difference", "nested", "tied", "audio", "edges", "tower"])
def test_every_kind_of_net_answers_as_pytorch(name: str, zoo: Any, convert: Any) -> None:
    net = zoo.net(name)
    compare(convert(net), net.feed)


# Edges


def test_64_bits_become_32_and_io_says_so(text_file: Any) -> None:
    assert [(s.name, s.dtype) for s in text_file.artifact.io.inputs] == [
        ("ids", "int32"),
        ("mask", "int32"),
    ]
    assert text_file.net.exported.signature.input("ids").dtype == "int64"


def test_one_signature_has_no_name(digits: Any) -> None:
    artifact = digits.file.artifact
    assert (artifact.io.signature, artifact.buckets) == (None, ())
    assert artifact.io.inputs[0].shape == (1, 1, 8, 8)


# Lengths


def test_text_gets_a_signature_for_each_length(text_file: Any) -> None:
    artifact = text_file.artifact
    assert [io.signature for io in artifact.buckets] == ["len_16", "len_24"]
    assert [io.inputs[0].shape for io in artifact.buckets] == [(1, 16), (1, 24)]
    assert [io.outputs[0].shape for io in artifact.buckets] == [(1, 16, 16), (1, 24, 16)]
    assert artifact.io == artifact.buckets[-1]


@pytest.mark.parametrize("length", [1, 7, 16, 17, 24])
def test_every_length_answers_as_unpadded_pytorch(length: int, text_file: Any) -> None:
    ids = np.random.default_rng(length).integers(0, 60, (3, length))
    compare(text_file, {"ids": ids, "mask": np.ones_like(ids)})


def test_signatures_share_their_weights(text_file: Any) -> None:
    model = read_model(text_file.root / "model.tflite")
    table = 60 * 16 * 4
    held = [b.data for b in model.buffers if b.data is not None and len(b.data) == table]
    assert len(model.subgraphs) == 2
    assert len(held) == 1


def test_lengths_are_powers_of_two_up_to_the_longest(text: Any, zoo: Any) -> None:
    sizes, notes = plan_sizes(_until(text.exported, 100), {})
    assert [(each.name, each.dims["length"]) for each in sizes] == [
        ("len_16", 16),
        ("len_32", 32),
        ("len_64", 64),
        ("len_100", 100),
    ]
    assert {each.dims["batch"] for each in sizes} == {1}
    assert notes == ()
    (short,), _ = plan_sizes(_until(text.exported, 9), {})
    assert (short.name, short.dims) == (None, {"batch": 1, "length": 9})


def test_a_length_that_nothing_pads_is_fixed_and_said(zoo: Any) -> None:
    (sizes,), notes = plan_sizes(zoo.net("tower").exported, {"states": (1, 5, 16)})
    assert (sizes.name, sizes.dims) == (None, {"batch": 1, "length": 5})
    assert notes == ("dimension 'length' is fixed at 5, as in the example inputs",)


def _until(exported: Any, longest: int) -> Any:
    """An export whose text may have that many tokens."""
    signature = msgspec.structs.replace(
        exported.signature, dims={**exported.signature.dims, "length": (1, longest)}
    )
    inputs = tuple(
        msgspec.structs.replace(i, steps=(msgspec.structs.replace(i.steps[0], max_length=512),))
        for i in exported.processing.inputs
    )
    processing = msgspec.structs.replace(exported.processing, inputs=inputs)
    return msgspec.structs.replace(exported, signature=signature, processing=processing)


# What is in the file


def test_nothing_private_is_in_the_file(digits: Any, text_file: Any) -> None:
    for made in (digits.file, text_file):
        data = (made.root / "model.tflite").read_bytes()
        for word in (
            b"conftest",
            b"DigitsNet",
            b"TextNet",
            b".py",
            b"torch.nn",
            b"/root",
            b"/work",
            b"/home",
            b"/tmp",
        ):
            assert word not in data, word


def test_the_same_bytes_every_time(zoo: Any, convert: Any) -> None:
    net = zoo.net("conv")
    assert convert(net).artifact == convert(net, again=True).artifact


def test_weights_start_where_vectors_load(digits: Any) -> None:
    """LiteRT promises kernels an alignment of 16 bytes; here against the real file's offsets."""
    data = (digits.file.root / "model.tflite").read_bytes()
    held = [
        b.data.tobytes()
        for b in read_model(digits.file.root / "model.tflite").buffers
        if b.data is not None and len(b.data) >= 64
    ]
    assert len(held) >= 6
    assert {data.index(weights) % 16 for weights in held} == {0}


def test_every_op_leads_to_its_source(digits: Any) -> None:
    graph = backends.get("tflite").inspect(digits.file.artifact, digits.file.root)
    nodes = {n.name for n in torch.export.load(digits.file.net.root / "model.pt2").graph.nodes}
    assert all(op.source in nodes for op in graph.ops)
    layers = {op.type: (op.source, op.module) for op in graph.ops}
    assert layers["CONV_2D"] == ("conv2d_2", "point.0")
    assert layers["FULLY_CONNECTED"] == ("linear", "head")
    convolutions = {op.module for op in graph.ops if "CONV" in op.type}
    assert convolutions == {"stem.0", "deep", "point.0"}


def test_tensors_have_names_of_their_own(text_file: Any) -> None:
    model = read_model(text_file.root / "model.tflite")
    names = [tensor.name for graph in model.subgraphs for tensor in graph.tensors]
    assert len(set(names)) == len(names)
    assert all(names)


def test_rewrites_are_noted(digits: Any, text_file: Any) -> None:
    assert digits.file.artifact.provenance.rewrites == ("fold_batch_norm",)
    assert set(text_file.artifact.provenance.rewrites) <= {
        "remove_asserts",
        "remove_noops",
        "canonicalize_ops",
        "copy_contiguous",
        "fold_constants",
        "merge_axes_to_four",
        "zero_fully_masked_rows",
    }
    assert {"litert-torch", "ai-edge-litert", "torch"} <= set(digits.file.artifact.provenance.tools)


# What the converter alone gets wrong or refuses


class MultiQuery(nn.Module):
    """Attention whose heads share one key and value: an expansion that is then transposed."""

    def forward(self, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        return query @ key.expand(1, 4, 16, 8).transpose(-1, -2)


class ExpandedGate(nn.Module):
    """A per-pixel gate expanded over the channels of a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.gate = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(3, 1, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.conv(image)
        return x * self.gate(image).expand_as(x)


class Counting(nn.Module):
    """Changes a buffer while it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("runs", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.runs.copy_(x.sum().reshape(1))
        return x + self.runs


def test_an_expansion_that_is_transposed(made: Callable[..., Any]) -> None:
    file = made("multi", MultiQuery(), (torch.randn(1, 4, 5, 8), torch.randn(1, 1, 16, 8)))
    assert file.artifact.provenance.rewrites == ("expand_to_cat",)
    compare(file, file.net.feed)


def test_an_expansion_among_convolutions(made: Callable[..., Any]) -> None:
    file = made("gate", ExpandedGate(), (torch.randn(1, 3, 6, 7),))
    assert file.artifact.provenance.rewrites == ("remove_expand",)
    compare(file, file.net.feed)


def test_a_run_leaves_nothing_behind(made: Callable[..., Any]) -> None:
    file = made("count", Counting(), (torch.randn(2, 3),))
    with backends.get("tflite").load(file.artifact, file.root) as session:
        for fill in (1, 2, 1):
            feed = {"x": np.full((2, 3), fill, np.float32)}
            assert (session.run(feed)["output"] == 7 * fill).all()


def test_names_need_not_be_python_names(made: Callable[..., Any]) -> None:
    wishes = ExportOptions(input_names=("pixel values.1",), output_names=("score/main", "logits:0"))

    class Two(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x * 2, x - 1

    file = made("names", Two(), (torch.randn(2, 3),), wishes)
    x = file.net.feed["pixel values.1"]
    got = file.run({"pixel values.1": x})
    assert list(got) == ["score/main", "logits:0"]
    np.testing.assert_array_equal(got["logits:0"], x - 1)


def test_batch_starts_where_the_source_says(made: Callable[..., Any]) -> None:
    net = nn.Sequential(nn.Linear(3, 2))
    file = made("pairs", net, (torch.randn(4, 3),), ExportOptions(({0: ("batch", 2, 6)},)))
    assert file.artifact.io.inputs[0].shape == (2, 3)
    compare(file, {"input": np.ones((5, 3), np.float32)})


# Writes


class _Written(nn.Module):
    """Writes one value under masks of two and of one axis."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = x.clone()
        made[x < 0] = 0.25
        made[:, x[0] > 1] = 7.0
        return made


def test_a_value_written_under_a_mask_answers_as_pytorch(made: Any) -> None:
    x = torch.randn(2, 9, generator=torch.Generator().manual_seed(3))
    file = made("written", _Written(), (x,))
    assert "lower_masked_write" in file.artifact.provenance.rewrites
    (got,) = file.run({"x": x.numpy()}).values()
    right = x.clone()
    right = torch.where(x < 0, torch.tensor(0.25), right)
    right[:, x[0] > 1] = 7.0
    np.testing.assert_array_equal(got, right.numpy())
