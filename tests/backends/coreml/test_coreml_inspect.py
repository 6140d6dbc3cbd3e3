"""What inspection shows of a package, beside its module and coremltools' own reader."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from edgeserve import backends
from edgeserve.backends.coreml.coremltools_import import coremltools, remove_weight_folders
from edgeserve.backends.coreml.package import write_package
from edgeserve.backends.coreml.spec import signatures
from edgeserve.backends.torch import reference_artifact
from edgeserve.backends.torch.program.io import log_warnings
from edgeserve.types.artifact import Artifact


def test_operations_know_the_source_and_the_module(packages: Any) -> None:
    package = packages("conv")
    graph = packages.backend.inspect(package.artifact, package.root)
    found = [(op.type, op.source, op.module) for op in graph.ops]
    assert found == [
        ("conv", "conv2d", "features.0"),
        ("relu", "relu", "features.2"),
        ("reduce_mean", "mean", None),
        ("linear", "linear", "head"),
    ]
    exported, root = package.net.exported, package.net.root
    known = backends.get("torch").inspect(reference_artifact(exported), root).ops
    assert {source for _, source, _ in found} <= {op.name for op in known}


def test_operations_are_chained_by_their_values(packages: Any) -> None:
    package = packages("tower")
    graph = packages.backend.inspect(package.artifact, package.root)
    made = {spec.name for spec in graph.inputs} | {weight.name for weight in graph.weights}
    constants = {op.outputs[0].name for op in _operations(package.spec) if op.type == "const"}
    for op in graph.ops:
        assert set(op.inputs) <= made | constants, op
        made |= set(op.outputs)
    assert {spec.name for spec in graph.outputs} <= made
    assert [op.name for op in graph.ops] == [
        op.attributes["name"].immediateValue.tensor.strings.values[0]
        for op in _operations(package.spec)
        if op.type != "const"
    ]
    assert graph.opset == {"": 6}


def _operations(spec: Any) -> Any:
    function = spec.mlProgram.functions["main"]
    return function.block_specializations[function.opset].operations


def test_weights_are_those_of_the_module(packages: Any) -> None:
    """Batch normalisation is folded; all else is there once, in the dtype it is stored in."""
    for precision, size in (("fp32", 4), ("fp16", 2)):
        package = packages("conv", precision)
        weights = packages.backend.inspect(package.artifact, package.root).weights
        module = package.net.module
        right = [
            module.features[0].weight,
            module.features[0].bias,
            module.head.weight,
            module.head.bias,
        ]
        assert sorted(w.shape for w in weights) == sorted(tuple(t.shape) for t in right)
        assert {weight.dtype for weight in weights} == {f"float{8 * size}"}
        assert sum(w.bytes for w in weights) == sum(t.numel() for t in right) * size


def test_a_tied_weight_is_counted_once(packages: Any) -> None:
    package = packages("tied")
    weights = packages.backend.inspect(package.artifact, package.root).weights
    matrices = [weight for weight in weights if len(weight.shape) == 2]
    assert [weight.shape for weight in matrices] == [(50, 16)]


def test_a_branch_shows_the_operations_inside(packages: Any, tmp_path: Any) -> None:
    """Made with coremltools' own builder, so without any note of edgeserve's."""
    ct = coremltools()
    from coremltools.converters.mil.mil import Builder

    @Builder.program(
        input_specs=[Builder.TensorSpec(shape=(2,)), Builder.TensorSpec(shape=(1,))],
        opset_version=ct.target.iOS16,
    )
    def program(x: Any, choice: Any) -> Any:
        yes = Builder.squeeze(x=Builder.greater(x=choice, y=0.0))
        return Builder.cond(
            pred=yes,
            _true_fn=lambda: Builder.sin(x=x),
            _false_fn=lambda: Builder.cos(x=x),
            name="chosen",
        )

    with log_warnings(), remove_weight_folders():
        model = ct.convert(
            program,
            convert_to="mlprogram",
            minimum_deployment_target=ct.target.iOS16,
            compute_precision=ct.precision.FLOAT32,
            skip_model_load=True,
        )
    files = write_package(model.get_spec(), None, tmp_path)
    io = signatures(model.get_spec())[0]
    artifact = Artifact("coreml", "fp32", "model.mlpackage", files, io)
    graph = packages.backend.inspect(artifact, tmp_path)
    kinds = [op.type for op in graph.ops]
    place = kinds.index("cond")
    assert kinds[place : place + 3] == ["cond", "sin", "cos"]
    assert {(op.source, op.module) for op in graph.ops} == {(None, None)}
    with packages.backend.load(artifact, tmp_path) as session:
        x = np.float32([0.5, 2.0])
        name = io.outputs[0].name
        for choice, right in ((1.0, np.sin(x)), (-1.0, np.cos(x))):
            got = session.run({"x": x, "choice": np.float32([choice])})[name]
            np.testing.assert_allclose(got, right, atol=1e-6)


def test_compressed_weights_of_other_kinds_are_counted_as_they_are_stored(
    packages: Any, tmp_path: Any
) -> None:
    """Palettized by coremltools: 4-bit indices and a table of 16 floats for a matrix."""
    ct = coremltools()
    torch.manual_seed(0)
    net = packages.export(nn.Sequential(nn.Linear(64, 64)), (torch.randn(1, 64),), ({0: "batch"},))
    package = packages.make(net)
    model = ct.models.MLModel(str(package.folder), skip_model_load=True)
    config = ct.optimize.coreml.OptimizationConfig(
        ct.optimize.coreml.OpPalettizerConfig(mode="uniform", nbits=4, weight_threshold=0)
    )
    with log_warnings(), remove_weight_folders():
        smaller = ct.optimize.coreml.palettize_weights(model, config)
    files = write_package(smaller.get_spec(), Path(smaller.weights_dir), tmp_path)
    artifact = Artifact("coreml", "fp32", "model.mlpackage", files, package.artifact.io)
    weights = {w.name: w for w in packages.backend.inspect(artifact, tmp_path).weights}
    table = next(w for name, w in weights.items() if name.endswith(".lut"))
    indices = next(w for name, w in weights.items() if name.endswith(".indices"))
    assert (table.dtype, math.prod(table.shape)) == ("float32", 16)
    assert indices.dtype == "uint8"
    assert indices.bytes == 64 * 64 // 2
    with packages.backend.load(artifact, tmp_path) as session:
        got = session.run({"input": net.feed["input"]})["output"]
    assert float(np.abs(got - net.oracle(net.feed)["output"]).max()) <= 0.1
