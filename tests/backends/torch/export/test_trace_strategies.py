"""Ways of tracing: tried in their order, the log says which won, and all give the same program."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from edgeserve.backends.torch.export.export import ExportOptions, export_module
from edgeserve.backends.torch.export.trace_strategies import STRATEGIES
from edgeserve.errors import ConvertError

HERE = Path(__file__).parent
X = torch.linspace(-1, 1, 6).reshape(2, 3)
OPEN = {"x": {0: ("batch", 1, 8)}}


class Plain(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x)


class ByNumpy(nn.Module):
    """Numpy inside forward: only its bytecode tells torch what that means."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(np.tanh(x.numpy())) + x


class Opaque(nn.Module):
    """Nothing can see into this."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tensor(eval(str(x.tolist())))


def said(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [
        line for line in capsys.readouterr().out.splitlines() if line.startswith("trace strategy ")
    ]


def test_the_first_way_wins_where_it_can(capsys: pytest.CaptureFixture[str]) -> None:
    program = export_module(Plain().eval(), (X,), ExportOptions(dynamic_shapes=OPEN), HERE)
    assert said(capsys) == [f"trace strategy {STRATEGIES[0].name!r} succeeded"]
    assert program.notes == ()


def test_bytecode_is_read_where_forward_cannot_be_followed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    program = export_module(ByNumpy().eval(), (X,), ExportOptions(dynamic_shapes=OPEN), HERE)
    lines = said(capsys)
    names = [way.name for way in STRATEGIES]
    assert [line.split("'")[1] for line in lines] == names
    assert [line.split()[-1] == "succeeded" for line in lines] == [False, False, True]
    assert program.signature.dims == {"batch": (1, 8)}
    assert program.notes == (STRATEGIES[-1].note,)
    x = np.linspace(-2, 2, 15, dtype=np.float32).reshape(5, 3)
    (got,) = program.program.module()(torch.from_numpy(x))
    np.testing.assert_allclose(got.numpy(), np.tanh(x) + x, atol=1e-6)


def test_where_no_way_works_the_users_line_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConvertError) as error:
        export_module(Opaque().eval(), (X,), ExportOptions(), HERE)
    assert error.value.code in ("EDGE-CONVERT-014", "EDGE-CONVERT-015")
    assert str(error.value.source_line).startswith(Path(__file__).name)
    assert not any(line.endswith("succeeded") for line in said(capsys))
