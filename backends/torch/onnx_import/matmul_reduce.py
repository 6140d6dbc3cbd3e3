"""ONNX matrix products (MatMul, Gemm, Einsum, Det) and reductions over axes, in PyTorch."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from edgeserve.backends.torch.onnx_import.table import (
    OnnxNode,
    op,
    register_functions,
    register_nodes,
)

register_functions({"MatMul": torch.matmul, "Det": torch.linalg.det})
register_nodes(
    {"Einsum": lambda node, *parts: torch.einsum(node.get("equation").replace(" ", ""), *parts)}
)


@op("Gemm")
def _gemm(node: OnnxNode, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
    """A linear layer where it is one, which every converter knows."""
    alpha, beta = node.get("alpha", 1.0), node.get("beta", 1.0)
    a = a.t() if node.get("transA", 0) else a
    weight = b if node.get("transB", 0) else b.t()
    plain = alpha == 1.0 and (c is None or beta == 1.0) and a.dtype.is_floating_point
    if plain and (c is None or tuple(c.shape) == (weight.shape[0],)):
        return functional.linear(a, weight, c)
    made = torch.matmul(a, weight.t())
    made = made if alpha == 1.0 else (made * alpha).to(a.dtype)
    if c is None:
        return made
    return torch.add(made, c if beta == 1.0 else (c * beta).to(a.dtype))


#: What is done over axes, kept or not.
_Reduce = Callable[[Tensor, list[int], bool], Tensor]


def _prod(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    for axis in sorted((axis % x.ndim for axis in axes), reverse=True):
        x = torch.prod(x, axis, keepdim=keep).to(x.dtype)
    return x


def _sum(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    return torch.sum(x, axes, keepdim=keep, dtype=x.dtype)


def _mean(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    if x.dtype.is_floating_point:
        return torch.mean(x, axes, keepdim=keep)
    return torch.mean(x.double(), axes, keepdim=keep).to(x.dtype)


_REDUCTIONS: dict[str, _Reduce] = {
    "ReduceMax": lambda x, axes, keep: torch.amax(x, axes, keepdim=keep),
    "ReduceMin": lambda x, axes, keep: torch.amin(x, axes, keepdim=keep),
    "ReduceMean": _mean,
    "ReduceSum": _sum,
    "ReduceProd": _prod,
    "ReduceSumSquare": lambda x, axes, keep: _sum(x * x, axes, keep),
    "ReduceL1": lambda x, axes, keep: _sum(x.abs(), axes, keep),
    "ReduceL2": lambda x, axes, keep: torch.sqrt(_sum(x * x, axes, keep)),
    "ReduceLogSum": lambda x, axes, keep: torch.log(_sum(x, axes, keep)),
    "ReduceLogSumExp": lambda x, axes, keep: torch.logsumexp(x, axes, keepdim=keep),
}


def _enter(name: str, reduce: _Reduce) -> None:
    @op(name, host=(1,))
    def run(node: OnnxNode, x: Tensor, *_: Tensor) -> Tensor:
        axes = node.integers("axes", 1)
        if not axes:
            if node.get("noop_with_empty_axes", 0):
                return reduce(x[None], [0], False)
            axes = list(range(x.ndim))
        keep = bool(node.get("keepdims", 1))
        return reduce(x, axes, keep) if axes else reduce(x[None], [0], False)


for _name, _reduce in _REDUCTIONS.items():
    _enter(_name, _reduce)


@op("ArgMax", "ArgMin")
def _arg(node: OnnxNode, x: Tensor) -> Tensor:
    axis, keep = int(node.get("axis", 0)), bool(node.get("keepdims", 1))
    last = bool(node.get("select_last_index", 0))
    x = x.flip(axis) if last else x
    find = torch.argmax if node.op == "ArgMax" else torch.argmin
    found = find(x, axis, keepdim=keep)
    return x.shape[axis] - 1 - found if last else found


@op("CumSum", host=(1,))
def _cumsum(node: OnnxNode, x: Tensor, _: Tensor | None) -> Tensor:
    axis = int(node.known(1).reshape(-1)[0])
    backwards = bool(node.get("reverse", 0))
    x = x.flip(axis) if backwards else x
    total = torch.cumsum(x, axis, dtype=x.dtype)
    total = total - x if node.get("exclusive", 0) else total
    return total.flip(axis) if backwards else total
