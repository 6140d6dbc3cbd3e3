"""What hints say to write instead of an op: equal to the op, and taken by every format."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from edgeserve import backends
from edgeserve.backends.torch.advice import INSTEAD, hint, takers
from edgeserve.backends.torch.bisect import Part
from edgeserve.convert.bisect_tries import part_fails

#: Converters warn of much that is no concern of theirs.
pytestmark = pytest.mark.filterwarnings("ignore")

Pair = tuple[Callable[..., Tensor], Callable[..., Tensor], tuple[Tensor, ...]]

LEFT, RIGHT = torch.tensor([[1, 6, 12], [7, 0, 9]]), torch.tensor([[3, 5, 10], [1, 8, 15]])
SQUARES = torch.randn(2, 6, 6, generator=torch.Generator().manual_seed(1)) + 6 * torch.eye(6)
WAVE = torch.randn(2, 4, 12, generator=torch.Generator().manual_seed(2))
PARTS = torch.randn(2, 3, 2, generator=torch.Generator().manual_seed(3))
VOLUME = torch.randn(1, 2, 3, 4, 3, generator=torch.Generator().manual_seed(4))
KERNEL = torch.randn(2, 3, 3, 3, 3, generator=torch.Generator().manual_seed(5))
WEIGHT = torch.randn(9, 5, generator=torch.Generator().manual_seed(6))
ANGLES = 2 * math.pi / 12 * torch.outer(torch.arange(12), torch.arange(12))
COSINES, SINES = torch.cos(ANGLES), torch.sin(ANGLES)
EDGES = torch.linspace(-2, 2, 9)


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Folders that a converter left to the collector go here, not in a later test."""
    yield
    gc.collect()


