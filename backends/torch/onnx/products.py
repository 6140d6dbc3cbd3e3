"""ONNX matrix products in PyTorch: MatMul, Gemm, Einsum and the determinant."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from edgeserve.backends.torch.onnx.table import Node, op

__all__: list[str] = []


@op("MatMul")
def _matmul(node: Node, a: Tensor, b: Tensor) -> Tensor:
    return torch.matmul(a, b)


@op("Gemm")
def _gemm(node: Node, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
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


@op("Einsum")
def _einsum(node: Node, *parts: Tensor) -> Tensor:
    return torch.einsum(node.get("equation").replace(" ", ""), *parts)


@op("Det")
def _det(node: Node, x: Tensor) -> Tensor:
    made: Tensor = torch.linalg.det(x)
    return made
