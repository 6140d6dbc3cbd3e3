"""A random program: its inputs and steps, its source text, and its values in eager PyTorch.

The source is what runs: the exported module is made by executing the text that is shown.
"""

from __future__ import annotations

import inspect
import re
import zlib
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgeserve.types.base import Value

#: Input sets: the example, further random values, values with edges among them twice.
SETS = 4

_EDGES = {
    "float32": (0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.0, -2.0, 1e-3, 0.99999994),
    "int64": (0, 1, -1, 2, 3, -2),
}


class Input(Value, frozen=True):
    """An input, drawn uniformly from ``low`` to ``high``; ``dtype`` is PyTorch's name of one."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    low: float
    high: float


class Step(Value, frozen=True):
    """A call that assigns one or more variables.

    Attributes:
        operator: Its key in `dev.fuzz.operators.OPERATORS`.
        targets: Variables that it assigns.
        call: The expression.
        rounding: See `dev.fuzz.operators.Rounding`.
        state: Weights and constant places that it reads, each as the call that makes it.
    """

    operator: str
    targets: tuple[str, ...]
    call: str
    rounding: str
    state: dict[str, str] = {}

    @property
    def reads(self) -> set[str]:
        """Variables that the call reads."""
        return set(re.findall(r"\b[xv]\d+\b", self.call))


class Program(Value, frozen=True):
    """Inputs, steps in order, and the variables that it returns."""

    seed: int
    inputs: tuple[Input, ...]
    steps: tuple[Step, ...]
    outputs: tuple[str, ...]


def weight(seed: int, *shape: int) -> Tensor:
    """A parameter at whose scale a product keeps the scale of its other factor."""
    drawn = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    terms = max(1, drawn[0].numel()) if len(shape) > 1 else 1
    return nn.Parameter(drawn / terms**0.5, requires_grad=False)


def places(seed: int, size: int, *shape: int) -> Tensor:
    """Constant places below ``size``, int64."""
    return torch.randint(size, shape, generator=torch.Generator().manual_seed(seed))


def sample(seed: int, dtype: str, shape: Sequence[int], low: float, high: float) -> Tensor:
    """Random values from ``low`` to ``high``."""
    random = torch.Generator().manual_seed(seed)
    if dtype == "float32":
        return torch.rand(tuple(shape), generator=random) * (high - low) + low
    return torch.randint(int(low), int(high) + 1, shape, generator=random).to(getattr(torch, dtype))


def _seed(seed: int, number: int, name: str) -> int:
    return zlib.crc32(f"{seed} {number} {name}".encode())


def draw(given: Input, number: int, seed: int) -> Tensor:
    """The values of an input in one of the `SETS`; edges replace up to half of the last two."""
    seed = _seed(seed, number, given.name)
    drawn = sample(seed, given.dtype, given.shape, given.low, given.high)
    edges = _EDGES.get(given.dtype.replace("int32", "int64"), ())
    kept = [each for each in edges if given.low <= each <= given.high]
    kept += [given.low, given.high] if edges and given.dtype != "float32" else []
    if number < SETS - 2 or not kept:
        return drawn
    random = torch.Generator().manual_seed(seed)
    where = torch.randperm(drawn.numel(), generator=random)[
        : min(len(kept), -(-drawn.numel() // 2))
    ]
    values = [kept[i] for i in torch.randperm(len(kept), generator=random)[: len(where)]]
    values = [-0.0 if each == 0 and number % 2 else each for each in values]
    return drawn.flatten().index_put((where,), torch.tensor(values).to(drawn)).reshape(drawn.shape)


def inputs_of(program: Program) -> list[tuple[Tensor, ...]]:
    """The program's input sets, the example first."""
    return [tuple(draw(each, n, program.seed) for each in program.inputs) for n in range(SETS)]


def state_of(steps: Sequence[Step]) -> dict[str, Tensor]:
    """Weights and constant places by name."""
    makers = {"weight": weight, "places": places}
    return {name: eval(call, makers) for step in steps for name, call in step.state.items()}


