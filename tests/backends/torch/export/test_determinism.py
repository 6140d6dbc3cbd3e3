"""Modules that remember their calls or draw random numbers are refused; harmless caches are not."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from edgeserve.backends.torch.export.export import ExportOptions, export_module
from edgeserve.errors import ConvertError

HERE = Path(__file__).parent
X = torch.linspace(-1, 1, 8).reshape(2, 4)
OPEN = {"x": {0: ("batch", 1, 8)}}


class Base(nn.Module):
    """A linear layer, and what `set_up` adds."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.l = nn.Linear(4, 4)
        self.set_up()

    def set_up(self) -> None: ...


# state


class Appends(Base):
    def set_up(self) -> None:
        self.past: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.l(x)
        if self.past:
            y = y + self.past[-1]
        self.past.append(x.detach())  # here
        return y


class Counts(Base):
    def set_up(self) -> None:
        self.n = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.n += 1  # here
        return self.l(x) * self.n


class CountsInBuffer(Base):
    def set_up(self) -> None:
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen += 1  # here
        return self.l(x) * self.seen


class Caches(Base):
    """The same input twice gives the same answer twice: another position would not."""

    def set_up(self) -> None:
        self.register_buffer("cache", torch.zeros(8, 2, 4))

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        self.cache[position] = self.l(x)  # here
        return self.cache.sum(0)


class SetsUp(Base):
    """By its first input, as layers do that normalise by it: no call after that changes it."""

    def set_up(self) -> None:
        self.scale: float | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.l(x)
        if self.scale is None:
            self.scale = float(y.abs().max())  # here
        return y / self.scale


class Holds:
    """An object of the user's own that is no module."""

    last: torch.Tensor | None = None


class HoldsDeep(Base):
    def set_up(self) -> None:
        self.held = {"a": [Holds()]}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        cell = self.held["a"][0]
        before = torch.zeros(4) if cell.last is None else cell.last
        cell.last = x
        return self.l(x) - before


class KeepsFirst(Base):
    """The second answer is the first one: only the constant in the program tells."""

    def set_up(self) -> None:
        self.past: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.past:
            self.past.append(x)  # here
        return self.l(x) + self.past[0]


EXAMPLES: dict[type[nn.Module], tuple[torch.Tensor, ...]] = {Caches: (X, torch.tensor([2]))}


def export(module: nn.Module, **wishes: Any) -> Any:
    examples = EXAMPLES.get(type(module), (X,))
    return export_module(module.eval(), examples, ExportOptions(**wishes), HERE)


def refused(module: nn.Module, **wishes: Any) -> ConvertError:
    with pytest.raises(ConvertError) as error:
        export(module, **wishes)
    assert error.value.hint
    return error.value


def here(kind: type[nn.Module]) -> str:
    """The marked line of a class, as errors show it."""
    lines, start = inspect.getsourcelines(kind)
    found = next(i for i, line in enumerate(lines) if line.rstrip().endswith("# here"))
    return f"{Path(__file__).name}:{start + found}"


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (Appends, "past"),
        (Counts, "n"),
        (CountsInBuffer, "seen"),
        (Caches, "cache"),
        (SetsUp, "scale"),
        (KeepsFirst, "past"),
    ],
)
def test_state_is_refused_with_its_name_and_line(kind: type[nn.Module], name: str) -> None:
    error = refused(kind())
    assert error.code == "EDGE-CONVERT-030"
    assert f"state in '{name}' ({here(kind)})" in error.message
    assert error.source_line == here(kind)
    assert "input" in error.hint


def test_state_inside_other_objects_and_modules_is_named_by_its_attribute() -> None:
    assert "state in 'held'" in refused(HoldsDeep()).message
    error = refused(nn.Sequential(nn.ReLU(), Counts()))
    assert f"'1.n' ({here(Counts)})" in error.message


@pytest.mark.parametrize("shapes", ["auto", "dynamic"])
def test_an_open_batch_does_not_make_state_look_like_random_numbers(shapes: Any) -> None:
    error = refused(Counts(), dynamic_shapes=OPEN, shapes=shapes)
    assert error.code == "EDGE-CONVERT-030"
    assert "random" not in error.message + error.hint


def test_state_outside_of_the_module_is_said_to_be_there() -> None:
    calls: list[int] = []

    class Outside(Base):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            calls.append(1)
            return self.l(x) * len(calls)

    error = refused(Outside())
    assert error.code == "EDGE-CONVERT-030"
    assert "no attribute of the module has changed" in error.message


def test_the_program_is_held_against_the_first_answers() -> None:
    """Two calls agree; what is traced after them does not."""

    class Turns(Base):
        n = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.n += 1
            return self.l(x) * (1 if self.n <= 2 else 5)

    assert refused(Turns()).code == "EDGE-CONVERT-017"


def test_what_was_set_up_in_the_factory_is_part_of_the_model() -> None:
    module = SetsUp()
    with torch.no_grad():
        module(X * 3)
    wanted = module.l(X) / module.l(X * 3).abs().max()
    program = export(module)
    torch.testing.assert_close(program.program.module()(X)[0], wanted, rtol=0, atol=1e-6)
    assert program.notes == ()


