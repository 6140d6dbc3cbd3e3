"""fp16: PyTorch in float32 is the oracle; what float16 cannot hold must not be asked of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import pytest
import torch
from onnx.reference import ReferenceEvaluator
from torch import nn

from edgeserve import backends
from edgeserve.backends.onnx.inspect import io_of, read
from edgeserve.backends.torch.export.export import ExportOptions
from edgeserve.files import describe
from edgeserve.types.artifact import Recipe

Make = Callable[..., Any]
Run = Callable[..., list[np.ndarray]]

#: Relative step of float16, times the few roundings in a row that these nets have.
CLOSE = 2**-11 * 6

LEAST = torch.finfo(torch.float32).min


class Attention(nn.Module):
    """A mask of the kind that adds the most negative float32 where nothing may be seen."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 24)

    def forward(self, states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        query, key, value = self.inner(states).chunk(3, -1)
        hidden = (1.0 - mask[:, None, :].to(torch.float32)) * torch.finfo(torch.float32).min
        return torch.softmax(query @ key.transpose(1, 2) + hidden, -1) @ value


@pytest.fixture(scope="module")
def attention(make: Make) -> Any:
    torch.manual_seed(0)
    return make("attention", Attention(), (torch.randn(2, 5, 8), torch.ones(2, 5).long()))


@pytest.mark.parametrize("seen", [[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [0, 0, 0, 0, 0]])
def test_masks_mask_and_are_never_nan(attention: Any, runs: Run, seen: list[int]) -> None:
    artifact, root = attention.quantize("fp16", name=f"fp16-{sum(seen)}")
    states, mask = torch.randn(2, 5, 8), torch.tensor([seen, [1, 1, 1, 1, 0]])
    with torch.no_grad():
        wanted = attention.module(states, mask).numpy()
    (got,) = runs(artifact, root, states.numpy(), mask.numpy())
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, wanted, atol=CLOSE * np.abs(wanted).max())


class Chosen(Attention):
    """The mask chosen by `where`, two layers of it, scores that float16's digits would show."""

    def __init__(self, low: float) -> None:
        super().__init__()
        self.low, self.second = low, nn.Linear(8, 24)

    def forward(self, states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        hidden = torch.where(mask[:, None, :] > 0, 0.0, self.low)
        for layer in (self.inner, self.second):
            query, key, value = layer(states).chunk(3, -1)
            states = torch.softmax(20 * query @ key.transpose(1, 2) + hidden, -1) @ value
        return states


class Filled(Chosen):
    """The scores themselves replaced, as `masked_fill` does."""

    def forward(self, states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        query, key, value = self.inner(states).chunk(3, -1)
        scores = 20 * query @ key.transpose(1, 2)
        return torch.softmax(scores.masked_fill(mask[:, None, :] == 0, self.low), -1) @ value


class Scaled(Chosen):
    """Divided, and multiplied, after the mask was added."""

    def forward(self, states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        query, key, value = self.inner(states).chunk(3, -1)
        scores = 20 * query @ key.transpose(1, 2)
        masked = scores + torch.where(mask[:, None, :] > 0, 0.0, self.low)
        return torch.softmax(masked / 8, -1) @ value + torch.softmax(masked * 0.1, -1) @ value


@pytest.mark.parametrize(
    ("kind", "low"),
    [
        *((kind, low) for kind in (Chosen, Filled) for low in (LEAST, -1e9, -1e5, -1e4)),
        (Scaled, LEAST),
    ],
)
def test_a_row_that_is_masked_as_a_whole_is_even(
    make: Make, runs: Run, kind: type[Chosen], low: float
) -> None:
    """Its softmax is even in float32 where the mask swallows the scores, and no NaN anywhere.

    ONNX Runtime's CPU computes much of a float16 file in float32; numpy rounds each op's result.
    """
    torch.manual_seed(3)
    states = torch.randn(2, 5, 8)
    mask = torch.tensor([[0, 0, 0, 0, 0], [1, 0, 1, 1, 0]])
    net = make(f"masked-{kind.__name__}-{-low:.0e}", kind(low).eval(), (states, mask))
    artifact, root = net.quantize("fp16")
    with torch.no_grad():
        wanted = net.module(states, mask).numpy()
    feed = dict(
        zip((s.name for s in artifact.io.inputs), (states.numpy(), mask.numpy()), strict=True)
    )
    rounded = ReferenceEvaluator(str(root / artifact.entry)).run(None, feed)[0]
    for got in (rounded, *runs(artifact, root, *feed.values())):
        np.testing.assert_allclose(got, wanted, atol=4 * CLOSE * np.abs(wanted).max())
    graph = backends.get("onnx").inspect(artifact, root)
    assert any(w.dtype == "float16" for w in graph.weights if len(w.shape) == 2)


class Added(Attention):
    """The caller brings the numbers that are added."""

    def forward(self, states: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        query, key, value = self.inner(states).chunk(3, -1)
        return torch.softmax(query @ key.transpose(1, 2) + hidden[:, None, :], -1) @ value


def test_a_mask_that_callers_add_is_never_nan(make: Make) -> None:
    """By numpy's float16: ONNX Runtime's CPU adds in float32."""
    states, hidden = torch.randn(2, 5, 8), torch.zeros(2, 5)
    hidden[0], hidden[1, 3:] = LEAST, LEAST
    net = make("added", Added().eval(), (states, torch.zeros(2, 5)))
    artifact, root = net.quantize("fp16")
    with torch.no_grad():
        wanted = net.module(states, hidden).numpy()
    names = [spec.name for spec in artifact.io.inputs]
    feed = dict(zip(names, (states.numpy(), hidden.numpy()), strict=True))
    (got,) = ReferenceEvaluator(str(root / artifact.entry)).run(None, feed)
    np.testing.assert_allclose(got, wanted, atol=CLOSE * np.abs(wanted).max())


def test_weights_are_stored_in_half(attention: Any) -> None:
    artifact, root = attention.quantize("fp16", name="fp16-stored")
    weights = backends.get("onnx").inspect(artifact, root).weights
    assert {w.dtype for w in weights if w.shape in ((8, 24), (24, 8), (24,))} == {"float16"}
    assert [s.dtype for s in artifact.io.inputs] == ["float32", "int64"]
    assert [s.dtype for s in artifact.io.outputs] == ["float32"]


class Norms(nn.Module):
    """Sums of squares beyond 65504, a divisor of 1e-12, and a factor beyond float16 and back."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(16) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        unit = x / x.norm(dim=-1, keepdim=True).clamp(min=1e-12)
        root = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True).clamp(min=1e-12)) * self.scale
        return torch.cat([unit, root, (x * 1e6).tanh(), x * 3e-8 * 1e7], -1)


def test_norms_neither_overflow_nor_divide_by_zero(make: Make, runs: Run) -> None:
    net = make("norms", Norms(), (torch.randn(3, 16),))
    artifact, root = net.quantize("fp16")
    x = torch.randn(3, 16) * torch.tensor([[2000.0], [0.0], [0.5]])
    with torch.no_grad():
        wanted = net.module(x).numpy()
    (got,) = runs(artifact, root, x.numpy())
    for part in range(4):
        there, here = (a[:, part * 16 : part * 16 + 16] for a in (wanted, got))
        np.testing.assert_allclose(here, there, atol=CLOSE * np.abs(there).max())


class Places(nn.Module):
    """Angles of far positions: exact integers times frequencies, then sine and cosine."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", 1.0 / 10000 ** (torch.arange(0, 8, 2) / 8))
        self.out = nn.Linear(8, 8, bias=False)

    def forward(self, states: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        angles = places[..., None].float() * self.steps
        turn = torch.cat([angles.sin(), angles.cos()], -1)
        return self.out(states * turn)


def test_far_positions_keep_their_angles(make: Make, runs: Run) -> None:
    torch.manual_seed(0)
    net = make("places", Places(), (torch.randn(1, 4, 8), torch.arange(4)[None]))
    artifact, root = net.quantize("fp16")
    states, places = torch.randn(1, 4, 8), torch.tensor([[0, 1001, 2047, 30011]])
    with torch.no_grad():
        wanted = net.module(states, places).numpy()
    (got,) = runs(artifact, root, states.numpy(), places.numpy())
    np.testing.assert_allclose(got, wanted, atol=CLOSE * np.abs(wanted).max())


class Sums(nn.Module):
    """Rows added up by the group they belong to, as graph networks do."""

    def forward(self, x: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
        places = groups[:, None].expand(-1, 4)
        return torch.zeros(3, 4).scatter_add(0, places, x) + torch.zeros(3, 4).index_add(
            0, groups, x * 2
        )


def test_sums_by_place_have_kernels(make: Make, runs: Run) -> None:
    x, groups = torch.randn(6, 4), torch.tensor([0, 2, 2, 1, 0, 2])
    net = make("sums", Sums(), (x, groups))
    artifact, root = net.quantize("fp16")
    (got,) = runs(artifact, root, x.numpy(), groups.numpy())
    wanted = Sums()(x, groups).numpy()
    np.testing.assert_allclose(got, wanted, atol=CLOSE * np.abs(wanted).max())


def test_a_transformer_with_dynamic_lengths(zoo: Any, tmp_path: Path, runs: Run) -> None:
    artifact, root = zoo.onnx("tower")
    made = backends.get("onnx").quantize(artifact, root, Recipe(precision="fp16"), (), tmp_path)
    states = np.random.default_rng(0).normal(size=(3, 17, 16)).astype(np.float32)
    (wanted,) = zoo.net("tower").oracle({"states": states}).values()
    (got,) = runs(made, tmp_path, states)
    np.testing.assert_allclose(got, wanted, atol=4 * CLOSE * np.abs(wanted).max())


@pytest.mark.parametrize("name", ["edges", "nested", "tied", "difference"])
def test_odd_nets_keep_their_types(name: str, zoo: Any, tmp_path: Path, runs: Run) -> None:
    """Inputs that are outputs, integer, boolean and double outputs, scalars, int64 ids."""
    artifact, root = zoo.onnx(name)
    made = backends.get("onnx").quantize(artifact, root, Recipe(precision="fp16"), (), tmp_path)
    net = zoo.net(name)
    wanted = net.oracle(net.feed)
    got = runs(made, tmp_path, *(net.feed[s.name] for s in artifact.io.inputs))
    for (output, right), found in zip(wanted.items(), got, strict=True):
        assert found.dtype == right.dtype
        if right.dtype.kind == "f":
            close = CLOSE * max(1e-3, np.abs(right).max(initial=0))
            np.testing.assert_allclose(found, right, atol=close, err_msg=output)
        else:
            np.testing.assert_array_equal(found, right)


def test_kept_modules_stay_in_float32(attention: Any) -> None:
    artifact, root = attention.quantize("fp16", name="kept", keep=("inner",))
    weights = backends.get("onnx").inspect(artifact, root).weights
    assert {w.dtype for w in weights if w.shape in ((8, 24), (24, 8), (24,))} == {"float32"}


def test_branches_read_what_became_half(attention: Any, tmp_path: Path, runs: Run) -> None:
    """A foreign file whose inner graphs read outer values: those stay in float32."""
    helper, tensor = onnx.helper, onnx.helper.make_tensor_value_info

    def branch(name: str, op: str) -> onnx.GraphProto:
        node = helper.make_node(op, ["wide"], [f"{name}_out"])
        return helper.make_graph([node], name, [], [tensor(f"{name}_out", 1, [2, 3])])

    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["wide"]),
        helper.make_node(
            "If",
            ["flag"],
            ["y"],
            then_branch=branch("then", "Relu"),
            else_branch=branch("other", "Neg"),
        ),
        helper.make_node("Add", ["y", "wide"], ["z"]),
    ]
    weight = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    graph = helper.make_graph(
        nodes,
        "g",
        [tensor("x", 1, [2, 4]), tensor("flag", 9, [])],
        [tensor("z", 1, [2, 3])],
        [onnx.numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, tmp_path / "model.onnx")
    artifact = msgspec.structs.replace(
        attention.artifact,
        files=(describe(tmp_path, "model.onnx"),),
        io=io_of(read(tmp_path / "model.onnx")),
    )
    out = tmp_path / "half"
    made = backends.get("onnx").quantize(artifact, tmp_path, Recipe(precision="fp16"), (), out)
    assert made.provenance.weights["float16"] == 12
    x = np.random.default_rng(1).normal(size=(2, 4)).astype(np.float32)
    wide = x @ weight
    for flag, inner in ((True, np.maximum(wide, 0)), (False, -wide)):
        (got,) = runs(made, out, x, np.array(flag))
        np.testing.assert_allclose(got, inner + wide, atol=CLOSE * np.abs(wide).max())


class Clamp(nn.Module):
    """Bounds beyond float16, and a pooling that pads with the most negative number."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        low = torch.finfo(torch.float32).min
        return nn.functional.max_pool2d(x.clamp(low, 1e9), 3, 2, 1)


def test_bounds_bind_no_more_than_before(make: Make, runs: Run) -> None:
    net = make("clamp", Clamp(), (torch.randn(1, 2, 8, 8),), ExportOptions())
    artifact, root = net.quantize("fp16")
    x = torch.randn(1, 2, 8, 8) * 2e4
    (got,) = runs(artifact, root, x.numpy())
    np.testing.assert_allclose(got, net.module(x).numpy(), rtol=1e-3)
