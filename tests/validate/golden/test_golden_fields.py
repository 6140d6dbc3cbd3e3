"""Golden cases of named tensors say which parts of an output have which scale."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from edgeserve.data import read_arrays
from edgeserve.golden_compare import compare_arrays
from edgeserve.types.base import decode, encode
from edgeserve.types.samples import Golden
from edgeserve.validate.golden.make import make_golden
from edgeserve.validate.requests import GoldenRequest


class Head(nn.Module):
    """Four numbers in hundreds and three shares, [batch, 7]."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.line = nn.Linear(6, 7)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.sigmoid(2 * self.line(x))
        return torch.cat([640 * y[:, :4], y[:, 4:]], 1)


@pytest.fixture(scope="module")
def made(build: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Golden]:
    model = build(Head(), torch.randn(1, 6), input_names=("x",), output_names=("y",))
    data = tmp_path_factory.mktemp("rows") / "data.npz"
    np.savez(data, x=np.random.default_rng(2).normal(size=(60, 6)).astype(np.float32))
    model.answers(data=str(data), golden=4)
    request = GoldenRequest(source_folder=str(model.source), out=str(model.root), error=1e-6)
    return model, make_golden(request)


def test_fields_and_scales_are_those_of_the_gate(made: tuple[Any, Golden]) -> None:
    model, golden = made
    assert [(f.output, f.axis, f.runs) for f in golden.fields] == [
        ("y", 1, ((0, 4),)),
        ("y", 1, ((4, 7),)),
    ]
    wanted = [float(diff.scale) for diff in model.judged().outputs]
    for field, scale in zip(golden.fields, wanted, strict=True):
        assert field.scale == pytest.approx(scale, rel=0.3), "16 answers instead of 30"
    assert golden.fields[0].scale > 300 > 1 > golden.fields[1].scale
    assert decode(encode(golden), Golden) == golden


def test_a_device_without_scores_does_not_hold(made: tuple[Any, Golden]) -> None:
    model, golden = made
    for case in golden.cases:
        assert case.outputs is not None
        wanted = read_arrays(Path(model.root) / case.outputs.path)
        broken = {"y": wanted["y"].copy()}
        assert not compare_arrays(wanted, broken, case.tolerance, golden.fields).wrong
        broken["y"][:, 4:] = wanted["y"][:, 4:] + 0.2
        assert not compare_arrays(wanted, broken, case.tolerance).wrong, "a third of a thousandth"
        assert compare_arrays(wanted, broken, case.tolerance, golden.fields).wrong
