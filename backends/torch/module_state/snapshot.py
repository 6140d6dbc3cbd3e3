"""Snapshots of a module's state, to detect and undo changes made by a run.

`BufferSnapshot` copies buffers: running a module may change them, exporting it must not.
`ModuleSnapshot` records everything else without a copy: numbers and strings by value, containers
by their items, tensors by their version counter, anything else by identity.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import torch


class BufferSnapshot:
    """Copies of all buffers of a module, to restore those that a run changed or replaced.

    Args:
        module: Whose buffers.
        also: Dotted names of tensor attributes to treat like buffers.
    """

    def __init__(self, module: torch.nn.Module, also: Sequence[str] = ()) -> None:
        self._module = module
        found = dict(module.named_buffers()) | {name: self._now(name) for name in also}
        self._kept = {name: (held, held.detach().clone()) for name, held in found.items()}
        self._versions = {name: held._version for name, held in found.items()}

    def changed(self) -> tuple[str, ...]:
        """Names of the buffers that have changed or been replaced since."""
        return tuple(
            name
            for name, (buffer, _) in self._kept.items()
            if self._now(name) is not buffer or buffer._version != self._versions[name]
        )

    def restore(self) -> tuple[str, ...]:
        """Restore all, almost free if nothing changed; the names of the changed ones."""
        changed = self.changed()
        for name in changed:
            buffer, copy = self._kept[name]
            owner, _, attribute = name.rpartition(".")
            if self._now(name) is not buffer:
                setattr(self._module.get_submodule(owner), attribute, buffer)
            if buffer._version != self._versions[name]:
                with torch.no_grad():
                    buffer.copy_(copy)
                self._versions[name] = buffer._version
        return changed

    def fits(self, content: Mapping[str, torch.Tensor]) -> bool:
        """Whether `fill` accepts these: same shapes and dtypes."""
        kept = {name: self._kept[name][0] for name in content}
        return all(
            kept[name].shape == new.shape and kept[name].dtype == new.dtype
            for name, new in content.items()
        )

    def fill(self, content: Mapping[str, torch.Tensor]) -> None:
        """Overwrite these buffers."""
        with torch.no_grad():
            for name, new in content.items():
                self._kept[name][0].copy_(new)

    def copies(self, names: Sequence[str]) -> dict[str, torch.Tensor]:
        """Copies of the current values."""
        return {name: self._now(name).detach().clone() for name in names}

    def _now(self, name: str) -> torch.Tensor:
        owner, _, attribute = name.rpartition(".")
        found: torch.Tensor = getattr(self._module.get_submodule(owner), attribute, None)  # type: ignore[assignment]
        return found


#: Attributes of every module; weights and buffers are handled separately.
_TORCH_ATTRIBUTES = {*vars(torch.nn.Module()), "forward"}

#: Maximum nesting depth and number of items of one container that are compared.
_DEPTH, _ITEMS = 4, 1000

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_OPAQUE = (torch.nn.Module, type, FunctionType, BuiltinFunctionType, MethodType, ModuleType)


class ModuleSnapshot:
    """The attributes, buffers and weights of all submodules as they are now."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module
        self._marks = dict(_marked(module))
        self._values = {
            prefix + name: value
            for prefix, part in _parts(module)
            for name, value in vars(part).items()
            if name not in _TORCH_ATTRIBUTES
        }
        self._hooks = [(hooks, dict(hooks)) for hooks in _hooks(module)]

    def changed(self) -> tuple[str, ...]:
        """Dotted names of what was set, replaced or changed since, except existing buffers.

        `BufferSnapshot` reports and restores those.
        """
        now = dict(_marked(self._module))
        names = [*now, *(name for name in self._marks if name not in now)]
        return tuple(n for n in names if self._marks.get(n, _MISSING) != now.get(n, _MISSING))

    def restore(self, names: Sequence[str]) -> tuple[str, ...]:
        """Restore attributes whose old values are unchanged; the names of the others.

        A number can be restored, a list that was appended to cannot. Hooks are always restored: a
        module that registers them at the first call would otherwise register them twice.
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
        """Tensors that were attributes, with their current content."""
        return [held for mark in self._marks.values() for held in _tensors_in(mark)]


_MISSING = object()


def _parts(module: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    for path, part in module.named_modules():
        yield (f"{path}." if path else ""), part


def _hooks(module: torch.nn.Module) -> Iterator[dict[int, Any]]:
    """The dicts of hooks before and after forward, and of their options."""
    for _, part in _parts(module):
        for name, value in vars(part).items():
            if name in _TORCH_ATTRIBUTES and "forward" in name and isinstance(value, dict):
                yield value


def _marked(module: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    known: dict[int, Any] = {}
    for prefix, part in _parts(module):
        for name, value in vars(part).items():
            if name not in _TORCH_ATTRIBUTES:
                yield prefix + name, _mark(value, known)
        for name, buffer in part._buffers.items():
            yield prefix + name, buffer is not None
        for name, weight in part._parameters.items():
            if weight is not None:
                yield prefix + name, _TensorMark(weight)


def _mark(value: Any, known: dict[int, Any], depth: int = 0) -> Any:
    """An object that equals a later mark of the same value unless the value has changed."""
    if isinstance(value, _PLAIN):
        return type(value), repr(value)
    if isinstance(value, torch.Tensor):
        return _TensorMark(value)
    if isinstance(value, _OPAQUE) or depth > _DEPTH:
        return _IdentityMark(value)
    if id(value) not in known:  # a config is shared by all layers; containers may hold themselves
        known[id(value)] = _IdentityMark(value)
        known[id(value)] = _contents(value, known, depth + 1)
    return known[id(value)]


def _contents(value: Any, known: dict[int, Any], depth: int) -> Any:
    if isinstance(value, Mapping):
        pairs = list(value.items())[:_ITEMS]
        return len(value), [(repr(k)[:200], _mark(v, known, depth)) for k, v in pairs]
    if isinstance(value, list | tuple | deque):
        return len(value), [_mark(item, known, depth) for item in list(value)[:_ITEMS]]
    if isinstance(value, set | frozenset):
        return len(value), sorted(repr(item)[:200] for item in list(value)[:_ITEMS])
    inner = getattr(value, "__dict__", None)
    if not isinstance(inner, dict):
        return _IdentityMark(value)
    items = list(inner.items())[:_ITEMS]
    return _IdentityMark(value), [(name, _mark(item, known, depth)) for name, item in items]


class _IdentityMark:
    """Equal to another mark of the same object, which it keeps alive."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _IdentityMark) and other.value is self.value


class _TensorMark:
    """A tensor at its current version; equal to another tensor with the same numbers."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        self.version = 0 if tensor.is_inference() else tensor._version

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _TensorMark):
            return False
        if self.tensor is other.tensor:
            return self.version == other.version
        mine, theirs = self.tensor, other.tensor
        untouched = mine.is_inference() or mine._version == self.version
        alike = mine.dtype == theirs.dtype and mine.shape == theirs.shape
        return untouched and alike and bool(torch.equal(mine, theirs))


def _tensors_in(mark: Any) -> Iterator[torch.Tensor]:
    if isinstance(mark, _TensorMark):
        yield mark.tensor
    elif isinstance(mark, tuple | list):
        for item in mark:
            yield from _tensors_in(item)
