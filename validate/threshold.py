"""From which score on boxes count: where the server's threshold is lower than the package's."""

from __future__ import annotations

import dataclasses

from edgeserve.decisions import Rule
from edgeserve.types.base import plain
from edgeserve.validate.request import Answers

__all__ = ["counted_from", "said_of_thresholds"]


def counted_from(answers: Answers, rule: Rule) -> Rule:
    """The rule, under which each of the server's boxes is a clear one if the thresholds differ.

    What a server finds well below the packaged threshold, no device will find. Where its own
    threshold lies is not known; but none of its boxes is a close call for the package.
    """
    least = _lower(answers, rule)
    return rule if least is None else dataclasses.replace(rule, threshold=least - rule.sure)


def said_of_thresholds(answers: Answers, rule: Rule) -> tuple[str, ...]:
    """A remark where the server lists boxes well below the packaged threshold; else nothing."""
    least = _lower(answers, rule)
    if least is None:
        return ()
    return (
        f"the reference lists boxes from a score of {least:.2f} on, the package from"
        f" {rule.threshold:.2f} on (detect/1, threshold): those between count as lost",
    )


def _lower(answers: Answers, rule: Rule) -> float | None:
    """The server's least score, where it is a margin or more below the packaged threshold."""
    least = None if answers.least_score is None else plain(answers.least_score)
    return least if least is not None and rule.threshold - least >= rule.sure > 0 else None
