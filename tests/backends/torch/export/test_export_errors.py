"""What cannot be exported is refused: with a code, the user's own line and what to do about it."""

from __future__ import annotations

import hashlib
import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from edgeserve.backends.torch.export.export import ExportOptions, export_module
from edgeserve.backends.torch.program.inspect import weights_of
from edgeserve.errors import ConvertError

HERE = Path(__file__).parent
X = torch.linspace(-1, 1, 6).reshape(2, 3)


class Call(nn.Module):
    """A module around a function of one tensor."""

    def __init__(self, function: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


def export(module: nn.Module, examples: object = (X,), **wishes: Any) -> Any:
    return export_module(module.eval(), examples, ExportOptions(**wishes), HERE)


def refused(module: nn.Module, examples: object = (X,), **wishes: Any) -> ConvertError:
    with pytest.raises(ConvertError) as error:
        export(module, examples, **wishes)
    assert error.value.hint
    return error.value


def line(function: Callable[..., Any], offset: int = 0) -> str:
    """Where a function of this file stands, as an error shows it."""
    return f"{Path(__file__).name}:{inspect.getsourcelines(function)[1] + offset}"


def branch_on_size(x: torch.Tensor) -> torch.Tensor:
    if x.shape[0] == 1:
        return x * 5
    return x + 1


def branch_on_values(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        return x * 5
    return x + 1


def fails(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(7)


def in_eights(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(x.shape[0], x.shape[1] // 8, 8)


def fails_below_two(x: torch.Tensor) -> torch.Tensor:
    return x[: x.shape[0] // 2].max(0).values


def test_a_branch_on_the_batch_size_cannot_pass_for_right() -> None:
    """Traced at 2 the branch is invisible; comparing at 1 shows it."""
    error = refused(Call(branch_on_size), dynamic_shapes={"x": {0: "batch"}})
    assert error.code == "EDGE-CONVERT-017"
    assert "[1, 3]" in error.message
    program = export(Call(branch_on_size), dynamic_shapes={"x": {0: ("batch", 2, 8)}})
    assert program.signature.dims == {"batch": (2, 8)}


def test_a_branch_on_values_is_refused_at_its_line() -> None:
    error = refused(Call(branch_on_values))
    assert (error.code, error.thing) == ("EDGE-CONVERT-014", "forward of Call")
    assert error.source_line == line(branch_on_values, 1)


def test_a_branch_on_values_names_the_module_that_holds_it() -> None:
    error = refused(nn.Sequential(nn.Linear(3, 3), nn.Sequential(Call(branch_on_values))))
    assert error.thing == "forward of 1.0 (Call)"
    assert error.source_line == line(branch_on_values, 1)


class LastOfThree(nn.Module):
    """A recurrent layer below the top, over a length."""

    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.steps = kind(3, 4, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.steps(x)[0][:, -1]


@pytest.mark.filterwarnings("ignore:The tensor attributes self._flat_weights")
@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM, nn.RNN])
def test_a_length_that_a_recurrent_layer_fixes_is_told_once_with_layer_and_line(
    kind: type[nn.RNNBase],
) -> None:
    module, shapes = LastOfThree(kind), ({0: ("batch", 1, 8), 1: ("length", 2, 9)},)
    error = refused(module, (torch.ones(2, 5, 3),), dynamic_shapes=shapes)
    assert error.code == "EDGE-CONVERT-013"
    said = f"length can only be 5: it is fixed in steps ({kind.__name__})"
    assert error.got.count(said) == error.got.count("length") == 1
    assert error.source_line == line(LastOfThree.forward, 1)
    assert "recurrent layer" in error.hint
    program = export(module, (torch.ones(2, 5, 3),), dynamic_shapes=shapes, shapes="auto")
    assert program.signature.dims == {"batch": (1, 8)}
    (note,) = program.notes
    assert said in note
    assert "'length' is fixed at 5" in note
    assert line(LastOfThree.forward, 1) in note
    assert "recurrent layer" in note


def correlates(x: torch.Tensor) -> torch.Tensor:
    return torch.corrcoef(x)


def test_an_operator_that_chooses_by_values_is_named_with_its_line() -> None:
    error = refused(Call(correlates))
    assert error.code == "EDGE-CONVERT-014"
    assert "(aten.equal)" in error.message
    assert error.source_line == line(correlates, 1)


def test_a_module_that_fails_is_refused_at_its_line() -> None:
    error = refused(Call(fails))
    assert error.code == "EDGE-CONVERT-012"
    assert error.source_line == line(fails, 1)
    assert "shape '[7]' is invalid" in error.message


def test_a_range_that_forward_does_not_take_is_refused() -> None:
    error = refused(Call(fails_below_two), dynamic_shapes={"x": {0: "batch"}})
    assert error.code == "EDGE-CONVERT-012"
    assert "at [1, 3]" in error.message
    assert error.source_line == line(fails_below_two, 1)


def test_random_numbers_are_refused() -> None:
    error = refused(Call(lambda x: x + torch.rand_like(x)))
    assert error.code == "EDGE-CONVERT-017"
    assert "random" in error.hint


@pytest.mark.parametrize(
    ("module", "shapes", "said", "hint"),
    [
        (nn.Sequential(nn.Flatten(0), nn.Linear(32, 2)), ({0: "rows"},), "rows", "rows = 2"),
        (Call(in_eights), ({1: ("n", 2, 64)},), "Not all values of n", "n = 8*_n"),
        (Call(torch.relu), ({0: ("n", 4, 64)},), "2 not in range [4, 64]", "narrower range"),
    ],
)
def test_a_dimension_that_cannot_vary_is_refused_with_torchs_advice(
    module: nn.Module, shapes: Any, said: str, hint: str
) -> None:
    error = refused(module, (torch.ones(2, 16),), dynamic_shapes=shapes)
    assert error.code == "EDGE-CONVERT-013"
    assert said in error.message
    assert hint in error.hint
    assert "\n" not in error.message + error.hint


def test_dimensions_that_must_be_equal_are_refused_with_torchs_advice() -> None:
    class Add(nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return a + b

    error = refused(Add(), (X, X), dynamic_shapes=({0: "rows"}, {0: "others"}))
    assert error.code == "EDGE-CONVERT-013"
    assert "others = rows" in error.hint
    program = export(Add(), (X, X), dynamic_shapes=({0: "rows"}, {0: "rows"}))
    assert {s.shape for s in program.signature.inputs} == {("rows", 3)}


@pytest.mark.parametrize(
    ("examples", "said"),
    [
        (X, "Tensor"),
        ((), "missing a required argument"),
        ((X, X), "too many"),
        ({"y": X}, "'x'"),
        (([X.numpy()],), "ndarray"),
        ((torch.fft.fft(X),), "complex"),
        ((X.to_sparse(),), "sparse"),
        (None, "NoneType"),
        ("x", "str"),
        ((X.bfloat16(),), "bfloat16"),
    ],
)
def test_examples_that_do_not_fit_are_refused(examples: object, said: str) -> None:
    error = refused(Call(torch.relu), examples)
    assert error.code in ("EDGE-CONVERT-011", "EDGE-CONVERT-027")
    assert said in error.message


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.shape[0],
        lambda x: "x",
        lambda x: None,
        lambda x: (x, 1.0),
        lambda x: torch.fft.fft(x),
        lambda x: object(),
    ],
)
def test_outputs_that_are_no_tensors_are_refused(function: Any) -> None:
    assert refused(Call(function)).code == "EDGE-CONVERT-016"


@pytest.mark.parametrize(
    "wishes",
    [
        {"input_names": ("a", "b")},
        {"input_names": ("",)},
        {"output_names": ("a", "b", "c")},
        {"output_names": ("a", "a")},
        {"input_names": ("a",), "output_names": ("a", "b")},
    ],
)
def test_names_that_do_not_fit_are_refused(wishes: Any) -> None:
    error = refused(Call(lambda x: (x + 1, x)), **wishes)
    assert error.code == "EDGE-CONVERT-022"
    assert next(iter(reversed(wishes))) in error.message


@pytest.mark.parametrize(
    ("shapes", "said"),
    [
        ("batch", "str"),
        ({"y": {0: "n"}}, "'y'"),
        ({"x": "n"}, "'n'"),
        ({"x": {2: "n"}}, "2"),
        ({"x": {"0": "n"}}, "'0'"),
        ({"x": {0: ("n", 1)}}, "('n', 1)"),
        ({"x": {0: "no name"}}, "no name"),
        ({"x": {0: ("n", 8, 2)}}, "max=2"),
        ({"x": ("n",)}, "('n',)"),
    ],
)
def test_shapes_that_cannot_be_read_are_refused(shapes: object, said: str) -> None:
    error = refused(Call(torch.relu), dynamic_shapes=shapes)
    assert error.code == "EDGE-CONVERT-025"
    assert said in error.message


def test_a_module_without_weights_is_refused() -> None:
    assert refused(nn.Linear(3, 4, device="meta")).code == "EDGE-CONVERT-026"


def test_a_complex_weight_is_known_by_its_parts() -> None:
    class Rotated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("turn", torch.ones(3, dtype=torch.complex64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.view_as_real(x * self.turn)

    (weight,) = weights_of(export(Rotated()).program)
    pairs = np.tile(np.array([1, 0], "<f4"), (3, 1))
    assert (weight.name, weight.dtype, weight.shape) == ("turn", "float32", (3, 2))
    assert weight.sha256 == hashlib.sha256(pairs.tobytes()).hexdigest()


def test_a_line_of_an_installed_package_is_the_second_choice(tmp_path: Path) -> None:
    """The user's folder often holds the environment: a line in site-packages is not the user's."""
    site = tmp_path / "venv" / "lib" / "site-packages" / "zoo"
    site.mkdir(parents=True)
    (site / "net.py").write_text("def deep(x):\n    raise ValueError('deep')\n")
    (tmp_path / "mine.py").write_text(
        "import sys\nsys.path.insert(0, sys.argv[1])\nfrom zoo.net import deep\n"
        "from pathlib import Path\n"
        "from edgeserve.user_lines import line_of_error\n"
        "try:\n    deep(1)\nexcept ValueError as error:\n"
        "    print(line_of_error(error, Path(sys.argv[2])), line_of_error(error, Path('/else')))\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", str(tmp_path / "mine.py"), str(site.parent), str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["mine.py:7", f"{site / 'net.py'}:2"]