def run_step(
    step: Step, values: Mapping[str, Tensor], state: Mapping[str, Tensor], noise: int | None = None
) -> tuple[Tensor, ...]:
    """The results of one step in eager PyTorch; in float64 where ``noise`` is given.

    Args:
        step: The step.
        values: Variables by name.
        state: What `state_of` gives.
        noise: Seed of the rounding noise added to the results; 0: none is added.

    Raises:
        Exception: what PyTorch raises where the call does not fit its operands.
    """
    call = step.call
    if noise is not None:
        call = call.replace("torch.float32", "torch.float64")
        state = {name: wide(each) for name, each in state.items()}
    scope = {"torch": torch, "f": functional, "self": SimpleNamespace(**state)}
    found = eval(call, scope, dict(values))
    listed = isinstance(found, tuple | list)
    tensors = tuple(found) if listed else (found,)
    if listed and len(tensors) == 1:
        raise ValueError("one result in a list, which one variable does not take out of it")
    if noise is None:
        return tensors
    return tuple(_rounded(wide(each), step.rounding, noise) for each in tensors)


def wide(tensor: Tensor) -> Tensor:
    """A float tensor in float64, any other as it is."""
    return tensor.double() if tensor.is_floating_point() else tensor


#: Relative rounding error of one operator in float32: some units in the last place.
_ROUNDING = 1e-6


def _rounded(result: Tensor, rounding: str, seed: int) -> Tensor:
    """Monte Carlo arithmetic (Parker 1997): a result with random rounding, and signs of zero."""
    if not seed or not result.is_floating_point():
        return result
    random = torch.Generator().manual_seed(seed)
    uniform = torch.rand(result.shape, generator=random, dtype=torch.float64) * 2 - 1
    finite = torch.nan_to_num(result, 0, 0, 0).abs()
    scale = finite.max() if rounding == "whole" and result.numel() else finite
    moved = result + (0 if rounding == "none" else _ROUNDING) * scale * uniform
    signs = uniform.abs() * (-1) ** (seed // 1000)  # each sign of zero in one of two runs
    return torch.where(moved == 0, torch.copysign(moved, signs), moved)


def evaluate(
    program: Program, inputs: Sequence[Tensor], noise: int | None = None
) -> tuple[Tensor, ...]:
    """The program's outputs in eager PyTorch; ``noise`` as in `run_step`."""
    given = inputs if noise is None else [wide(each) for each in inputs]
    values = {each.name: tensor for each, tensor in zip(program.inputs, given, strict=True)}
    state = state_of(program.steps)
    for number, step in enumerate(program.steps):
        seed = noise and noise * 1000 + number
        values |= zip(step.targets, run_step(step, values, state, seed), strict=True)
    return tuple(values[name] for name in program.outputs)


def source(program: Program) -> str:
    """The program as plain PyTorch, with its weights and the first of its input sets."""
    state = {name: call for step in program.steps for name, call in step.state.items()}
    lines = ["import torch", "from torch import Tensor, nn", "from torch.nn import functional as f"]
    used = {call.partition("(")[0] for call in state.values()}
    helpers = [each for each in (weight, places, sample) if each.__name__ in {*used, "sample"}]
    lines += ["", *(f"\n{inspect.getsource(each)}" for each in helpers)]
    lines += ["", "class Model(nn.Module):", "    def __init__(self) -> None:"]
    lines += ["        super().__init__()"]
    for name, call in state.items():
        made = f"self.{name} = {call}"
        made = f'self.register_buffer("{name}", {call})' if call.startswith("places") else made
        lines.append(f"        {made}")
    names = ", ".join(each.name for each in program.inputs)
    lines += ["", f"    def forward(self, {names}):"]
    lines += [f"        {', '.join(step.targets)} = {step.call}" for step in program.steps]
    lines += [f"        return {', '.join(program.outputs)}", "", "", "example = ("]
    for given in program.inputs:
        seed = _seed(program.seed, 0, given.name)
        call = f"({seed}, {given.dtype!r}, {given.shape}, {given.low}, {given.high})"
        lines.append(f"    sample{call},")
    return "\n".join(["from collections.abc import Sequence", *lines, ")", ""])


def module_of(program: Program) -> nn.Module:
    """The module that the source defines, in eval mode."""
    scope: dict[str, Any] = {}
    exec(source(program), scope)
    made: nn.Module = scope["Model"]().eval()
    return made
