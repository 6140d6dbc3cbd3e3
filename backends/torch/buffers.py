"""A module's buffers as they were: running a module may change them, exporting it must not."""

from __future__ import annotations

import torch

__all__ = ["Buffers"]


class Buffers:
    """Remembers all buffers of a module, and puts back those that a run changed or replaced."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module
        self._kept = {
            name: (buffer, buffer.detach().clone()) for name, buffer in module.named_buffers()
        }
        self._versions = {name: buffer._version for name, buffer in module.named_buffers()}

    def restore(self) -> tuple[str, ...]:
        """Put all back, at next to no cost when nothing changed; the names of what had changed."""
        changed = []
        for name, (buffer, copy) in self._kept.items():
            owner, _, attribute = name.rpartition(".")
            part = self._module.get_submodule(owner)
            replaced = getattr(part, attribute, None) is not buffer
            if replaced:
                setattr(part, attribute, buffer)
            if buffer._version != self._versions[name]:
                with torch.no_grad():
                    buffer.copy_(copy)
                self._versions[name] = buffer._version
                changed.append(name)
            elif replaced:
                changed.append(name)
        return tuple(changed)
