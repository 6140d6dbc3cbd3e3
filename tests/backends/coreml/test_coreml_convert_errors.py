"""What coremltools refuses, as codes: the source op, the user's own line, the converter's words."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch import nn

from edgeserve.errors import ConvertError, EdgeError, UnsupportedOp
from edgeserve.types.processing import InputProcessing, Processing
from edgeserve.types.source import Source

HERE = Path(__file__)


class Decomposed(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.qr(x)[1]


class Wide(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.reshape(-1, 2, 2, 2, 2, 2)
        return y.permute(0, 5, 4, 3, 2, 1).relu()


def refused(packages: Any, module: nn.Module, shape: tuple[int, ...], route: str) -> EdgeError:
    source = Source("factory", "x:y", str(HERE.parent))
    net = packages.export(module, (torch.randn(shape),), ({0: "batch"},), source=source)
    with pytest.raises(EdgeError) as error:
        packages.make(net, route=route)
    return error.value


def line_of(module: type[nn.Module], text: str) -> str:
    lines, start = inspect.getsourcelines(module)
    return f"{HERE.name}:{start + next(i for i, line in enumerate(lines) if text in line)}"


@pytest.mark.parametrize("route", ["whole", "core-aten"])
def test_an_operator_without_a_translation(packages: Any, route: str) -> None:
    error = refused(packages, Decomposed(), (1, 4, 4), route)
    assert isinstance(error, UnsupportedOp)
    assert error.code == "EDGE-OP-020"
    assert "aten.linalg_qr" in error.message
    assert error.source_line == line_of(Decomposed, "linalg.qr")


@pytest.mark.parametrize("route", ["whole", "core-aten"])
def test_a_use_that_core_ml_does_not_have(packages: Any, route: str) -> None:
    """Six axes in what comes out; coremltools notices when it is done, and names a layer."""
    error = refused(packages, Wide(), (1, 32), route)
    assert isinstance(error, UnsupportedOp)
    assert error.code == "EDGE-OP-021"
    assert "aten.relu" in error.message
    assert "rank 6" in error.message
    assert error.source_line == line_of(Wide, "relu")


def test_a_failure_that_names_no_operator(packages: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from edgeserve.backends.coreml.coremltools_import import coremltools

    def full(*_: Any, **__: Any) -> None:
        raise OSError("no space\nleft")

    net = packages.zoo.net("conv")
    monkeypatch.setattr(coremltools(), "convert", full)
    with pytest.raises(ConvertError) as error:
        packages.make(net)
    assert error.value.code == "EDGE-CONVERT-051"
    assert "OSError: no space" in error.value.message


def test_a_program_that_does_not_hold_for_the_sizes(packages: Any, text: Any) -> None:
    """Only one of two inputs of one length can be padded: both lengths cannot be had at once."""

    class Doubled(nn.Module):
        def forward(self, ids: torch.Tensor, twice: torch.Tensor) -> torch.Tensor:
            return ids.float() + twice.reshape(ids.shape[0], -1, 2).sum(-1)

    length = torch.export.Dim("length", min=2, max=40)
    inputs = text.exported.processing.inputs[0]
    net = packages.export(
        Doubled(),
        (torch.ones(1, 5, dtype=torch.int64), torch.ones(1, 10)),
        {"ids": {1: length}, "twice": {1: 2 * length}},
        processing=Processing(inputs=(InputProcessing("ids", inputs.steps),)),
    )
    with pytest.raises(ConvertError) as error:
        packages.make(net)
    assert error.value.code == "EDGE-CONVERT-053"
    assert "length" in error.value.message


def test_a_system_too_old_for_several_lengths(packages: Any, text: Any) -> None:
    with pytest.raises(ConvertError) as error:
        packages.make(text, target="iOS17")
    assert error.value.code == "EDGE-CONVERT-054"
    assert "iOS18" in error.value.message


def test_a_package_with_other_edges_is_not_handed_on(packages: Any) -> None:
    """The names in the signature are not those that the converter was told."""
    from edgeserve.backends.coreml.export_request import CoremlExportRequest, check_converted_io
    from edgeserve.backends.sizes import Sizes

    package = packages("difference")
    io = package.artifact.io
    turned = msgspec.structs.replace(io, inputs=io.inputs[::-1])
    order, sizes = (
        CoremlExportRequest(package.net.exported, "whole", "fp32", {}),
        [Sizes(None, {"batch": 1})],
    )
    check_converted_io([io], order, sizes)
    with pytest.raises(ConvertError) as error:
        check_converted_io([turned], order, sizes)
    assert error.value.code == "EDGE-CONVERT-052"
