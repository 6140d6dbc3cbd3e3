"""The verdict table, with exact numbers at its edges."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from edgeserve.errors import InputError, WorkerError
from edgeserve.types.artifact import Reason
from edgeserve.types.reports import DecisionStats, Limits, OutputDiff, Rate
from edgeserve.validate.stats import binomial
from edgeserve.validate.verdict import (
    Evidence,
    crash_verdict,
    decide,
    more_groups,
    verdict_by_bounds,
)


def diff(relative: Any, on: str = "cat.jpg") -> OutputDiff:
    return OutputDiff(
        output="logits", scale=8.0, max_abs=0.0, mean_abs=0.0, relative=relative, worst=on
    )


def flips(count: int, groups: int) -> DecisionStats:
    """``count`` flips over ``groups`` groups of one decided input each."""
    found = binomial.rate((f"g{i}", i < count) for i in range(groups))
    return DecisionStats(
        task="image-classification",
        inputs=groups,
        groups=groups,
        raw=found,
        decided=found,
        minimum_harm=binomial.minimum_detectable_rate(groups),
        more_groups=more_groups(found, Limits()),
    )


def evidence(**changes: Any) -> Evidence:
    base: dict[str, Any] = {
        "precision": "fp16",
        "task": "image-classification",
        "limits": Limits(),
        "outputs": (diff(0.01),),
        "decisions": flips(0, 200),
    }
    return Evidence(**base | changes)


def verdict(**changes: Any) -> tuple[str, list[str]]:
    found = decide(evidence(**changes), "onnxruntime 1.32.0 (cpu)")
    return found.verdict, [reason.code for reason in found.reasons]


@pytest.mark.parametrize(
    ("count", "groups", "word"),
    [
        (0, 148, "degraded"),  # 1 - 0.05 ** (1 / 148) = 2.004 %
        (0, 149, "pass"),  # 1.990 %
        (0, 35, "unproven"),  # 8.203 %
        (0, 36, "degraded"),  # 7.984 %
        (1, 235, "degraded"),  # scipy: beta.ppf(.95, 2, 234) = 2.003 %
        (1, 236, "pass"),  # 1.994 %
        (4, 24, "unproven"),  # between 5.9 % and 34 %
        (5, 24, "fail"),  # beta.ppf(.05, 5, 20) = 8.57 %
        (24, 24, "fail"),
    ],
)
def test_bounds_against_limits(count: int, groups: int, word: str) -> None:
    assert verdict(decisions=flips(count, groups))[0] == word


def test_limits_are_the_workloads() -> None:
    strict = Limits(pass_flips=0.005, degraded_flips=0.02)
    assert verdict_by_bounds(flips(0, 200).decided, strict) == "degraded"
    assert verdict_by_bounds(flips(0, 200).decided, Limits()) == "pass"


def test_fp32_passes_at_tensor_level_without_data() -> None:
    clean = {"precision": "fp32", "decisions": None}
    assert verdict(outputs=(diff(1e-3),), **clean) == ("pass", [])
    assert verdict(outputs=(diff(1.01e-3),), **clean) == (
        "unproven",
        ["EDGE-CHECK-043", "EDGE-CHECK-030"],
    )
    assert verdict(outputs=(diff(0.11),), **clean) == ("fail", ["EDGE-CHECK-030"])
    assert verdict(outputs=(diff("nan"),), **clean) == ("fail", ["EDGE-CHECK-030"])
    assert verdict(outputs=(), **clean) == ("fail", ["EDGE-CHECK-030"])


def test_the_worst_output_counts() -> None:
    outputs = (diff(1e-6), diff(0.5), diff(1e-7))
    assert verdict(precision="fp32", decisions=None, outputs=outputs)[0] == "fail"


def test_fp32_within_the_tensor_limit_needs_no_more_inputs() -> None:
    few = {"decisions": flips(0, 24), "outputs": (diff(1e-6),)}
    assert verdict(precision="fp32", **few) == ("pass", [])
    assert verdict(precision="fp16", **few)[0] == "unproven"


def test_fp32_beyond_the_tensor_limit_is_judged_by_decisions() -> None:
    far = {"precision": "fp32", "outputs": (diff(0.5),)}
    assert verdict(**far, decisions=flips(0, 200)) == ("pass", ["EDGE-CHECK-030"])
    assert verdict(**far, decisions=flips(0, 40)) == (
        "degraded",
        ["EDGE-CHECK-041", "EDGE-CHECK-030"],
    )
    assert verdict(**far, decisions=flips(20, 40))[0] == "fail"
    on_edge = frozenset({diff(0.5).worst})
    assert verdict(**far, decisions=flips(0, 200), edges=on_edge) == ("fail", ["EDGE-CHECK-030"])


def test_a_reference_that_only_decides_must_be_reproduced() -> None:
    """Tensors equal to the exported program say nothing of the server's preprocessing."""
    server = {"precision": "fp32", "outputs": (diff(1e-6),), "own_tensors": False}
    assert verdict(**server, decisions=flips(0, 24)) == ("pass", [])
    assert verdict(**server, decisions=flips(0, 24), drift=0.009) == ("pass", [])
    assert verdict(**server, decisions=flips(0, 24), drift=0.011) == (
        "unproven",
        ["EDGE-CHECK-046", "EDGE-CHECK-042"],
    )
    assert verdict(**server, decisions=flips(0, 200), drift=0.011) == ("pass", ["EDGE-CHECK-046"])
    assert verdict(**server, decisions=flips(1, 24))[0] == "unproven"
    assert verdict(**server, decisions=flips(12, 24)) == ("fail", ["EDGE-CHECK-040"])
    alone = {**server, "decisions": None}
    assert verdict(**alone) == ("pass", ["EDGE-CHECK-050"])
    assert verdict(**alone, synthetic=flips(0, 12).decided) == ("pass", ["EDGE-CHECK-050"])
    assert verdict(**alone, synthetic=flips(1, 12).decided) == ("unproven", ["EDGE-CHECK-043"])
    assert verdict(**alone, synthetic=flips(6, 12).decided) == ("fail", ["EDGE-CHECK-045"])


