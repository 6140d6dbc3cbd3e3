"""Compiled modules are taken as they were; scripted and quantized ones are refused by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from edgeserve.backends.torch.export.export import ExportOptions, export_module, unwrap_compiled
from edgeserve.errors import ConvertError

X = torch.linspace(-1, 1, 8).reshape(2, 4)


def plain() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval()


def refused(module: nn.Module) -> ConvertError:
    with pytest.raises(ConvertError) as error:
        export_module(module, (X,), ExportOptions(), Path())
    return error.value


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.parametrize("how", ["script", "trace"])
def test_a_scripted_module_is_refused_and_named(how: str) -> None:
    made = torch.jit.script(plain()) if how == "script" else torch.jit.trace(plain(), X)
    alone, inside = refused(made), refused(nn.Sequential(nn.ReLU(), nn.Sequential(made)))
    assert (alone.code, inside.code) == ("EDGE-CONVERT-028", "EDGE-CONVERT-028")
    assert alone.thing == "module Sequential"
    assert inside.thing == "module 1.0 (Sequential)"
    assert "eager module" in alone.hint


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:torch.quantize_per_tensor")
def test_a_quantized_module_is_refused_and_its_first_part_named() -> None:
    made = torch.ao.quantization.quantize_dynamic(plain(), {nn.Linear}, dtype=torch.qint8)
    error = refused(nn.Sequential(nn.ReLU(), made))
    assert (error.code, error.thing) == ("EDGE-CONVERT-029", "module 1.0 (Linear)")
    assert "--precision w8" in error.hint


def test_float_parts_of_the_quantized_packages_are_taken() -> None:
    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.add = torch.ao.nn.quantized.FloatFunctional()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.add.add(x, x)

    assert export_module(Sum(), (X,), ExportOptions(), Path()).signature.outputs[0].shape == (2, 4)


#: torch.compile imports parts of torch that warn.
WARNS = pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")


@WARNS
@pytest.mark.parametrize("where", ["top", "inside", "in place"])
def test_a_compiled_module_is_taken_as_it_was(where: str) -> None:
    module = plain()
    wanted = module(X).detach().numpy()
    if where == "top":
        made = torch.compile(module)
    elif where == "inside":
        made = nn.Sequential(torch.compile(module))
    else:
        module.compile()
        made = module
    assert isinstance(made, nn.Module)
    program = export_module(
        made, (X,), ExportOptions(dynamic_shapes=({0: ("batch", 1, 8)},)), Path()
    )
    got = program.program.module()(X)[0].detach().numpy()
    assert np.allclose(got, wanted, atol=1e-6)
    prefix = "0." if where == "inside" else ""
    assert set(program.program.state_dict) == {f"{prefix}0.weight", f"{prefix}0.bias"}


@WARNS
def test_a_shared_compiled_part_stays_shared() -> None:
    part = torch.compile(nn.Linear(4, 4))
    made = unwrap_compiled(nn.Sequential(part, nn.ReLU(), part))
    assert made[0] is made[2]
    assert type(made[0]) is nn.Linear
