"""ONNX answers against eager PyTorch, net by net; names, order and shapes against the signature."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch

from edgeserve import backends
from edgeserve.backends.torch import reference_artifact


@pytest.mark.parametrize(
    "name", ["conv", "difference", "nested", "tied", "audio", "edges", "tower"]
)
def test_it_answers_as_pytorch(zoo: Any, name: str) -> None:
    net = zoo.net(name)
    artifact, root = zoo.onnx(name)
    with backends.get("onnx").load(artifact, root) as session:
        got = session.run(net.feed)
    wanted = net.oracle(net.feed)
    assert list(got) == list(wanted)
    for key, right in wanted.items():
        assert got[key].shape == right.shape
        assert got[key].dtype == right.dtype
        np.testing.assert_allclose(got[key], right, rtol=0, atol=1e-5, err_msg=key)


def sizes(net: Any, **dims: int) -> dict[str, np.ndarray]:
    """Random inputs of other sizes."""
    rng = np.random.default_rng(0)
    feed = {}
    for spec in net.exported.signature.inputs:
        shape = [dims[d] if isinstance(d, str) else d for d in spec.shape]
        if spec.dtype == "int64":
            feed[spec.name] = rng.integers(0, 50, shape)
        else:
            feed[spec.name] = rng.normal(size=shape).astype(np.float32)
    return feed


@pytest.mark.parametrize(
    ("name", "dims"),
    [
        ("audio", {"batch": 1, "length": 4}),
        ("audio", {"batch": 8, "length": 64}),
        ("audio", {"batch": 1, "length": 7}),
        ("tied", {"batch": 1, "length": 1}),
        ("tied", {"batch": 3, "length": 64}),
        ("tower", {"batch": 1, "length": 1}),
        ("tower", {"batch": 2, "length": 32}),
    ],
)
def test_every_size_in_the_ranges_is_right(zoo: Any, name: str, dims: dict[str, int]) -> None:
    net = zoo.net(name)
    feed, (artifact, root) = sizes(net, **dims), zoo.onnx(name)
    reference = backends.get("torch").load(reference_artifact(net.exported), net.root)
    wanted = net.oracle(feed)
    with backends.get("onnx").load(artifact, root) as session, reference:
        for answer in (session.run(feed), reference.run(feed)):
            for key, right in wanted.items():
                np.testing.assert_allclose(answer[key], right, rtol=0, atol=1e-5)


def test_two_inputs_of_one_shape_keep_their_meaning(zoo: Any) -> None:
    """As ONNX Runtime reads the file, the order is forward's and each name means its own."""
    artifact, root = zoo.onnx("difference")
    engine = onnxruntime.InferenceSession(root / "model.onnx", providers=["CPUExecutionProvider"])
    assert [value.name for value in engine.get_inputs()] == ["after", "before"]
    after, before = np.full((1, 3), 5, np.float32), np.full((1, 3), 2, np.float32)
    with backends.get("onnx").load(artifact, root) as session:
        got = session.run({"before": before, "after": after})
    assert got["output"].tolist() == [[3, 3, 3]]
    assert engine.run(None, {"after": before, "before": after})[0].tolist() == [[-3, -3, -3]]


def test_the_io_is_what_the_engine_reads(zoo: Any) -> None:
    kinds = {"float32": "tensor(float)", "float64": "tensor(double)", "bool": "tensor(bool)"}
    for name in ("conv", "nested", "audio", "edges"):
        artifact, root = zoo.onnx(name)
        engine = onnxruntime.InferenceSession(
            root / "model.onnx", providers=["CPUExecutionProvider"]
        )
        for values, specs in (
            (engine.get_inputs(), artifact.io.inputs),
            (engine.get_outputs(), artifact.io.outputs),
        ):
            for value, spec in zip(values, specs, strict=True):
                assert value.name == spec.name
                assert tuple(value.shape) == spec.shape
                assert value.type == kinds.get(spec.dtype, f"tensor({spec.dtype})")
        assert artifact.io.outputs == zoo.net(name).exported.signature.outputs


def test_tied_weights_are_stored_once(zoo: Any) -> None:
    artifact, root = zoo.onnx("tied")
    graph = backends.get("onnx").inspect(artifact, root)
    held = [w for w in graph.weights if w.bytes >= 50 * 16 * 4]
    assert graph.weight_bytes < 2 * 50 * 16 * 4 + 100
    reference = backends.get("torch").inspect(
        reference_artifact(zoo.net("tied").exported), zoo.net("tied").root
    )
    assert reference.weight_bytes == 50 * 16 * 4
    assert held


def test_a_tap_is_the_tensor_that_pytorch_makes(zoo: Any) -> None:
    """The batch-normalised map of the net, found by its source op, against a forward hook."""
    net = zoo.net("conv")
    artifact, root = zoo.onnx("conv")
    graph = backends.get("onnx").inspect(artifact, root)
    relu = next(op for op in graph.ops if op.type == "Relu")
    assert relu.source == "relu"
    assert relu.module == "features.2"
    seen: list[torch.Tensor] = []
    handle = net.module.features[2].register_forward_hook(lambda *a: seen.append(a[2]))
    net.oracle(net.feed)
    handle.remove()
    taps = (relu.outputs[0], relu.inputs[0])
    for optimize in (True, False):
        with backends.get("onnx").load(artifact, root, taps=taps, optimize=optimize) as session:
            got = session.run(net.feed)
        np.testing.assert_allclose(got[taps[0]], seen[0].numpy(), rtol=0, atol=1e-5)
        np.testing.assert_allclose(np.maximum(got[taps[1]], 0), got[taps[0]], rtol=0, atol=0)
    reference = backends.get("torch").load(
        reference_artifact(net.exported), net.root, taps=["relu"]
    )
    np.testing.assert_array_equal(reference.run(net.feed)["relu"], seen[0].numpy())
