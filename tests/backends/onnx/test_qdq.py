"""w8a8: ranges against PyTorch hooks, numbers against numpy, and what ONNX Runtime makes of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import nn

from edgeserve import backends
from edgeserve.backends.onnx.cpu_int8 import activation_for, reduce_range_for, resolve_options
from edgeserve.backends.onnx.inspect import io_of, read
from edgeserve.backends.onnx.qdq import collect_ranges
from edgeserve.errors import QuantizeError
from edgeserve.files import describe
from edgeserve.types.artifact import Artifact, Recipe

Make = Callable[..., Any]
Run = Callable[..., list[np.ndarray]]


def arrays(artifact: Artifact, root: Path) -> dict[str, np.ndarray]:
    model = onnx.load(root / artifact.entry)
    return {i.name: onnx.numpy_helper.to_array(i) for i in model.graph.initializer}


def feeds(*shape: int, count: int = 12, seed: int = 0) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    return [{"image": rng.normal(size=shape).astype(np.float32)} for _ in range(count)]


class Chain(nn.Module):
    """Convolutions of every kind in a row, so that errors of one are fed to the next."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.deep = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.mid = nn.Conv2d(8, 16, 1)
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.last = nn.Conv2d(8, 4, 3, padding=1)
        with torch.no_grad():  # channels of different size, which one scale for all would lose
            self.mid.weight.mul_(torch.logspace(-2, 0.5, 16)[:, None, None, None])

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = nn.functional.relu6(self.stem(image))
        x = self.up(torch.relu(self.mid(torch.relu(self.deep(x)))))
        return self.last(nn.functional.silu(x) + x)


@pytest.fixture(scope="module")
def chain(make: Make) -> Any:
    torch.manual_seed(0)
    return make("chain", Chain(), {"image": torch.randn(1, 3, 10, 10)})


