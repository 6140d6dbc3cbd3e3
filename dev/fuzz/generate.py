"""Random programs, valid and numerically tame by construction.

Each step is run on every input set while the program grows. A step that raises, overflows, always
answers the same, or whose answer depends on rounding is dropped, and another one is drawn.
"""

from __future__ import annotations

import contextlib
import math
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
import torch
from torch import Tensor

from dev.fuzz.operators import OPERATORS
from dev.fuzz.program import SETS, Input, Program, Step, draw, run_step, state_of, wide

_FORMS = {
    "f": (torch.float32,),
    "i": (torch.int32, torch.int64),
    "b": (torch.bool,),
    "n": (torch.float32, torch.int32, torch.int64),
    "x": (torch.float32, torch.int32, torch.int64, torch.bool),
}
_NUMBERS = (0.5, 2.0, -1.5, 0.1, 0.3, -0.7, 3.0)
_MAKERS = {"w": "weight", "p": "places"}
_CHOICE = re.compile(r"\{([^{}]*\|[^{}]*)\}")
#: Runs of an input set: in float32, then in float64 without noise and with two kinds of it.
_NOISES = (None, 0, 1, 2)
_LARGEST, _LEAST, _ELEMENTS, _RANK = 1e4, 1e-3, 1500, 5

#: Largest effect of rounding, as a share of a result's scale, with which a step is kept.
_SENSITIVE = 2e-4


class Unfit(Exception):
    """There is no operand for a call, or its result is not wanted."""


class Draw:
    """Fills a template with operands and constants drawn at random.

    Attributes:
        first: The first operand.
        state: Weights and constant places that the call reads, each as the call that makes it.
    """

    def __init__(self, values: dict[str, Tensor], unread: Iterable[str], seed: str) -> None:
        self._values, self._unread = values, set(unread)
        self._random = random.Random(seed)
        self.state: dict[str, str] = {}
        self.first = ""

    def written(self, template: str) -> str:
        """A template with its places filled, operands first; what stands twice is drawn once.

        Raises:
            Unfit: there is no operand for it.
        """
        text = _CHOICE.sub(lambda found: self._choice(found[1]), template)
        held = {form: self._operand(form) for form in re.findall(r"\{([fibnx])\}", text)}
        held |= {place: str(self._dim()) for place in re.findall(r"\{([de])\}", text)}
        shape = tuple(self._values[self.first].shape)
        scope = {"S": shape, "R": len(shape), "D": int(held.get("d", 0))}
        return re.sub(r"\{([^{}]+)\}", lambda found: self._place(found[1], held, scope), text)

    def _choice(self, options: str) -> str:
        option = self._random.choice(options.split("|"))
        return f"{{{option}}}" if option.startswith(("w:", "=")) else option

    def _operand(self, form: str) -> str:
        fits = [name for name, value in self._values.items() if value.dtype in _FORMS[form]]
        fresh = [name for name in fits if name in self._unread]
        if not fits:
            raise Unfit
        name = self._random.choice(fresh if fresh and self._random.random() < 0.7 else fits)
        self.first = self.first or name
        return name

    def _dim(self) -> int:
        rank = max(self._values[self.first].dim(), 1)
        return self._random.randrange(-rank, rank)

    def _place(self, place: str, held: dict[str, str], scope: dict[str, Any]) -> str:
        if place in held:
            return held[place]
        if place in "ms":
            return self._mate() if place == "m" else self._same()
        if place in "kj":
            return str(self._random.randint(*((1, 3) if place == "k" else (-3, 3))))
        if place == "c":
            return str(self._random.choice(_NUMBERS))
        kind, expression = place[0], place[1:].lstrip(":")
        sizes = eval(f"({expression},)" if kind in "wp" else expression, scope)
        if kind == "=":
            return str(sizes)
        seed = self._random.randrange(10**6)
        self.state[f"{kind}{seed}"] = f"{_MAKERS[kind]}({', '.join(map(str, (seed, *sizes)))})"
        return f"self.{kind}{seed}"

    def _same(self) -> str:
        mine = self._values[self.first]
        alike = (
            n for n, v in self._values.items() if (v.dtype, v.shape) == (mine.dtype, mine.shape)
        )
        other = self._random.choice(list(alike))
        return other if other != self.first or not mine.dim() else f"{other}.flip(0)"

    def _mate(self) -> str:
        name, mine = self.first, self._values[self.first]
        fits = [n for n, v in self._values.items() if v.dtype == mine.dtype and _broadcast(v, mine)]
        parts = [f"{name}[:1]", f"{name}[..., -1:]", f"{name}[0]"] if mine.dim() else fits
        numbers = _NUMBERS if mine.is_floating_point() else (1, 2, 5, -3)
        return str(
            self._random.choice([*fits, self._random.choice(parts), self._random.choice(numbers)])
        )


