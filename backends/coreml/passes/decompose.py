"""The torch operators that coremltools gets whole, and the decomposition of all others.

In core ATen, attention becomes thirty operations with tests for masks that hide
everything, each linear layer gains two reshapes, and an LSTM is unrolled step by step. coremltools
has translations of its own for these: the programs are a third as long and convert in half the
time. Operators known neither whole nor in core ATen are decomposed further by PyTorch's tables.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram, default_decompositions

from edgeserve.backends.coreml.coremltools_import import coremltools
from edgeserve.backends.coreml.passes.corrections import CORRECTIONS
from edgeserve.backends.torch.decompositions.decompose import decompose_unsupported

#: Operators of ATen that coremltools translates as they are.
_WHOLE = tuple(
    "adaptive_avg_pool1d.default adaptive_avg_pool2d.default group_norm.default "
    "hardsigmoid.default hardswish.default instance_norm.default layer_norm.default "
    "linear.default lstm.input matmul.default mish.default pixel_shuffle.default "
    "pixel_unshuffle.default relu6.default silu.default upsample_nearest2d.default".split()
)

#: Translations of coremltools that cannot work: they call missing builders, or need arguments that
#: no exported program has.
_BROKEN = ("aten::acosh", "aten::asinh", "aten::norm.Scalar")


def decompose(program: ExportedProgram, whole: bool) -> ExportedProgram:
    """Rewrite a program in core ATen.

    Args:
        program: With fixed sizes.
        whole: Keep operators whole that coremltools translates.
    """
    table: Any = default_decompositions()
    attention = torch.ops.aten.scaled_dot_product_attention.default
    if whole:
        for name in _WHOLE:
            table.pop(operator.attrgetter(name)(torch.ops.aten))
        calls = program.graph.find_nodes(op="call_function", target=attention)
        if all(map(_plain_attention, calls)):
            table.pop(attention)
    table.update(CORRECTIONS)
    return decompose_unsupported(program.run_decompositions(table), is_known)


def is_known(target: Any) -> bool:
    """Whether coremltools has a translation for an operator."""
    coremltools()
    from coremltools.converters.mil.frontend.torch.torch_op_registry import _TORCH_OPS_REGISTRY

    name = getattr(target, "name", None)
    word = name() if callable(name) else getattr(target, "__name__", str(target))
    return word not in _BROKEN and _TORCH_OPS_REGISTRY.get_func(word) is not None


def _plain_attention(node: fx.Node) -> bool:
    """Whether coremltools' translation covers this use: no grouped heads, equal ranks, one mask."""
    query, key, value, mask, _, causal = (*node.args, None, 0.0, False)[:6]
    ranks = {each.meta["val"].dim() for each in (query, key, value)}  # type: ignore[union-attr]
    masked = node.kwargs.get("attn_mask", mask) is not None
    causal = node.kwargs.get("is_causal", causal)
    return not node.kwargs.get("enable_gqa") and len(ranks) == 1 and not (masked and causal)
