"""Noise of quantized files whose outputs are no decisions: signal to noise by field and channel.

The signal is what the reference's values do around their mean, so that an offset counts for
nothing. By default a field needs 20 dB to pass (the noise is a tenth of the signal) and 10 dB to be
degraded (a third); each single channel may have 10 dB less, down to noise as large as the channel's
own signal. fp16 rounds a hundred times finer than 8 bits and needs 20 dB more to pass; what counts
as harm is the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeserve.types.artifact import Reason
from edgeserve.types.base import plain
from edgeserve.types.reports import OutputDiff
from edgeserve.types.words import Precision, Verdict
from edgeserve.validate.fields import called as field_called

if TYPE_CHECKING:
    from edgeserve.validate.verdict import Evidence

__all__ = ["CHANNEL", "by_noise", "called", "lacking"]

#: By how many dB a single channel may be noisier than its field.
CHANNEL = 10.0

#: By how many dB a precision's rounding is finer than that of 8 bits.
_FINER: dict[Precision, float] = {"fp16": 20.0}


def by_noise(evidence: Evidence) -> tuple[Verdict, tuple[Reason, ...]]:
    """The verdict on a quantized file by its noisiest field; whole numbers must be equal."""
    known = [(lacking(diff, evidence), diff) for diff in evidence.outputs if diff.snr is not None]
    if known:
        lack, diff = max(known, key=lambda pair: pair[0])
        if lack > _wanted(evidence) - evidence.limits.degraded_snr:
            return "fail", (Reason(code="EDGE-CHECK-063", message=_said(diff, evidence)),)
        if lack > 0:
            return "degraded", (Reason(code="EDGE-CHECK-064", message=_said(diff, evidence)),)
    for diff in evidence.whole:
        if plain(diff.max_abs) > 0:
            message = f"{called(diff)} holds whole numbers, and other ones on {diff.worst}"
            return "unproven", (Reason(code="EDGE-CHECK-032", message=message),)
    return "pass", ()


def lacking(diff: OutputDiff, evidence: Evidence) -> float:
    """By how many dB a field misses the limit for ``pass``; negative where it keeps it."""
    least = min(_decibels(diff.snr), _decibels(diff.channel_snr) + CHANNEL)
    return _wanted(evidence) - least


def _wanted(evidence: Evidence) -> float:
    return evidence.limits.snr + _FINER.get(evidence.precision, 0.0)


def _decibels(value: object) -> float:
    """As a number; what is not known or no number counts as nothing but noise."""
    found = float("nan") if value is None else float(str(value))
    return found if found == found else float("-inf")


def _said(diff: OutputDiff, evidence: Evidence) -> str:
    field, channel, wanted = _decibels(diff.snr), _decibels(diff.channel_snr), _wanted(evidence)
    said = f"{called(diff)}: signal to noise {field:.3g} dB, limit {wanted:g}"
    if diff.noisiest is not None and channel + CHANNEL < field:
        said += f"; channel {diff.noisiest}: {channel:.3g} dB, limit {wanted - CHANNEL:g}"
    return said


def called(diff: OutputDiff) -> str:
    """A field in words; see `edgeserve.validate.fields.called`."""
    return field_called(diff.field, diff.output, diff.part)
