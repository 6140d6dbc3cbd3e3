"""Which candidates there are, in which order, and which is the fastest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from edgeserve import backends
from edgeserve.backends.onnx import OnnxBackend
from edgeserve.bundle import open_model
from edgeserve.errors import ProfileError, WrapperError
from edgeserve.profiles import device, devices, workloads
from edgeserve.types.manifest import Manifest
from edgeserve.wrapper.engine import ProbeOutcome
from edgeserve.wrapper.plans import (
    Constraints,
    ExecutionPlan,
    PlanTiers,
    device_digest,
    fastest,
    parse_constraints,
    plan_tiers,
    thread_counts,
)

CORES = 6


@pytest.fixture(autouse=True)
def _cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgeserve.wrapper.plans.usable_cores", lambda: CORES)


@pytest.fixture
def sort(make: Any, npu: Callable[..., Any]) -> Callable[..., PlanTiers]:
    """``sort(verdicts, golden, **wish)``: the field of artifacts with these verdicts, by name."""

    def go(verdicts: dict[str, str], golden: bool = True, **wishes: Any) -> PlanTiers:
        made = [
            npu("", name.partition("-")[2], verdict)
            if name.startswith("tflite")
            else make.made(name, make.classifier(), verdict)
            for name, verdict in verdicts.items()
        ]
        with open_model(make.workspace(*made, golden=golden)) as model:
            return plan_tiers(model.manifest, Constraints(**wishes), backends.get, "digest")

    return go


def names(found: PlanTiers) -> list[list[tuple[str, str, int | None]]]:
    return [[(c.artifact.name, c.delegate, c.threads) for c in tier] for tier in found.tiers]


def test_one_artifact_on_the_processor_is_tried_with_several_threads(
    sort: Callable[..., PlanTiers],
) -> None:
    found = sort({"onnx-fp32": "pass"})
    assert names(found) == [[("onnx-fp32", "cpu", n) for n in (1, 4, 6)]]
    assert found.passed_over == ()


def test_tiers_follow_the_verdicts_and_accelerators_stand_first(
    sort: Callable[..., PlanTiers],
) -> None:
    found = sort({"onnx-fp32": "unproven", "onnx-w8": "degraded", "tflite-fp16": "pass"}, threads=2)
    assert names(found) == [
        [("tflite-fp16", "npu", 2), ("tflite-fp16", "cpu", 2)],
        [("onnx-w8", "cpu", 2)],
        [("onnx-fp32", "cpu", 2)],
    ]


def test_full_precision_stands_first_within_a_tier(sort: Callable[..., PlanTiers]) -> None:
    found = sort({"onnx-w8a8": "pass", "onnx-fp16": "pass", "onnx-fp32": "pass"}, threads=1)
    assert [name for [*tier] in names(found) for name, _, _ in tier] == [
        "onnx-fp32",
        "onnx-fp16",
        "onnx-w8a8",
    ]


def test_without_golden_cases_only_the_processor_and_nothing_unproven(
    sort: Callable[..., PlanTiers],
) -> None:
    found = sort({"tflite-fp32": "pass", "onnx-fp32": "unproven"}, golden=False)
    assert names(found) == [[("tflite-fp32", "cpu", None)]]
    assert [left.what for left in found.passed_over] == ["onnx-fp32"]
    assert "no golden cases" in found.passed_over[0].why
    named = sort({"tflite-fp32": "pass"}, golden=False, delegate="npu")
    assert names(named) == [[("tflite-fp32", "npu", None)]]


@pytest.mark.parametrize(
    ("wishes", "left", "why"),
    [
        ({"format": "tflite"}, ["onnx-fp32", "onnx-w8"], "only format tflite"),
        ({"precision": "w8"}, ["onnx-fp32", "tflite-fp32"], "only precision w8"),
        ({"delegate": "npu"}, ["onnx-fp32", "onnx-w8"], "usable here"),
    ],
)
def test_conditions_exclude_and_say_so(
    sort: Callable[..., PlanTiers], wishes: dict[str, Any], left: list[str], why: str
) -> None:
    verdicts = {"onnx-fp32": "pass", "onnx-w8": "degraded", "tflite-fp32": "pass"}
    found = sort(verdicts, **wishes)
    assert sorted(over.what for over in found.passed_over) == left
    assert all(why in over.why for over in found.passed_over)
    assert len(names(found)) == 1


def test_a_format_without_its_runtime_is_passed_over(
    make: Any, without: Callable[[str], None]
) -> None:
    without("coreml")
    made = [make.made("coreml-fp32", b"-"), make.made("onnx-fp32", make.classifier(), "degraded")]
    with open_model(make.workspace(*made)) as model:
        found = plan_tiers(model.manifest, Constraints(threads=1), backends.get, "digest")
        only = plan_tiers(
            model.manifest, Constraints(threads=1, format="onnx"), backends.get, "digest"
        )
    assert [over.what for over in found.missed] == ["coreml-fp32"]
    assert found.missed[0].why == "its runtime is not here (pip install a-runtime)"
    assert only.missed == (), "what the caller excludes is not missed"
    assert [over.what for over in only.passed_over] == ["coreml-fp32"]


def test_what_is_for_proofs_is_taken_where_it_is_asked_for(
    make: Any, npu: Callable[..., Any]
) -> None:
    """Core ML where there is no Core ML: an interpreter carries it out, rightly and slowly."""
    made = [npu("", format="coreml"), make.made("onnx-fp32", make.classifier(), "degraded")]

    def tiers(golden: bool = True, **wishes: Any) -> list[list[tuple[str, str, int | None]]]:
        with open_model(make.workspace(*made, golden=golden)) as model:
            found = plan_tiers(
                model.manifest, Constraints(threads=1, **wishes), backends.get, "digest"
            )
        if ("coreml-fp32", "interpreter", 1) not in names(found)[0]:
            assert "interpreter is for proofs" in found.passed_over[0].why
            assert found.missed == found.passed_over, "on an iPhone it would be the better choice"
        return names(found)

    served, proven = [("onnx-fp32", "cpu", 1)], [("coreml-fp32", "interpreter", 1)]
    assert tiers() == tiers(golden=False) == [served]
    assert tiers(proofs=True) == [proven, served]
    assert tiers(format="coreml") == tiers(format="coreml", golden=False) == [proven]
    assert tiers(delegate="interpreter") == [proven]


def test_strict_never_takes_what_is_unproven(sort: Callable[..., PlanTiers]) -> None:
    assert names(sort({"onnx-fp32": "unproven"}, strict=True)) == []
    assert len(names(sort({"onnx-fp32": "unproven"}))) == 1


def test_a_profile_narrows_formats_precisions_and_cores(sort: Callable[..., PlanTiers]) -> None:
    pi = device("raspberry-pi-5")
    assert pi.cores == 4
    assert "onnx" in pi.formats
    unknown = next(p for p in ("w4", "fp16", "w8a16") if p not in pi.precisions)
    found = sort({"onnx-fp32": "pass", f"onnx-{unknown}": "pass"}, device=pi)
    assert names(found) == [[("onnx-fp32", "cpu", 4)]]
    assert "raspberry-pi-5" in found.passed_over[0].why


@pytest.mark.parametrize("name", list(devices()))
def test_every_format_of_every_profile_runs_here(make: Any, name: str) -> None:
    """On a host with a processor alone: by each format's own runtime, or by its interpreter."""
    profile = device(name)
    entries = {"onnx": "model.onnx", "tflite": "model.tflite", "coreml": "model.mlpackage"}
    made = [
        make.made(f"{format}-{precision}", b"-", entry=entry)
        for format, entry in entries.items()
        for precision in ("fp32", "w8a8")
    ]
    with open_model(make.workspace(*made)) as model:
        manifest = model.manifest
    for format in profile.formats:
        wish = Constraints(threads=1, device=profile, format=format)
        found = plan_tiers(manifest, wish, backends.get, "digest")
        assert found.tiers, found.passed_over
        assert {plan.artifact.format for plan in found.tiers[0]} == {format}
        expected = {"coreml": {"interpreter"}}.get(format, {"cpu"})
        assert {plan.delegate for plan in found.tiers[0]} == expected
    free = plan_tiers(manifest, Constraints(threads=1, device=profile), backends.get, "digest")
    assert {p.artifact.format for p in free.tiers[0]} == set(profile.formats) - {"coreml"}


