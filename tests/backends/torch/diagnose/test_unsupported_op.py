"""What hints say to write instead of an op: equal to the op, and taken by every format."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn

from edgeserve import backends
from edgeserve.backends.torch.diagnose.graph_slicing import GraphSlice
from edgeserve.backends.torch.diagnose.unsupported_op import (
    REPLACEMENTS,
    op_hint,
    supporting_formats,
)
from edgeserve.convert.bisect_failure import part_failure

#: Converters warn of much that is no concern of theirs.
pytestmark = pytest.mark.filterwarnings("ignore")

Pair = tuple[Callable[..., Tensor], Callable[..., Tensor], tuple[Tensor, ...]]

NUMBERS = torch.tensor([[1, 6, 12], [7, 0, 9]])
SQUARES = torch.randn(2, 6, 6, generator=torch.Generator().manual_seed(1)) + 6 * torch.eye(6)
WAVE = torch.randn(2, 4, 12, generator=torch.Generator().manual_seed(2))
LONG, SOME = 4096, 5
SOUND = torch.randn(2, LONG, generator=torch.Generator().manual_seed(3))
ANGLES = 2 * math.pi / LONG * torch.outer(torch.arange(LONG), torch.arange(SOME)).double()
COSINES, SINES = torch.cos(ANGLES).float(), torch.sin(ANGLES).float()
WINDOW = torch.hann_window(LONG)
EDGES = torch.linspace(-2, 2, 9)
AC = torch.tensor([0.0] + [1.0] * (SOME - 1))  # a real sound's first frequency has no phase


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Folders that a converter left to the collector go here, not in a later test."""
    yield
    gc.collect()


def spectrum(x: Tensor) -> Tensor:
    """Real and imaginary parts of the first frequencies."""
    return torch.stack([x @ COSINES, -(x @ SINES)], -1)


def determinant(x: Tensor) -> Tensor:
    """By minors of the first row, down to four by four."""
    if x.shape[-1] <= 4:
        return torch.linalg.det(x)
    places = range(x.shape[-1])
    minors = [x[..., 1:, [k for k in places if k != i]] for i in places]
    terms = [(-1) ** i * x[..., 0, i] * determinant(minor) for i, minor in enumerate(minors)]
    return torch.stack(terms).sum(0)


def inverse(x: Tensor) -> Tensor:
    """The inverse of Newton and Schulz."""
    eye = torch.eye(6)
    y = x.mT / (x.abs().sum(-1).max() * x.abs().sum(-2).max())
    for _ in range(15):
        y = y @ (2 * eye - x @ y)
    return y


def correlation(x: Tensor) -> Tensor:
    """Correlations of rows."""
    c = x[0] - x[0].mean(1, True)
    c = c / c.norm(dim=1, keepdim=True)
    return c @ c.T


def stft(x: Tensor) -> Tensor:
    """What torch makes of one long window, as real and imaginary parts."""
    made = torch.stft(x, LONG, LONG, window=WINDOW, center=False, return_complex=True)
    return torch.view_as_real(made)[:, :SOME, 0]


def halved(x: Tensor) -> Tensor:
    """A sound whose spectrum has nothing beyond the first frequencies."""
    return torch.fft.irfft(torch.complex(x[..., :SOME], x[..., 1 : SOME + 1] * AC), LONG)


def from_few(x: Tensor) -> Tensor:
    """The same by two matrices: each frequency but the first counts twice."""
    twice = torch.tensor([1.0] + [2.0] * (SOME - 1)) / LONG
    re, im = x[..., :SOME] * twice, x[..., 1 : SOME + 1] * AC * twice
    return re @ COSINES.T - im @ SINES.T