def test_ranges_are_the_true_ones(chain: Any) -> None:
    """Every convolution's input and output, against hooks in PyTorch over the same samples."""
    data = feeds(1, 3, 10, 10)
    seen: dict[str, list[float]] = {}

    def hook(name: str) -> Callable[..., None]:
        def note(_: nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
            for word, tensor in (("in", inputs[0]), ("out", output)):
                seen.setdefault(f"{name}.{word}", []).extend(
                    (float(tensor.min()), float(tensor.max()))
                )

        return note

    hooks = [m.register_forward_hook(hook(n)) for n, m in chain.module.named_children()]
    with torch.no_grad():
        for feed in data:
            chain.module(torch.from_numpy(feed["image"]))
    for each in hooks:
        each.remove()
    ops = [
        op
        for op in backends.get("onnx").inspect(chain.artifact, chain.root).ops
        if op.type in ("Conv", "ConvTranspose")
    ]
    names = [name for op in ops for name in (op.inputs[0], op.outputs[0])]
    got = collect_ranges(chain.artifact, chain.root, names, data)
    assert len(ops) == 5
    for op in ops:
        for word, name in (("in", op.inputs[0]), ("out", op.outputs[0])):
            values = seen[f"{op.module}.{word}"]
            np.testing.assert_allclose(got[name], (min(values), max(values)), rtol=1e-4, atol=1e-5)


def test_a_single_extreme_sample_widens_the_range(chain: Any) -> None:
    """Nothing is smoothed: one sample among many is enough, wherever it stands."""
    data = feeds(1, 3, 10, 10)
    extreme = {"image": data[0]["image"] * 100}
    for order in ([extreme, *data], [*data, extreme]):
        got = collect_ranges(chain.artifact, chain.root, ["image"], order)["image"]
        assert got == (float(extreme["image"].min()), float(extreme["image"].max()))


def test_an_overflow_inside_the_model_is_named(chain: Any) -> None:
    data = feeds(1, 3, 10, 10, count=3)
    weight = chain.module.stem.weight.detach().numpy()[0]
    data[2]["image"][0, :, :3, :3] = np.sign(weight) * 3e38
    with pytest.raises(QuantizeError) as error:
        chain.quantize("w8a8", data, name="overflow")
    assert error.value.code == "EDGE-QUANTIZE-010"
    assert "sample 2" in error.value.message


def test_no_samples_are_refused(chain: Any) -> None:
    with pytest.raises(QuantizeError) as error:
        chain.quantize("w8a8", [], name="empty")
    assert error.value.code == "EDGE-QUANTIZE-001"


def signal_to_noise(wanted: np.ndarray, got: np.ndarray) -> float:
    return float(10 * np.log10((wanted**2).mean() / ((wanted - got) ** 2).mean()))


@pytest.mark.parametrize("activation", ["u8", "s8"])
def test_close_to_pytorch(chain: Any, runs: Run, activation: str) -> None:
    artifact, root = chain.quantize(
        "w8a8",
        feeds(1, 3, 10, 10, count=32),
        name=activation,
        activation=activation,
        reduce_range="false",
    )
    test = feeds(1, 3, 10, 10, count=8, seed=1)
    with torch.no_grad():
        wanted = np.stack([chain.module(torch.from_numpy(f["image"])).numpy() for f in test])
    got = np.stack([runs(artifact, root, f["image"])[0] for f in test])
    assert signal_to_noise(wanted, got) > 25
    weights = backends.get("onnx").inspect(artifact, root).weights
    assert [w.dtype for w in weights if len(w.shape) > 1] == ["int8"] * 5
    dtypes = {a.dtype.name for n, a in arrays(artifact, root).items() if n.endswith("zero_point")}
    assert ("uint8" in dtypes) == (activation == "u8")


def test_weights_and_biases_are_those_that_numpy_rounds(chain: Any) -> None:
    """Per channel, symmetric; a bias has the scale of its input times that of its channel."""
    artifact, root = chain.quantize(
        "w8a8", feeds(1, 3, 10, 10), name="numbers", activation="u8", reduce_range="false"
    )
    found = arrays(artifact, root)
    layer = chain.module.mid
    weight, bias = layer.weight.detach().numpy(), layer.bias.detach().numpy()
    scale = np.abs(weight).max((1, 2, 3)) / 127
    stored = next(a for a in found.values() if a.dtype == np.int8 and a.shape == weight.shape)
    np.testing.assert_array_equal(stored, np.round(weight / scale[:, None, None, None]))
    model = onnx.load(root / artifact.entry)
    conv = next(n for n in model.graph.node if n.op_type == "Conv" and "mid" in str(n))
    made = {node.output[0]: node for node in model.graph.node}
    input_scale = found[made[conv.input[0]].input[1]]
    whole = made[conv.input[2]]
    assert found[whole.input[0]].dtype == np.int32
    back = found[whole.input[0]] * found[whole.input[1]].astype(np.float64)
    step = input_scale * scale
    np.testing.assert_allclose(found[whole.input[1]], step, rtol=1e-5)
    assert (np.abs(back - bias) <= step / 2 * 1.001).all()


# What ONNX Runtime does to float layers between 8-bit tensors


def outputs(path: Path, data: list[dict[str, np.ndarray]], **settings: Any) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        str(path), options, providers=["CPUExecutionProvider"], **settings
    )
    return np.stack([session.run(None, feed)[0] for feed in data])


def test_a_layer_kept_float_is_float_under_default_options(chain: Any, tmp_path: Path) -> None:
    """The engine must not round its weights; without our Clip before it, it does."""
    artifact, root = chain.quantize("w8a8", feeds(1, 3, 10, 10), name="island", keep=("mid",))
    data = feeds(1, 3, 10, 10, count=4, seed=2)
    off = {"disabled_optimizers": ["WeightBiasQuantization"]}
    path = root / artifact.entry
    default, without = outputs(path, data), outputs(path, data, **off)
    np.testing.assert_allclose(default, without, atol=1e-5 * np.abs(without).max())
    bare = tmp_path / "bare.onnx"
    onnx.save(without_clips(path), bare)
    spoiled, intact = outputs(bare, data), outputs(bare, data, **off)
    np.testing.assert_allclose(intact, without, atol=1e-5 * np.abs(without).max())
    assert np.abs(spoiled - intact).max() > 1e-3 * np.abs(intact).max()


def without_clips(path: Path) -> onnx.ModelProto:
    model = onnx.load(path)
    replaced = {}
    for node in list(model.graph.node):
        if node.name.endswith("_clip"):
            replaced[node.output[0]] = node.input[0]
            model.graph.node.remove(node)
    assert replaced
    for node in model.graph.node:
        node.input[:] = [replaced.get(name, name) for name in node.input]
    return model


