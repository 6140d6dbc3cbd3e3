"""Write complex tensors as two real ones, and Fourier transforms as products with matrices.

LiteRT and Core ML have no complex numbers. A rotation by ``view_as_complex`` (rotary positions), a
spectrum, a transform back: what comes in and goes out is real, and so is all between here.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from edgeserve.backends.torch.decompositions.complex import COMPLEX_RULES
from edgeserve.backends.torch.decompositions.fft import FFT_RULES, MAX_MATRIX_ELEMENTS, ComplexPair
from edgeserve.backends.torch.passes.fold import fold_constants
from edgeserve.backends.torch.passes.fx_utils import add_tensor, dtype_of, inline, insert, tensor_of

_ATEN = torch.ops.aten


def has_complex(module: fx.GraphModule) -> bool:
    """Whether a graph holds complex tensors, or makes a spectrum."""
    return any(_is_complex(node) or node.target in FFT_RULES for node in module.graph.nodes)


def lower_complex(module: fx.GraphModule) -> bool:
    """Replace all that is complex; values must have fixed sizes.

    An operator without a rule gets its complex tensors as they were, and is left to the format.
    """
    if not has_complex(module):
        return False
    fold_constants(module)  # windows and tables of rotations are stored, and split once
    module.graph.eliminate_dead_code()
    pairs: dict[fx.Node, ComplexPair] = {}
    changed = False
    for node in list(module.graph.nodes):
        read = [each for each in node.all_input_nodes if each in pairs]
        if node.op == "get_attr" and _is_complex(node):
            pairs[node] = _stored(module, node)
        elif node.op == "call_function" and (read or _is_complex(node) or node.target in FFT_RULES):
            changed = _lowered(module, node, pairs) or changed
        elif node.op == "output":
            _rejoin(node, pairs)
    module.graph.eliminate_dead_code()
    _delete_unused(module)
    fold_constants(module, 8 * MAX_MATRIX_ELEMENTS)  # a matrix times a window is one matrix
    return changed


def _is_complex(node: fx.Node) -> bool:
    dtype = dtype_of(node)
    return isinstance(dtype, torch.dtype) and dtype.is_complex


def _stored(module: fx.GraphModule, node: fx.Node) -> ComplexPair:
    tensor: Any = tensor_of(module, node)
    parts = (tensor.real.contiguous().clone(), tensor.imag.contiguous().clone())
    return ComplexPair(*(add_tensor(module, "complex", each.float(), node) for each in parts))  # type: ignore[arg-type]


def _delete_unused(module: fx.GraphModule) -> None:
    """Drop stored complex tensors that no node reads: formats would still be given them."""
    held = {name for name, tensor in _stored_tensors(module) if tensor.is_complex()}
    for name in held - {str(node.target) for node in module.graph.find_nodes(op="get_attr")}:
        owner, _, last = name.rpartition(".")
        delattr(module.get_submodule(owner), last)


def _stored_tensors(module: fx.GraphModule) -> list[tuple[str, torch.Tensor]]:
    """Parameters, buffers, and tensors that are plain attributes (constants of a trace)."""
    plain = [
        (f"{path}.{name}" if path else name, value)
        for path, part in module.named_modules()
        for name, value in vars(part).items()
        if isinstance(value, torch.Tensor)
    ]
    return [*module.named_parameters(), *module.named_buffers(), *plain]


def _lowered(module: fx.GraphModule, node: fx.Node, pairs: dict[fx.Node, ComplexPair]) -> bool:
    """Write one operator in real numbers, where there is a rule."""
    made = _inlined(module, node, pairs)
    if made is None:
        _rejoin(node, pairs)
        return False
    if isinstance(made, ComplexPair):
        pairs[node] = made
        return True
    if isinstance(made, list | tuple):  # several results, taken apart by getitem
        for user in list(node.users):
            part = made[user.args[1]]  # type: ignore[index]
            if isinstance(part, ComplexPair):
                pairs[user] = part
            else:
                user.replace_all_uses_with(part)
        return True
    made.meta["val"] = node.meta["val"]
    node.replace_all_uses_with(made)
    return True


def _inlined(module: fx.GraphModule, node: fx.Node, pairs: dict[fx.Node, ComplexPair]) -> Any:
    """The nodes that stand for a node; None where there is no rule, or it does not apply."""
    rule = COMPLEX_RULES.get(node.target)
    left = [each for each in node.all_input_nodes if _is_complex(each) and each not in pairs]
    if rule is None or left:
        return None
    args, named = fx.map_arg((node.args, node.kwargs), lambda each: pairs.get(each, each))
    refused = False

    def whole(args: Any, named: Any) -> Any:
        nonlocal refused
        made = rule(*args, **named)
        refused = made is NotImplemented
        return [] if refused else made

    found = inline(module, node, whole, (args, dict(named)))
    return None if refused else found


def _rejoin(node: fx.Node, pairs: dict[fx.Node, ComplexPair]) -> None:
    """Give an operator complex tensors again."""

    def joined(each: fx.Node) -> fx.Node:
        if each not in pairs:
            return each
        made = insert(node, _ATEN.complex.default, *pairs[each])
        made.meta["val"] = each.meta["val"]
        return made

    node.args = fx.map_arg(node.args, joined)
    node.kwargs = fx.map_arg(node.kwargs, joined)