def _broadcast(one: Tensor, other: Tensor) -> bool:
    pairs = zip(reversed(one.shape), reversed(other.shape), strict=False)
    return all(a == b or 1 in (a, b) for a, b in pairs)


def _inputs(random: random.Random) -> Iterator[Input]:
    """One to three inputs whose sizes are of few values, so that many pairs broadcast."""
    sizes = random.choices((1, 2, 3, 4, 5, 6, 8), k=3)
    for number in range(random.choice((1, 2, 2, 3))):
        shape = tuple(random.choices(sizes, k=random.choice((1, 2, 3, 3, 4, 4, 5))))
        while math.prod(shape) > _ELEMENTS // 3:
            shape = shape[1:]
        dtype = random.choice(("float32",) * 5 + ("int64", "int64", "int32", "bool"))
        dtype = "float32" if number == 0 and random.random() < 0.7 else dtype
        high = {"float32": 2.5, "bool": 1}.get(dtype, random.choice((5, 9, 100, 2**25 + 3)))
        yield Input(f"x{number}", dtype, shape, 0 if dtype == "bool" else -high, high)


class _Growing:
    """A program that grows, with its values on every input set: in float32, and with noise."""

    def __init__(self, seed: int) -> None:
        self.seed, self.random = seed, random.Random(seed)
        self.inputs = tuple(_inputs(self.random))
        self.steps: list[Step] = []
        sets = [{each.name: draw(each, n, seed) for each in self.inputs} for n in range(SETS)]
        self.values = [
            {n: v if noise is None else wide(v) for n, v in values.items()}
            for values in sets
            for noise in _NOISES
        ]

    def unread(self) -> list[str]:
        read = {name for step in self.steps for name in step.reads}
        return [name for name in self.values[0] if name not in read]

    def grow(self, name: str, attempt: int) -> None:
        """Add a step of an operator.

        Raises:
            Exception: the drawn call raised, or its results are not wanted.
        """
        operator, place = OPERATORS[name], len(self.steps)
        drawn = Draw(self.values[0], self.unread(), f"{self.seed}:{place}:{name}:{attempt}")
        call = drawn.written(operator.call)
        if operator.ordered and not all(
            values[drawn.first].unique().numel() == values[drawn.first].numel()
            for values in self.values
        ):
            raise Unfit
        step = Step(name, (), call, operator.rounding, drawn.state)
        state = state_of([step])
        noises = [noise and noise * 1000 + place for noise in _NOISES] * SETS
        found = [
            run_step(step, values, state, noise)
            for values, noise in zip(self.values, noises, strict=True)
        ]
        for results in zip(*found, strict=True):
            _check(results)
        count = sum(len(each.targets) for each in self.steps)
        targets = tuple(f"v{count + number}" for number in range(len(found[0])))
        self.steps.append(msgspec.structs.replace(step, targets=targets))
        for values, results in zip(self.values, found, strict=True):
            values |= zip(targets, results, strict=True)


def _check(found: Sequence[Tensor]) -> None:
    """Raise `Unfit` where a result is not wanted: of each input set in float32, then with noise."""
    first, each = found[0], len(_NOISES)
    if not 0 < first.numel() <= _ELEMENTS or first.dim() > _RANK or first.dtype not in _FORMS["x"]:
        raise Unfit
    if all(torch.equal(first, other) for other in found[each::each]):
        raise Unfit
    for start in range(0, len(found), each):
        result, *rough = found[start : start + each]
        largest = result.double().abs().max()
        least = _LEAST if result.is_floating_point() and start < (SETS - 2) * each else 0.0
        if not least <= largest <= (_LARGEST if result.is_floating_point() else 2**31 - 1):
            raise Unfit  # not a number is not in the range either
        limit = _SENSITIVE * largest if result.is_floating_point() else 0
        if any(abs(other.double() - result.double()).max() > limit for other in rough):
            raise Unfit


def generate(seed: int) -> Program:
    """The program of a seed: 4 to 10 operators; what nobody reads is returned."""
    growing = _Growing(seed)
    wanted = growing.random.randint(4, 10)
    for name in growing.random.choices(tuple(OPERATORS), k=200):
        for attempt in range(4):  # other operands may fit
            with contextlib.suppress(Exception):  # whatever PyTorch says of those that do not
                growing.grow(name, attempt)
                break
        if len(growing.steps) == wanted:
            break
    made = {name for step in growing.steps for name in step.targets}
    read = {name for step in growing.steps for name in step.reads}
    outputs = tuple(name for name in growing.unread() if name in made)
    inputs = tuple(each for each in growing.inputs if each.name in read)
    return Program(seed, inputs, tuple(growing.steps), outputs)
