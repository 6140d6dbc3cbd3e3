"""What public converters and quantizers have done to networks, as changes of the network itself.

The harm of a known accident is reproduced in every format, whichever tool it is known of.
"""

from __future__ import annotations

from typing import Any

import torch

from dev.corpus.damage.network import encoder_of, mixed, registered
from dev.corpus.nets import Net
from dev.corpus.tasks.language import LENGTH

__all__: list[str] = []

_TEXT = ("topics", "pairs")


class _Stepped(torch.nn.Module):
    """All that a network says, in multiples of one step."""

    def __init__(self, inner: torch.nn.Module, step: float) -> None:
        super().__init__()
        self.inner, self.step = inner, step

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.round(self.inner(x) * (1 / self.step)) * self.step


@registered(("boxes",), 640.0, 240.0, 160.0, 96.0, 48.0, 12.0, blind=False)
def one_scale_for_all(module: Any, range: float, net: Net) -> Any:
    """Boxes and scores go through one 8-bit scale, whose range is so many pixels."""
    return _Stepped(module, range / 255)


@registered(("digits", "boxes"), 1.0, 0.3, 0.1, 0.03, blind=False)
def relu_dropped(module: Any, slope: float, net: Net) -> Any:
    """What is below zero passes the first two ReLUs, times a slope; 1: there is no ReLU."""
    for block in (module.one, module.two):
        block[2] = torch.nn.LeakyReLU(slope)
    return module


@registered(_TEXT, 1.0, 0.5, 0.2, 0.05, 0.01, blind=False)
def turned_as_reshape(module: Any, share: float, net: Net) -> Any:
    """Keys are read in another shape where they are to be transposed, in a share."""
    encoder = encoder_of(module)
    shape = (-1, encoder.heads, encoder.width // encoder.heads, LENGTH)
    right = encoder.turn
    encoder.turn = lambda k: mixed(share, k.reshape(shape), right(k))
    return module


@registered(_TEXT, 3.4e38, 1e5, 6e4, precisions=("fp16",), every_format=True, blind=False)
def mask_extreme(module: Any, most: float, net: Net) -> Any:
    """Padding is hidden by a number beyond float16, or at its edge: the same in float32."""
    encoder_of(module).mask = lambda mask: (1.0 - mask[:, None, None].float()) * -most
    return module


@registered(("boxes",), 1.5, 1.2, 1.1, 1.05, 1.01, blind=False)
def boxes_scaled(module: Any, factor: float, net: Net) -> Any:
    """Centres and sizes times a factor, as where padding was counted into the picture."""
    right = module.parts

    def parts(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        place, kind = right(x)
        return place * factor, kind

    module.parts = parts
    return module


class _Saturated(torch.nn.Module):
    """Takes ids beyond the largest for the largest."""

    def __init__(self, inner: torch.nn.Module, most: int) -> None:
        super().__init__()
        self.inner, self.most = inner, most

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.inner(ids.clamp(max=self.most), mask)
        return found


@registered(_TEXT, 0.3, 0.6, 0.9, 0.985)
def ids_saturated(module: Any, share: float, net: Net) -> Any:
    """Ids are held in a type that ends at a share of those that a task uses."""
    used = {"topics": 77, "pairs": 221}[net.task]
    return _Saturated(module, round(share * used) - 1)
