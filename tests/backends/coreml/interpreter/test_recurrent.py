"""Recurrent layers against PyTorch's, and against their formulas where PyTorch has none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import coremltools as ct
import numpy as np
import pytest
import torch
from torch import Tensor, nn

S, B, WIDE, H = 6, 3, 4, 5
NUMPY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "tanh": np.tanh,
    "scaled_tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "relu": lambda x: np.maximum(x, 0),
    "linear": lambda x: x,
    "hard_sigmoid": lambda x: np.clip(0.2 * x + 0.5, 0, 1),
}


def turned(parts: Tensor, order: list[int]) -> np.ndarray:
    """PyTorch's stacked gates in Core ML's order."""
    gates = parts.detach().chunk(len(order))
    return torch.cat([gates[i] for i in order]).numpy()


def weights(net: nn.Module, order: list[int], back: bool = False) -> dict[str, np.ndarray]:
    end, key = ("_reverse", "_back") if back else ("", "")
    state = net.state_dict()
    bias = state[f"bias_ih_l0{end}"] + state[f"bias_hh_l0{end}"]
    return {
        f"weight_ih{key}": turned(state[f"weight_ih_l0{end}"], order),
        f"weight_hh{key}": turned(state[f"weight_hh_l0{end}"], order),
        f"bias{key}": turned(bias, order),
    }


IFOZ = [0, 1, 3, 2]


@pytest.mark.parametrize("every", [True, False])
@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_lstm(one_op: Any, agree: Any, direction: str, every: bool) -> None:
    """A reverse one reads the steps backwards and gives them in that order."""
    net = nn.LSTM(WIDE, H)
    x, h, c = torch.randn(S, B, WIDE), torch.randn(1, B, H), torch.randn(1, B, H)
    with torch.no_grad():
        steps, (last_h, last_c) = net(x.flip(0) if direction == "reverse" else x, (h, c))
    found = one_op(
        "lstm",
        {"x": x.numpy(), "initial_h": h[0].numpy(), "initial_c": c[0].numpy()},
        direction=direction,
        output_sequence=every,
        **weights(net, IFOZ),
    )
    agree(found, [steps if every else steps[-1:], last_h[0], last_c[0]])


@pytest.mark.parametrize("every", [True, False])
def test_lstm_in_both_directions(one_op: Any, agree: Any, every: bool) -> None:
    net = nn.LSTM(WIDE, H, bidirectional=True)
    x, h, c = torch.randn(S, B, WIDE), torch.randn(2, B, H), torch.randn(2, B, H)
    with torch.no_grad():
        steps, (last_h, last_c) = net(x, (h, c))

    def beside(states: Tensor) -> Tensor:
        return torch.cat([*states], 1)

    found = one_op(
        "lstm",
        {"x": x.numpy(), "initial_h": beside(h).numpy(), "initial_c": beside(c).numpy()},
        direction="bidirectional",
        output_sequence=every,
        **weights(net, IFOZ),
        **weights(net, IFOZ, back=True),
    )
    agree(found, [steps if every else beside(last_h)[None], beside(last_h), beside(last_c)])


@pytest.mark.parametrize("clip", [None, 0.2])
@pytest.mark.parametrize("peephole", [False, True])
@pytest.mark.parametrize("out", ["relu", "scaled_tanh", "hard_sigmoid", "linear"])
def test_lstm_by_formula(
    one_op: Any, agree: Any, out: str, peephole: bool, clip: float | None
) -> None:
    rng = np.random.default_rng(3)
    x, w, r = (
        rng.normal(size=(S, B, WIDE)),
        rng.normal(size=(4 * H, WIDE)),
        rng.normal(size=(4 * H, H)),
    )
    b, p = rng.normal(size=4 * H), rng.normal(size=3 * H) * peephole
    h, c = rng.normal(size=(B, H)), rng.normal(size=(B, H))
    given = {"x": x, "initial_h": h, "initial_c": c}
    attributes = {"weight_ih": w, "weight_hh": r, "bias": b}
    if peephole:
        attributes["peephole"] = p
    if clip:
        attributes["clip"] = clip
    found = one_op(
        "lstm",
        {name: each.astype(np.float32) for name, each in given.items()},
        output_sequence=True,
        recurrent_activation="hard_sigmoid",
        cell_activation="tanh",
        activation=out,
        **{name: np.float32(each) for name, each in attributes.items()},
    )
    gate, (p_i, p_f, p_o), steps = NUMPY["hard_sigmoid"], np.split(p, 3), []
    for each in x:
        i, f, o, z = np.split(each @ w.T + h @ r.T + b, 4, axis=1)
        i, f = gate(i + p_i * c), gate(f + p_f * c)
        c = f * c + i * np.tanh(z)
        c = c if clip is None else np.clip(c, -clip, clip)
        h = gate(o + p_o * c) * NUMPY[out](c)
        steps.append(h)
    agree(found, [np.stack(steps), h, c])


@pytest.mark.parametrize("names", [("sigmoid", "tanh"), ("tanh", "sigmoid")])
@pytest.mark.parametrize("direction", ["forward", "reverse"])
@pytest.mark.parametrize("bias", [True, False])
def test_gru_by_formula(
    one_op: Any, agree: Any, bias: bool, direction: str, names: tuple[str, str]
) -> None:
    """The reset gate comes before the product with the hidden weights, unlike PyTorch's."""
    rng = np.random.default_rng(4)
    x, h = rng.normal(size=(S, B, WIDE)), rng.normal(size=(B, H))
    w, r = rng.normal(size=(3 * H, WIDE)), rng.normal(size=(3 * H, H))
    b = rng.normal(size=3 * H) * bias
    attributes = {"bias": np.float32(b)} if bias else {}
    found = one_op(
        "gru",
        {"x": np.float32(x), "initial_h": np.float32(h)},
        weight_ih=np.float32(w),
        weight_hh=np.float32(r),
        direction=direction,
        output_sequence=True,
        recurrent_activation=names[0],
        activation=names[1],
        **attributes,
    )
    gate, act, steps = NUMPY[names[0]], NUMPY[names[1]], []
    (r_r, r_o, r_z), (b_r, b_o, b_z) = np.split(r, 3), np.split(b, 3)
    for each in x[::-1] if direction == "reverse" else x:
        x_r, x_o, x_z = np.split(each @ w.T, 3, axis=1)
        reset, update = gate(x_r + h @ r_r.T + b_r), gate(x_z + h @ r_z.T + b_z)
        h = (1 - update) * act(x_o + (reset * h) @ r_o.T + b_o) + update * h
        steps.append(h)
    agree(found, [np.stack(steps), h])