def bits(join: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """Take numbers below 16 apart into bits and join them one by one."""

    def joined(x: Tensor, y: Tensor) -> Tensor:
        return torch.stack([join(x // 2**k % 2, y // 2**k % 2) * 2**k for k in range(4)]).sum(0)

    return joined


def spectrum(x: Tensor) -> Tensor:
    """The size of the first seven frequencies."""
    re, im = (x @ COSINES)[..., :7], -(x @ SINES)[..., :7]
    return torch.sqrt(re * re + im * im)


def inverse(x: Tensor) -> Tensor:
    """The inverse of Newton and Schulz."""
    eye = torch.eye(6)
    y = x.mT / (x.abs().sum(-1).max() * x.abs().sum(-2).max())
    for _ in range(15):
        y = y @ (2 * eye - x @ y)
    return y


def transposed(x: Tensor) -> Tensor:
    """A transposed convolution with stride 2 by an ordinary one."""
    mask = functional.pad(torch.ones(3, 4, 3, 1, 1, 1), (0, 1, 0, 1, 0, 1)).permute(
        0, 3, 1, 4, 2, 5
    )
    spread = functional.interpolate(x, scale_factor=2, mode="nearest") * mask.reshape(6, 8, 6)
    wide = functional.pad(spread[:, :, :-1, :-1, :-1], (2,) * 6)
    return functional.conv3d(wide, KERNEL.flip(2, 3, 4).transpose(0, 1))


def correlation(x: Tensor) -> Tensor:
    """Correlations of rows."""
    c = x[0] - x[0].mean(1, True)
    c = c / c.norm(dim=1, keepdim=True)
    return c @ c.T


def windows(x: Tensor) -> tuple[Tensor, Tensor]:
    """Real and imaginary parts of windows of six."""
    turn = 2 * math.pi / 6 * torch.outer(torch.arange(6), torch.arange(6))
    cut = x[:, 0].unfold(-1, 6, 3) * torch.hann_window(6)
    return cut @ torch.cos(turn)[:, :4], -(cut @ torch.sin(turn)[:, :4])


def stft(x: Tensor) -> Tensor:
    """What torch makes of the same windows, as real and imaginary parts."""
    made = torch.stft(x[:, 0], 6, 3, window=torch.hann_window(6), center=False, return_complex=True)
    return torch.view_as_real(made.transpose(1, 2))


def by_bag(x: Tensor) -> Tensor:
    return functional.embedding_bag(x, WEIGHT, mode="mean")


def product(x: Tensor) -> Tensor:
    """A complex product of a tensor with itself turned over, in real numbers."""
    a, b, c, d = x[..., 0], x[..., 1], x.flip(1)[..., 0], x.flip(1)[..., 1]
    return torch.stack([a * c - b * d, a * d + b * c], -1)


def complex_product(x: Tensor) -> Tensor:
    whole = torch.view_as_complex(x)
    return torch.view_as_real(whole * whole.flip(1))


def polar(x: Tensor) -> Tensor:
    return torch.view_as_real(torch.polar(x[..., 0].abs(), x[..., 1]))


def polar_parts(x: Tensor) -> Tensor:
    size, angle = x[..., 0].abs(), x[..., 1]
    return torch.stack([size * torch.cos(angle), size * torch.sin(angle)], -1)


#: For each op of the table: the op itself, what the hint says, and inputs.
ROWS: dict[str, Pair] = {
    "__lshift__": (
        lambda x, y: x << (y % 5),
        lambda x, y: x * torch.exp2((y % 5).float()).round().to(x.dtype), (LEFT, RIGHT),
    ),
    "bincount": (
        lambda x: torch.bincount(x.flatten(), minlength=16),
        lambda x: (x.flatten() == torch.arange(16)[:, None]).sum(1), (LEFT,),
    ),
    "bitwise_and": (torch.bitwise_and, bits(lambda a, b: a * b), (LEFT, RIGHT)),
    "bitwise_or": (torch.bitwise_or, bits(lambda a, b: a + b - a * b), (LEFT, RIGHT)),
    "bitwise_xor": (torch.bitwise_xor, bits(lambda a, b: a + b - 2 * a * b), (LEFT, RIGHT)),
    "complex": (
        lambda x: torch.complex(x[..., 0], x[..., 1]).abs(),
        lambda x: torch.sqrt(x[..., 0] * x[..., 0] + x[..., 1] * x[..., 1]), (PARTS,),
    ),
    "conv_transpose3d": (
        lambda x: functional.conv_transpose3d(x, KERNEL, stride=2), transposed, (VOLUME,),
    ),
    "corrcoef": (lambda x: torch.corrcoef(x[0]), correlation, (WAVE,)),
    "embedding_bag": (by_bag, lambda x: functional.embedding(x, WEIGHT).mean(1), (LEFT % 9,)),
    "fft_fft": (
        lambda x: torch.view_as_real(torch.fft.fft(x)),
        lambda x: torch.stack([x @ COSINES, -(x @ SINES)], -1), (WAVE,),
    ),
    "fft_ifft": (
        lambda x: torch.view_as_real(torch.fft.ifft(x).resolve_conj()),
        lambda x: torch.stack([x @ COSINES, x @ SINES], -1) / 12, (WAVE,),
    ),
    "fft_irfft": (
        lambda x: torch.fft.irfft(x[..., :7]),
        lambda x: (x[..., :7] @ torch.cat([COSINES[:1], 2 * COSINES[1:6], COSINES[6:7]])) / 12,
        (WAVE,),
    ),
    "fft_rfft": (lambda x: torch.fft.rfft(x).abs(), spectrum, (WAVE,)),
    "histc": (
        lambda x: torch.histc(x, 8, -2, 2),
        lambda x: ((x.flatten() >= EDGES[:-1, None]) & (x.flatten() < EDGES[1:, None]))
        .sum(1).float(), (WAVE,),
    ),
    "index_by_mask": (
        lambda x: x[x > 0.5].sum(), lambda x: torch.where(x > 0.5, x, 0).sum(), (WAVE,),
    ),
    "linalg_det": (
        lambda x: torch.linalg.det(x[..., :3, :3]),
        lambda x: (x[:, 0, :3] * torch.linalg.cross(x[:, 1, :3], x[:, 2, :3])).sum(-1), (SQUARES,),
    ),
    "linalg_inv": (torch.linalg.inv, inverse, (SQUARES,)),
    "linalg_solve": (
        lambda x: torch.linalg.solve(x, x.mT + 1), lambda x: inverse(x) @ (x.mT + 1), (SQUARES,),
    ),
    "masked_select": (
        lambda x: x.masked_select(x > 0).mean(),
        lambda x: (x * (x > 0).float()).sum() / (x > 0).float().sum(), (WAVE,),
    ),
    "nonzero": (
        lambda x: torch.tensor(float((x > 1).nonzero().shape[0])),
        lambda x: (x > 1).float().sum(), (WAVE,),
    ),
    "polar": (polar, polar_parts, (PARTS,)),
    "stft": (stft, lambda x: torch.stack(windows(x), -1), (WAVE,)),
    "view_as_complex": (complex_product, product, (PARTS,)),
}  # fmt: skip


class Beside(nn.Module):
    """All replacements in one module, each with its inputs and its output."""

    def forward(self, *given: Tensor) -> tuple[Tensor, ...]:
        left = iter(given)
        return tuple(new(*(next(left) for _ in inputs)) for _, new, inputs in ROWS.values())


def test_each_hint_of_the_table_is_tried() -> None:
    assert set(ROWS) == set(INSTEAD)


@pytest.mark.parametrize("name", ROWS)
def test_a_replacement_equals_the_op(name: str) -> None:
    op, new, inputs = ROWS[name]
    wanted, got = op(*inputs), new(*inputs)
    assert wanted.shape == got.shape
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("format", ["onnx", "tflite", "coreml"])
def test_a_format_takes_all_replacements_and_answers_as_torch(format: str) -> None:
    inputs = tuple(x.clone() for _, _, given in ROWS.values() for x in given)
    whole = Part(Beside().eval(), inputs, ())  # type: ignore[arg-type]
    assert part_fails(backends.get(format), whole) is None


def test_a_hint_names_the_formats_that_take_the_op() -> None:
    assert takers("aten.index_by_mask") == ("onnx",)
    said = hint("aten.special_bessel_j0.default", "tflite", "do it outside the model")
    assert said == "do it outside the model"
    said = hint("aten.sin.default", "tflite", "use float32")
    assert said == "use float32 (ONNX and Core ML take this op)"
