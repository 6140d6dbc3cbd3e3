"""Text: one package with a function for each length, weights stored once, answers as PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from edgeserve.backends.coreml.coremltools_import import coremltools
from edgeserve.errors import BackendError
from edgeserve.types.artifact import Recipe


@pytest.fixture(scope="module")
def package(text_package: Any) -> Any:
    return text_package


def sentence(length: int, rows: int = 1, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    ids = rng.integers(1, 40, (rows, length))
    return {"ids": ids, "mask": np.ones_like(ids)}


def test_there_is_a_function_for_each_length(package: Any) -> None:
    names = ["len_16", "len_32", "len_40"]
    description = package.spec.description
    assert [each.name for each in description.functions] == names
    assert description.defaultFunctionName == "len_40"
    assert list(package.spec.mlProgram.functions) == names or set(
        package.spec.mlProgram.functions
    ) == set(names)
    buckets = package.artifact.buckets
    assert [io.signature for io in buckets] == names
    assert [io.inputs[0].shape for io in buckets] == [(1, 16), (1, 32), (1, 40)]
    assert buckets[-1] == package.artifact.io
    assert package.spec.specificationVersion == coremltools().target.iOS18.value


@pytest.mark.parametrize("length", [1, 2, 13, 16, 17, 32, 33, 40])
def test_every_length_answers_as_pytorch_at_that_length(package: Any, length: int) -> None:
    assert package.error(sentence(length, rows=2, seed=length)) <= 1e-5


def test_a_mask_with_gaps_answers_as_pytorch(package: Any) -> None:
    feed = sentence(20)
    feed["mask"][0, 11:] = 0
    assert package.error(feed) <= 1e-5


def test_a_text_that_is_too_long_is_refused(package: Any) -> None:
    with pytest.raises(BackendError) as error:
        package.answer(sentence(41))
    assert error.value.code == "EDGE-BACKEND-020"


def test_weights_are_stored_once(packages: Any, package: Any) -> None:
    parameters = sum(p.numel() for p in package.net.module.parameters())
    graph = packages.backend.inspect(package.artifact, package.root)
    assert graph.weight_bytes <= 1.02 * 4 * parameters
    blob = next(f for f in package.artifact.files if f.path.endswith("weight.bin"))
    assert blob.size <= 1.02 * 4 * parameters + 64 * 64  # each tensor starts on a boundary


def test_inspection_shows_the_largest_function(packages: Any, package: Any) -> None:
    graph = packages.backend.inspect(package.artifact, package.root)
    assert graph.inputs[0].shape == (1, 40)
    assert {"linear", "layer_norm", "scaled_dot_product_attention"} <= set(graph.op_counts)
    assert {op.module for op in graph.ops if op.type == "layer_norm"} == {
        "block.norm1",
        "block.norm2",
    }


def test_eight_bit_weights_are_shared_too(packages: Any, package: Any) -> None:
    made = packages.quantize(package, Recipe("w8"))
    assert [io.signature for io in made.artifact.buckets] == ["len_16", "len_32", "len_40"]
    assert made.artifact.buckets == package.artifact.buckets
    weights = made.artifact.provenance.weights
    matrices = sum(p.numel() for p in package.net.module.parameters() if p.dim() > 1)
    assert weights["int8"] == matrices
    for length in (5, 40):
        assert 1e-5 < made.error(sentence(length)) <= 0.05


def test_eight_bit_activations_are_measured_at_every_length(packages: Any, package: Any) -> None:
    samples = [sentence(length, seed=length) for length in (3, 12, 20, 40)]
    made = packages.quantize(package, Recipe("w8a8"), samples)
    for name in ("len_16", "len_32", "len_40"):
        function = made.spec.mlProgram.functions[name]
        ops = [op.type for op in function.block_specializations[function.opset].operations]
        assert ops.count("quantize") == 4  # what the four linear layers read
    assert made.error(sentence(9)) <= 0.2


def test_lengths_that_cannot_be_left_open_are_traced_one_by_one(packages: Any, text: Any) -> None:
    """One tensor under two names needs an operation of its own, which is told its sizes."""

    class Twice(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = torch.nn.Embedding(40, 4)

        def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> dict[str, torch.Tensor]:
            states = self.embed(ids) * mask[..., None]
            return {"states": states, "again": states}

    dims = {0: ("batch", 1, 8), 1: ("length", 1, 20)}
    ids = torch.ones(2, 7, dtype=torch.int64)
    net = packages.export(
        Twice(), (ids, ids), {"ids": dims, "mask": dims}, processing=text.exported.processing
    )
    net.call = lambda *tensors: list(net.module(*tensors).values())
    package = packages.make(net)
    assert [io.signature for io in package.artifact.buckets] == ["len_16", "len_20"]
    assert "normalize_outputs" in package.artifact.provenance.rewrites
    for length in (3, 19):
        assert package.error(sentence(length)) <= 1e-6
