"""Runs a plan: one frame of slots a run, each value dropped when its last reader is done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from edgeserve.backends.coreml.interpreter.plan_nodes import (
    Block,
    CompiledFunction,
    Constant,
    Step,
    StepOutput,
)
from edgeserve.backends.session import first_line
from edgeserve.errors import EdgeError, MilError


def run_plan(
    plan: CompiledFunction, feed: dict[str, Any], taps: Sequence[str] = ()
) -> dict[str, Any]:
    """Run a whole function.

    Args:
        plan: See `make_plan`.
        feed: A tensor (or a state) for each of the plan's inputs, of the dtype that holds it.
        taps: Inner values to give as well; the plan was made with them.

    Returns:
        The outputs by name, then the taps.

    Raises:
        MilError: EDGE-MIL-006, a kernel failed; -010, it gave another shape than the program says.
    """
    frame: list[Any] = [None] * plan.size
    for name, entry in plan.inputs.items():
        frame[entry.slot] = feed[name]
    with torch.inference_mode():
        _run_steps(plan.block.steps, frame)
    results = {name: _value(where, frame) for name, where in plan.results.items()}
    return results | {tap: _value(plan.names[tap], frame) for tap in taps}


def run_block(blocks: Sequence[Block], frame: list[Any], index: int, *values: Any) -> list[Any]:
    """Run the ``index``-th of an op's nested blocks on ``values``; gives its results."""
    block = blocks[index]
    for slot, value in zip(block.inputs, values, strict=True):
        frame[slot] = value
    _run_steps(block.steps, frame)
    return [_value(where, frame) for where in block.results]


def run_step(step: Step, frame: list[Any]) -> None:
    """Run one op: its outputs go into the frame, cast and rounded as the program types them."""
    arguments = step.constants.copy()
    for name, slot in step.arguments:
        arguments[name] = frame[slot]
    for name, items in step.lists:
        arguments[name] = [_value(item, frame) for item in items]
    if step.wants_block:
        lent: Callable[..., list[Any]] = partial(run_block, step.blocks, frame)
        arguments["run_block"] = lent
    try:
        found = step.function(**arguments)
        results = found if isinstance(found, tuple) else (found,)
        if len(results) != len(step.outputs):
            raise _type_mismatch(step, f"{len(step.outputs)} results", str(len(results)))
        for out, value in zip(step.outputs, results, strict=True):
            frame[out.slot] = _typed(step, out, value)
    except EdgeError:
        raise
    except Exception as error:  # a kernel meets what only the program's author knows
        raise _kernel_error(step, error) from error


def _run_steps(steps: Sequence[Step], frame: list[Any]) -> None:
    for step in steps:
        run_step(step, frame)
        for slot in step.dead:
            frame[slot] = None


def _typed(step: Step, out: StepOutput, value: Any) -> Any:
    """A kernel's result as the type of the op's output."""
    if out.dtype is None or not isinstance(value, Tensor):
        return value
    if out.rounded:
        value = value.half().float()
    elif value.dtype is not out.dtype:
        value = value.to(out.dtype)
    if out.shape is not None and value.shape != out.shape:
        raise _type_mismatch(step, f"shape {list(out.shape)}", f"shape {list(value.shape)}")
    return value


def _value(where: int | Constant, frame: list[Any]) -> Any:
    return where.value if isinstance(where, Constant) else frame[where]


def _kernel_error(step: Step, error: Exception) -> MilError:
    thing, got = f"op {step.name!r} ({step.op_type})", first_line(error)
    wanted = "inputs that the op can take"
    hint = "compare the feed's shapes with those the package was converted for"
    return MilError("EDGE-MIL-006", thing, wanted=wanted, got=got, hint=hint)


def _type_mismatch(step: Step, wanted: str, got: str) -> MilError:
    thing = f"op {step.name!r} ({step.op_type})"
    hint = "report this package: the interpreter and the program's types disagree"
    return MilError("EDGE-MIL-010", thing, wanted=f"{wanted}, as typed", got=got, hint=hint)