def test_what_is_kept_float_is_stored_float(chain: Any) -> None:
    artifact, root = chain.quantize(
        "w8a8", feeds(1, 3, 10, 10), name="islands", keep=("deep", "mid", "last")
    )
    weights = backends.get("onnx").inspect(artifact, root).weights
    stored = {w.shape: w.dtype for w in weights if len(w.shape) == 4}
    assert stored[(8, 1, 3, 3)] == stored[(16, 8, 1, 1)] == stored[(4, 8, 3, 3)] == "float32"
    assert stored[(8, 3, 3, 3)] == stored[(16, 8, 2, 2)] == "int8"


def test_all_kept_float_is_nothing_to_quantize(chain: Any) -> None:
    with pytest.raises(QuantizeError) as error:
        chain.quantize("w8a8", feeds(1, 3, 10, 10), keep=("stem", "deep", "mid", "up", "last"))
    assert error.value.code == "EDGE-QUANTIZE-011"


# Layers in forms that integer kernels do not have


def test_factors_and_transposes_of_a_gemm_are_taken_out(tmp_path: Path) -> None:
    """Both factors are multiplied into constants once, against the formula in numpy."""
    rng = np.random.default_rng(0)
    held = {
        "w": rng.normal(size=(16, 16)) * 0.3,
        "b": rng.normal(size=16) * 4,
        "v": rng.normal(size=(6, 16)) * 0.3,
        "c": rng.normal(size=6) * 3,
    }
    held = {name: array.astype(np.float32) for name, array in held.items()}
    forms = {"x": {"alpha": 2.0, "transA": 1, "transB": 1}, "h": {"alpha": -0.5, "beta": 3.0}}
    value, node = onnx.helper.make_tensor_value_info, onnx.helper.make_node
    nodes = [
        node("Gemm", ["x", "w", "b"], ["a"], **forms["x"]),
        node("Relu", ["a"], ["h"]),
        node("Gemm", ["h", "v", "c"], ["y"], transB=1, **forms["h"]),
    ]
    weights = [onnx.numpy_helper.from_array(array, name) for name, array in held.items()]
    ends = [value("x", 1, [16, 8])], [value("y", 1, [8, 6])]
    graph = onnx.helper.make_graph(nodes, "gemms", *ends, weights)
    onnx.save(onnx.helper.make_model(graph, ir_version=9), tmp_path / "model.onnx")
    io = io_of(read(tmp_path / "model.onnx"))
    artifact = Artifact("onnx", "fp32", "model.onnx", (describe(tmp_path, "model.onnx"),), io)
    data = [{"x": rng.normal(size=(16, 8)).astype(np.float32)} for _ in range(24)]
    backend, out = backends.get("onnx"), tmp_path / "w8a8"
    made = backend.quantize(artifact, tmp_path, Recipe(precision="w8a8"), data, out)
    stored = [w for w in backend.inspect(made, out).weights if len(w.shape) == 2]
    assert [w.dtype for w in stored] == ["int8", "int8"]
    with backend.load(made, out) as session:
        for feed in data[:4]:
            inner = np.maximum(2 * feed["x"].T @ held["w"].T + held["b"], 0)
            right = -0.5 * inner @ held["v"].T + 3 * held["c"]
            assert signal_to_noise(right, session.run(feed)["y"]) > 25


def test_a_grouped_transposed_convolution_keeps_float_arithmetic(make: Make, runs: Run) -> None:
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 8, 3), nn.ReLU(), nn.ConvTranspose2d(8, 8, 2, 2, groups=2), nn.ReLU()
    net = make("grouped", nn.Sequential(*layers), {"input": torch.randn(1, 3, 8, 8)})
    rng = np.random.default_rng(0)
    data = [{"input": rng.normal(size=(1, 3, 8, 8)).astype(np.float32)} for _ in range(12)]
    artifact, root = net.quantize("w8a8", data)
    with torch.no_grad():
        wanted = net.module(torch.from_numpy(data[0]["input"])).numpy()
    assert signal_to_noise(wanted, runs(artifact, root, data[0]["input"])[0]) > 25
    weights = backends.get("onnx").inspect(artifact, root).weights
    stored = sorted(w.dtype for w in weights if len(w.shape) == 4)
    assert stored == ["float32", "int8", "int8"]  # the scales are float


# What stays float in a transformer