def test_no_decided_input_is_no_evidence() -> None:
    undecided = DecisionStats(
        task="image-classification",
        inputs=9,
        groups=9,
        raw=flips(0, 9).raw,
        decided=binomial.rate([]),
    )
    assert verdict(decisions=undecided) == ("unproven", ["EDGE-CHECK-044"])
    assert verdict(decisions=undecided, precision="fp32", own_tensors=False)[0] == "unproven"


def test_generated_inputs_can_only_fail() -> None:
    rest = {"precision": "fp32", "decisions": None, "outputs": (diff(0.05),)}
    assert verdict(**rest, synthetic=flips(9, 12).decided) == (
        "fail",
        ["EDGE-CHECK-045", "EDGE-CHECK-030"],
    )
    assert verdict(**rest, synthetic=flips(0, 500).decided)[0] == "unproven"
    assert verdict(synthetic=flips(9, 12).decided)[0] == "pass", "real data overrules"


def test_tensors_are_judged_as_tensors() -> None:
    task = {"task": "tensors", "decisions": None}
    assert verdict(**task, precision="fp32", outputs=(diff(1e-4),)) == ("pass", [])
    assert verdict(**task, precision="fp32", outputs=(diff(2e-3),)) == ("fail", ["EDGE-CHECK-030"])


def noisy(snr: Any, channel: Any, **rest: Any) -> OutputDiff:
    figures = {"snr": snr, "channel_snr": channel, "noisiest": 5, "field": "scores"}
    return msgspec.structs.replace(diff(0.1), **figures | rest)


@pytest.mark.parametrize(
    ("precision", "snr", "channel", "word", "code"),
    [
        ("w8a8", 20.0, 10.0, "pass", None),
        ("w8a8", 19.9, 15.0, "degraded", "EDGE-CHECK-064"),
        ("w8a8", 30.0, 9.9, "degraded", "EDGE-CHECK-064"),
        ("w8a8", 30.0, 0.0, "degraded", "EDGE-CHECK-064"),
        ("w8a8", 30.0, -0.1, "fail", "EDGE-CHECK-063"),
        ("w8", 10.0, 5.0, "degraded", "EDGE-CHECK-064"),
        ("w8", 9.9, 5.0, "fail", "EDGE-CHECK-063"),
        ("w8", "inf", "inf", "pass", None),
        ("w8", "nan", "nan", "fail", "EDGE-CHECK-063"),
        ("fp16", 40.0, 30.0, "pass", None),
        ("fp16", 39.0, 35.0, "degraded", "EDGE-CHECK-064"),
        ("fp16", 9.0, 9.0, "fail", "EDGE-CHECK-063"),
    ],
)
def test_noise_of_quantized_tensors(
    precision: str, snr: Any, channel: Any, word: str, code: str | None
) -> None:
    task = {"task": "tensors", "decisions": None, "precision": precision}
    quiet = noisy(60.0, 60.0)
    assert verdict(**task, outputs=(quiet, noisy(snr, channel), quiet)) == (
        word,
        [code] if code else [],
    )


