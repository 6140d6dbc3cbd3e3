"""Fold constants, and batch normalization into the convolution before it.

Position grids, masks, anchors and sines of frequencies are computed from numbers alone, often in
64 bits or with operators that a format lacks. They are computed here, and the artifact stores the
result. Values computed from weights are not folded: the copy would double the file.

In eval mode batch normalization is ``(y - mean) / sqrt(var + eps) * weight + bias`` per channel,
with constants: a convolution with scaled weights and another bias does the same. Converters do
this as well, but late and from many small operators: folding first takes a third off the
conversion of a convnet.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import fx

from edgeserve.backends.torch.passes.fx_utils import (
    add_tensor,
    is_mutable,
    overloads,
    read_instead,
    tensor_of,
)

_READS = overloads("item _local_scalar_dense")

#: Larger results are not folded, and may be computed again in each run.
MAX_FOLDED_BYTES = 4 << 20


def fold_constants(module: fx.GraphModule, largest: int = MAX_FOLDED_BYTES) -> bool:
    """Replace operators on constants by numbers and stored tensors of up to ``largest`` bytes."""
    known = _known(module, largest)
    made = [
        node
        for node, value in known.items()
        if node.op == "call_function"
        and isinstance(value, torch.Tensor | int | float | bool)
        and any(user not in known for user in node.users)
    ]
    for node in made:
        _store(module, node, known[node], known)
    return bool(made)


def fold_numbers(module: fx.GraphModule) -> bool:
    """Replace numbers that are read from stored tensors (``.item()``), weights included.

    Without them sizes cannot be fixed: a tensor without values has no number to read.
    """
    if not any(node.target in _READS for node in module.graph.nodes):
        return False
    known = _known(module, MAX_FOLDED_BYTES, weights=True)
    made = [
        node
        for node, value in known.items()
        if node.op == "call_function" and isinstance(value, int | float | bool)
    ]
    for node in made:
        read_instead(node, known[node], list(node.users))
    return bool(made)


def _known(module: fx.GraphModule, largest: int, weights: bool = False) -> dict[fx.Node, Any]:
    """The values of nodes that depend on constants only, or on weights too."""
    known: dict[fx.Node, Any] = {}
    written = _written(module)
    for node in module.graph.nodes:
        if node in written:
            continue
        if node.op == "get_attr":
            value = functools.reduce(getattr, str(node.target).split("."), module)
            if isinstance(value, torch.Tensor) and (
                weights or not isinstance(value, torch.nn.Parameter)
            ):
                known[node] = value
        elif node.op == "call_function" and _foldable(node, known):
            value = _computed(node, known)
            if value is not None and _bytes(value) <= largest:
                known[node] = value
    return known


def _written(module: fx.GraphModule) -> set[fx.Node]:
    """Nodes whose memory some operator writes to, directly or through a view.

    Their values depend on the time of reading.
    """
    found: set[fx.Node] = set()
    for node in module.graph.nodes:
        place: Any = node if is_mutable(node) else None
        while isinstance(place, fx.Node) and place not in found:
            found.add(place)
            place = next(iter(place.args), None)
            place = place[0] if isinstance(place, list | tuple) and place else place
    stored = {node.target for node in found if node.op == "get_attr"}
    return found | {
        node for node in module.graph.nodes if node.op == "get_attr" and node.target in stored
    }


def _foldable(node: fx.Node, known: dict[fx.Node, Any]) -> bool:
    if any(read not in known for read in node.all_input_nodes):
        return False
    if isinstance(node.target, torch._ops.OpOverload):
        random = torch.Tag.nondeterministic_seeded in node.target.tags
        return not random and not is_mutable(node)
    return _is_arithmetic(node.target)


def _is_arithmetic(target: Any) -> bool:
    """An operator of Python's, a function of ``math``, or torch's form of one for sizes."""
    name = str(getattr(target, "__name__", ""))
    return getattr(target, "__module__", "") in ("_operator", "math") or name.startswith("sym_")


def _computed(node: fx.Node, known: dict[fx.Node, Any]) -> Any:
    """The value; None if PyTorch cannot compute it."""
    args = fx.map_arg(node.args, known.__getitem__)
    kwargs = fx.map_arg(node.kwargs, known.__getitem__)
    try:
        with torch.no_grad():
            return node.target(*args, **kwargs)  # type: ignore[operator]
    except Exception:  # torch raises many kinds; the format reports the error
        return None


def _bytes(value: Any) -> int:
    parts = value if isinstance(value, tuple | list) else (value,)
    return sum(each.nbytes for each in parts if isinstance(each, torch.Tensor))


def _store(module: fx.GraphModule, node: fx.Node, value: Any, known: dict[fx.Node, Any]) -> None:
    """Replace a node by its value for all readers that are not constant themselves."""
    if isinstance(value, torch.Tensor):
        held = add_tensor(module, "constant", value.detach().contiguous().clone(), node)
        held.meta |= {key: kept for key, kept in node.meta.items() if key != "val"}
        node.replace_all_uses_with(held, delete_user_cb=lambda user: user not in known)
        return
    read_instead(node, value, [user for user in node.users if user not in known])


_ATEN = torch.ops.aten
_CONVOLUTIONS = overloads("conv1d conv2d conv3d conv1d.padding conv2d.padding conv3d.padding")


def fold_batch_norm(module: fx.GraphModule) -> bool:
    """Fold each batch normalisation whose input is a convolution that nothing else reads."""
    norms = module.graph.find_nodes(op="call_function", target=_ATEN.batch_norm.default)
    return any([_fold_norm(module, norm) for norm in norms])


def _fold_norm(module: fx.GraphModule, norm: fx.Node) -> bool:
    conv: Any = norm.args[0]
    training = norm.args[5]
    if training or conv.target not in _CONVOLUTIONS or len(conv.users) != 1:
        return False
    bias_node = conv.args[2] if len(conv.args) > 2 else None
    weight, bias = tensor_of(module, conv.args[1]), tensor_of(module, bias_node)
    gamma, beta, mean, var = (tensor_of(module, arg) for arg in norm.args[1:5])
    if weight is None or mean is None or var is None or (bias is None) != (bias_node is None):
        return False
    scale = (var.double() + float(norm.args[7])).rsqrt()  # type: ignore[arg-type]
    scale = scale if gamma is None else scale * gamma.double()
    shift = ((0 if bias is None else bias.double()) - mean.double()) * scale
    shift = shift if beta is None else shift + beta.double()
    scaled = weight.double() * scale.reshape(-1, *[1] * (weight.dim() - 1))
    tensors = (each.to(weight.dtype) for each in (scaled, shift))
    nodes = [add_tensor(module, "folded", tensor, conv) for tensor in tensors]
    conv.args = (conv.args[0], *nodes, *conv.args[3:])
    norm.replace_all_uses_with(conv)
    module.graph.erase_node(norm)
    return True
