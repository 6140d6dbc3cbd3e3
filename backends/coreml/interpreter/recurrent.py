"""Recurrent layers over [steps, batch, input].

A bias is the sum of PyTorch's two. The first result holds the hidden state of each step, or of the
last one alone ([1, batch, hidden]) unless ``output_sequence``; the other results are the last
states, [batch, hidden]. With ``direction`` "reverse" the steps are read from the last to the first
and the results stand in that order; a bidirectional LSTM puts its backward half back in the order
of the input, beside its forward half.

In a float16 program only what the op gives is rounded, not the states between its steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from edgeserve.backends.coreml.interpreter.registry import kernel
from edgeserve.backends.coreml.interpreter.values import Bool, number, truth

_Activation = Callable[[Tensor], Tensor]


def _hard_sigmoid(x: Tensor) -> Tensor:
    return torch.clamp(0.2 * x + 0.5, 0.0, 1.0)


def _linear(x: Tensor) -> Tensor:
    return x


#: By the names of the ops; parameters have their usual values, so ``scaled_tanh`` is ``tanh``.
_ACTIVATIONS: dict[str, _Activation] = {
    "hard_sigmoid": _hard_sigmoid,
    "linear": _linear,
    "relu": torch.relu,
    "scaled_tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "sigmoid_hard": _hard_sigmoid,
    "tanh": torch.tanh,
}


@kernel("rnn")
def rnn(
    x: Tensor,
    initial_h: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None = None,
    direction: str = "forward",
    output_sequence: Bool = False,
    activation: str = "tanh",
) -> tuple[Tensor, Tensor]:
    """``h = activation(W_ih x + W_hh h + b)``.

    Args:
        x: [S, B, I].
        initial_h: [B, H].
        weight_ih: [H, I].
        weight_hh: [H, H].
        bias: [H].
        direction: "forward" or "reverse".
        output_sequence: Whether every step is given.
        activation: A name of `_ACTIVATIONS`.
    """
    act = _activation(activation)
    h, steps = initial_h, []
    for part in _ordered(functional.linear(x, weight_ih, bias), direction):
        h = act(part + functional.linear(h, weight_hh))
        steps.append(h)
    return _sequence(steps, output_sequence), h


@kernel("gru")
def gru(
    x: Tensor,
    initial_h: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None = None,
    direction: str = "forward",
    output_sequence: Bool = False,
    recurrent_activation: str = "sigmoid",
    activation: str = "tanh",
    reset_after: Bool = False,
    input_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """A GRU: ``h = (1 - z) o + z h`` with reset gate r, new value o and update gate z.

    The new value is ``act(W_o x + R_o (r h) + b_o)``. From iOS 18 there is ``reset_after``, with
    which the gate comes after the product as in PyTorch: ``act(W_o x + b_in + r (R_o h + b_o))``.

    Args:
        x: [S, B, I].
        initial_h: [B, H].
        weight_ih: [3H, I], in the order r, o, z.
        weight_hh: [3H, H], in that order.
        bias: [3H], in that order; of the hidden side where there is an ``input_bias``.
        direction: "forward" or "reverse".
        output_sequence: Whether every step is given.
        recurrent_activation: Of r and z.
        activation: Of o.
        reset_after: See above.
        input_bias: [3H], from iOS 18.
    """
    after = truth(reset_after)
    gate, act = _activation(recurrent_activation), _activation(activation)
    w_r, w_o, w_z = weight_hh.chunk(3)
    b_r, b_o, b_z = (None,) * 3 if bias is None else bias.chunk(3)
    h, steps = initial_h, []
    for part in _ordered(functional.linear(x, weight_ih, input_bias), direction):
        x_r, x_o, x_z = part.chunk(3, 1)
        r = gate(x_r + functional.linear(h, w_r, b_r))
        z = gate(x_z + functional.linear(h, w_z, b_z))
        inner = r * functional.linear(h, w_o, b_o) if after else functional.linear(r * h, w_o, b_o)
        h = (1 - z) * act(x_o + inner) + z * h
        steps.append(h)
    return _sequence(steps, output_sequence), h


@kernel("lstm")
def lstm(
    x: Tensor,
    initial_h: Tensor,
    initial_c: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None = None,
    peephole: Tensor | None = None,
    weight_ih_back: Tensor | None = None,
    weight_hh_back: Tensor | None = None,
    bias_back: Tensor | None = None,
    peephole_back: Tensor | None = None,
    direction: str = "forward",
    output_sequence: Bool = False,
    recurrent_activation: str = "sigmoid",
    cell_activation: str = "tanh",
    activation: str = "tanh",
    clip: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """An LSTM: ``c = f c + i z`` and ``h = o act(c)``, with gates i, f, o and cell input z.

    Peepholes let the gates see the cell: i and f the old one, o the new one. ``clip`` holds the
    cell between -clip and clip at each step.

    Args:
        x: [S, B, I].
        initial_h: [B, D H], D is 2 for "bidirectional": forward, then backward.
        initial_c: As ``initial_h``.
        weight_ih: [4H, I], in the order i, f, o, z.
        weight_hh: [4H, H], in that order.
        bias: [4H], in that order.
        peephole: [3H], in the order i, f, o.
        weight_ih_back: As all with ``_back``, of the backward half of a bidirectional one.
        weight_hh_back: [4H, H].
        bias_back: [4H].
        peephole_back: [3H].
        direction: "forward", "reverse" or "bidirectional".
        output_sequence: Whether every step is given.
        recurrent_activation: Of i, f and o.
        cell_activation: Of z.
        activation: Of the cell, for h.
        clip: Bound of the cell.
    """
    names = (recurrent_activation, cell_activation, activation)
    gate, cell, out = (_activation(name) for name in names)
    cut = None if clip is None else number(clip)
    ahead = _Lstm(weight_ih, weight_hh, bias, peephole, gate, cell, out, cut)
    if direction != "bidirectional":
        steps, h, c = ahead.run(x, initial_h, initial_c, direction)
        return _sequence(steps, output_sequence), h, c
    if weight_ih_back is None or weight_hh_back is None:
        raise ValueError("a bidirectional lstm without backward weights")
    back = _Lstm(weight_ih_back, weight_hh_back, bias_back, peephole_back, gate, cell, out, cut)
    (h0, h1), (c0, c1) = initial_h.chunk(2, 1), initial_c.chunk(2, 1)
    steps, h0, c0 = ahead.run(x, h0, c0, "forward")
    steps_back, h1, c1 = back.run(x, h1, c1, "reverse")
    h, c = torch.cat([h0, h1], 1), torch.cat([c0, c1], 1)
    if not truth(output_sequence):
        return h.unsqueeze(0), h, c
    return torch.cat([torch.stack(steps), torch.stack(steps_back[::-1])], 2), h, c


@dataclass(frozen=True)
class _Lstm:
    """One direction of an LSTM; the fields are the inputs of `lstm`."""

    weight_ih: Tensor
    weight_hh: Tensor
    bias: Tensor | None
    peephole: Tensor | None
    gate: _Activation
    cell: _Activation
    out: _Activation
    clip: float | None

    def run(
        self, x: Tensor, h: Tensor, c: Tensor, direction: str
    ) -> tuple[list[Tensor], Tensor, Tensor]:
        """The hidden state after each step, then the last hidden and cell states."""
        steps = []
        for part in _ordered(functional.linear(x, self.weight_ih, self.bias), direction):
            h, c = self._step(part + functional.linear(h, self.weight_hh), c)
            steps.append(h)
        return steps, h, c

    def _step(self, gates: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        i, f, o, z = gates.chunk(4, 1)
        if self.peephole is not None:
            p_i, p_f, _ = self.peephole.chunk(3)
            i, f = i + p_i * c, f + p_f * c
        c = self.gate(f) * c + self.gate(i) * self.cell(z)
        if self.clip is not None:
            c = c.clamp(-self.clip, self.clip)
        if self.peephole is not None:
            o = o + self.peephole.chunk(3)[2] * c
        return self.gate(o) * self.out(c), c


def _activation(name: str) -> _Activation:
    if (found := _ACTIVATIONS.get(name.lower())) is None:
        raise ValueError(f"unknown activation {name!r}, known are {sorted(_ACTIVATIONS)}")
    return found


def _ordered(parts: Tensor, direction: str) -> tuple[Tensor, ...]:
    steps = parts.unbind(0)
    return steps[::-1] if direction == "reverse" else steps


def _sequence(steps: list[Tensor], every: Bool) -> Tensor:
    return torch.stack(steps if truth(every) else steps[-1:])