#: For each op of the table: the op in a use that is refused, what the hint says, and inputs.
ROWS: dict[str, Pair] = {
    "bincount": (
        lambda x: torch.bincount(x.flatten(), minlength=16),
        lambda x: (x.flatten() == torch.arange(16)[:, None]).sum(1),
        (NUMBERS,),
    ),
    "corrcoef": (lambda x: torch.corrcoef(x[0]), correlation, (WAVE,)),
    "fft_fft": (lambda x: torch.view_as_real(torch.fft.fft(x))[:, :SOME], spectrum, (SOUND,)),
    "fft_ifft": (
        lambda x: torch.view_as_real(torch.fft.ifft(x).resolve_conj())[:, :SOME],
        lambda x: torch.stack([x @ COSINES, x @ SINES], -1) / LONG,
        (SOUND,),
    ),
    "fft_irfft": (halved, from_few, (SOUND,)),
    "fft_rfft": (lambda x: torch.view_as_real(torch.fft.rfft(x))[:, :SOME], spectrum, (SOUND,)),
    "histc": (
        lambda x: torch.histc(x, 8, -2, 2),
        lambda x: (
            ((x.flatten() >= EDGES[:-1, None]) & (x.flatten() < EDGES[1:, None])).sum(1).float()
        ),
        (WAVE,),
    ),
    "index_by_mask": (
        lambda x: x[x > 0.5].sum(),
        lambda x: torch.where(x > 0.5, x, 0).sum(),
        (WAVE,),
    ),
    "linalg_det": (torch.linalg.det, determinant, (SQUARES,)),
    "linalg_inv": (torch.linalg.inv, inverse, (SQUARES,)),
    "linalg_solve": (
        lambda x: torch.linalg.solve(x, x.mT + 1),
        lambda x: inverse(x) @ (x.mT + 1),
        (SQUARES,),
    ),
    "masked_select": (
        lambda x: x.masked_select(x > 0).mean(),
        lambda x: (x * (x > 0).float()).sum() / (x > 0).float().sum(),
        (WAVE,),
    ),
    "nonzero": (
        lambda x: (x > 1).nonzero().float().sum(0),
        lambda x: torch.stack(
            [
                ((x > 1) * torch.arange(n).reshape(s)).float().sum()
                for n, s in ((2, (2, 1, 1)), (4, (4, 1)), (12, (12,)))
            ]
        ),
        (WAVE,),
    ),
    "stft": (stft, lambda x: spectrum(x * WINDOW), (SOUND,)),
}


class Beside(nn.Module):
    """All replacements in one module, each with its inputs and its output."""

    def forward(self, *given: Tensor) -> tuple[Tensor, ...]:
        left = iter(given)
        return tuple(new(*(next(left) for _ in inputs)) for _, new, inputs in ROWS.values())


def test_each_hint_of_the_table_is_tried() -> None:
    assert set(ROWS) == set(REPLACEMENTS)


@pytest.mark.parametrize("name", ROWS)
def test_a_replacement_equals_the_op(name: str) -> None:
    op, new, inputs = ROWS[name]
    wanted, got = op(*inputs), new(*inputs)
    assert wanted.shape == got.shape
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4)


class Op(nn.Module):
    """The operator itself."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.op = ROWS[name][0]

    def forward(self, *given: Tensor) -> Tensor:
        return self.op(*given)


@pytest.mark.slow
@pytest.mark.zoo
@pytest.mark.parametrize("name", ROWS)
def test_advice_is_given_only_where_it_is_needed(name: str) -> None:
    """A hint for what converts to every format by now is out of date: take it off the table."""
    part = GraphSlice(Op(name).eval(), tuple(x.clone() for x in ROWS[name][2]), ())
    formats = ("coreml", "tflite", "onnx")
    refused = (part_failure(backends.get(format), part) for format in formats)
    assert any(failure is not None and failure.code for failure in refused)


@pytest.mark.slow
@pytest.mark.zoo
@pytest.mark.parametrize("format", ["onnx", "tflite", "coreml"])
def test_a_format_takes_all_replacements_and_answers_as_torch(format: str) -> None:
    inputs = tuple(x.clone() for _, _, given in ROWS.values() for x in given)
    whole = GraphSlice(Beside().eval(), inputs, ())  # type: ignore[arg-type]
    assert part_failure(backends.get(format), whole) is None


def test_a_hint_names_the_formats_that_take_the_op() -> None:
    assert supporting_formats("aten.index_by_mask") == ("onnx",)
    said = op_hint("aten.special_bessel_j0.default", "tflite", "do it outside the model")
    assert said == "do it outside the model"
    said = op_hint("aten.sin.default", "tflite", "use float32")
    assert said == "use float32 (in a tested model ONNX and Core ML converted this op)"
