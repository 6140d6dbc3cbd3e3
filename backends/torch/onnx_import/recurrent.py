"""LSTM, GRU and RNN, by PyTorch's own layers with their gates in another order."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgeserve.backends.torch.onnx_import.table import OnnxNode, op

#: Where each of PyTorch's gates stands in ONNX: input, output, forget, cell; update, reset, new.
_GATES: dict[str, tuple[int, ...]] = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,)}

_FREE: dict[str, tuple[Any, ...]] = {
    "LSTM": ("Sigmoid", "Tanh", "Tanh"),
    "GRU": ("Sigmoid", "Tanh"),
    "RNN": ("Tanh",),
}


def _ordered(weight: Tensor, gates: tuple[int, ...], hidden: int) -> Tensor:
    parts = torch.split(weight, hidden, 0)
    return torch.cat([parts[gate] for gate in gates], 0)


def _parameters(node: OnnxNode, w: Tensor, r: Tensor, b: Tensor | None) -> list[Tensor]:
    """Weights and biases, direction by direction, as PyTorch's kernels take them."""
    hidden, gates, flat = int(r.shape[-1]), _GATES[node.op], []
    for way in range(w.shape[0]):
        flat += [_ordered(w[way], gates, hidden), _ordered(r[way], gates, hidden)]
        if b is not None:
            flat += [_ordered(part, gates, hidden) for part in b[way].chunk(2)]
    return flat


def _check(node: OnnxNode, x: Tensor) -> None:
    count = 2 if node.get("direction", "forward") == "bidirectional" else 1
    wanted = list(_FREE[node.op]) * count
    if [str(word).title() for word in node.get("activations") or wanted] != wanted:
        raise node.refuse(f"activations {node.get('activations')}")
    if node.get("clip") is not None or node.get("input_forget", 0):
        raise node.refuse("clip or input_forget")
    if node.get("layout", 0):
        raise node.refuse("layout 1")
    if node.has(4) and not np.all(node.known(4) == x.shape[0]):
        raise node.refuse("sequences of different lengths")
    if node.has(7):
        raise node.refuse("peepholes")
    if node.op == "GRU" and not node.get("linear_before_reset", 0):
        raise node.refuse("linear_before_reset 0: PyTorch's layer resets after the product")


@op("LSTM", "GRU", "RNN", host=(4,))
def _recurrent(
    node: OnnxNode,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    *states: Tensor | None,
) -> tuple[Tensor, ...]:
    """The outputs as ONNX has them: [steps, directions, batch, hidden], and the last states.

    PyTorch's GRU resets behind the product with the hidden state, as ``linear_before_reset`` says.
    """
    _check(node, x)
    backwards = node.get("direction", "forward") == "reverse"
    x = x.flip(0) if backwards else x
    both, flat = w.shape[0] == 2, _parameters(node, w, r, b)
    call: Any = {"LSTM": torch.lstm, "GRU": torch.gru, "RNN": torch.rnn_tanh}[node.op]
    zeros = torch.zeros((r.shape[0], x.shape[1], r.shape[-1]), dtype=x.dtype)
    h, c = (zeros if state is None else state for state in (*states, None, None)[:2])
    hidden = [h, c] if node.op == "LSTM" else h
    y, *last = call(x, hidden, flat, b is not None, 1, 0.0, False, both, False)
    y = y.flip(0) if backwards else y
    steps, rows = x.shape[0], x.shape[1]
    y = y.reshape(steps, rows, w.shape[0], r.shape[-1]).permute(0, 2, 1, 3)
    return (y, *last)
