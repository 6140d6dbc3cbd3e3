"""Below which confidence to ask an endpoint: picked from validation data, not by feel."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["pick_threshold"]


def pick_threshold(margins: Sequence[float], right: Sequence[bool], wrong_share: float) -> float:
    """The smallest margin at which the decisions kept on the device are right often enough.

    Args:
        margins: Of each validation input's decision on the device.
        right: Whether that decision is the reference's, in the same order.
        wrong_share: Share of wrong decisions that may stay among those kept, 0 to 1.

    Returns:
        A threshold for `Fallback`: decisions with a margin below it are asked about. 0.0 where all
        may be kept; above the largest margin where none may.

    Raises:
        ValueError: nothing is given, or not as many of the one as of the other.
    """
    if not margins or len(margins) != len(right):
        raise ValueError(f"{len(margins)} margins and {len(right)} verdicts")
    pairs = sorted(zip(margins, right, strict=True), reverse=True)
    best, wrong = pairs[0][0] + 1e-9, 0
    for kept, (margin, good) in enumerate(pairs, 1):
        wrong += not good
        # Equal margins stand or fall together.
        if (kept == len(pairs) or pairs[kept][0] < margin) and wrong <= wrong_share * kept:
            best = margin
    return 0.0 if best == pairs[-1][0] else best
