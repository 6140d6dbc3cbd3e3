"""Every network of the corpus under a name that ``edgeserve convert`` takes as a factory.

``dev.corpus.nets:digits_s0_w8`` is the factory, ``dev.corpus.nets:ask_digits_s0_w8`` the server
that answers with the same weights and its own preprocessing;
``dev.corpus.nets:digits_s0_w8__pooling__2`` converts another network than the one it says: the
third severity of the kind "pooling".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dev.corpus.tasks import task
from dev.corpus.tasks.base import Raw, Task, trained

_NAME = re.compile(r"(ask_)?([a-z]+)_s(\d+)_w(\d+)(?:__([a-z_]+?)__(\d+))?")


@dataclass(frozen=True)
class Net:
    """One trained network.

    Attributes:
        task: Name of its task.
        seed: Of its training.
        width: Of its layers.
    """

    task: str
    seed: int = 0
    width: int = 16

    @property
    def name(self) -> str:
        """E.g. "digits_s0_w16"."""
        return f"{self.task}_s{self.seed}_w{self.width}"

    @property
    def of(self) -> Task:
        """Its task."""
        return task(self.task)

    @property
    def reference(self) -> str:
        """What ``--reference`` names."""
        return f"{__name__}:ask_{self.name}"

    def factory(self, damage: str = "") -> str:
        """What SOURCE names; ``damage`` is "kind__severity" of a change in the network."""
        return f"{__name__}:{self.name}" + (f"__{damage}" if damage else "")


def net(name: str) -> Net:
    """The net of a name (ValueError: it is none)."""
    found = _NAME.fullmatch(name)
    if found is None or found[1] or found[5]:
        raise ValueError(name)
    return Net(found[2], int(found[3]), int(found[4]))


def __getattr__(name: str) -> Callable[..., Any]:
    """Make a factory or a server when somebody asks for it."""
    found = _NAME.fullmatch(name)
    if found is None:
        raise AttributeError(name)
    held = Net(found[2], int(found[3]), int(found[4]))
    return _server(held) if found[1] else _factory(held, found[5], int(found[6] or 0))


def _factory(held: Net, damage: str | None, severity: int) -> Callable[[], Any]:
    def factory() -> Any:
        module = trained(held.of, held.seed, held.width)
        if damage:
            from dev.corpus.damage.network import change

            module = change(damage, held, severity)
        return module, held.of.example(), held.of.options()

    return factory


def _server(held: Net) -> Callable[[Raw], Any]:
    module = trained(held.of, held.seed, held.width)
    return lambda raw: held.of.answer(module, raw)
