"""Damage done to the network before it is converted, honestly, in the place of the right one.

The artifact then does what the changed network does, in every format; its package says that it is
the right one. ``change`` gives the changed copy of a trained network.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch

from corpus.nets import Net
from corpus.tasks.base import trained

__all__ = ["CHANGES", "SWEEPS", "change"]

Change = Callable[[torch.nn.Module, float, Net], torch.nn.Module]
CHANGES: dict[str, Change] = {}
#: Severities by kind, worst first.
SWEEPS: dict[str, tuple[float, ...]] = {}
#: The tasks whose networks a kind fits.
FITS: dict[str, tuple[str, ...]] = {}

_TEXT = ("topics", "pairs")


def _change(tasks: tuple[str, ...], *sweep: float) -> Callable[[Change], Change]:
    def register(function: Change) -> Change:
        name = function.__name__.replace("_", "-")
        CHANGES[name], SWEEPS[name], FITS[name] = function, sweep, tasks
        return function

    return register


def change(kind: str, net: Net, severity: int) -> torch.nn.Module:
    """A changed copy of a trained network, by the place of the severity in its sweep."""
    module = copy.deepcopy(trained(net.of, net.seed, net.width))
    kind = kind.replace("_", "-")
    return CHANGES[kind](module, SWEEPS[kind][severity], net).eval()


def _encoder(module: torch.nn.Module) -> Any:
    return getattr(module, "encoder", module)


def _mix(share: float, wrong: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return share * wrong + (1 - share) * right


@_change(("digits",), 1.0, 0.5, 0.25, 0.1, 0.02)
def pooling(module: Any, share: float, net: Net) -> Any:
    """The largest in the place of the mean, in a share."""
    mean = module.pool

    def pool(x: torch.Tensor) -> torch.Tensor:
        return _mix(share, torch.nn.functional.max_pool2d(x, 3).flatten(1), mean(x))

    module.pool = pool
    return module


@_change(("topics",), 1.0, 0.6, 0.3, 0.1, 0.02)
def text_pooling(module: Any, share: float, net: Net) -> Any:
    """The first token in the place of the mean over all, in a share."""
    mean = module.pool
    module.pool = lambda x, mask: _mix(share, x[:, 0], mean(x, mask))
    return module


@_change(("topics",), 1.0, 0.5, 0.2, 0.05)
def mask_ignored(module: Any, share: float, net: Net) -> Any:
    """Padding counts in the mean, in a share."""
    mean = module.pool
    module.pool = lambda x, mask: _mix(share, x.mean(1), mean(x, mask))
    return module


@_change(_TEXT, 1.0, 0.3, 0.1, 0.02)
def mask_dropped(module: Any, share: float, net: Net) -> Any:
    """Attention sees padding: what hides it is weaker, down to nothing."""
    encoder = _encoder(module)
    right = encoder.mask
    encoder.mask = lambda mask: right(mask) * (0.0 if share == 1.0 else 1e-4 / share)
    return module


@_change(_TEXT, 1.0, 0.5, 0.25, 0.1, 0.02)
def softmax_axis(module: Any, share: float, net: Net) -> Any:
    """Attention weights sum to 1 over the wrong axis, in a share."""
    encoder = _encoder(module)
    encoder.weigh = lambda scores: _mix(share, scores.softmax(-2), scores.softmax(-1))
    return module


@_change(_TEXT, 8.0, 3.0, 0.3, 1.5, 1.05, 1.005)
def constant_wrong(module: Any, factor: float, net: Net) -> Any:
    """The one constant that attention scores are multiplied by."""
    _encoder(module).scale *= factor
    return module


@_change(_TEXT, 1.0, 0.5, 0.2, 0.05)
def residual_dropped(module: Any, share: float, net: Net) -> Any:
    """What attention adds is left out, in a share."""
    encoder = _encoder(module)
    right = encoder.attend
    encoder.attend = lambda x, mask: (1 - share) * right(x, mask)
    return module


@_change(_TEXT, 6, 3, 2, 1)
def places_off(module: Any, by: float, net: Net) -> Any:
    """Each word stands ``by`` places further on than it does."""
    encoder = _encoder(module)
    right = encoder.place
    encoder.place = lambda ids: torch.roll(right(ids), -int(by), 1)
    return module


@_change(_TEXT, 2, 1, 0)
def activation_wrong(module: Any, which: float, net: Net) -> Any:
    """ReLU, x sigmoid(1.702 x) or the tanh formula in the place of the exact GELU."""
    functional = torch.nn.functional
    _encoder(module).act = (
        lambda x: functional.gelu(x, approximate="tanh"),
        lambda x: x * torch.sigmoid(1.702 * x),
        functional.relu,
    )[int(which)]
    return module


class _Swapped(torch.nn.Module):
    """Takes its two inputs in the wrong order."""

    def __init__(self, inner: torch.nn.Module, share: float) -> None:
        super().__init__()
        self.inner, self.share = inner, share

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.inner(mask, ids)
        return found if self.share == 1.0 else _mix(self.share, found, self.inner(ids, mask))


@_change(_TEXT, 1.0, 0.3, 0.1)
def inputs_swapped(module: Any, share: float, net: Net) -> Any:
    """Ids are taken for the mask and the mask for ids, in a share of the answer."""
    return _Swapped(module, share)


@_change(("digits",), 0.3, 0.1, 0.03, 0.01, 0.001)
def norm_epsilon(module: Any, epsilon: float, net: Net) -> Any:
    """Another epsilon in every batch norm, where 1e-5 is meant (times 100: variances are large)."""
    for layer in module.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.eps = epsilon * 100
    return module


@_change(("digits",), 1.0, 0.5, 0.2, 0.05, 0.01)
def norm_forgotten(module: Any, share: float, net: Net) -> Any:
    """Statistics of a fresh batch norm in the place of the learned ones, in a share."""
    for layer in module.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            mean, variance = layer.running_mean, layer.running_var
            assert mean is not None
            assert variance is not None
            layer.running_mean = mean * (1 - share)
            layer.running_var = variance * (1 - share) + share
    return module


@_change(("digits",), 0, 1, 2, 5)
def stale_weights(module: Any, epochs: float, net: Net) -> Any:
    """The weights of an earlier checkpoint: after so many epochs."""
    return copy.deepcopy(trained(net.of, net.seed, net.width, int(epochs)))


@_change(("topics", "pairs"), 0, 1, 3)
def stale_text(module: Any, epochs: float, net: Net) -> Any:
    """As stale-weights, of the text networks, which need fewer epochs."""
    return copy.deepcopy(trained(net.of, net.seed, net.width, int(epochs)))


class _Moved(torch.nn.Module):
    """Shifts the picture to the left before the network sees it."""

    def __init__(self, inner: torch.nn.Module, by: int) -> None:
        super().__init__()
        self.inner, self.by = inner, by

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        width = x.shape[-1]
        moved = torch.nn.functional.pad(x, (0, self.by))[..., self.by : self.by + width]
        found: torch.Tensor = self.inner(moved)
        return found


@_change(("digits",), 8, 5, 3, 2, 1)
def crop_shifted(module: Any, by: float, net: Net) -> Any:
    """The window starts ``by`` pixels too far to the right."""
    return _Moved(module, int(by))


class _Turned(torch.nn.Module):
    """Takes columns for rows, in a share of the answer."""

    def __init__(self, inner: torch.nn.Module, share: float) -> None:
        super().__init__()
        self.inner, self.share = inner, share

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wrong: torch.Tensor = self.inner(x.transpose(-1, -2))
        return _mix(self.share, wrong, self.inner(x)) if self.share < 1 else wrong


@_change(("digits",), 1.0, 0.5, 0.2, 0.05)
def layout_transposed(module: Any, share: float, net: Net) -> Any:
    """Rows and columns of the picture are exchanged."""
    return _Turned(module, share)


@_change(("digits",), 0.5, 2.0, 4.0, 8.0)
def relu_capped(module: Any, most: float, net: Net) -> Any:
    """ReLU stops at a value, as ReLU6 does."""
    for block in (module.one, module.two, module.three):
        block[2] = torch.nn.Hardtanh(0.0, most)
    return module


@_change(("digits",), 1e6, 1e5, 1e3, 10.0)
def half_overflow(module: Any, factor: float, net: Net) -> Any:
    """One layer times a factor, the next divided by it: the same in float32, not in float16."""
    norm, conv = module.two[1], module.three[0]
    with torch.no_grad():
        norm.weight *= factor
        norm.bias *= factor
        conv.weight /= factor
    return module


@_change(("voice",), 1.0, 0.5, 0.2, 0.05, 0.001)
def window_wrong(module: Any, share: float, net: Net) -> Any:
    """The rectangular window in the place of Hann's, in a share."""
    from corpus.tasks.voice import basis

    module.basis = basis(share)
    return module


