"""A refused op is named with its module, the user's own innermost line, and a way out."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from edgeserve import backends
from edgeserve.backends.tflite.convert_errors import ErrorTranslator
from edgeserve.backends.tflite.tensor_names import SourceOp
from edgeserve.backends.torch.diagnose.unsupported_op import (
    RefusedOp,
    find_checked_op,
    find_op_by_name,
)
from edgeserve.backends.torch.export.export import ExportOptions
from edgeserve.errors import EdgeError, UnsupportedOp
from edgeserve.user_lines import one_line

#: Converters warn of much that is no concern of theirs.
pytestmark = pytest.mark.filterwarnings("ignore")

FORMATS = ("onnx", "tflite", "coreml")


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Folders that a converter left to the collector go here, not in a later test."""
    yield
    gc.collect()


def bend(x: Tensor) -> Tensor:
    y = x * 2
    return torch.special.bessel_j0(y)  # the helper's line


class Bent(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return bend(x) + 1


class Inverted(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.linalg.inv(x + 6 * torch.eye(6))  # the inverse


class Picked(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[x > 0.5].sum()  # the mask


class Sum(nn.Module):
    """Blocks in a list; the second one is at fault."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(6, 6), nn.Sequential(nn.ReLU(), block)])

    def forward(self, x: Tensor) -> Tensor:
        return self.layers[1](self.layers[0](x))


def refused(zoo: Any, out: Path, block: nn.Module, format: str) -> EdgeError:
    example = torch.rand(1, 6, 6, generator=torch.Generator().manual_seed(1))
    net = zoo.export(type(block).__name__, Sum(block).eval(), (example,), ExportOptions())
    with pytest.raises(EdgeError) as error:
        backends.get(format).export(net.exported, net.root, out)
    return error.value


def line_of(comment: str) -> str:
    lines = Path(__file__).read_text("utf-8").splitlines()
    place = next(i for i, text in enumerate(lines, 1) if text.endswith(f"  # {comment}"))
    return f"{Path(__file__).name}:{place}"


@pytest.mark.parametrize("format", FORMATS)
def test_the_line_is_the_helpers_not_the_one_that_calls_it(
    zoo: Any, tmp_path: Path, format: str
) -> None:
    error = refused(zoo, tmp_path, Bent(), format)
    assert isinstance(error, UnsupportedOp)
    assert error.thing == "op aten.special_bessel_j0.default in layers.1.1"
    assert error.source_line == line_of("the helper's line")


@pytest.mark.parametrize("format", FORMATS)
def test_an_op_that_checks_its_result_is_named(zoo: Any, tmp_path: Path, format: str) -> None:
    """The check goes through the program as a token, and that is what converters stumble over."""
    error = refused(zoo, tmp_path, Inverted(), format)
    assert error.code in ("EDGE-OP-001", "EDGE-OP-010", "EDGE-OP-020", "EDGE-OP-021")
    assert error.thing == "op aten.linalg_inv.default in layers.1.1"
    assert error.source_line == line_of("the inverse")
    assert "invert a constant matrix in __init__" in error.hint


@pytest.mark.parametrize(("format", "code"), [("tflite", "EDGE-OP-013"), ("coreml", "EDGE-OP-023")])
def test_a_size_that_depends_on_values_is_the_ops_fault(
    zoo: Any, tmp_path: Path, format: str, code: str
) -> None:
    error = refused(zoo, tmp_path, Picked(), format)
    assert error.code == code
    assert error.thing == "op aten.index.Tensor in layers.1.1"
    assert error.source_line == line_of("the mask")
    assert "torch.where(mask, x, 0)" in error.hint
    assert "in a tested model ONNX converted this op" in error.hint


def test_what_only_tensorflow_could_run_is_led_back_to_the_op() -> None:
    """The converter names it in TensorFlow's words."""
    said = "Failed to export flatbuffer: \nSome ops are not supported by the native TFLite runtime"
    origins = {
        "add": SourceOp("aten.add.Tensor", "", None),
        "both": SourceOp("aten.bitwise_and.Tensor", "", "head"),
    }
    error = ValueError(f"{said}\nTF Select ops: BitwiseAnd\nDetails:\n\ttf.BitwiseAnd(tensor)")
    found = ErrorTranslator(origins, Path()).convert_error(error)
    assert found.code == "EDGE-OP-010"
    assert found.thing == "op aten.bitwise_and.Tensor in head"


def test_names_in_other_words() -> None:
    ops = [
        ("a", "aten.add.Tensor"),
        ("b", "aten.linalg_solve.default"),
        ("c", "aten.erfinv.default"),
    ]
    assert find_op_by_name(ops, "Erfinv") == "c"
    assert find_op_by_name(ops, "Softsign") is None
    assert find_checked_op(ops) == "b"
    assert find_checked_op(ops[::2]) is None
    assert RefusedOp("aten.add.Tensor").thing == "op aten.add.Tensor"


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (KeyError("torch.complex64\n\nWhile executing %x"), "KeyError: torch.complex64"),
        (KeyError("a", "b"), "KeyError: ('a', 'b')"),
        (ValueError("Failed:\n\n  no such op\nmore"), "ValueError: Failed: no such op"),
        (ValueError("Failed to export:"), "ValueError: Failed to export"),
        (TypeError("got <class 'a.b.c.int'> and 3"), "TypeError: got int and 3"),
        (RuntimeError(""), "RuntimeError: no message"),
    ],
)
def test_what_others_say_is_one_clean_line(error: Exception, line: str) -> None:
    assert one_line(error) == line
