"""What the reference must be to prove anything: checks of the reference, not of an artifact.

Batch dependence: does it answer a row alone as it does within a batch? One that subtracts the
mean of its batch, numbers its rows, or scans over a first axis that is time and no batch, does
not: a file of it is right to answer a batch in another way than its rows, and a file that takes
one row at a time cannot be right. Whether inputs may be joined and taken apart is therefore
asked of the reference before it is asked of any file.

Ill-conditioned inputs: a norm over values that are all alike divides rounding errors by nearly
nothing. On a constant input such a program answers mostly noise, and another engine, rounding
otherwise, answers other noise: neither is wrong. How far the reference's own answers move when
its input moves by a part in a million tells such an input from a wrong file, whose answers are
off where the reference stands firm.

Constant answers: a server that answers the same to everything, whatever the model would say,
proves nothing. A server of its own may well say one thing of many inputs (photos of cats alone,
scenes without anything in them). So its answers are held beside those of the exported program,
on the user's inputs and on synthetic ones: only where the program moves and the server never
does is it called out.

Thresholds: from which score on boxes count, where the server's threshold is lower than the
package's.

Source:
    N. J. Higham, "Accuracy and Stability of Numerical Algorithms", 2nd ed., SIAM 2002, ch. 1: a
    forward error is bounded by the backward error times the condition number.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from edgeserve import tasks
from edgeserve.backends.batching import BatchRunner
from edgeserve.data import Feed
from edgeserve.errors import BackendError
from edgeserve.tasks import DecisionRule
from edgeserve.tasks.base import HUGE
from edgeserve.types.base import encode, plain
from edgeserve.types.records import Record
from edgeserve.types.samples import StoredAnswer
from edgeserve.types.steps import TaskOutput
from edgeserve.types.tensors import IO, Signature
from edgeserve.validate.compare.tensors import relative_difference
from edgeserve.validate.requests import Answers

#: From this share of its scale on, an answer is another one: kernels for batches round otherwise,
#: in half precision by up to a thousandth.
_DEPENDENT_DIFFERENCE = 0.01
_SCALE_FLOOR = 1e-3
#: Rows that are tried together, where the program takes so many.
_MAX_ROWS = 3


def find_dependent_batch(
    runner: BatchRunner, signature: Signature, feeds: Sequence[Feed]
) -> tuple[Feed, Feed] | None:
    """A batch in which a row gets another answer than it got elsewhere, and the answers to it.

    Args:
        runner: Runs the reference.
        signature: The source's.
        feeds: Natural inputs; two of one shape are needed to see anything.

    Returns:
        None where rows do not depend on each other, or where that cannot be seen.
    """
    joined = _join_rows(signature, feeds)
    if joined is None:
        return None
    single, batch = joined
    try:
        alone, together = runner.run_once(single), runner.run_once(batch)
    except BackendError:  # batches have a check of their own, which says what is wrong
        return None
    floats = [name for name, array in alone.items() if array.dtype.kind == "f"] or list(alone)
    first = {name: alone[name][:1] for name in floats}
    last = {name: together[name][-1:] for name in floats}
    apart = relative_difference(first, last, _SCALE_FLOOR)
    return (batch, together) if apart > _DEPENDENT_DIFFERENCE else None


def _join_rows(signature: Signature, feeds: Sequence[Feed]) -> tuple[Feed, Feed] | None:
    """An input, and a batch of other rows whose last row is that input's first."""
    if signature.batch_dim is None:
        return None
    first, other = next(_pairs(feeds), (None, None))
    if first is None or other is None:
        return None
    own = len(next(iter(first.values())))
    rows = max(own, min(_MAX_ROWS, signature.dims[signature.batch_dim][1]))
    if rows < 2:
        return None
    return first, {
        name: np.concatenate([other[name][np.arange(rows - 1) % own], array[:1]])
        for name, array in first.items()
    }


def _pairs(feeds: Sequence[Feed]) -> Iterator[tuple[Feed, Feed]]:
    """Inputs of one shape that are not the same."""
    for i, first in enumerate(feeds):
        for other in feeds[i + 1 :]:
            shapes = all(array.shape == other[name].shape for name, array in first.items())
            if shapes and any((array != other[name]).any() for name, array in first.items()):
                yield first, other


def batch_split_note(io: IO, signature: Signature) -> str:
    """Why a file cannot answer as a reference whose rows depend on each other; empty: it may."""
    size = io.inputs[0].shape[0] if io.inputs and io.inputs[0].shape else None
    if signature.batch_dim is None or not isinstance(size, int):
        return ""
    return (
        f"in the source each answer depends on the other rows of its batch, and this file takes"
        f" {size} at a time: fix the batch in the source's example (no dynamic batch), or use onnx"
    )