@pytest.mark.parametrize(
    ("format", "word", "delegate"),
    [
        ("tflite", "xnnpack", "cpu"),
        ("tflite", "XNNPACK", "cpu"),
        ("tflite", "wasm", "cpu"),
        ("onnx", "CPUExecutionProvider", "cpu"),
        ("onnx", "wasm", "cpu"),
    ],
)
def test_a_delegate_may_be_called_otherwise(
    make: Any, format: str, word: str, delegate: str
) -> None:
    made = make.made(f"{format}-fp32", b"-", entry=f"model.{format}")
    with open_model(make.workspace(made)) as model:
        wish = Constraints(threads=1, delegate=word)
        found = plan_tiers(model.manifest, wish, backends.get, "digest")
    assert names(found) == [[(f"{format}-fp32", delegate, 1)]]


def test_what_this_version_does_not_know_is_passed_over(make: Any) -> None:
    made = [
        make.made("onnx-fp32", make.classifier()),
        make.made("onnx-nf4", b"-"),
        make.made("execu_torch2-fp32", b"-"),
        make.made("torch9-nf4", b"-", "degraded"),
    ]
    with open_model(make.workspace(*made)) as model:
        found = plan_tiers(model.manifest, Constraints(threads=1), backends.get, "digest")
        named = plan_tiers(
            model.manifest, Constraints(threads=1, format="onnx"), backends.get, "digest"
        )
    assert names(found) == [[("onnx-fp32", "cpu", 1)]]
    assert {over.what for over in found.unknown} == {"onnx-nf4", "execu_torch2-fp32", "torch9-nf4"}
    assert found.unknown == found.passed_over
    why = {over.what: over.why for over in found.unknown}
    assert "precision nf4" in why["onnx-nf4"]
    assert "no installed package has the format execu_torch2" in why["execu_torch2-fp32"]
    assert found.missed == ()
    assert [over.what for over in named.unknown] == ["onnx-nf4"], "the caller excludes the others"


