"""Names of inputs and outputs: tensors in any nesting of tuples, dicts and dataclasses.

The exported program is flat: it takes tensors by position and gives a tuple of tensors. Here nested
values become such lists, each leaf with a name made of the keys that lead to it.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from edgeserve.errors import ConvertError

_NOT_A_NAME = re.compile(r"[^A-Za-z0-9_]+")


@dataclasses.dataclass(frozen=True)
class Leaf:
    """A value inside a nesting: the keys and positions that lead to it, and the value."""

    path: tuple[str | int, ...]
    value: Any

    @property
    def name(self) -> str:
        """The path as a name: ``("past", 0)`` is ``past_0``."""
        text = _NOT_A_NAME.sub("_", "_".join(str(key) for key in self.path))
        return text if text and not text[0].isdigit() else f"_{text}"


def _items(value: Any) -> list[tuple[str | int, Any]] | None:
    """Keys and values of a container in order; None for anything else."""
    if isinstance(value, Mapping):
        return [(str(key), item) for key, item in value.items()]
    if hasattr(value, "_fields") and isinstance(value, tuple):
        return list(zip(getattr(value, "_fields"), value, strict=True))  # noqa: B009 - a namedtuple
    if isinstance(value, tuple | list):
        return list(enumerate(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(f.name, getattr(value, f.name)) for f in dataclasses.fields(value)]
    return None


def tree_leaves(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[Leaf]:
    """All leaves of a nesting, in order; everything but a container is a leaf."""
    items = _items(value)
    if items is None:
        yield Leaf(path, value)
        return
    for key, item in items:
        yield from tree_leaves(item, (*path, key))


def replace_tensors(value: Any, tensors: Iterator[torch.Tensor]) -> Any:
    """The same nesting with its tensors replaced, in order; any mapping becomes a dict."""
    if isinstance(value, torch.Tensor):
        return next(tensors)
    items = _items(value)
    if items is None:
        return value
    filled = [(key, replace_tensors(item, tensors)) for key, item in items]
    if isinstance(value, Mapping):
        return dict(zip(value, (item for _, item in filled), strict=True))
    if isinstance(value, tuple | list) and not hasattr(value, "_fields"):
        return type(value)(item for _, item in filled)
    return type(value)(**{str(key): item for key, item in filled})


def bind_inputs(module: torch.nn.Module, examples: object) -> dict[str, Any]:
    """Example inputs as forward's arguments by name, in the order of forward's parameters.

    Args:
        module: The module with the forward.
        examples: A tuple or list (by position) or a dict (by name).

    Raises:
        ConvertError: EDGE-CONVERT-011.
    """
    if not isinstance(examples, tuple | list | dict):
        hint = "return the inputs as a tuple: (module, (x,)), with the comma"
        raise _bad_examples("a tuple or dict of tensors", type(examples).__name__, hint)
    try:
        signature = inspect.signature(module.forward)
        args, named = ((), examples) if isinstance(examples, dict) else (examples, {})
        bound = signature.bind(*args, **named)
    except (TypeError, ValueError) as error:
        hint = "give one example for each argument of forward that has no default"
        raise _bad_examples("the arguments of forward", str(error), hint) from error
    flat: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        variadic = signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD
        flat |= value if variadic else {name: value}
    for leaf in tree_leaves(flat):
        _check_input(leaf)
    return flat


def _check_input(leaf: Leaf) -> None:
    """Reject inputs that are neither tensors nor Python constants."""
    value = leaf.value
    if value is None or isinstance(value, bool | int | float | str):
        return
    if not isinstance(value, torch.Tensor):
        hint = "convert it with torch.as_tensor(x)"
        raise _bad_examples(f"a tensor for {leaf.name!r}", type(value).__name__, hint)
    if value.is_complex() or value.layout is not torch.strided:
        kind = "complex" if value.is_complex() else str(value.layout)
        hint = "take dense real tensors, and convert them inside forward"
        raise _bad_examples(f"a dense, real tensor for {leaf.name!r}", f"a {kind} one", hint)


def _bad_examples(wanted: str, got: str, hint: str) -> ConvertError:
    return ConvertError("EDGE-CONVERT-011", "example inputs", wanted=wanted, got=got, hint=hint)


def name_outputs(value: Any) -> tuple[list[str], list[torch.Tensor]]:
    """Name a module's outputs: "output" for one tensor, "output_0" by position, else by key.

    None, as for an optional output, is omitted.

    Raises:
        ConvertError: EDGE-CONVERT-016, a value is not a tensor, or there is none.
    """
    found = [leaf for leaf in tree_leaves(value) if leaf.value is not None]
    for leaf in found:
        tensor = isinstance(leaf.value, torch.Tensor)
        if not tensor or leaf.value.is_complex():
            kind = "a complex tensor" if tensor else type(leaf.value).__name__
            raise _bad_outputs(f"{leaf.name.strip('_') or 'output'} is {kind}")
    if not found:
        raise _bad_outputs("none")
    bare = all(isinstance(key, int) for leaf in found for key in leaf.path)
    names = [_output_name(leaf, bare) for leaf in found]
    return unique_names(names), [leaf.value for leaf in found]


def _output_name(leaf: Leaf, bare: bool) -> str:
    if not leaf.path:
        return "output"
    return "output_" + "_".join(map(str, leaf.path)) if bare else leaf.name.lstrip("_")


def _bad_outputs(got: str) -> ConvertError:
    wanted = "tensors, in any nesting of tuples and dicts"
    hint = "return tensors only: torch.as_tensor(x) for a number, view_as_real for a complex one"
    return ConvertError("EDGE-CONVERT-016", "outputs of forward", wanted=wanted, got=got, hint=hint)


def unique_names(names: list[str], taken: frozenset[str] = frozenset()) -> list[str]:
    """The same names, with a number appended to repeated ones."""
    used: set[str] = set(taken)
    made = []
    for name in names:
        fresh, count = name, 1
        while fresh in used:
            fresh, count = f"{name}_{count}", count + 1
        used.add(fresh)
        made.append(fresh)
    return made