# random numbers


def drop(x: torch.Tensor) -> torch.Tensor:
    return functional.dropout(x, 0.5, training=True)  # here


def noise(x: torch.Tensor) -> torch.Tensor:
    return x + torch.rand(2, 4)  # here


def by_numpy(x: torch.Tensor) -> torch.Tensor:
    return x * float(np.random.rand())


def by_python(x: torch.Tensor) -> torch.Tensor:
    return x * random.random()


OWN = torch.Generator()


def by_own(x: torch.Tensor) -> torch.Tensor:
    return x + torch.randn(2, 4, generator=OWN)  # here


class Call(nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


@pytest.mark.parametrize(
    ("function", "op"), [(drop, "aten.bernoulli_"), (noise, "aten.rand"), (by_own, "aten.randn")]
)
def test_random_numbers_are_refused_with_op_module_and_line(function: Any, op: str) -> None:
    error = refused(nn.Sequential(nn.ReLU(), Call(function)))
    assert error.code == "EDGE-CONVERT-017"
    assert error.source_line == here(function)
    assert f"op {op}" in error.message
    assert f"in module '1' at {here(function)}" in error.message
    assert "random" in error.hint


@pytest.mark.parametrize(("function", "name"), [(by_numpy, "numpy"), (by_python, "Python")])
def test_random_numbers_of_other_libraries_are_refused(function: Any, name: str) -> None:
    error = refused(Call(function))
    assert error.code == "EDGE-CONVERT-017"
    assert name in error.message


# harmless


class Statistic(Base):
    """Counts and averages that enter no answer, as a batch norm keeps them."""

    def set_up(self) -> None:
        self.register_buffer("num_batches_tracked", torch.tensor(0))
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.num_batches_tracked += 1
        self.mean.mul_(0.9).add_(0.1 * x.mean(0))
        return self.l(x)


class Table(Base):
    """A table and a mask of the sizes alone, made when first asked for."""

    def set_up(self) -> None:
        self.mask: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.mask is None:
            self.mask = torch.tril(torch.ones(4, 4))
            self.register_buffer("angles", torch.arange(4) / 4, persistent=False)
        return (self.l(x) @ self.mask) * torch.cos(self.angles)


class FillsTable(Base):
    """The same in a buffer that is there from the start."""

    def set_up(self) -> None:
        self.register_buffer("table", torch.zeros(4))
        self.ready = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.ready:
            self.table.copy_(torch.arange(4.0))
            self.ready = True
        return self.l(x) * self.table


class HangsHooks(Base):
    """Hooks hung up at the first call, as transformers does to see what is inside."""

    def set_up(self) -> None:
        self.hung = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.hung:
            self.l.register_forward_hook(lambda module, inputs, output: output + 1)
            self.hung = True
        return self.l(x)


class Remembers(Base):
    """For whoever wants to look at it later."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.last = self.l(x)
        self.calls = getattr(self, "calls", 0) + 1
        return self.last


class DrawsForNothing(Base):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        fixed = torch.rand(4, generator=torch.Generator().manual_seed(1))
        return self.l(x) + fixed.sign() + 0 * torch.rand(4).sum()


@pytest.mark.parametrize(
    "kind", [Statistic, Table, FillsTable, HangsHooks, Remembers, DrawsForNothing]
)
def test_what_changes_no_answer_converts(kind: type[Base]) -> None:
    program = export(kind(), dynamic_shapes=OPEN)
    other = torch.linspace(-3, 2, 20).reshape(5, 4)
    (got,) = program.program.module()(other)
    torch.testing.assert_close(got, kind()(other), rtol=0, atol=1e-6)


def test_a_table_that_an_attribute_calls_ready_is_kept_filled() -> None:
    program = export(FillsTable())
    assert program.notes == (
        "buffers ['table'] keep the values that the first call of forward gave them",
    )
    assert program.program.state_dict["table"].tolist() == [0, 1, 2, 3]


def test_buffers_that_change_are_noted_and_left_as_they_were() -> None:
    module = Statistic()
    program = export(module)
    assert "['num_batches_tracked', 'mean']" in program.notes[0]
    assert module.num_batches_tracked.item() == 0
    assert module.mean.tolist() == [0, 0, 0, 0]
    assert program.program.state_dict["num_batches_tracked"].item() == 0


def test_the_callers_random_numbers_are_left_as_they_were() -> None:
    torch.manual_seed(5)
    random.seed(5)
    wanted = torch.rand(1).item(), random.random()
    torch.manual_seed(5)
    random.seed(5)
    refused(Call(by_python))
    assert (torch.rand(1).item(), random.random()) == wanted


def test_an_own_tensor_that_equals_the_example_is_no_kept_input() -> None:
    class Own(Base):
        def set_up(self) -> None:
            self.fixed = X.clone()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.l(x) + self.fixed

    (got,) = export(Own()).program.module()(X * 2)
    torch.testing.assert_close(got, Own()(X * 2), rtol=0, atol=1e-6)