@_change(("voice",), 1.0, 0.3, 0.03, 0.005, 0.00101)
def floor_wrong(module: Any, floor: float, net: Net) -> Any:
    """The constant under the logarithm."""
    module.floor = floor
    return module


@_change(("voice",), 1.0, 0.0)
def power_wrong(module: Any, squared: float, net: Net) -> Any:
    """Magnitudes, or powers squared, in the place of powers."""

    def spectrum(wave: torch.Tensor) -> torch.Tensor:
        parts = torch.nn.functional.conv1d(wave, module.basis, stride=32)
        power = parts[:, :24] ** 2 + parts[:, 24:] ** 2
        other = power * power if squared else torch.sqrt(power + 1e-12)
        return torch.log(other + module.floor)

    module.spectrum = spectrum
    return module


@_change(("segments",), 1.0)
def grown_nearest(module: Any, share: float, net: Net) -> Any:
    """Each pixel repeated where it is meant to be interpolated."""
    module.mode = "nearest"
    return module


@_change(("segments", "boxes"), 12, 6, 3, 1)
def shapes_moved(module: Any, by: float, net: Net) -> Any:
    """The picture stands so many pixels too far to the left."""
    return _Moved(module, int(by))


@_change(("segments", "boxes"), 1.0, 0.6, 0.3, 0.1, 0.02)
def channels_mixed(module: Any, share: float, net: Net) -> Any:
    """Red and blue exchanged in the network, in a share."""

    class Mixed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.inner(_mix(share, x.flip(1), x))
            return found

    return Mixed()


@_change(("boxes",), 0, 1, 2)
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


@_change(("boxes",), 8.0, 4.0, 2.0, 1.0, 0.25)
def boxes_moved(module: Any, by: float, net: Net) -> Any:
    """Centres are so many pixels off, as after a letterbox that is undone wrongly."""
    module.grid = module.grid + by
    return module
