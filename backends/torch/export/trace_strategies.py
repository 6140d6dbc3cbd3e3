"""Ways from a module to an exported program, in the order they are tried.

Each follows forward once, with sizes as symbols where they may vary. `torch.jit.trace` is none of
them: it keeps the path that the example's *values* take and says nothing of it, and a program is
what every later comparison is made with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx.experimental import _config as symbolic_config

from edgeserve.backends.torch.diagnose.export_errors import (
    SizeOrigin,
    export_error,
    record_fixed_sizes,
)
from edgeserve.errors import ConvertError
from edgeserve.user_lines import one_line

__all__ = ["STRATEGIES", "TraceStrategy", "Traced", "trace"]


@dataclass(frozen=True)
class TraceStrategy:
    """One way of tracing.

    Attributes:
        name: As the log says it.
        from_one: Whether a dynamic size may be 1: branches on that are then noticed, and a few
            modules cannot be traced so.
        bytecode: Read forward's bytecode (TorchDynamo, ``strict=True``) in place of running it:
            that takes numpy in forward, and less of what other libraries do.
        note: What the report says where this way won.
    """

    name: str
    allow_size_one: bool = True
    bytecode: bool = False
    note: str = ""


#: In this order; docs/reference/backends.md shows it to users.
STRATEGIES = (
    TraceStrategy("export"),
    TraceStrategy("export from size 2", allow_size_one=False),
    TraceStrategy(
        "bytecode", bytecode=True, note="forward was read by its bytecode (torch.export strict)"
    ),
)

#: What another way of following forward may get over: torch could not trace a line.
_UNTRACED = "EDGE-CONVERT-015"


@dataclass(frozen=True)
class Traced:
    """A program and the way that made it."""

    program: ExportedProgram
    way: TraceStrategy


def trace(
    module: torch.nn.Module, examples: Sequence[torch.Tensor], shapes: Sequence[Any], folder: Path
) -> Traced:
    """Trace a module by the first of `STRATEGIES` that works; the log tells how each of them went.

    Args:
        module: With a flat forward.
        examples: Its inputs, by position.
        shapes: For each of them what `torch.export` is told about its axes, or None.
        folder: The user's folder, so that the error can name the user's own line.

    Raises:
        ConvertError: EDGE-CONVERT-013 to -015: what the last way by running forward said.
    """
    said: ConvertError | None = None
    cause: Exception | None = None
    for way in STRATEGIES:
        if not _is_worth_trying(way, any(shapes), said):
            continue
        places: dict[int, SizeOrigin] = {}
        try:
            with record_fixed_sizes(module, folder) as places:
                program = _trace(way, module, examples, shapes)
        except Exception as error:  # torch raises many kinds here
            print(f"way {way.name!r} failed: {one_line(error)}", flush=True)
            if said is None or not way.bytecode:
                said, cause = export_error(error, folder, module, places), error
            continue
        print(f"way {way.name!r} worked", flush=True)
        return Traced(program, way)
    assert said is not None  # the first way is always tried
    raise said from cause


def _is_worth_trying(way: TraceStrategy, dynamic: bool, said: ConvertError | None) -> bool:
    """Whether a way can do what the ones before it could not."""
    if said is None:
        return True
    return said.code == _UNTRACED if way.bytecode else dynamic


def _trace(
    way: TraceStrategy,
    module: torch.nn.Module,
    examples: Sequence[torch.Tensor],
    shapes: Sequence[Any],
) -> ExportedProgram:
    with symbolic_config.patch(backed_size_oblivious=way.allow_size_one):  # type: ignore[attr-defined]
        program = torch.export.export(
            module, tuple(examples), dynamic_shapes=tuple(shapes), strict=way.bytecode
        )
    if way.bytecode:
        torch._dynamo.reset()  # it would keep the module alive
    return program
