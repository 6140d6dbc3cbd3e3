"""Generated inputs: tensors at the statistics of the data, from ordinary to extreme.

Real inputs show what usually happens; these show what is only seen at the edges: saturation at the
largest values, dead channels at zero, masks, repeated rows. No artifact passes because of a flip
rate on them; see ``docs/verdicts.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from edgeserve.data import Feed
from edgeserve.types.tensors import Signature, TensorSpec

__all__ = ["RANDOM", "Statistics", "fillers"]

#: How many random inputs there are: the natural ones where a model brings no medium.
RANDOM = 4

_Make = Callable[["Statistics", tuple[int, ...], np.random.Generator], np.ndarray]


class Statistics:
    """Running mean, deviation and range of one input, over the finite numbers that went in."""

    def __init__(self) -> None:
        self.low, self.high = np.inf, -np.inf
        self._count = 0
        self._sum = self._squares = 0.0

    def add(self, array: np.ndarray) -> None:
        """Take an array in."""
        values = np.asarray(array, np.float64).ravel()
        values = values[np.isfinite(values)]
        if values.size:
            self.low = min(self.low, float(values.min()))
            self.high = max(self.high, float(values.max()))
            self._count += values.size
            self._sum += float(values.sum())
            self._squares += float(np.square(values).sum())

    @property
    def mean(self) -> float:
        """Mean; 0 before anything went in."""
        return self._sum / self._count if self._count else 0.0

    @property
    def deviation(self) -> float:
        """Standard deviation; 1 before anything went in."""
        if not self._count:
            return 1.0
        return math.sqrt(max(self._squares / self._count - self.mean**2, 0.0))

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest number; -1 and 1 before anything went in."""
        return (self.low, self.high) if self._count else (-1.0, 1.0)


def _constant(pick: Callable[[Statistics], float]) -> _Make:
    return lambda stats, shape, rng: np.full(shape, pick(stats))


def _random(stats: Statistics, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    return rng.normal(stats.mean, stats.deviation, shape)


def _extremes(stats: Statistics, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    return rng.choice(stats.range, shape)


def _one_hot(stats: Statistics, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    array = np.zeros(shape)
    if array.size:
        array.flat[rng.integers(array.size)] = stats.range[1]
    return array


def _repeated(stats: Statistics, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """The same row again and again: along the last axis but one, or one number throughout."""
    row = (*shape[:-2], 1, *shape[-1:]) if len(shape) > 1 else (1,) * len(shape)
    return np.broadcast_to(_random(stats, row, rng), shape).copy()


_KINDS: dict[str, _Make] = {
    "zeros": _constant(lambda stats: 0.0),
    "lowest": _constant(lambda stats: stats.range[0]),
    "highest": _constant(lambda stats: stats.range[1]),
    "extremes": _extremes,
    "one-hot": _one_hot,
    "repeated-rows": _repeated,
    **{f"random-{i}": _random for i in range(RANDOM)},
}


def fillers(
    signature: Signature, example: Mapping[str, np.ndarray], statistics: Mapping[str, Statistics],
    seed: int,
) -> Iterator[tuple[str, Feed]]:  # fmt: skip
    """Generated feeds by name; each has the example's shapes, with a batch of 1 where it is free.

    Numbers stay within the range of ``statistics``, so that ids remain ids.

    Args:
        signature: The model's.
        example: Its example inputs, for the sizes of dynamic dimensions.
        statistics: By input name.
        seed: The same seed gives the same feeds.
    """
    for number, (name, make) in enumerate(_KINDS.items()):
        rng = np.random.default_rng((seed, number))
        feed = {}
        for spec in signature.inputs:
            shape = _shape(spec, example[spec.name], signature)
            feed[spec.name] = _fitted(make(statistics[spec.name], shape, rng), spec, statistics)
        yield name, feed


def _shape(spec: TensorSpec, example: np.ndarray, signature: Signature) -> tuple[int, ...]:
    """The example's shape; a free batch axis becomes as small as it may."""
    batch = signature.batch_dim
    if batch is None:
        return example.shape
    return (max(1, signature.dims[batch][0]), *example.shape[1:])


def _fitted(
    array: np.ndarray, spec: TensorSpec, statistics: Mapping[str, Statistics]
) -> np.ndarray:
    """Within the range seen, in the input's dtype."""
    low, high = statistics[spec.name].range
    inside = np.clip(array, low, high)
    if spec.dtype.startswith(("int", "uint", "bool")):
        inside = np.rint(inside)
    return np.asarray(inside, spec.dtype)
