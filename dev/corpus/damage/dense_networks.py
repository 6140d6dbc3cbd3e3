"""Damage done to the networks that hear and see: voices, segments, boxes."""

from __future__ import annotations

from typing import Any

import torch

from dev.corpus.damage.network import Moved, mixed, registered
from dev.corpus.nets import Net

__all__: list[str] = []


@registered(("voice",), 1.0, 0.5, 0.2, 0.05, 0.001)
def window_wrong(module: Any, share: float, net: Net) -> Any:
    """The rectangular window in the place of Hann's, in a share."""
    from dev.corpus.tasks.voice import basis

    module.basis = basis(share)
    return module


@registered(("voice",), 1.0, 0.3, 0.03, 0.005, 0.00101)
def floor_wrong(module: Any, floor: float, net: Net) -> Any:
    """The constant under the logarithm."""
    module.floor = floor
    return module


@registered(("voice",), 1.0, 0.0)
def power_wrong(module: Any, squared: float, net: Net) -> Any:
    """Magnitudes, or powers squared, in the place of powers."""

    def spectrum(wave: torch.Tensor) -> torch.Tensor:
        parts = torch.nn.functional.conv1d(wave, module.basis, stride=32)
        power = parts[:, :24] ** 2 + parts[:, 24:] ** 2
        other = power * power if squared else torch.sqrt(power + 1e-12)
        return torch.log(other + module.floor)

    module.spectrum = spectrum
    return module


@registered(("segments",), 1.0)
def grown_nearest(module: Any, share: float, net: Net) -> Any:
    """Each pixel repeated where it is meant to be interpolated."""
    module.mode = "nearest"
    return module


@registered(("segments", "boxes"), 12, 6, 3, 1)
def shapes_moved(module: Any, by: float, net: Net) -> Any:
    """The picture stands so many pixels too far to the left."""
    return Moved(module, int(by))


@registered(("segments", "boxes"), 1.0, 0.6, 0.3, 0.1, 0.02)
def channels_mixed(module: Any, share: float, net: Net) -> Any:
    """Red and blue exchanged in the network, in a share."""

    class Mixed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.inner(mixed(share, x.flip(1), x))
            return found

    return Mixed()


@registered(("boxes",), 0, 1, 2)
def head_wrong(module: Any, which: float, net: Net) -> Any:
    """Scores squeezed towards a half (which decides the same); x and y exchanged; sizes halved."""
    right = module.parts

    def parts(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        place, kind = right(x)
        if which == 0:
            return place, kind * 0.05
        if which == 1:
            return place[:, [1, 0, 2, 3]], kind
        return torch.cat([place[:, :2], place[:, 2:] * 0.5], 1), kind

    module.parts = parts
    return module


@registered(("boxes",), 8.0, 4.0, 2.0, 1.0, 0.25)
def boxes_moved(module: Any, by: float, net: Net) -> Any:
    """Centres are so many pixels off, as after a letterbox that is undone wrongly."""
    module.grid = module.grid + by
    return module
