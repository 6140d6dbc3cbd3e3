"""Task metrics gathered while an artifact runs, of the reference and the artifact.

`GroundTruthEvaluator`: against true boxes, masks, spans or segments. Like labels they inform: no
verdict rests on them (docs/explanation/verdicts.md).

`TokenDistributionEvaluator`: scores over a vocabulary, position by position. A best token says
little of what a model would draw: the divergence of the distributions says it all. And a text is
its own truth for a model that predicts the next token: what each side gives to the tokens that
come is its perplexity.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from edgeserve import tasks
from edgeserve.data import Feed, LabelSchema
from edgeserve.processing.arrays import SampleOrigin, origins_of
from edgeserve.processing.outputs.places import positions
from edgeserve.processing.steps.decode import Decode
from edgeserve.tasks.metrics import TaskMetrics, TruthPlace
from edgeserve.types.processing import Processing
from edgeserve.types.records import Record
from edgeserve.types.reports import MetricStats
from edgeserve.types.samples import Sample
from edgeserve.types.source import Exported
from edgeserve.types.steps import TokenOutput
from edgeserve.types.vocabulary import Task
from edgeserve.validate.compare.field_stats import kl_by_position, log_softmax
from edgeserve.validate.stats.paired_tests import PairedCost, bootstrap_stats, ratio_stats

_Feed = Mapping[str, np.ndarray]


def label_schema(exported: Exported) -> LabelSchema:
    """The model as the readers of true answers want it."""
    step = exported.processing.task_output
    labels = step.class_names(exported.labels) if step else exported.labels
    first = exported.processing.inputs[:1]
    decode = [step for each in first for step in each.steps if isinstance(step, Decode)]
    return LabelSchema(exported.task, labels, all(step.exif for step in decode))


class GroundTruthEvaluator:
    """Gathers what both sides count for against ground truth, never pictures.

    Args:
        task: The model's.
        labels: Its classes by index.
        processing: What is done to its inputs.
    """

    def __init__(self, task: Task, labels: tuple[str, ...], processing: Processing) -> None:
        self._labels = labels
        self._steps = processing.pixel_steps()
        self._metrics = tasks.metrics_of(task) or TaskMetrics()
        self._rows: list[tuple[str, Any]] = []
        self._costs: list[PairedCost] = []

    def add(
        self, sample: Sample, feed: _Feed, reference: Record | None, answer: Record | None
    ) -> None:
        """Count one input; nothing where its data do not say what is true of it.

        Args:
            sample: The input.
            feed: What was made of it, with its origin.
            reference: What the reference decided; an input that it did not decide is left out.
            answer: What the artifact decided; None: it found nothing.

        Raises:
            DataError: EDGE-DATA-021 or -025, its mask is another than the one that was checked.
        """
        metrics = self._metrics
        if reference is None:
            return
        if metrics.words and metrics.word_errors and (words := metrics.words(sample)):
            errors = [float(metrics.word_errors(words, side)) for side in (reference, answer)]
            self._costs.append(PairedCost(sample.group, errors[0], errors[1], len(words)))
        if metrics.row is None or sample.truth is None:
            return
        origins = origins_of([feed])
        place = TruthPlace(self._labels, self._steps, origins[0].size if origins else None)
        row = metrics.row(sample.truth, place, reference, answer)
        if row is not None:
            self._rows.append((sample.group, row))

    def stats(self) -> tuple[MetricStats, ...]:
        """The task's metrics; none without true answers."""
        costs = ratio_stats("wer", self._costs)
        read = self._metrics.read
        found = bootstrap_stats(self._rows, read) if read and self._rows else ()
        return (costs, *found) if costs else found


#: Numbers that are made probabilities of at a time.
_NUMBERS = 1 << 21


class TokenDistributionEvaluator:
    """Gathers over inputs; nothing for tasks without scores at positions.

    Args:
        exported: The model.
    """

    def __init__(self, exported: Exported) -> None:
        step = exported.processing.task_output
        self._step = step if isinstance(step, TokenOutput) else None
        self._left = any(s.padding == "left" for s in exported.processing.padding.values())
        self._predicts = tasks.decides(exported.task) and tasks.schema(exported.task).predicts_next
        self._ids = _ids_input(exported) if self._predicts else None
        self._total, self._count, self._worst = 0.0, 0, 0.0
        self.costs: list[PairedCost] = []

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
        for some in _chunks(places, wanted.shape[1]):
            p, q = log_softmax(wanted[some].T), log_softmax(got[some].T)
            apart = kl_by_position(p, q)
            self._total, self._count = self._total + float(apart.sum()), self._count + len(some)
            self._worst = max(self._worst, float(apart.max(initial=0.0)))
            pairs = [(i, truth[place]) for i, place in enumerate(some.tolist()) if place in truth]
            nats -= [sum(float(each[token, i]) for i, token in pairs) for each in (p, q)]
            known += len(pairs)
        if known:
            self.costs.append(PairedCost(sample.group, float(nats[0]), float(nats[1]), known))

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
        return positions(count, mask, origins[0] if origins else SampleOrigin(), self._left)[0]

    def _truth(self, feed: Feed, places: np.ndarray, shape: tuple[int, ...]) -> dict[int, int]:
        """The token that comes next, of each position that has one."""
        ids = feed.get(self._ids) if self._ids else None
        if ids is None or ids.shape != (1, shape[0]):
            return {}
        tokens, kept = ids[0].tolist(), places.tolist()
        following = pairwise(kept)
        return {i: tokens[j] for i, j in following if 0 <= tokens[j] < shape[1]}


def _ids_input(exported: Exported) -> str | None:
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


def _chunks(places: np.ndarray, vocabulary: int) -> Iterator[np.ndarray]:
    size = max(1, _NUMBERS // max(1, vocabulary))
    for start in range(0, len(places), size):
        yield places[start : start + size]


def perplexity(nats: float) -> float:
    """Of a mean cost of a token."""
    return math.exp(min(nats, 700.0))
