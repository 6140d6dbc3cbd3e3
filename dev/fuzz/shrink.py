"""Makes a program smaller while its fault stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
import torch

from dev.fuzz.program import Input, Program, evaluate, inputs_of

#: Whether a smaller program has the same fault.
Fails = Callable[[Program], bool]


def shrink(program: Program, fails: Fails) -> Program:
    """The smallest program found with the fault: fewest outputs, steps and inputs.

    Delta debugging (Zeller and Hildebrandt 2002), one change at a time until none keeps the fault.
    """
    smaller = True
    while smaller:
        smaller = False
        for candidate in _candidates(program):
            if fails(candidate):
                program, smaller = candidate, True
                break
    return program


def _candidates(program: Program) -> Iterator[Program]:
    if len(program.outputs) > 1:
        yield from (pruned(program, (name,)) for name in program.outputs)
    for place in reversed(range(len(program.steps))):
        yield from _without(program, place)


def _without(program: Program, place: int) -> Iterator[Program]:
    """The program with a step's results as inputs, or its operands returned in their place."""
    step = program.steps[place]
    if any(name in step.targets for name in program.outputs):
        outputs = dict.fromkeys(n for n in program.outputs if n not in step.targets)
        outputs |= dict.fromkeys(sorted(n for n in step.reads if n.startswith("v")))
        if outputs:
            yield pruned(program, tuple(outputs))
        return
    rest = program.steps[:place] + program.steps[place + 1 :]
    given = tuple(_as_input(program, name) for name in step.targets)
    yield pruned(msgspec.structs.replace(program, steps=rest, inputs=program.inputs + given))


def _as_input(program: Program, name: str) -> Input:
    """An input with the dtype, shape and range of a variable."""
    whole = msgspec.structs.replace(program, outputs=(name,))
    values = [evaluate(whole, inputs)[0] for inputs in inputs_of(program)]
    low = min(float(each.min()) for each in values)
    high = max(float(each.max()) for each in values)
    dtype = str(values[0].dtype).removeprefix("torch.")
    return Input(name, dtype, tuple(values[0].shape), low, high)


def pruned(program: Program, outputs: tuple[str, ...] = ()) -> Program:
    """The program without what none of the outputs needs."""
    needed = set(outputs or program.outputs)
    steps = []
    for step in reversed(program.steps):
        if needed & set(step.targets):
            needed |= step.reads
            steps.insert(0, step)
    inputs = tuple(each for each in program.inputs if each.name in needed)
    return Program(program.seed, inputs, tuple(steps), outputs or program.outputs)


def valid(program: Program) -> bool:
    """Whether eager PyTorch runs it on all input sets, with finite answers."""
    try:
        answers = [each for inputs in inputs_of(program) for each in evaluate(program, inputs)]
    except Exception:  # whatever PyTorch says of operands that no longer fit
        return False
    return bool(program.inputs) and all(bool(torch.isfinite(each).all()) for each in answers)
