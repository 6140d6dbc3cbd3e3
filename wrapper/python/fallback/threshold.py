"""The confidence below which an endpoint is asked, picked from validation data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from edgeserve import tasks
from edgeserve.errors import FallbackError
from edgeserve.types.records import Record

if TYPE_CHECKING:
    from edgeserve.wrapper.wrapper import Wrapper


def pick_threshold(margins: Sequence[float], right: Sequence[bool], wrong_share: float) -> float:
    """The smallest margin at which decisions that stay on the device are right often enough.

    Args:
        margins: Of each validation input's decision on the device.
        right: Whether that decision is the reference's, in the same order.
        wrong_share: Largest share of wrong decisions among those that stay, 0 to 1.

    Returns:
        A threshold for `Fallback`: an endpoint is asked about decisions with a margin below it.
        0.0 where all may stay; above the largest margin where none may.

    Raises:
        FallbackError: EDGE-FALLBACK-008, the lists are empty or of different length, a margin is
            no finite number, or ``wrong_share`` is not from 0 to 1.
    """
    _check(margins, right, wrong_share)
    pairs = sorted(zip(margins, right, strict=True), reverse=True)
    best, wrong = pairs[0][0] + 1e-9, 0
    for kept, (margin, good) in enumerate(pairs, 1):
        wrong += not good
        # Equal margins stand or fall together.
        if (kept == len(pairs) or pairs[kept][0] < margin) and wrong <= wrong_share * kept:
            best = margin
    return 0.0 if best == pairs[-1][0] else best


def threshold_of(
    wrapper: Wrapper, pairs: Iterable[tuple[Any, Record]], wrong_share: float
) -> float:
    """The threshold for a model on this device, from inputs with known decisions.

    Args:
        wrapper: Opened without a fallback, so that it answers on the device.
        pairs: Raw inputs, as `Wrapper.predict` takes them, each with its correct decision: the
            server's, or the ground truth as a record.
        wrong_share: As `pick_threshold`.

    Raises:
        FallbackError: EDGE-FALLBACK-008, as `pick_threshold`, or the task's decisions have no
            margin (embeddings, tensors).
        EdgeError: an input cannot be answered.
    """
    _check_share(wrong_share)
    rule = tasks.decision_rule(wrapper.manifest.task, wrapper.manifest.processing)
    margins: list[float] = []
    right: list[bool] = []
    for raw, record in pairs:
        answer = wrapper.predict(raw)
        margin = tasks.margin(answer, rule) if isinstance(answer, Record) else None
        if margin is None:
            raise _threshold_error(
                "decisions with a margin", f"those of {wrapper.manifest.task}, without"
            )
        margins.append(margin)
        right.append(tasks.same(record, answer, rule))
    return pick_threshold(margins, right, wrong_share)


def _check(margins: Sequence[float], right: Sequence[bool], wrong_share: float) -> None:
    if not len(margins) or len(margins) != len(right):
        got = f"{len(margins)} margins and {len(right)} truth values"
        raise _threshold_error("as many margins as truth values, one or more", got)
    bad = [margin for margin in margins if not _finite(margin)]
    if bad:
        raise _threshold_error("margins that are finite numbers", f"{bad[0]!r} among them")
    _check_share(wrong_share)


def _check_share(wrong_share: float) -> None:
    if not _finite(wrong_share) or not 0 <= wrong_share <= 1:
        raise _threshold_error("a wrong_share from 0 to 1", repr(wrong_share))


def _finite(value: object) -> bool:
    """Whether it is a finite number, of Python or of numpy."""
    if isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)  # type: ignore[arg-type]
    except TypeError:
        return False


def _threshold_error(wanted: str, got: str) -> FallbackError:
    hint = "docs/guide/fallback.md describes the data that a threshold is picked from"
    return FallbackError("EDGE-FALLBACK-008", "threshold", wanted=wanted, got=got, hint=hint)