@pytest.fixture(scope="module")
def tower(zoo: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Artifact, Path, Any]:
    artifact, root = zoo.onnx("tower")
    rng = np.random.default_rng(0)
    data = [
        {"states": rng.normal(size=(1, length, 16)).astype(np.float32)}
        for length in (3, 5, 8, 13) * 3
    ]
    out = tmp_path_factory.mktemp("tower")
    made = backends.get("onnx").quantize(artifact, root, Recipe(precision="w8a8"), data, out)
    return made, out, zoo.net("tower")


def test_only_products_with_weights_are_quantized(tower: tuple[Artifact, Path, Any]) -> None:
    artifact, root, _ = tower
    graph = backends.get("onnx").inspect(artifact, root)
    made = {name: op for op in graph.ops for name in op.outputs}
    widened = {name for op in graph.ops if op.type == "DequantizeLinear" for name in op.outputs}
    weighted = [
        op
        for op in graph.ops
        if op.type in ("MatMul", "Gemm")
        and made.get(op.inputs[1]) is not None
        and op.inputs[1] in widened
    ]
    assert len(weighted) == 4  # query-key-value, output, and the two of the feed-forward part
    assert all(op.inputs[0] in widened for op in weighted)
    for op in graph.ops:
        if op.type in ("Softmax", "LayerNormalization", "Add", "Mul"):
            assert not set(op.inputs) & widened
        if op.type == "QuantizeLinear":
            assert made[op.inputs[0]].type not in ("MatMul", "Softmax")
    assert [w.dtype for w in graph.weights if len(w.shape) > 1] == ["int8"] * 4


def test_a_transformer_runs_at_lengths_it_was_not_calibrated_at(
    tower: tuple[Artifact, Path, Any], runs: Run
) -> None:
    artifact, root, net = tower
    states = np.random.default_rng(7).normal(size=(2, 11, 16)).astype(np.float32)
    (got,) = runs(artifact, root, states)
    (wanted,) = net.oracle({"states": states}).values()
    assert signal_to_noise(wanted, got) > 25


# What is chosen for a processor


def test_choices_for_processors() -> None:
    assert [activation_for(m) for m in ("x86_64", "AMD64", "aarch64", "arm64")] == [
        "u8",
        "u8",
        "s8",
        "s8",
    ]
    assert reduce_range_for(("avx2", "avx512f")) == "true"
    assert reduce_range_for(("avx2", "avx_vnni")) == "false"
    assert reduce_range_for(("neon",)) == "true"
    assert reduce_range_for(("neon", "dotprod")) == "false"


def test_a_recipe_is_completed_for_this_machine() -> None:
    import platform

    options = resolve_options(Recipe(precision="w8a8", options={"samples": "9"})).options
    assert options["samples"] == "9"
    assert options["activation"] == activation_for(platform.machine())
    assert options["reduce_range"] in ("true", "false")
    given = {"activation": "s8", "reduce_range": "true"}
    assert resolve_options(Recipe(precision="w8a8", options=given)).options == given
    assert resolve_options(Recipe(precision="w8")).options == {}


@pytest.mark.parametrize("options", [{"activation": "i8"}, {"reduce_range": "yes"}])
def test_unknown_options_are_refused(options: dict[str, str], chain: Any) -> None:
    with pytest.raises(QuantizeError) as error:
        chain.quantize("w8a8", feeds(1, 3, 10, 10), **options)
    assert error.value.code == "EDGE-QUANTIZE-008"


def test_an_old_operator_set_is_refused(chain: Any, tmp_path: Path) -> None:
    import msgspec

    node = onnx.helper.make_node("MatMul", ["image", "w"], ["out"])
    tensor = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [node],
        "old",
        [tensor("image", 1, [1, 3])],
        [tensor("out", 1, [1, 2])],
        [onnx.numpy_helper.from_array(np.ones((3, 2), np.float32), "w")],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 11)])
    onnx.save(model, tmp_path / "model.onnx")
    artifact = msgspec.structs.replace(
        chain.artifact,
        files=(describe(tmp_path, "model.onnx"),),
        io=io_of(read(tmp_path / "model.onnx")),
    )
    backend = backends.get("onnx")
    with pytest.raises(QuantizeError) as error:
        backend.quantize(artifact, tmp_path, Recipe(precision="w8a8"), feeds(1, 3), tmp_path / "q")
    assert error.value.code == "EDGE-QUANTIZE-012"
    made = backend.quantize(artifact, tmp_path, Recipe(precision="w8"), (), tmp_path / "w8")
    assert made.provenance.weights["int8"] == 6
