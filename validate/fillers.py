"""Generated inputs: tensors at the statistics of the data, from ordinary to extreme.

Real inputs show what usually happens; these show what is only seen at the edges: saturation at the
largest values, dead channels at zero, masks, repeated rows. No artifact passes because of a flip
rate on them; see ``docs/verdicts.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping

import numpy as np

from edgeserve.data import Feed
from edgeserve.types.tensors import Signature, TensorSpec
from edgeserve.validate.texts import prime_between

__all__ = ["RANDOM", "Statistics", "fillers", "lengths"]

#: How many random inputs there are: the natural ones where a model brings no medium.
RANDOM = 4

#: Free dimensions are tried up to this size, and until an input has so many numbers.
_LONGEST = 1024
_MOST_NUMBERS = 1 << 18

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
    signature: Signature,
    example: Mapping[str, np.ndarray],
    statistics: Mapping[str, Statistics],
    seed: int,
    masks: Collection[str] = (),
) -> Iterator[tuple[str, Feed]]:
    """Generated feeds by name; each has the example's shapes, with a batch of 1 where it is free.

    Numbers stay within the range of ``statistics``, so that ids remain ids.

    Args:
        signature: The model's.
        example: Its example inputs, for the sizes of dynamic dimensions.
        statistics: By input name.
        seed: The same seed gives the same feeds.
        masks: Inputs that say which positions count: never all zero, which many models answer
            with NaN, but ones and then zeros, as padding leaves them.
    """
    sizes = {name: _shape(spec, example, signature) for name, spec in _specs(signature).items()}
    for number, (name, make) in enumerate(_KINDS.items()):
        rng = np.random.default_rng((seed, number))
        yield name, _feed(signature, sizes, statistics, masks, make, rng)


def lengths(
    signature: Signature,
    example: Mapping[str, np.ndarray],
    statistics: Mapping[str, Statistics],
    seed: int,
    masks: Collection[str] = (),
) -> Iterator[tuple[str, Feed]]:
    """Random feeds with the free dimensions (the batch left out) at their ends, and at a prime.

    Sizes end where inputs become huge. Arguments are those of `fillers`.
    """
    free = {dim: ends for dim, ends in signature.dims.items() if dim != signature.batch_dim}
    free = {dim: (max(1, low), high) for dim, (low, high) in free.items() if low < high}
    if not free:
        return
    cap = _cap(signature, example, free)
    top = {dim: max(low, min(high, cap)) for dim, (low, high) in free.items()}
    chosen = {
        "smallest": {dim: low for dim, (low, _) in free.items()},
        "prime": {dim: prime_between(low, top[dim]) or low for dim, (low, _) in free.items()},
        "largest": top,
    }
    for number, (word, dims) in enumerate(chosen.items()):
        rng = np.random.default_rng((seed, len(_KINDS) + number))
        sizes = {n: _shape(s, example, signature, dims) for n, s in _specs(signature).items()}
        said = ", ".join(f"{dim} {size}" for dim, size in dims.items())
        yield f"{word} ({said})", _feed(signature, sizes, statistics, masks, _random, rng)


def _cap(
    signature: Signature, example: Mapping[str, np.ndarray], free: Mapping[str, tuple[int, int]]
) -> int:
    """The size up to which dimensions may grow before an input holds too many numbers."""
    cap = _LONGEST
    while cap > 1:
        dims = {dim: max(low, min(high, cap)) for dim, (low, high) in free.items()}
        shapes = [_shape(spec, example, signature, dims) for spec in signature.inputs]
        if all(math.prod(shape) <= _MOST_NUMBERS for shape in shapes):
            break
        cap = cap * 7 // 8
    return cap


def _specs(signature: Signature) -> dict[str, TensorSpec]:
    return {spec.name: spec for spec in signature.inputs}


def _feed(
    signature: Signature,
    sizes: Mapping[str, tuple[int, ...]],
    statistics: Mapping[str, Statistics],
    masks: Collection[str],
    make: _Make,
    rng: np.random.Generator,
) -> Feed:
    feed = {}
    for spec in signature.inputs:
        array = make(statistics[spec.name], sizes[spec.name], rng)
        fitted = _fitted(array, spec, statistics)
        feed[spec.name] = _as_mask(fitted) if spec.name in masks else fitted
    return feed


def _as_mask(array: np.ndarray) -> np.ndarray:
    """As many ones as there are, first; at least one."""
    if not array.ndim or not array.shape[-1]:
        return array
    ones = np.maximum((array != 0).sum(axis=-1, keepdims=True), 1)
    return np.asarray(np.arange(array.shape[-1]) < ones, array.dtype)


def _shape(
    spec: TensorSpec,
    example: Mapping[str, np.ndarray],
    signature: Signature,
    dims: Mapping[str, int] | None = None,
) -> tuple[int, ...]:
    """The example's shape; a free batch axis becomes as small as it may, others as ``dims`` say."""
    sizes = dict(dims or {})
    if signature.batch_dim is not None:
        sizes[signature.batch_dim] = max(1, signature.dims[signature.batch_dim][0])
    shape = example[spec.name].shape
    return tuple(sizes.get(str(dim), size) for dim, size in zip(spec.shape, shape, strict=True))


def _fitted(
    array: np.ndarray, spec: TensorSpec, statistics: Mapping[str, Statistics]
) -> np.ndarray:
    """Within the range seen, in the input's dtype."""
    low, high = statistics[spec.name].range
    inside = np.clip(array, low, high)
    if spec.dtype.startswith(("int", "uint", "bool")):
        inside = np.rint(inside)
    return np.asarray(inside, spec.dtype)
