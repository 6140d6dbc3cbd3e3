"""Inputs on which a sound file may differ, because the reference itself answers rounding errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from edgeserve.validate.checks.reference_sanity import MAX_SENSITIVITY, perturb, sensitivity


class Listening(nn.Module):
    """As speech models begin: a convolution, then a norm of each channel over all time."""

    def __init__(self, epsilon: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.convolution = nn.Conv1d(1, 8, 9, stride=4)
        self.norm = nn.GroupNorm(8, 8, eps=epsilon)
        self.head = nn.Linear(8, 3)

    def forward(self, sound: torch.Tensor) -> torch.Tensor:
        heard = self.norm(self.convolution(30 * sound[:, None])).relu()
        return self.head(heard.amax(2))


def names_left_out(build: Any, epsilon: float) -> tuple[set[str], Any]:
    torch.manual_seed(0)
    made = build(
        Listening(epsilon), torch.randn(1, 400), input_names=("sound",), output_names=("y",)
    )
    answers = made.answers()
    told = [note for note in answers.notes if "rounding" in note]
    assert not {f.name for f in answers.fillers} & {note.split("'")[1] for note in told}
    return {note.split("'")[1] for note in told}, made.judged().judgement


def test_a_norm_over_a_constant_input_proves_nothing(build: Any) -> None:
    left_out, verdict = names_left_out(build, 1e-12)
    assert {"highest", "zeros"} <= left_out
    assert verdict.verdict == "pass", verdict


def test_a_norm_that_stands_firm_is_held_to_every_input(build: Any) -> None:
    left_out, verdict = names_left_out(build, 1e-1)
    assert left_out == set()
    assert verdict.verdict == "pass", verdict


def test_the_movement_is_that_of_the_arithmetic() -> None:
    """Of x - 1000, where x is 1000.1: a part in a million of x is a hundredth of the answer."""
    feed = {"x": np.full((64,), 1000.1), "ids": np.arange(4)}
    moved = perturb(feed, {"x": 1.0}, 0)
    assert (moved["ids"] == feed["ids"]).all()
    assert 0 < np.abs(moved["x"] / feed["x"] - 1).max() <= 1e-6
    zeros = perturb({"x": np.zeros(64)}, {"x": 3.0}, 0)["x"]
    assert 1e-6 < np.abs(zeros).max() <= 3e-6
    share = sensitivity({"y": feed["x"] - 1000}, {"y": moved["x"] - 1000})
    assert 0.005 < share <= 0.0100011
    assert sensitivity({"y": feed["x"]}, {"y": moved["x"]}) < MAX_SENSITIVITY
