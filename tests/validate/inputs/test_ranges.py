"""Inputs whose example is constant vary in the gate, so that a file that ignores one is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from edgeserve.backends.onnx.inspect import index_bounds, read
from edgeserve.backends.reference import reference
from edgeserve.types.tensors import Signature, TensorSpec
from edgeserve.validate.inputs.generate import TensorInputs
from edgeserve.validate.inputs.ranges import InputStatistics, hides_places

LEAST = float(np.finfo(np.float32).min)


def drawn(name: str, example: Any, bound: int | None = None) -> dict[str, np.ndarray]:
    """What is drawn for an input by this name, of which only an example is known."""
    array = np.array(example)
    array = array.astype(np.float32) if array.dtype.kind == "f" else array
    spec = TensorSpec(name=name, dtype=str(array.dtype), shape=array.shape)  # type: ignore[arg-type]
    statistics = InputStatistics()
    statistics.add(array)
    masks = {name} if "mask" in name or hides_places(array) else ()
    made = TensorInputs(
        Signature(inputs=(spec,), outputs=()),
        {name: array},
        {name: statistics},
        0,
        masks,
        {} if bound is None else {name: bound},
    )
    return {kind: feed[name] for kind, feed in made.edges()}


@pytest.mark.parametrize(
    ("example", "bound", "ends"),
    [
        ([0.0, 0.0], None, (-1, 1)),
        ([500.0], None, (0, 1000)),
        ([-2.0], None, (-4, 0)),
        ([0.5, 3.0], None, (0.5, 3)),
        ([7, 7], None, (0, 7)),
        ([0], None, (0, 1)),
        ([5, 900], None, (5, 900)),
        ([5, 9], 98, (0, 98)),
        ([True], None, (False, True)),
    ],
)
def test_the_range_of_numbers(example: Any, bound: int | None, ends: Any) -> None:
    made = drawn("x", example, bound)
    assert (made["lowest"] == ends[0]).all()
    assert (made["highest"] == ends[1]).all()
    assert min(x.min() for x in made.values()) == ends[0]
    assert max(x.max() for x in made.values()) == ends[1]
    natural = {x.tobytes() for kind, x in made.items() if kind.startswith("random")}
    assert len(natural) > 1 or ends[1] == 1, "natural inputs vary, and four flags may be the same"


@pytest.mark.parametrize(
    ("example", "shown", "hidden"),
    [
        (np.ones((1, 8), np.int64), 1, 0),
        (np.ones((1, 8), bool), True, False),
        (np.ones((1, 8)), 1, 0),
        (np.full((1, 8), 255, np.uint8), 255, 0),
        (np.zeros((1, 8)), 0, LEAST),
        (np.array([[0.0] * 7 + [-1e4]]), 0, -1e4),
        (np.array([[0.0] * 7 + [LEAST]]), 0, LEAST),
        (np.array([[0.0] * 7 + [-np.inf]]), 0, -np.inf),
    ],
)
def test_masks_hide_places_at_both_ends_and_between(
    example: np.ndarray, shown: Any, hidden: Any
) -> None:
    name = "bias" if example.min() < 0 else "a_mask"  # known by its numbers
    made = {kind: x[0] for kind, x in drawn(name, example).items()}
    for kind, mask in made.items():
        assert set(np.unique(mask)) <= {shown, hidden}, kind
        assert (mask == shown).any(), kind
    assert made["lowest"][0] == hidden != made["lowest"][-1]
    assert made["random-1"][0] == shown != made["random-1"][-1]
    inside = made["extremes"]
    assert inside[0] == inside[-1] == shown
    assert (inside == hidden).any()
    assert (made["random-0"] == shown).all()


def test_a_soft_mask_is_a_tensor_like_others() -> None:
    made = drawn("mask", np.array([0.0, 0.3, 1.0]))
    assert len(np.unique(made["random-0"])) == 3


class Conditioned(nn.Module):
    """Ids, a mask, a timestep, a flag, a choice, and zeros: what an example holds constant."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.kinds = nn.Embedding(30, 4), nn.Embedding(3, 4)
        self.register_buffer("table", torch.randn(5, 4))

    def forward(self, ids: Tensor, attention_mask: Tensor, step: Tensor, *more: Tensor) -> Tensor:
        flag, zeros, kind, late, root, only = more
        x = self.words(ids) + self.kinds(kind.reshape(1, 1)) + zeros + self.table[late - 6]
        x = x * attention_mask[..., None] + torch.sin(step / 100) + torch.where(flag, 1.0, 2.0)
        return x + torch.sqrt(root - 1) + self.table[:1].index_select(0, only)


EXAMPLES = {
    "ids": torch.tensor([[3, 3, 3, 3]]),
    "attention_mask": torch.ones(1, 4, dtype=torch.long),
    "step": torch.tensor([10.0]),
    "flag": torch.tensor([True]),
    "zeros": torch.zeros(1, 4, 4),
    "kind": torch.tensor([0]),
    "late": torch.tensor([7]),
    "root": torch.tensor([1.0]),
    "only": torch.tensor([0]),
}


@pytest.fixture(scope="module")
def conditioned(build: Any) -> Any:
    made = build(Conditioned(), *EXAMPLES.values(), input_names=tuple(EXAMPLES))
    made.answers()
    return made


@pytest.mark.parametrize("name", ["ids", "attention_mask", "step", "flag", "zeros", "kind"])
def test_a_file_that_ignores_an_input_fails(conditioned: Any, sabotaged: Any, name: str) -> None:
    def change(graph: Any) -> None:
        graph.rename({name: "constant"})
        graph.put({"constant": EXAMPLES[name].numpy()})

    report = conditioned.judged(sabotaged(conditioned, change))
    assert report.judgement.verdict == "fail"


def test_what_the_program_refuses_is_not_held_against_a_file(conditioned: Any) -> None:
    report = conditioned.judged()
    assert report.judgement.verdict == "pass"
    notes = "\n".join(report.notes)
    assert "fails on other numbers than those seen in 'ids'" in notes
    assert "'only' was not varied: it is 0" in notes
    assert not any(f"{name!r} was not varied" in notes for name in ("ids", "flag", "kind"))


def test_the_largest_index_of_each_table(conditioned: Any) -> None:
    right = {"ids": 29, "kind": 2, "only": 0}
    backend, program = reference(conditioned.exported)
    with backend.load(program, conditioned.source) as session:
        assert session.index_bounds() == right
    assert index_bounds(read(conditioned.onnx)) == right
