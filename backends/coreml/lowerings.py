"""Which torch operators reach coremltools whole, and two that it knows only by other names.

Taken apart into core ATen, attention becomes thirty operations with tests for masks that hide
everything, each linear layer gains two reshapes, and an LSTM is unrolled step by step. coremltools
has translations of its own for these: the programs are a third as long and convert in half the
time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgeserve.backends.coreml.library import coremltools

if TYPE_CHECKING:
    from torch import fx
    from torch.export import ExportedProgram

__all__ = ["decompose", "register_lowerings"]

#: Operators of ATen that coremltools translates as they are.
_WHOLE = (
    "adaptive_avg_pool1d.default", "adaptive_avg_pool2d.default", "group_norm.default",
    "hardsigmoid.default", "hardswish.default", "instance_norm.default", "layer_norm.default",
    "linear.default", "lstm.input", "matmul.default", "mish.default", "pixel_shuffle.default",
    "pixel_unshuffle.default", "relu6.default", "silu.default", "upsample_nearest2d.default",
)  # fmt: skip


def decompose(program: ExportedProgram, whole: bool) -> ExportedProgram:
    """Rewrite a program in core ATen.

    Args:
        program: With fixed sizes.
        whole: Keep what coremltools translates as it is.
    """
    import torch
    from torch.export import default_decompositions

    table: Any = default_decompositions()
    attention = torch.ops.aten.scaled_dot_product_attention.default
    if whole:
        for name in _WHOLE:
            packet, overload = name.split(".")
            table.pop(getattr(getattr(torch.ops.aten, packet), overload))
        calls = program.graph.find_nodes(op="call_function", target=attention)
        if all(map(_plain_attention, calls)):
            table.pop(attention)
    decomposed: ExportedProgram = program.run_decompositions(table)
    return decomposed


def _plain_attention(node: fx.Node) -> bool:
    """Whether coremltools' translation covers this use: no grouped heads, equal ranks, one mask."""
    query, key, value, mask, _, causal = (*node.args, None, 0.0, False)[:6]
    ranks = {each.meta["val"].dim() for each in (query, key, value)}  # type: ignore[union-attr]
    masked = node.kwargs.get("attn_mask", mask) is not None
    causal = node.kwargs.get("is_causal", causal)
    return not node.kwargs.get("enable_gqa") and len(ranks) == 1 and not (masked and causal)


def register_lowerings() -> None:
    """Teach coremltools the names under which `torch.export` has what it knows already.

    ``grid_sampler_2d`` takes ``grid_sampler``'s arguments. ``lstm.input`` is ``lstm`` with its
    three results as one tuple, from which ``getitem`` takes them.
    """
    coremltools()
    from coremltools.converters.mil.frontend.torch import ops
    from coremltools.converters.mil.frontend.torch.torch_op_registry import _TORCH_OPS_REGISTRY

    _TORCH_OPS_REGISTRY.set_func_by_name(ops.grid_sampler, "grid_sampler_2d")
    _TORCH_OPS_REGISTRY.set_func_by_name(_lstm, "lstm.input")


def _lstm(context: Any, node: Any) -> None:
    from coremltools.converters.mil.frontend.torch import ops

    names = node.outputs
    node.outputs = [f"{node.name}_{i}" for i in range(3)]
    ops.lstm(context, node)
    results = tuple(context[name] for name in node.outputs)
    node.outputs = names
    context.add(results, torch_name=node.name)
