"""Operators that litert_torch does not know, taken apart by PyTorch's own tables."""

from __future__ import annotations

__all__ = ["take_apart_unknown"]


def take_apart_unknown() -> None:
    """Add PyTorch's rules for what has no lowering to those that litert_torch applies.

    It applies the rules of core ATen only, and refuses an operator that these leave and that it
    cannot lower; PyTorch has rules for many of those.
    """
    from litert_torch.backend.lowerings import registry
    from litert_torch.fx_infra import decomp
    from torch._decomp import decomposition_table
    from torch._ops import OpOverload

    from edgeserve.backends.tflite.corrections import CORRECTIONS
    from edgeserve.backends.torch.rules import RULES

    for operator, rule in CORRECTIONS.items():
        decomp.add_pre_convert_decomp(operator, rule)
    there = decomp.pre_lower_decomp()
    for operator, rule in (*RULES.items(), *decomposition_table.items()):
        if not isinstance(operator, OpOverload) or operator in there:
            continue
        if registry.lookup(operator) is None:
            decomp.add_pre_convert_decomp(operator, rule)
            there[operator] = rule
