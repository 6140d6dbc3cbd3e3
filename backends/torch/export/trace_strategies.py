"""Strategies for tracing a module into an exported program, in the order they are tried.

Each follows forward once, with symbolic sizes where they may vary. `torch.jit.trace` is not among
them: it silently keeps the branches that the example's *values* take, and every later comparison
is made with the program.
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
from edgeserve.backends.torch.export.flat_module import Tensors
from edgeserve.errors import ConvertError
from edgeserve.user_lines import one_line


@dataclass(frozen=True)
class TraceStrategy:
    """One strategy.

    Attributes:
        name: Its name in the log.
        allow_size_one: Whether a dynamic size may be 1: branches on size 1 are then noticed, and a
            few modules cannot be traced.
        bytecode: Read forward's bytecode (TorchDynamo, ``strict=True``) instead of running it: that
            supports numpy in forward, but fewer constructs of other libraries.
        note: The report's note about an export by this strategy.
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

#: torch could not trace a line, which another strategy may be able to.
_UNTRACED = "EDGE-CONVERT-015"


@dataclass(frozen=True)
class Traced:
    """A program and the strategy that traced it."""

    program: ExportedProgram
    strategy: TraceStrategy


def trace(
    module: torch.nn.Module, examples: Tensors, shapes: Sequence[Any], folder: Path
) -> Traced:
    """Trace a module by the first of `STRATEGIES` that succeeds; the log has each result.

    Args:
        module: With a flat forward.
        examples: Its inputs, by position.
        shapes: The dynamic shapes of each input for `torch.export`, or None.
        folder: The user's folder, so that the error can name the user's own line.

    Raises:
        ConvertError: EDGE-CONVERT-013 to -015, from the last strategy that runs forward.
    """
    refusal: ConvertError | None = None
    cause: Exception | None = None
    for strategy in STRATEGIES:
        if not _is_worth_trying(strategy, any(shapes), refusal):
            continue
        places: dict[int, SizeOrigin] = {}
        try:
            with record_fixed_sizes(module, folder) as places:
                program = _trace(strategy, module, examples, shapes)
        except Exception as error:  # torch raises many kinds here
            print(f"trace strategy {strategy.name!r} failed: {one_line(error)}", flush=True)
            if refusal is None or not strategy.bytecode:
                refusal, cause = export_error(error, folder, module, places), error
            continue
        print(f"trace strategy {strategy.name!r} succeeded", flush=True)
        return Traced(program, strategy)
    assert refusal is not None  # the first strategy is always tried
    raise refusal from cause


def _is_worth_trying(strategy: TraceStrategy, dynamic: bool, refusal: ConvertError | None) -> bool:
    """Whether a strategy can succeed where the ones before it failed."""
    if refusal is None:
        return True
    return refusal.code == _UNTRACED if strategy.bytecode else dynamic


def _trace(
    strategy: TraceStrategy, module: torch.nn.Module, examples: Tensors, shapes: Sequence[Any]
) -> ExportedProgram:
    with symbolic_config.patch(backed_size_oblivious=strategy.allow_size_one):  # type: ignore[attr-defined]
        program = torch.export.export(
            module, tuple(examples), dynamic_shapes=tuple(shapes), strict=strategy.bytecode
        )
    if strategy.bytecode:
        torch._dynamo.reset()  # it would keep the module alive
    return program
