"""Reductions over axes, and the place of the largest or smallest.

``axes`` names the axes that go; left out, all do. ``keep_dims`` leaves them at size 1. An op of
integers gives integers: a mean, norm or logarithm of them is computed in float64 and loses its
fraction.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from edgeserve.backends.coreml.interpreter.registry import register_functions
from edgeserve.backends.coreml.interpreter.values import Bool, Int, integer, ints, truth

#: Reduces the named axes of a tensor and keeps them at size 1, or not.
_Reduce = Callable[[Tensor, list[int], bool], Tensor]


def _real(x: Tensor) -> Tensor:
    return x if x.is_floating_point() else x.double()


def _l2_norm(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(_real(x), dim=axes, keepdim=keep)
    return norm


def _prod(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    for axis in sorted((axis % x.ndim for axis in axes), reverse=True):
        x = torch.prod(x, axis, keepdim=keep)
    return x


_REDUCTIONS: dict[str, _Reduce] = {
    # Sum of magnitudes.
    "reduce_l1_norm": lambda x, axes, keep: x.abs().sum(axes, keepdim=keep),
    # Root of the sum of squares.
    "reduce_l2_norm": _l2_norm,
    # Natural logarithm of the sum; of a negative sum NaN.
    "reduce_log_sum": lambda x, axes, keep: torch.log(_real(x.sum(axes, keepdim=keep))),
    # Natural logarithm of the sum of exponentials, with the largest taken out first.
    "reduce_log_sum_exp": lambda x, axes, keep: torch.logsumexp(_real(x), axes, keepdim=keep),
    "reduce_max": lambda x, axes, keep: torch.amax(x, axes, keepdim=keep),
    "reduce_mean": lambda x, axes, keep: torch.mean(_real(x), axes, keepdim=keep),
    "reduce_min": lambda x, axes, keep: torch.amin(x, axes, keepdim=keep),
    "reduce_prod": _prod,
    "reduce_sum": lambda x, axes, keep: torch.sum(x, axes, keepdim=keep),
    "reduce_sum_square": lambda x, axes, keep: torch.sum(x * x, axes, keepdim=keep),
}


def _reduction(reduce: _Reduce) -> Callable[..., Tensor]:
    """The kernel of a reduction.

    An empty ``axes`` reduces nothing, while torch takes it for all axes: then each element is
    reduced by itself.
    """

    def compute(x: Tensor, axes: Tensor | None = None, keep_dims: Bool = False) -> Tensor:
        wanted = list(range(x.ndim)) if axes is None else ints(axes)
        if not wanted:
            return reduce(x.unsqueeze(-1), [-1], False)
        return reduce(x, wanted, truth(keep_dims))

    return compute


def _place(find: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Where along ``axis`` the largest (smallest) stands.

    Of equals this takes the first; Core ML promises none of them.
    """

    def compute(
        x: Tensor, axis: Int = -1, keep_dims: Bool = False, output_dtype: str = "int32"
    ) -> Tensor:
        return find(x, integer(axis), keepdim=truth(keep_dims))

    return compute


register_functions({name: _reduction(reduce) for name, reduce in _REDUCTIONS.items()})
register_functions({"reduce_argmax": _place(torch.argmax), "reduce_argmin": _place(torch.argmin)})