#: Share of each number by which an input is moved: some roundings of float32.
_PERTURBATION = 1e-6
#: How far answers may move by that, as a share of their scale: what is allowed of float32 files.
MAX_SENSITIVITY = 1e-3


def perturb(feed: Feed, magnitudes: Mapping[str, float], seed: int) -> Feed:
    """The feed with every float moved by up to a part in a million.

    Whole numbers stay as they are, and so do the infinities and huge numbers that masks hold.

    Args:
        feed: The input.
        magnitudes: By input, the largest number that it usually holds: that is what zeros are
            moved by a millionth of.
        seed: Of the draw.
    """
    draw = np.random.default_rng(seed)
    moved = dict(feed)
    for name, array in feed.items():
        if array.dtype.kind == "f":
            numbers = np.where(np.abs(array) < HUGE, array, 0)
            by = _PERTURBATION * np.maximum(np.abs(numbers), magnitudes[name])
            noise = draw.uniform(-1, 1, array.shape)
            moved[name] = np.where(numbers == array, numbers + by * noise, array).astype(
                array.dtype
            )
    return moved


def sensitivity(outputs: Feed, moved: Feed) -> float:
    """The largest difference of any float output, as a share of the output's largest value."""
    most = 0.0
    for name, array in outputs.items():
        if array.dtype.kind != "f" or not array.size or array.shape != moved[name].shape:
            continue
        known = np.isfinite(array) & np.isfinite(moved[name])
        before = array[known].astype(np.float64)
        scale = float(np.abs(before).max(initial=0.0))
        difference = float(np.abs(moved[name][known] - before).max(initial=0.0))
        if difference:
            most = max(most, difference / scale if scale else np.inf)
    return most


def proves_nothing(outputs: Feed, natural: bool) -> bool:
    """Whether an output of the reference is nowhere finite, or NaN somewhere on a natural input."""
    floats = [array for array in outputs.values() if array.dtype.kind == "f" and array.size]
    return any(not np.isfinite(x).any() or (natural and np.isnan(x).any()) for x in floats)


#: From so many answers on, one that is always the same is no coincidence.
MIN_CONSTANT_ANSWERS = 3
#: The same for answers that are words alone: a sound server says "cat" of many cats.
_MIN_CONSTANT_LABELS = 8


class ConstantReferenceCheck:
    """Watches whether a server's decisions ever change, and whether the program's do."""

    def __init__(self) -> None:
        self._first: tuple[bytes, bytes] | None = None
        self._moved = [False, False]  # the server, the program
        self._count = 0
        self._bare = False

    def add(self, stored: StoredAnswer, program: Record | None) -> None:
        """Take in what both answer to one input; once the server moved, nothing is looked at."""
        if stored.record is None or program is None or self._moved[0]:
            return
        records = (stored.record, program)
        server, own = (encode(tasks.own_decision(each, stored.scored)) for each in records)
        self._first = self._first or (server, own)
        self._count += 1
        self._bare |= not stored.scored
        self._moved[0] |= server != self._first[0]
        self._moved[1] |= own != self._first[1]

    @property
    def steady(self) -> bool:
        """The server always answers the same, and the exported program does not."""
        fewest = _MIN_CONSTANT_LABELS if self._bare else MIN_CONSTANT_ANSWERS
        return self._count >= fewest and self._moved == [False, True]


def rule_for_reference(answers: Answers, rule: DecisionRule) -> DecisionRule:
    """The rule, under which each of the server's boxes is a clear one if the thresholds differ.

    What a server finds well below the packaged threshold, no device will find. Where its own
    threshold lies is not known; but none of its boxes is a close call for the package.
    """
    least = _lower_reference_threshold(answers, rule)
    return rule if least is None else dataclasses.replace(rule, threshold=least - rule.sure)


def threshold_note(
    answers: Answers, rule: DecisionRule, step: TaskOutput | None
) -> tuple[str, ...]:
    """A remark where the server lists boxes well below the packaged threshold; else nothing."""
    least = _lower_reference_threshold(answers, rule)
    if least is None or step is None:
        return ()
    return (
        f"the reference lists {tasks.unit_of(rule.task)} from a score of {least:.2f} on, the"
        f" package from {rule.threshold:.2f} on ({step.tag}, threshold): those between count as"
        " lost",
    )


def _lower_reference_threshold(answers: Answers, rule: DecisionRule) -> float | None:
    """The server's least score, where it is a margin or more below the packaged threshold."""
    least = None if answers.least_score is None else plain(answers.least_score)
    return least if least is not None and rule.threshold - least >= rule.sure > 0 else None
