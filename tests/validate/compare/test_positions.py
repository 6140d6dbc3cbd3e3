"""Errors position by position: what one token or corner hides from every channel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from edgeserve.validate.compare.output_fields import FieldLayout, OutputField
from edgeserve.validate.compare.tensors import TensorComparison

RNG = np.random.default_rng(3)
CHANNELS = FieldLayout(2, (OutputField("values"),))


def one(pairs: list[tuple[np.ndarray, np.ndarray]], split: FieldLayout) -> Any:
    found = TensorComparison(1e-3, {"y": split})
    for i, (wanted, got) in enumerate(pairs):
        found.add(str(i), True, {"y": wanted}, {"y": got})
    (diff,) = found.natural()
    return diff


def test_the_worst_token_and_its_share() -> None:
    """Token 4 is off by a tenth in every channel, all others by a thousandth."""
    pairs = []
    for _ in range(8):
        wanted = RNG.uniform(-1, 1, (1, 9, 6)).astype(np.float32)
        off = np.full((1, 9, 1), 1e-3, np.float32)
        off[:, 4] = 0.1
        pairs.append((wanted, wanted + off))
    diff = one(pairs, CHANNELS)
    at = np.concatenate([wanted[0, 4] for wanted, _ in pairs])
    assert diff.position == (4,)
    assert float(diff.position_relative) == pytest.approx(0.1 / np.abs(at).max(), rel=1e-4)
    assert float(diff.position_share) == pytest.approx(0.01 / (0.01 + 8 * 1e-6), rel=1e-4)


def test_a_position_is_weighed_by_what_it_shows() -> None:
    """The same error counts a hundred times where the reference's own numbers are that small."""
    wanted = RNG.uniform(-1, 1, (1, 5, 40)).astype(np.float32)
    wanted[:, 2] /= 50
    diff = one([(wanted, wanted + np.float32(0.004))], CHANNELS)
    assert diff.position == (2,)
    assert float(diff.position_relative) == pytest.approx(0.004 / np.abs(wanted[0, 2]).max(), 1e-3)


def test_sequences_of_different_length_are_joined_at_their_start() -> None:
    pairs = []
    for length in (3, 7, 5):
        wanted = RNG.uniform(-1, 1, (1, length, 4)).astype(np.float32)
        got = wanted.copy()
        if length > 5:
            got[0, 6, 1] += 0.5
        pairs.append((wanted, got))
    assert one(pairs, CHANNELS).position == (6,)


def test_a_corner_of_a_map() -> None:
    wanted = RNG.uniform(-1, 1, (1, 3, 8, 10)).astype(np.float32)
    got = wanted + RNG.normal(0, 1e-4, wanted.shape).astype(np.float32)
    got[0, :, 7, 9] += 0.2
    diff = one([(wanted, got)], FieldLayout(1, (OutputField("values"),)))
    assert diff.position == (7, 9)
    assert float(diff.position_share) > 0.99


@pytest.mark.parametrize("shape", [(1, 6), (2, 5, 6)])
def test_no_positions(shape: tuple[int, ...]) -> None:
    """Classes alone have none, and of several inputs at once none is kept apart."""
    wanted = RNG.uniform(-1, 1, shape).astype(np.float32)
    assert (
        one([(wanted, wanted)], FieldLayout(len(shape) - 1, (OutputField("values"),))).position
        is None
    )


class Mixed(nn.Module):
    """A number a step for each channel: [batch, steps, 4]."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.scale = nn.Linear(4, 4), nn.Parameter(torch.ones(6, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.first(x)) * self.scale


def test_reports_tell_the_position(
    build: Callable[..., Any], sabotaged: Callable[..., Any]
) -> None:
    model = build(Mixed(), torch.randn(1, 6, 4), input_names=("x",), output_names=("y",))
    model.answers()

    def last_step(graph: Any) -> None:
        (name,) = [n for n, w in graph.weights().items() if w.size == 6]
        weight = graph.weights()[name].reshape(-1)
        weight[5] = 0.8
        graph.put({name: weight.reshape(graph.weights()[name].shape)})

    report = model.judged(sabotaged(model, last_step))
    assert report.judgement.verdict == "fail"
    (diff,) = report.outputs
    assert diff.position == (5,)
    assert float(diff.position_share) == pytest.approx(1.0, abs=1e-4)
