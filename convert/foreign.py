"""A ``.pt2`` that somebody else wrote: checked before it is loaded, then exported again as ours."""

from __future__ import annotations

import inspect
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgeserve.backends.torch.blame import one_line
from edgeserve.convert.factory import Made
from edgeserve.convert.options import Options
from edgeserve.errors import ConvertError

if TYPE_CHECKING:
    import torch
    from torch import fx
    from torch.export import ExportedProgram

__all__ = ["load_pt2"]


def load_pt2(path: Path, trust_pickle: bool) -> Made:
    """Load a ``.pt2`` as a module with its own examples and dynamic shapes.

    Args:
        path: What `torch.export.save` wrote.
        trust_pickle: Load it as it is, whatever it holds. Without this, a copy is loaded that holds
            only what was checked.

    Raises:
        ConvertError: EDGE-CONVERT-018 refused, -019 not a program that this torch can read.
    """
    from edgeserve.backends.torch.safety import checked_copy

    with tempfile.TemporaryDirectory() as folder:
        safe = path if trust_pickle else checked_copy(path, Path(folder) / "checked.pt2")
        program = _load(safe, path.name)
    args, kwargs, names = _examples(program)
    module = _shell(program.module(check_guards=False), names, list(kwargs))
    examples = dict(zip(names, args, strict=True)) | kwargs
    return Made(module, examples, Options(dynamic_shapes=_dynamic(program, module, examples)))


def _load(path: Path, name: str) -> ExportedProgram:
    import torch

    try:
        return torch.export.load(path)
    except Exception as error:  # torch raises many kinds here
        raise ConvertError(
            "EDGE-CONVERT-019",
            f"program {name!r}",
            wanted=f"a program that torch {torch.__version__} reads",
            got=one_line(error),
            hint="export it again with torch.export.save and this version of torch",
        ) from error


def _examples(program: ExportedProgram) -> tuple[tuple[Any, ...], dict[str, Any], list[str]]:
    """Example inputs by position and by name, and names for the former; made up where missing."""
    from torch.utils import _pytree as pytree

    if program.example_inputs:
        args, kwargs = program.example_inputs
    else:
        flat = [
            _made_up(node.meta["val"]) if node is not None else constant
            for node, constant in _user_inputs(program)
        ]
        args, kwargs = pytree.tree_unflatten(flat, program.call_spec.in_spec)
    signature = program.module_call_graph[0].signature
    names = list((signature.forward_arg_names if signature else None) or [])[: len(args)]
    names += [f"input_{i}" for i in range(len(names), len(args))]
    return tuple(args), dict(kwargs), names


def _shell(inner: torch.nn.Module, positional: list[str], named: list[str]) -> torch.nn.Module:
    """An ordinary module around an exported one, which `torch.export` would treat in its own way.

    It shares the inner one's parameters, buffers and submodules, so that they keep their names, and
    its forward tells which arguments are taken by name only.
    """
    import torch

    kinds = inspect.Parameter
    parameters = [kinds(name, kinds.POSITIONAL_OR_KEYWORD) for name in positional]
    parameters += [kinds(name, kinds.KEYWORD_ONLY) for name in named]
    original = inner.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs)

    forward.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    shell = torch.nn.Module()
    for held in ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"):
        shell.__dict__[held] = inner.__dict__[held]
    shell.__dict__["forward"] = forward
    for part in shell.modules():
        part.training = False  # an exported module has no eval(); its trace is fixed anyway
    return shell


def _user_inputs(program: ExportedProgram) -> list[tuple[fx.Node | None, Any]]:
    """For each input of the program its node, or None and the constant that it is fixed at."""
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    return [(nodes.get(str(name)), name) for name in program.graph_signature.user_inputs]


def _made_up(like: torch.Tensor) -> torch.Tensor:
    """A tensor of that kind, of the size traced: random floats, or zeros."""
    import torch

    shape = [size if isinstance(size, int) else int(size.node.hint) for size in like.shape]
    if like.dtype.is_floating_point:
        generator = torch.Generator().manual_seed(0)
        return torch.rand(shape, generator=generator).to(like.dtype)
    return torch.zeros(shape, dtype=like.dtype)


def _dynamic(program: ExportedProgram, module: torch.nn.Module, examples: dict[str, Any]) -> object:
    """The program's dynamic dimensions as `edgeserve.backends.torch.shapes.parse` takes them."""
    from torch.export import Dim

    from edgeserve.backends.torch.flat import flatten
    from edgeserve.backends.torch.shapes import UNBOUNDED

    names = flatten(module, examples).names
    tensors = [node.meta["val"] for node, _ in _user_inputs(program) if node is not None]
    dims: dict[str, Any] = {}
    shapes: dict[str, dict[int, Any]] = {}
    for name, tensor in zip(names, tensors, strict=True):
        for axis, size in enumerate(tensor.shape):
            if isinstance(size, int):
                continue
            span = program.range_constraints.get(size.node.expr)
            if span is None:  # made of other dimensions: torch finds the relation again
                shapes.setdefault(name, {})[axis] = Dim.AUTO
                continue
            low = max(1, int(span.lower))
            high = None if span.upper >= UNBOUNDED else int(span.upper)
            dim = dims.setdefault(str(size), Dim(f"{name}_dim{axis}", min=low, max=high))
            shapes.setdefault(name, {})[axis] = dim
    return shapes
