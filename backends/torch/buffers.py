"""A module's buffers as they were: running a module may change them, exporting it must not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

__all__ = ["Buffers"]


class Buffers:
    """Remembers all buffers of a module, and puts back those that a run changed or replaced.

    Args:
        module: Whose buffers.
        also: Dotted names of attributes that hold tensors, to be treated as buffers are.
    """

    def __init__(self, module: torch.nn.Module, also: Sequence[str] = ()) -> None:
        self._module = module
        found = dict(module.named_buffers()) | {name: self._now(name) for name in also}
        self._kept = {name: (held, held.detach().clone()) for name, held in found.items()}
        self._versions = {name: held._version for name, held in found.items()}

    def changed(self) -> tuple[str, ...]:
        """Names of those that were changed or replaced since."""
        return tuple(
            name
            for name, (buffer, _) in self._kept.items()
            if self._now(name) is not buffer or buffer._version != self._versions[name]
        )

    def restore(self) -> tuple[str, ...]:
        """Put all back, at next to no cost when nothing changed; the names of what had changed."""
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
        """Whether `fill` can take these: of the same shapes and dtypes."""
        kept = {name: self._kept[name][0] for name in content}
        return all(
            kept[name].shape == new.shape and kept[name].dtype == new.dtype
            for name, new in content.items()
        )

    def fill(self, content: Mapping[str, torch.Tensor]) -> None:
        """Give these other content."""
        with torch.no_grad():
            for name, new in content.items():
                self._kept[name][0].copy_(new)

    def copies(self, names: Sequence[str]) -> dict[str, torch.Tensor]:
        """What these hold now."""
        return {name: self._now(name).detach().clone() for name in names}

    def _now(self, name: str) -> torch.Tensor:
        owner, _, attribute = name.rpartition(".")
        found: torch.Tensor = getattr(self._module.get_submodule(owner), attribute, None)  # type: ignore[assignment]
        return found
