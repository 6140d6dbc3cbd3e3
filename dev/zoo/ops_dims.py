"""Operators along one axis: counted from the end, of size one, and in tensors of five axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as f

from dev.zoo.model_helpers import noise

#: Places that are counted from the end; in the second and third the axis has size one.
EXAMPLES: dict[str, tuple[Tensor, int]] = {
    "first": (noise(2, 3, 4), -3),
    "one": (noise(1, 3, 4), -3),
    "last_one": (noise(2, 3, 1), -1),
    "of_five": (noise(2, 3, 2, 4, 3), -4),
}

ALONG: dict[str, Callable[[Tensor, int], Any]] = {
    "sum": lambda x, d: x.sum(d),
    "amax": lambda x, d: x.amax(d, keepdim=True),
    "max": lambda x, d: tuple(x.max(d)),
    "argmax": lambda x, d: x.argmax(d),
    "argmin": lambda x, d: x.argmin(d, keepdim=True),
    "prod": lambda x, d: x.prod(d),
    "std": lambda x, d: x.std(d, correction=0),
    "var_mean": lambda x, d: torch.var_mean(x, d, correction=0),
    "norm": lambda x, d: x.norm(dim=d),
    "logsumexp": lambda x, d: x.logsumexp(d),
    "any": lambda x, d: (x > 0.5).any(d),
    "median": lambda x, d: tuple(x.median(d)),
    "kthvalue": lambda x, d: tuple(x.kthvalue(1, d)),
    "topk": lambda x, d: tuple(x.topk(1, d)),
    "topk_smallest": lambda x, d: tuple(x.topk(1, d, largest=False)),
    "sort": lambda x, d: tuple(x.sort(d)),
    "argsort": lambda x, d: x.argsort(d, descending=True),
    "cumsum": lambda x, d: x.cumsum(d),
    "cumprod": lambda x, d: x.cumprod(d) * 2,
    "cummax": lambda x, d: tuple(x.cummax(d)),
    "cummin": lambda x, d: tuple(x.cummin(d)),
    "logcumsumexp": lambda x, d: x.logcumsumexp(d) * 2,
    "aminmax": lambda x, d: tuple(x.aminmax(dim=d)),
    "count_nonzero": lambda x, d: (x > 0).count_nonzero(d),
    "quantile": lambda x, d: x.quantile(0.3, dim=d),
    "softmax": lambda x, d: x.softmax(d) * x,
    "log_softmax": lambda x, d: x.log_softmax(d) * x,
    "normalize": lambda x, d: f.normalize(x, dim=d) * x,
    "cosine": lambda x, d: f.cosine_similarity(x, x * x + 1, dim=d),
    "unsqueeze": lambda x, d: x.unsqueeze(d) * 2,
    "select": lambda x, d: x.select(d, 0) * 2,
    "flip": lambda x, d: x.flip(d, -2) * 2,
    "roll": lambda x, d: x.roll(1, d) * 2,
    "cat": lambda x, d: torch.cat([x, x * 2], d),
    "stack": lambda x, d: torch.stack([x, x * 2], d),
    "split": lambda x, d: [each * 2 for each in x.split(1, d)],
    "unbind": lambda x, d: [each * 2 for each in x.unbind(d)],
    "transpose": lambda x, d: x.transpose(d, 1) * 2,
    "repeat_interleave": lambda x, d: x.repeat_interleave(2, d),
    "index_select": lambda x, d: x.index_select(d, torch.tensor([0, 0])) * 2,
    "gather": lambda x, d: torch.gather(x * 2, d, x.argmax(d, keepdim=True)),
    "take_along": lambda x, d: torch.take_along_dim(x * 2, x.argsort(d), d),
    "index_fill": lambda x, d: x.index_fill(d, torch.tensor([0]), 1.5) * x,
    "unfold": lambda x, d: x.unfold(d, 1, 1) * 2,
    "diff": lambda x, d: x.diff(dim=d, prepend=x.narrow(d, 0, 1) * 2),
    "squeeze": lambda x, d: x.squeeze(d) * 2,
    "glu": lambda x, d: f.glu(torch.cat([x, x * 2], d), d),
    "rfft": lambda x, d: torch.fft.rfft(torch.cat([x, x * 2], d), dim=d).abs(),
}


def _bound(along: Callable[[Tensor, int], Any], place: int) -> Callable[[Tensor], Any]:
    return lambda x: along(x, place)


#: Functions of one tensor with their example, by name: ``sum_along_first``.
DIMS: dict[str, tuple[Callable[[Tensor], Any], Tensor]] = {
    f"{name}_along_{where}": (_bound(along, place), x)
    for where, (x, place) in EXAMPLES.items()
    for name, along in ALONG.items()
}
