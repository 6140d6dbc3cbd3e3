"""The contract's figures, on the benchmark's virtual clock, and two of them over real sockets."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 1.0])
@pytest.mark.parametrize(
    "fault", ["rst", "black hole", "slow body", "garbage", "5xx", "429", "tls"]
)
def test_with_a_model_on_the_device_every_call_is_answered_in_time(
    faults: Any, fault: str, share: float
) -> None:
    one = faults.cell(fault, share, 600, seed=11)
    assert one.failed == 0
    assert one.p99 <= faults.DEADLINE_MS
    assert max(one.took) <= faults.DEADLINE_MS + 100
    assert one.extra <= 0.1
    if share >= 0.5:
        assert one.opened_calls <= 20 or one.opened_s <= 2
    assert one.closed_s <= 5


def test_without_faults_the_cloud_answers_all(faults: Any) -> None:
    one = faults.cell("rst", 0.0, 300)
    assert (one.cloud, one.extra) == (300, 0)


def test_hedging_pays(faults: Any) -> None:
    plain, hedged = faults.hedging(3000, False), faults.hedging(3000, True)
    assert plain.p99 >= 5 * hedged.p99
    assert hedged.extra <= 0.06


@pytest.mark.parametrize(
    ("fault", "share"), [("rst", 0.5), ("black hole", 0.2), ("slow body", 0.5), ("garbage", 0.5)]
)
def test_the_same_over_real_sockets(faulty: Any, fault: str, share: float) -> None:
    """No machine's speed is asserted: only that all are answered, by whom it may be."""
    one = faulty.live(fault, share, 25)
    assert (one.calls, one.failed) == (25, 0)