ROZ = [0, 2, 1]


@pytest.mark.parametrize("every", [True, False])
def test_gru_with_reset_after_is_pytorchs(one_op: Any, agree: Any, every: bool) -> None:
    net = nn.GRU(WIDE, H)
    x, h = torch.randn(S, B, WIDE), torch.randn(1, B, H)
    with torch.no_grad():
        steps, last = net(x, h)
    state = net.state_dict()
    found = one_op(
        "gru",
        {"x": x.numpy(), "initial_h": h[0].numpy()},
        opset=ct.target.iOS18,
        weight_ih=turned(state["weight_ih_l0"], ROZ),
        weight_hh=turned(state["weight_hh_l0"], ROZ),
        input_bias=turned(state["bias_ih_l0"], ROZ),
        bias=turned(state["bias_hh_l0"], ROZ),
        reset_after=True,
        output_sequence=every,
    )
    agree(found, [steps if every else steps[-1:], last[0]])


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_rnn(one_op: Any, agree: Any, direction: str, activation: str) -> None:
    net = nn.RNN(WIDE, H, nonlinearity=activation)
    x, h = torch.randn(S, B, WIDE), torch.randn(1, B, H)
    with torch.no_grad():
        steps, last = net(x.flip(0) if direction == "reverse" else x, h)
    found = one_op(
        "rnn",
        {"x": x.numpy(), "initial_h": h[0].numpy()},
        direction=direction,
        output_sequence=True,
        activation=activation,
        **weights(net, [0]),
    )
    agree(found, [steps, last[0]])


class Recurrent(nn.Module):
    """Without a lowering of its own the converter unrolls each layer."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(WIDE, H, bidirectional=True, batch_first=True)
        self.gru, self.rnn = nn.GRU(WIDE, H), nn.RNN(WIDE, H)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        steps, (h, c) = self.lstm(x)
        return steps, h, c, self.gru(x)[0], self.rnn(x)[1]


def test_unrolled_by_the_converter(converted: Any, agree: Any) -> None:
    wanted, found = converted(Recurrent(), torch.randn(2, 3, WIDE))
    agree(found, wanted)


def test_only_what_leaves_the_op_is_rounded(one_op: Any) -> None:
    net = nn.RNN(WIDE, H)
    x, h = torch.randn(S, B, WIDE).half(), torch.zeros(B, H).half()
    halves = {name: each.astype(np.float16) for name, each in weights(net, [0]).items()}
    found = one_op(
        "rnn",
        {"x": x.numpy(), "initial_h": h.numpy()},
        precision="fp16",
        output_sequence=True,
        **halves,
    )
    exact = nn.RNN(WIDE, H)
    exact.load_state_dict(
        {
            "weight_ih_l0": torch.from_numpy(halves["weight_ih"]).float(),
            "weight_hh_l0": torch.from_numpy(halves["weight_hh"]).float(),
            "bias_ih_l0": torch.from_numpy(halves["bias"]).float(),
            "bias_hh_l0": torch.zeros(H),
        }
    )
    with torch.no_grad():
        steps, _ = exact(x.float())
    np.testing.assert_allclose(found[0], steps.half().float().numpy(), atol=1e-3)
    np.testing.assert_array_equal(found[0], found[0].astype(np.float16))
