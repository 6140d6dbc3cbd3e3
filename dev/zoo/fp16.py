"""The same model in fp16: proven, degraded, or refused with the code that the gate would give.

By the gate's limits for fp16 (`edgeserve.validate.verdict`): of each output the signal, what the
reference's values do around their mean, has to be 40 dB above the noise to be proven, and 10 dB to
count as degraded. Where an output is logits, no decision that the reference is sure of (a margin of
0.05 in probability) may flip. Whole numbers must be equal, and what is finite must stay so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgeserve.types.reports import Limits

_LIMITS = Limits()

#: Decibels from which an output is proven: fp16 needs 20 more than 8 bits.
WANTED = _LIMITS.snr + 20.0

#: From this margin of probability on the reference is sure.
_SURE = 0.05

#: From the worst to the best.
_ORDER = ("EDGE-CHECK-005", "EDGE-CHECK-040", "EDGE-CHECK-063", "EDGE-CHECK-032", "EDGE-CHECK-064")


def judged(
    names: Sequence[str],
    wanted: Sequence[Sequence[np.ndarray]],
    found: Sequence[Sequence[np.ndarray]],
) -> dict[str, Any]:
    """What a cell says of fp16.

    Args:
        names: The outputs'.
        wanted: What the reference said: for each input set an array for each output.
        found: What the file said.

    Returns:
        For each output, in order: ``noise_reason`` (dB; none where it holds whole numbers) and
        ``codes``.
    """
    each = [
        _output(name, right, made)
        for name, right, made in zip(
            names, zip(*wanted, strict=True), zip(*found, strict=True), strict=True
        )
    ]
    return {"noise": [least for least, _ in each], "codes": [code for _, code in each]}


def worst(codes: Sequence[str]) -> str:
    """The gravest of some codes, "" being none."""
    return min(codes, key=lambda code: _ORDER.index(code) if code in _ORDER else len(_ORDER))


def _output(
    name: str, wanted: Sequence[np.ndarray], found: Sequence[np.ndarray]
) -> tuple[float | None, str]:
    if any(a.shape != b.shape for a, b in zip(wanted, found, strict=True)):
        return None, "EDGE-CHECK-004"
    right = np.concatenate([each.reshape(-1) for each in wanted])
    made = np.concatenate([each.reshape(-1) for each in found])
    if not np.issubdtype(right.dtype, np.floating):
        same = np.array_equal(right.astype(np.int64), made.astype(np.int64))
        return None, "" if same else "EDGE-CHECK-032"
    if bool((np.isfinite(right) & ~np.isfinite(made)).any()):
        return None, "EDGE-CHECK-005"
    decibels = noise(right, made)
    if "logits" in name and sum(map(decided_flips, wanted, found)):
        return decibels, "EDGE-CHECK-040"
    if decibels < _LIMITS.degraded_snr:
        return decibels, "EDGE-CHECK-063"
    return decibels, "" if decibels >= WANTED else "EDGE-CHECK-064"


def noise(wanted: np.ndarray, found: np.ndarray) -> float:
    """Signal to noise in dB; 999 where there is no noise."""
    known = np.isfinite(wanted) & np.isfinite(found)
    right, made = (each[known].astype(np.float64) for each in (wanted, found))
    if not right.size:
        return 999.0
    signal, lost = float(right.var()), float(np.square(right - made).mean())
    if lost == 0:
        return 999.0
    return round(10 * math.log10(max(signal, 1e-12) / lost), 1)


def decided_flips(wanted: np.ndarray, found: np.ndarray) -> int:
    """How many decisions along the last axis, of which the reference is sure, are other ones."""
    if wanted.ndim < 2 or wanted.shape[-1] < 2:
        return 0
    powers = np.exp(wanted.astype(np.float64) - wanted.max(-1, keepdims=True))
    best = np.sort(powers / powers.sum(-1, keepdims=True), -1)
    sure = best[..., -1] - best[..., -2] >= _SURE
    return int((sure & (wanted.argmax(-1) != found.argmax(-1))).sum())
