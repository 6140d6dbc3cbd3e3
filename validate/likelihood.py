"""Scores over a vocabulary, position by position: how far two distributions lie apart.

A best token says little of what a model would draw: the divergence of the distributions says it
all. And a text is its own truth for a model that predicts the next token: what each side gives to
the tokens that come is its perplexity.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from edgeserve.data import Feed
from edgeserve.processing.prepared import Origin, origins_of
from edgeserve.processing.tokens import positions
from edgeserve.types.processing import Picks, Spans
from edgeserve.types.samples import Sample
from edgeserve.types.source import Exported
from edgeserve.validate.fields_seen import divergences, log_softmax
from edgeserve.validate.paired import Cost

__all__ = ["Likelihood", "perplexity"]

#: Numbers that are made probabilities of at a time.
_NUMBERS = 1 << 21


class Likelihood:
    """Gathers over inputs; nothing for tasks without scores at positions.

    Args:
        exported: The model.
    """

    def __init__(self, exported: Exported) -> None:
        steps = [s for s in exported.processing.outputs if isinstance(s, Picks | Spans)]
        self._step = steps[0] if steps else None
        self._left = any(s.padding == "left" for s in exported.processing.padding.values())
        self._predicts = exported.task == "text-generation"
        self._ids = _ids(exported) if self._predicts else None
        self._total, self._count, self._worst = 0.0, 0, 0.0
        self.costs: list[Cost] = []

    def add(self, sample: Sample, feed: Feed, reference: Feed, answer: Feed) -> None:
        """Take in one input; answers that are not finite are left out: other checks name them."""
        step = self._step
        if step is None or len(reference[step.output]) != 1:
            return
        places = self._places(feed, reference[step.output].shape[1])
        wanted, got = (np.asarray(side[step.output][0]) for side in (reference, answer))
        if wanted.ndim != 2 or not (np.isfinite(wanted).all() and np.isfinite(got).all()):
            return
        truth = self._truth(feed, places, wanted.shape)
        nats, known = np.zeros(2), 0
        for some in _pieces(places, wanted.shape[1]):
            p, q = log_softmax(wanted[some].T), log_softmax(got[some].T)
            apart = divergences(p, q)
            self._total, self._count = self._total + float(apart.sum()), self._count + len(some)
            self._worst = max(self._worst, float(apart.max(initial=0.0)))
            pairs = [(i, truth[place]) for i, place in enumerate(some.tolist()) if place in truth]
            nats -= [sum(float(each[token, i]) for i, token in pairs) for each in (p, q)]
            known += len(pairs)
        if known:
            self.costs.append(Cost(sample.group, float(nats[0]), float(nats[1]), known))

    def figures(self) -> dict[str, float]:
        """``kl``, the mean over all positions in nats, and ``kl_worst``; none before any input."""
        if not self._count:
            return {}
        return {"kl": self._total / self._count, "kl_worst": self._worst}

    def _places(self, feed: Feed, count: int) -> np.ndarray:
        """Positions that count."""
        assert self._step is not None
        mask = feed[self._step.mask][0] if self._step.mask else None
        origins = origins_of([feed])
        return positions(count, mask, origins[0] if origins else Origin(), self._left)[0]

    def _truth(self, feed: Feed, places: np.ndarray, shape: tuple[int, ...]) -> dict[int, int]:
        """The token that comes next, of each position that has one."""
        ids = feed.get(self._ids) if self._ids else None
        if ids is None or ids.shape != (1, shape[0]):
            return {}
        tokens, kept = ids[0].tolist(), places.tolist()
        following = pairwise(kept)
        return {i: tokens[j] for i, j in following if 0 <= tokens[j] < shape[1]}


def _ids(exported: Exported) -> str | None:
    """The input that holds token ids; None where that is not clear."""
    made = [name for name, s in exported.processing.padding.items() if s.part == "ids"]
    if made:
        return made[0] if len(made) == 1 else None
    masks = {getattr(step, "mask", None) for step in exported.processing.outputs}
    given = [
        spec.name
        for spec in exported.signature.inputs
        if spec.dtype in ("int32", "int64") and len(spec.shape) == 2
        if spec.name not in masks and "mask" not in spec.name
    ]
    named = [name for name in given if name.endswith("ids") and "type" not in name]
    found = named or given
    return found[0] if len(found) == 1 else None


def _pieces(places: np.ndarray, vocabulary: int) -> Iterator[np.ndarray]:
    size = max(1, _NUMBERS // max(1, vocabulary))
    for start in range(0, len(places), size):
        yield places[start : start + size]


def perplexity(nats: float) -> float:
    """Of a mean cost of a token."""
    return math.exp(min(nats, 700.0))
