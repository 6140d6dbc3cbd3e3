"""What a module holds besides its weights, marked cheaply so that a change is seen afterwards.

Nothing is copied: numbers and texts are noted by value, containers by their items, tensors by
their version counter, anything else by identity.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import torch

__all__ = ["State"]

#: What torch itself keeps in every module; weights and buffers are looked at apart.
_TORCHS = {*vars(torch.nn.Module()), "forward"}

#: Deepest nesting and most items of one container that are looked at.
_DEPTH, _ITEMS = 4, 1000

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_OPAQUE = (torch.nn.Module, type, FunctionType, BuiltinFunctionType, MethodType, ModuleType)


class State:
    """The attributes, buffers and weights of all submodules as they are now."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module
        self._marks = dict(_marked(module))
        self._values = {
            prefix + name: value
            for prefix, part in _parts(module)
            for name, value in vars(part).items()
            if name not in _TORCHS
        }
        self._hooks = [(hooks, dict(hooks)) for hooks in _hooks(module)]

    def changed(self) -> tuple[str, ...]:
        """Dotted names of what was set, replaced or changed since, but buffers that were there.

        `edgeserve.backends.torch.buffers.Buffers` tells of those, and puts them back.
        """
        now = dict(_marked(self._module))
        names = [*now, *(name for name in self._marks if name not in now)]
        return tuple(n for n in names if self._marks.get(n, _MISSING) != now.get(n, _MISSING))

    def put_back(self, names: Sequence[str]) -> tuple[str, ...]:
        """Give attributes the values they had, where these are as they were; names of the others.

        A number can be put back, a list that was appended to cannot. Hooks are put back always:
        who hangs them up at the first call and notes that in an attribute would do so twice.
        """
        for hooks, held in self._hooks:
            hooks.clear()
            hooks.update(held)
        left = []
        for name in names:
            owner, _, attribute = name.rpartition(".")
            part = self._module.get_submodule(owner)
            if attribute in part._buffers or attribute in part._parameters:
                left.append(name)
            elif name not in self._values:
                delattr(part, attribute)
            elif _mark(self._values[name], {}) == self._marks[name]:
                setattr(part, attribute, self._values[name])
            else:
                left.append(name)
        return tuple(left)

    def tensors(self) -> list[torch.Tensor]:
        """Tensors that stood in attributes, whatever they hold by now."""
        return [held for mark in self._marks.values() for held in _held(mark)]


_MISSING = object()


def _parts(module: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    for path, part in module.named_modules():
        yield (f"{path}." if path else ""), part


def _hooks(module: torch.nn.Module) -> Iterator[dict[int, Any]]:
    """All that torch calls before and after forward, and which of these want what."""
    for _, part in _parts(module):
        for name, value in vars(part).items():
            if name in _TORCHS and "forward" in name and isinstance(value, dict):
                yield value


def _marked(module: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    known: dict[int, Any] = {}
    for prefix, part in _parts(module):
        for name, value in vars(part).items():
            if name not in _TORCHS:
                yield prefix + name, _mark(value, known)
        for name, buffer in part._buffers.items():
            yield prefix + name, buffer is not None
        for name, weight in part._parameters.items():
            if weight is not None:
                yield prefix + name, _Tensor(weight)


def _mark(value: Any, known: dict[int, Any], depth: int = 0) -> Any:
    """Something that equals the same mark of later, unless the value has changed."""
    if isinstance(value, _PLAIN):
        return type(value), repr(value)
    if isinstance(value, torch.Tensor):
        return _Tensor(value)
    if isinstance(value, _OPAQUE) or depth > _DEPTH:
        return _Same(value)
    if id(value) not in known:  # a config is shared by all layers; containers may hold themselves
        known[id(value)] = _Same(value)
        known[id(value)] = _inside(value, known, depth + 1)
    return known[id(value)]


def _inside(value: Any, known: dict[int, Any], depth: int) -> Any:
    if isinstance(value, Mapping):
        pairs = list(value.items())[:_ITEMS]
        return len(value), [(repr(k)[:200], _mark(v, known, depth)) for k, v in pairs]
    if isinstance(value, list | tuple | deque):
        return len(value), [_mark(item, known, depth) for item in list(value)[:_ITEMS]]
    if isinstance(value, set | frozenset):
        return len(value), sorted(repr(item)[:200] for item in list(value)[:_ITEMS])
    inner = getattr(value, "__dict__", None)
    if not isinstance(inner, dict):
        return _Same(value)
    items = list(inner.items())[:_ITEMS]
    return _Same(value), [(name, _mark(item, known, depth)) for name, item in items]


class _Same:
    """Equal to another mark of the very same object, which it keeps alive."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.value is self.value


class _Tensor:
    """A tensor at this state of its content; equal to another tensor with the same numbers."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        self.version = 0 if tensor.is_inference() else tensor._version

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Tensor):
            return False
        if self.tensor is other.tensor:
            return self.version == other.version
        mine, theirs = self.tensor, other.tensor
        untouched = mine.is_inference() or mine._version == self.version
        alike = mine.dtype == theirs.dtype and mine.shape == theirs.shape
        return untouched and alike and bool(torch.equal(mine, theirs))


def _held(mark: Any) -> Iterator[torch.Tensor]:
    if isinstance(mark, _Tensor):
        yield mark.tensor
    elif isinstance(mark, tuple | list):
        for item in mark:
            yield from _held(item)
