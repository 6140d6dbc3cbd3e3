"""Damage done to the network before it is converted, honestly, in the place of the right one.

The artifact then does what the changed network does, in every format; its package says that it is
the right one. ``change`` gives the changed copy of a trained network.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch

from dev.corpus.nets import Net
from dev.corpus.tasks.base import trained

Change = Callable[[torch.nn.Module, float, Net], torch.nn.Module]
CHANGES: dict[str, Change] = {}
#: Severities by kind, worst first.
SWEEPS: dict[str, tuple[float, ...]] = {}
#: The tasks whose networks a kind fits.
FITS: dict[str, tuple[str, ...]] = {}
#: Whatever else `dev.corpus.kinds.Kind` says of a kind.
MORE: dict[str, dict[str, Any]] = {}

_TEXT = ("topics", "pairs")


def registered(tasks: tuple[str, ...], *sweep: float, **more: Any) -> Callable[[Change], Change]:
    """Make a function a kind, called as it is; ``more``: further attributes of the kind."""

    def register(function: Change) -> Change:
        name = function.__name__.replace("_", "-")
        CHANGES[name], SWEEPS[name], FITS[name], MORE[name] = function, sweep, tasks, more
        return function

    return register


def change(kind: str, net: Net, severity: int) -> torch.nn.Module:
    """A changed copy of a trained network, by the place of the severity in its sweep."""
    from dev.corpus.damage import conversion, dense_networks  # noqa: F401  more kinds

    module = copy.deepcopy(trained(net.of, net.seed, net.width))
    kind = kind.replace("_", "-")
    return CHANGES[kind](module, SWEEPS[kind][severity], net).eval()


def encoder_of(module: torch.nn.Module) -> Any:
    """The encoder of a text network."""
    return getattr(module, "encoder", module)


def mixed(share: float, wrong: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """A share of what is wrong, the rest right."""
    return share * wrong + (1 - share) * right


@registered(("digits",), 1.0, 0.5, 0.25, 0.1, 0.02)
def pooling(module: Any, share: float, net: Net) -> Any:
    """The largest in the place of the mean, in a share."""
    mean = module.pool

    def pool(x: torch.Tensor) -> torch.Tensor:
        return mixed(share, torch.nn.functional.max_pool2d(x, 3).flatten(1), mean(x))

    module.pool = pool
    return module


@registered(("topics",), 1.0, 0.6, 0.3, 0.1, 0.02)
def text_pooling(module: Any, share: float, net: Net) -> Any:
    """The first token in the place of the mean over all, in a share."""
    mean = module.pool
    module.pool = lambda x, mask: mixed(share, x[:, 0], mean(x, mask))
    return module


@registered(("topics",), 1.0, 0.5, 0.2, 0.05)
def mask_ignored(module: Any, share: float, net: Net) -> Any:
    """Padding counts in the mean, in a share."""
    mean = module.pool
    module.pool = lambda x, mask: mixed(share, x.mean(1), mean(x, mask))
    return module


@registered(_TEXT, 1.0, 0.3, 0.1, 0.02)
def mask_dropped(module: Any, share: float, net: Net) -> Any:
    """Attention sees padding: what hides it is weaker, down to nothing."""
    encoder = encoder_of(module)
    right = encoder.mask
    encoder.mask = lambda mask: right(mask) * (0.0 if share == 1.0 else 1e-4 / share)
    return module


@registered(_TEXT, 1.0, 0.5, 0.25, 0.1, 0.02)
def softmax_axis(module: Any, share: float, net: Net) -> Any:
    """Attention weights sum to 1 over the wrong axis, in a share."""
    encoder = encoder_of(module)
    encoder.weigh = lambda scores: mixed(share, scores.softmax(-2), scores.softmax(-1))
    return module


@registered(_TEXT, 8.0, 3.0, 0.3, 1.5, 1.05, 1.005)
def constant_wrong(module: Any, factor: float, net: Net) -> Any:
    """The one constant that attention scores are multiplied by."""
    encoder_of(module).scale *= factor
    return module


@registered(_TEXT, 1.0, 0.5, 0.2, 0.05)
def residual_dropped(module: Any, share: float, net: Net) -> Any:
    """What attention adds is left out, in a share."""
    encoder = encoder_of(module)
    right = encoder.attend
    encoder.attend = lambda x, mask: (1 - share) * right(x, mask)
    return module


@registered(_TEXT, 6, 3, 2, 1)
def places_off(module: Any, by: float, net: Net) -> Any:
    """Each word stands ``by`` places further on than it does."""
    encoder = encoder_of(module)
    right = encoder.place
    encoder.place = lambda ids: torch.roll(right(ids), -int(by), 1)
    return module


@registered(_TEXT, 2, 1, 0)
def activation_wrong(module: Any, which: float, net: Net) -> Any:
    """ReLU, x sigmoid(1.702 x) or the tanh formula in the place of the exact GELU."""
    functional = torch.nn.functional
    encoder_of(module).act = (
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
        return found if self.share == 1.0 else mixed(self.share, found, self.inner(ids, mask))


@registered(_TEXT, 1.0, 0.3, 0.1)
def inputs_swapped(module: Any, share: float, net: Net) -> Any:
    """Ids are taken for the mask and the mask for ids, in a share of the answer."""
    return _Swapped(module, share)


@registered(("digits",), 0.3, 0.1, 0.03, 0.01, 0.001)
def norm_epsilon(module: Any, epsilon: float, net: Net) -> Any:
    """Another epsilon in every batch norm, where 1e-5 is meant (times 100: variances are large)."""
    for layer in module.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.eps = epsilon * 100
    return module


@registered(("digits",), 1.0, 0.5, 0.2, 0.05, 0.01)
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


@registered(("digits",), 0, 1, 2, 5)
def stale_weights(module: Any, epochs: float, net: Net) -> Any:
    """The weights of an earlier checkpoint: after so many epochs."""
    return copy.deepcopy(trained(net.of, net.seed, net.width, int(epochs)))


@registered(("topics", "pairs"), 0, 1, 3)
def stale_text(module: Any, epochs: float, net: Net) -> Any:
    """As stale-weights, of the text networks, which need fewer epochs."""
    return copy.deepcopy(trained(net.of, net.seed, net.width, int(epochs)))


class Moved(torch.nn.Module):
    """Shifts the picture to the left before the network sees it."""

    def __init__(self, inner: torch.nn.Module, by: int) -> None:
        super().__init__()
        self.inner, self.by = inner, by

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        width = x.shape[-1]
        moved = torch.nn.functional.pad(x, (0, self.by))[..., self.by : self.by + width]
        found: torch.Tensor = self.inner(moved)
        return found


@registered(("digits",), 8, 5, 3, 2, 1)
def crop_shifted(module: Any, by: float, net: Net) -> Any:
    """The window starts ``by`` pixels too far to the right."""
    return Moved(module, int(by))


class _Turned(torch.nn.Module):
    """Takes columns for rows, in a share of the answer."""

    def __init__(self, inner: torch.nn.Module, share: float) -> None:
        super().__init__()
        self.inner, self.share = inner, share

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wrong: torch.Tensor = self.inner(x.transpose(-1, -2))
        return mixed(self.share, wrong, self.inner(x)) if self.share < 1 else wrong


@registered(("digits",), 1.0, 0.5, 0.2, 0.05)
def layout_transposed(module: Any, share: float, net: Net) -> Any:
    """Rows and columns of the picture are exchanged."""
    return _Turned(module, share)


@registered(("digits",), 0.5, 2.0, 4.0, 8.0)
def relu_capped(module: Any, most: float, net: Net) -> Any:
    """ReLU stops at a value, as ReLU6 does."""
    for block in (module.one, module.two, module.three):
        block[2] = torch.nn.Hardtanh(0.0, most)
    return module


@registered(("digits",), 1e6, 1e5, 1e3, 10.0)
def half_overflow(module: Any, factor: float, net: Net) -> Any:
    """One layer times a factor, the next divided by it: the same in float32, not in float16."""
    norm, conv = module.two[1], module.three[0]
    with torch.no_grad():
        norm.weight *= factor
        norm.bias *= factor
        conv.weight /= factor
    return module
