"""Random numbers in forward: whether any are used, and by which op, module and line."""

from __future__ import annotations

import contextlib
import random
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from edgeserve.user_lines import user_line


@contextlib.contextmanager
def preserve_rng() -> Iterator[None]:
    """Restore the generators of torch, Python and numpy afterwards."""
    kept = torch.get_rng_state(), random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        torch.set_rng_state(kept[0])
        random.setstate(kept[1])
        np.random.set_state(kept[2])


def seed_all(number: int) -> dict[str, bytes]:
    """Seed all three generators; their states, for `rng_used`."""
    torch.default_generator.manual_seed(number)
    random.seed(number)
    np.random.seed(number)
    return _rng_states()


def rng_used(states: dict[str, bytes]) -> list[str]:
    """Names of the generators that were used."""
    now = _rng_states()
    return [name for name, state in states.items() if now[name] != state]


def _rng_states() -> dict[str, bytes]:
    return {
        "torch": torch.get_rng_state().numpy().tobytes(),
        "Python's random": repr(random.getstate()).encode(),
        "numpy.random": repr([np.asarray(v).tolist() for v in np.random.get_state()]).encode(),
    }


class RngRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While active, records the first op that uses random numbers.

    Attributes:
        op: Its name in torch; empty until there is one.
        module: Dotted name of the innermost module that it ran in; empty: the outermost one.
        line: The user's ``file:line``, or None.
    """

    def __init__(self, module: torch.nn.Module, folder: Path) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.op, self.module = "", ""
        self.line: str | None = None
        self._names = {id(part): name for name, part in module.named_modules()}
        self._folder = folder

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not self.op and torch.Tag.nondeterministic_seeded in func.tags:
            self.op = str(func).removesuffix(".default")
            self._place()
        return func(*args, **(kwargs or {}))

    def _place(self) -> None:
        frame, found = sys._getframe(1), False
        lines: list[str] = []
        for entry, number in traceback.walk_stack(frame):
            if not found and (name := self._names.get(id(entry.f_locals.get("self")))) is not None:
                self.module, found = name, True
            if shown := user_line(entry.f_code.co_filename, number, self._folder):
                lines.append(shown)
        own = [line for line in lines if not Path(line.rpartition(":")[0]).is_absolute()]
        self.line = next(iter(own or lines), None)