def test_noise_names_the_field_and_the_channel() -> None:
    task = {"task": "tensors", "decisions": None, "precision": "w8a8"}
    judged = decide(evidence(**task, outputs=(noisy(25.0, -8.0, part="channels 4-6"),)), "x")
    assert judged.reasons[0].message == (
        "scores field of output 'logits' (channels 4-6): signal to noise 25 dB, limit 20;"
        " channel 5: -8 dB, limit 10"
    )
    strict = Limits(snr=40.0, degraded_snr=30.0)
    assert verdict(**task, limits=strict, outputs=(noisy(35.0, 30.0),))[0] == "degraded"


def test_whole_numbers_of_quantized_files_are_equal_or_unproven() -> None:
    task = {"task": "tensors", "decisions": None, "precision": "w8"}
    same, other = diff(0.0), msgspec.structs.replace(diff(2.0), max_abs=2.0)
    assert verdict(**task, outputs=(same,), whole=(same,)) == ("pass", [])
    found = verdict(**task, outputs=(noisy(30.0, 30.0), other), whole=(other,))
    assert found == ("unproven", ["EDGE-CHECK-032"])


def test_order_of_the_rules() -> None:
    broken = Reason(code="EDGE-CHECK-005", message="NaN")
    vacuous = Reason(code="EDGE-CHECK-020", message="1e-30")
    perfect = {"precision": "fp32", "outputs": (diff(0.0),)}
    assert verdict(**perfect, vacuous=(vacuous,)) == ("unproven", ["EDGE-CHECK-020"])
    assert verdict(**perfect, broken=(broken,), vacuous=(vacuous,)) == ("fail", ["EDGE-CHECK-005"])


def test_more_groups_settle_it() -> None:
    found = flips(0, 24)
    assert found.more_groups == 149 - 24
    assert verdict_by_bounds(flips(0, 24 + 125).decided, Limits()) == "pass"
    assert verdict_by_bounds(flips(0, 24 + 124).decided, Limits()) != "pass"
    assert flips(0, 200).more_groups is None


@pytest.mark.parametrize(("count", "groups", "aim"), [(1, 30, "degraded"), (4, 24, "fail")])
def test_more_groups_aims_where_the_rate_points(count: int, groups: int, aim: str) -> None:
    more = flips(count, groups).more_groups
    assert more is not None

    def after(extra: int) -> str:
        n = groups + extra
        events = count / groups * n
        return verdict_by_bounds(
            Rate(
                count=0,
                n=1,
                rate=0.0,
                n_eff=float(n),
                lower=binomial.lower_bound(events, n),
                upper=binomial.upper_bound(events, n),
            ),
            Limits(),
        )

    assert (after(more), after(more - 1)) == (aim, "unproven")


def test_messages_name_the_numbers() -> None:
    judged = decide(evidence(decisions=flips(4, 24)), "onnxruntime 1.32.0 (cpu)")
    assert judged.executed_by == "onnxruntime 1.32.0 (cpu)"
    assert judged.minimum_harm == pytest.approx(0.1173, abs=1e-4)
    message = judged.reasons[0].message
    assert "4 of 24 decided answers flip (24 independent inputs)" in message
    assert f"about {flips(4, 24).more_groups} more independent inputs" in message


def test_a_crash_is_a_failed_check() -> None:
    for code in ("EDGE-WORKER-002", "EDGE-WORKER-003"):
        judged = crash_verdict(WorkerError(code, "verb", got="signal SIGSEGV", hint="see the log"))
        assert (judged.verdict, judged.reasons[0].code) == ("fail", "EDGE-CHECK-012")
        assert "SIGSEGV" in judged.reasons[0].message
    judged = crash_verdict(
        WorkerError("EDGE-WORKER-001", "TypeError", got="odd", hint="see log.txt")
    )
    assert (judged.verdict, judged.reasons[0].code) == ("fail", "EDGE-CHECK-015")
    assert "TypeError" in judged.reasons[0].message
    assert "log.txt" in judged.reasons[0].message


def test_other_errors_are_not_the_artifacts() -> None:
    error = InputError("EDGE-INPUT-001", "cat.jpg", got="no picture", hint="replace it")
    with pytest.raises(InputError):
        crash_verdict(error)
