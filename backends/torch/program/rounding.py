"""How far a program's answers move when each operation on floats rounds otherwise.

Two engines that are both right round sums and products differently. An input on which that alone
changes the answer proves nothing of a file. Each operation that rounds is given float operands
moved by up to a part in a million; operations that only move, compare or choose numbers are exact
and get them as they are, so that a threshold that an input meets directly stays where it is.

Source:
    D. S. Parker, "Monte Carlo Arithmetic: exploiting randomness in floating-point arithmetic",
    UCLA CSD-970002, 1997.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

#: Share by which an operand is moved: some roundings of float32.
ROUNDING = 1e-6

#: Operators whose result every engine gives to the last bit. Those that order numbers are none of
#: them: which of equal numbers comes first is up to the engine.
_EXACT = frozenset(
    "_assert_async _assert_scalar _to_copy abs alias all amax amin any arange as_strided "
    "broadcast_to bucketize cat ceil chunk clamp clamp_max clamp_min clone constant_pad_nd "
    "contiguous copy detach detach_ embedding eq expand expand_as fill flatten flip floor "
    "floor_divide fmod frac full full_like gather ge getitem greater gt hardtanh heaviside index "
    "index_put index_select isfinite isin isinf isnan item le less lift_fresh lift_fresh_copy "
    "logical_and logical_not logical_or lt masked_fill max maximum min minimum movedim narrow ne "
    "neg new_full new_ones new_zeros nonzero one_hot ones ones_like pad permute pixel_shuffle "
    "pixel_unshuffle positive relu relu6 relu_ remainder repeat repeat_interleave reshape roll "
    "round scalar_tensor scatter searchsorted select select_scatter sgn sign signbit slice "
    "slice_scatter split split_with_sizes squeeze stack sym_size t threshold tile to transpose "
    "tril triu trunc type_as unbind unflatten unfold unsqueeze view view_as where zeros "
    "zeros_like".split()
)

#: The shares that a draw moves operands by, of a tensor's shape.
Draw = Callable[[Tensor], Tensor | float]


def operator_name(node: fx.Node) -> str:
    """An operator without namespace and overload: ``det`` of ``aten.det.default``."""
    target = node.target
    named = target if isinstance(target, str) else str(getattr(target, "__name__", target))
    return named.removeprefix("aten.").split(".")[0]


class RoundingInterpreter(fx.Interpreter):
    """Runs a graph with the float operands of each operation that rounds moved a little.

    Args:
        module: The graph's.
        draw: Gives the share by which each number of a tensor is moved.
    """

    def __init__(self, module: fx.GraphModule, draw: Draw) -> None:
        super().__init__(module)
        self._draw = draw

    def run_node(self, n: fx.Node) -> Any:
        """Run one op on moved operands.

        Raises:
            OverflowError: a whole number leaves the 32 bits that some formats give it.
        """
        if n.op != "call_function":
            return super().run_node(n)
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        if not _is_exact(n):
            args, kwargs = pytree.tree_map(self._moved, (args, kwargs))
        value = self.call_function(n.target, args, kwargs)
        if isinstance(value, Tensor) and value.dtype is torch.int64 and not _fits_32_bits(value):
            raise OverflowError(f"{n.name} holds whole numbers beyond 32 bits")
        return value

    def _moved(self, value: Any) -> Any:
        if not isinstance(value, Tensor) or not value.is_floating_point():
            return value
        return value * (1 + ROUNDING * self._draw(value))


def _fits_32_bits(value: Tensor) -> bool:
    return not value.numel() or max(-int(value.min()) - 1, int(value.max())) < 1 << 31


def _is_exact(node: fx.Node) -> bool:
    name = operator_name(node)
    if name in ("div", "divide"):
        return bool(node.kwargs.get("rounding_mode") or len(node.args) > 2)
    if name in ("max", "min") and isinstance(node.meta.get("val"), tuple | list):
        return False  # with the places of the numbers
    return name in _EXACT or not name.isidentifier()


def draws(seed: int) -> list[Draw]:
    """Ways to round: everything up, everything down, and two at random."""
    generator = torch.Generator().manual_seed(seed)

    def random(value: Tensor) -> Tensor:
        return 2 * torch.rand(value.shape, generator=generator).to(value.dtype) - 1

    return [lambda _: 1.0, lambda _: -1.0, random, random]
