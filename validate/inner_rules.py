"""What is said of inner tensors that do something else than the reference's: remarks, no verdicts.

Each rule asks for a gross difference, since a file's op and the reference's need not mean the same
tensor to the last step. A remark names the op to keep in float.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from edgeserve.backends.inner import Inner
from edgeserve.decisions.floats import HUGE
from edgeserve.types.words import Precision
from edgeserve.validate.findings import Findings
from edgeserve.validate.inner import FileInner, Tap

__all__ = ["HALF_MAX", "check_inner"]

#: The largest number that float16 holds.
HALF_MAX = 65504.0
#: Below this float16 has fewer digits; a whole tensor there loses most of them.
_HALF_TINY = 6.1e-5
#: Share of a tensor's channels that stand still before it is said: rounding to 8 bits stills a few.
_FEW_CHANNELS = 0.01
#: Share of a tensor's range that a channel must move to count: a dozen steps of an 8-bit scale.
_TELLING = 0.05
#: A range cut to less than this share of the reference's is clipped, not rounded.
_CLIPPED = 0.7
#: How many ops a remark names.
_NAMED = 3
_EIGHT: tuple[Precision, ...] = ("w8a8", "w8a16")


def check_inner(
    taps: Sequence[Tap],
    found: FileInner,
    reference: Mapping[str, Inner],
    precision: Precision,
    findings: Findings,
    harmed: bool = False,
) -> None:
    """Note what was looked at and what stands out.

    Args:
        taps: What was looked at.
        found: The file's.
        reference: The reference's.
        precision: The file's.
        findings: Where to note it.
        harmed: The outputs are far off: masks are named as well, which converters put into
            float16's range on purpose and mostly without harm.
    """
    pairs = [
        (tap, reference[tap.source], found.ranges[tap.source])
        for tap in taps
        if tap.source in found.ranges
        and found.ranges[tap.source].numel == reference[tap.source].numel
    ]
    said = f"{len(pairs)} inner tensors were compared with the reference's"
    findings.check("inner", True, said)
    _remark(findings, "EDGE-CHECK-066", "inner tensors stand still", _still(pairs))
    half = [pair for pair in pairs if found.dtypes[pair[0].source] == "float16"]
    _remark(findings, "EDGE-CHECK-067", "float16 does not hold", _beyond_half(half, pairs, harmed))
    if precision in _EIGHT:
        _remark(findings, "EDGE-CHECK-070", "8-bit ranges cut off", _clipped(pairs))


_Pairs = Sequence[tuple[Tap, Inner, Inner]]


def _remark(findings: Findings, code: str, what: str, said: Iterator[str]) -> None:
    found = list(said)
    if found:
        more = f", and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
        findings.remark(code, f"{what}: {'; '.join(found[:_NAMED])}{more}")


def _still(pairs: _Pairs) -> Iterator[str]:
    """Tensors and channels with one value throughout, where the reference's take many."""
    for tap, wanted, got in pairs:
        range_of = wanted.whole().spread[0]
        if range_of <= 0 or not got.finite:
            continue
        if got.whole().spread[0] == 0:
            yield f"{tap.called} is {got.low.flat[0]:.3g} throughout"
        elif wanted.low.shape == got.low.shape:
            dead = (got.spread == 0) & (wanted.spread > _TELLING * range_of)
            if dead.mean() >= _FEW_CHANNELS:
                yield f"{int(dead.sum())} of {dead.size} channels of {tap.called}"


def _beyond_half(half: _Pairs, pairs: _Pairs, harmed: bool) -> Iterator[str]:
    """Values of the reference that float16 has no room for, and what became infinite."""
    for tap, wanted, got in half:
        if wanted.largest > HALF_MAX and (harmed or wanted.largest < HUGE):
            yield f"{tap.called}, which reaches {wanted.largest:.3g}"
        elif 0 < wanted.largest < _HALF_TINY and got.finite:
            yield f"the digits of {tap.called}, at most {wanted.largest:.2g}"
    for tap, wanted, got in pairs:
        if wanted.finite and not got.finite and wanted.largest <= HALF_MAX:
            yield f"{tap.called}, which becomes infinite or NaN"


def _clipped(pairs: _Pairs) -> Iterator[str]:
    for tap, wanted, got in pairs:
        ends = [_ends(each) for each in (wanted, got)]
        for sign, (theirs, ours) in zip((-1, 1), zip(*ends, strict=True), strict=True):
            cut = theirs > 0 and ours < _CLIPPED * theirs
            if cut and theirs > _TELLING * wanted.largest:
                yield f"{tap.called} at {sign * ours:.3g} (reference {sign * theirs:.3g})"
                break


def _ends(inner: Inner) -> tuple[float, float]:
    """How far values go below zero and above it."""
    low, high = inner.low.min(initial=np.inf), inner.high.max(initial=-np.inf)
    return max(-float(low), 0.0), max(float(high), 0.0)