def test_a_precision_that_only_a_backend_knows_is_its_own(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class WithNf4(OnnxBackend):
        precisions = ("fp32", "nf4")

    monkeypatch.setattr(backends, "_made", {"onnx": WithNf4()})
    made = [make.made("onnx-nf4", b"-"), make.made("tflite-nf4", b"-")]
    with open_model(make.workspace(*made)) as model:
        found = plan_tiers(model.manifest, Constraints(threads=1), backends.get, "digest")
    assert names(found) == [[("onnx-nf4", "cpu", 1)]]
    assert [over.what for over in found.unknown] == ["tflite-nf4"]
    assert asked(precision="nf4").precision == "nf4"


def test_a_key_knows_the_runtime_of_its_format(
    make: Any, manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def key() -> str:
        found = plan_tiers(manifest, Constraints(threads=1), backends.get, "digest")
        return found.tiers[0][0].key

    before = key()
    there = "edgeserve.backends.versions._installed"
    monkeypatch.setattr(there, lambda name: "0.1" if name == "ai-edge-litert" else None)
    other = key()
    monkeypatch.setattr(there, lambda name: "0.1" if name == "onnxruntime" else None)
    older = key()
    monkeypatch.setattr(there, lambda name: "0.2" if name == "onnxruntime" else None)
    assert len({before, other, older, key()}) == 4


def test_a_key_stands_for_all_that_may_change_an_answer(make: Any, manifest: Manifest) -> None:
    def key(manifest: Manifest, digest: str = "digest", threads: int = 1) -> str:
        return (
            plan_tiers(manifest, Constraints(threads=threads), backends.get, digest).tiers[0][0].key
        )

    golden = manifest.golden
    assert golden is not None
    fewer = msgspec.structs.replace(golden, cases=golden.cases[1:])
    keys = [
        key(manifest),
        key(manifest, "another device"),
        key(manifest, threads=2),
        key(msgspec.structs.replace(manifest, golden=fewer)),
        key(msgspec.structs.replace(manifest, model_id="0" * 64)),
        key(msgspec.structs.replace(manifest, labels=manifest.labels[::-1])),
    ]
    with open_model(
        make.workspace(make.made("onnx-fp32", make.classifier(sign_of_w=2.0)))
    ) as other:
        keys.append(key(other.manifest))
    assert len(set(keys)) == len(keys)
    assert key(manifest) == keys[0]


@pytest.fixture
def manifest(make: Any) -> Manifest:
    with open_model(make.workspace()) as model:
        found: Manifest = model.manifest
    return found


def test_the_device_digest_is_stable_and_knows_what_runs_around_the_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = device_digest()
    assert here == device_digest()
    from edgeserve.environment import environment

    now = environment()
    other = msgspec.structs.replace(now, packages=now.packages | {"pillow": "0.1"})
    monkeypatch.setattr("edgeserve.wrapper.plans.environment", lambda: other)
    assert device_digest() != here


def test_thread_counts() -> None:
    assert [thread_counts(n) for n in (1, 2, 4, 6, 64)] == [
        (1,),
        (1, 2),
        (1, 4),
        (1, 4, 6),
        (1, 4, 64),
    ]
    assert thread_counts(64, device("raspberry-pi-5")) == (4,)
    assert thread_counts(2, device("raspberry-pi-5")) == (2,)


@pytest.mark.parametrize(
    ("times", "best"),
    [([5.0, 4.6], 0), ([5.0, 4.4], 1), ([5.0, 4.4, 4.3], 1), ([None, 9.0], 1), ([None, None], 0)],
)
def test_a_later_candidate_must_be_faster_by_a_tenth(
    manifest: Manifest, times: list[float | None], best: int
) -> None:
    candidates = [
        ExecutionPlan(artifact=manifest.artifacts[0], delegate="cpu", threads=n + 1, key=str(n))
        for n in range(len(times))
    ]
    timed = [
        (c, ProbeOutcome(key=c.key, name=c.name, state="accepted", run_ms=ms))
        for c, ms in zip(candidates, times, strict=True)
    ]
    assert fastest(timed) is timed[best]


def asked(**given: Any) -> Constraints:
    none: dict[str, Any] = dict.fromkeys(("format", "precision", "delegate", "threads", "profile"))
    return parse_constraints(**(none | {"strict": False, "deadline": None} | given))


@pytest.mark.parametrize(
    ("given", "code", "named"),
    [
        ({"deadline": 0.5}, "EDGE-WRAPPER-002", "deadline"),
        ({"format": "pickle"}, "EDGE-WRAPPER-003", "format"),
        ({"precision": "fp8"}, "EDGE-WRAPPER-003", "precision"),
        ({"threads": 0}, "EDGE-WRAPPER-003", "threads"),
        ({"threads": True}, "EDGE-WRAPPER-003", "threads"),
        ({"threads": 1.5}, "EDGE-WRAPPER-003", "threads"),
    ],
)
def test_arguments_are_refused_by_name(given: dict[str, Any], code: str, named: str) -> None:
    with pytest.raises(WrapperError) as error:
        asked(**given)
    assert error.value.code == code
    assert named in error.value.thing


def test_arguments_are_understood() -> None:
    assert asked(format="ort").format == "onnx"
    assert asked(profile="raspberry-pi-5").device == device("raspberry-pi-5")
    assert asked(profile=device("raspberry-pi-5")).device == device("raspberry-pi-5")
    with pytest.raises(ProfileError):
        asked(profile="abacus")
    with pytest.raises(WrapperError) as error:
        asked(profile=next(iter(workloads().values())))
    assert error.value.code == "EDGE-WRAPPER-002"
