"""What cannot become a TFLite file is refused with the op, the user's own line, and a way out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import pytest
import torch
from torch import nn

from edgeserve import backends
from edgeserve.backends.sizes import Sizes
from edgeserve.backends.tflite.convert_errors import ErrorTranslator
from edgeserve.backends.tflite.inspect import check_converted_io, read_signatures
from edgeserve.backends.tflite.schema import read_model, write_model
from edgeserve.backends.torch.export.export import ExportOptions
from edgeserve.errors import ConvertError, EdgeError, UnsupportedOp

HERE = Path(__file__).name


class NoLowering(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        return torch.special.bessel_j0(y) + y  # line of the first


class Wide(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.double()
        return torch.sin(wide).float()  # line of the second


class Spectrum(nn.Module):
    """Too long for two matrices of ours, and of no power of two, which is all that LiteRT takes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wave = nn.functional.pad(x.reshape(1, 16), (0, 2985))
        return torch.fft.rfft(wave, n=3001).abs()  # line of the third


def line_of(comment: str) -> str:
    lines = Path(__file__).read_text("utf-8").splitlines()
    return f"tflite/{HERE}:{next(i for i, text in enumerate(lines, 1) if text.endswith(comment))}"


@pytest.mark.parametrize(
    ("module", "code", "op", "comment"),
    [
        (NoLowering, "EDGE-OP-010", "aten.special_bessel_j0.default", "# line of the first"),
        (Wide, "EDGE-OP-011", "aten.sin.default", "# line of the second"),
        (Spectrum, "EDGE-OP-012", "aten.fft_rfft.default", "# line of the third"),
    ],
)
def test_an_op_that_cannot_be_used_is_named_with_its_line(
    module: type[nn.Module], code: str, op: str, comment: str, made: Callable[..., Any]
) -> None:
    with pytest.raises(UnsupportedOp) as error:
        made(module.__name__, module(), (torch.randn(4, 4),))
    assert error.value.code == code
    assert op in error.value.message
    assert error.value.source_line == line_of(comment)


def test_the_compilers_own_word_is_given(made: Callable[..., Any]) -> None:
    with pytest.raises(UnsupportedOp) as error:
        made("wide", Wide(), (torch.randn(4, 4),))
    assert "failed to legalize operation 'tfl.sin'" in error.value.message


def test_a_program_that_does_not_hold_for_one_sample(zoo: Any, tmp_path: Path) -> None:
    """The exported program declares a batch from 2 on; a signature that lies says from 1."""
    import msgspec

    class Pairs(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.reshape(-1, 2, 3).sum(1)

    net = zoo.export("tflite-odd", Pairs(), (torch.randn(4, 3),), ExportOptions())
    spec = msgspec.structs.replace(net.exported.signature.inputs[0], shape=("batch", 3))
    out = msgspec.structs.replace(net.exported.signature.outputs[0], shape=("batch", 3))
    signature = msgspec.structs.replace(
        net.exported.signature, inputs=(spec,), outputs=(out,), dims={"batch": (1, 8)}
    )
    lying = msgspec.structs.replace(net.exported, signature=signature)
    with pytest.raises(ConvertError) as error:
        backends.get("tflite").export(lying, net.root, tmp_path)
    assert error.value.code == "EDGE-CONVERT-042"


def test_what_no_op_is_to_blame_for() -> None:
    found: EdgeError = ErrorTranslator({}, Path()).convert_error(RuntimeError("out of paper\nmore"))
    assert found.code == "EDGE-CONVERT-040"
    assert "RuntimeError: out of paper" in found.message
    assert "more" not in found.message


def test_a_file_with_other_edges_is_refused(digits: Any) -> None:
    found = read_signatures(read_model(digits.file.root / "model.tflite"))
    signature = digits.file.net.exported.signature
    (made,) = check_converted_io(found, signature, [Sizes(None, {"batch": 1})])
    assert made == digits.file.artifact.io
    for wrong in (
        [Sizes(None, {"batch": 2})],
        [Sizes("len_16", {"batch": 1})],
        [Sizes("len_16", {"batch": 1}), Sizes("len_32", {"batch": 1})],
    ):
        with pytest.raises(ConvertError) as error:
            check_converted_io(found, signature, wrong)
        assert error.value.code == "EDGE-CONVERT-041"


def test_a_file_that_does_not_fit_its_tables_is_refused(
    digits: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = read_model(digits.file.root / "model.tflite")
    model.buffers[-1].data = np.zeros(3 << 20, np.uint8)
    monkeypatch.setattr(flatbuffers.Builder, "MAX_BUFFER_SIZE", 2 << 20)
    with pytest.raises(ConvertError) as error:
        write_model(model)
    assert error.value.code == "EDGE-CONVERT-043"
