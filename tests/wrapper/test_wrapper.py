"""Which artifact a `Wrapper` takes, what it says about it, when it refuses; and certificates."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from edgeserve import Wrapper
from edgeserve.errors import BackendError, BundleError, EdgeError, FilesError, WrapperError
from edgeserve.files import Fs
from edgeserve.types.base import encode
from edgeserve.wrapper.probe import ProbeCache

Npu = Callable[..., Any]


def test_the_second_start_looks_the_proof_up(make: Any) -> None:
    """The kept outcome is believed: with other times it changes the choice."""
    root = make.workspace(
        make.made("onnx-fp32", make.classifier()), make.made("onnx-fp16", make.classifier())
    )
    with Wrapper(root, threads=1) as tagger:
        assert tagger.ran_on.note == ""
    cache = Path(os.environ["EDGESERVE_CACHE"]) / "wrapper"
    kept = {json.loads(p.read_text())["name"]: p for p in cache.glob("*.json")}
    assert sorted(kept) == ["onnx-fp16 on cpu, 1 thread", "onnx-fp32 on cpu, 1 thread"]
    for name, path in kept.items():
        speed = 1.0 if "fp16" in name else 2.0
        outcome = ProbeCache(cache).get(path.stem)
        assert outcome is not None
        ProbeCache(cache).put(replace(outcome, run_ms=speed))
    with Wrapper(root, threads=1) as tagger:
        assert tagger.ran_on.precision == "fp16"
        assert tagger.ran_on.proof == "golden"
    for path in kept.values():
        path.write_bytes(b"\xff rubbish")
    with Wrapper(root, threads=1) as tagger:
        assert tagger.ran_on.proof == "golden"
    assert {json.loads(p.read_text())["state"] for p in kept.values()} == {"accepted"}


def test_the_best_that_holds_is_taken_and_the_note_says_what_was_not(make: Any) -> None:
    wrong = make.made("onnx-fp32", make.classifier(sign_of_w=-1))
    right = make.made("onnx-w8", make.classifier(), "degraded")
    root = make.workspace(wrong, right)
    for _ in range(2):
        with Wrapper(root, threads=1) as tagger:
            assert tagger.ran_on.precision == "w8"
            assert "onnx-fp32 on cpu, 1 thread: refused" in tagger.ran_on.note
            assert make.agrees(tagger.predict(make.pixels(3)), make.pixels(3))
    with pytest.raises(WrapperError) as error:
        Wrapper(root, threads=1, strict=True)
    assert error.value.code == "EDGE-WRAPPER-004"
    assert "onnx-fp32 on cpu, 1 thread: refused" in error.value.got


def test_an_artifact_of_a_later_version_does_not_stop_the_others(make: Any) -> None:
    """An old app meets the first update that holds a format it does not have."""
    unknown = (make.made("execu_torch2-fp32", b"of later days"), make.made("onnx-nf4", b"too"))
    root = make.workspace(make.made("onnx-fp32", make.classifier()), *unknown)
    for path in (root, make.bundle(root)):
        with Wrapper(path, threads=1, strict=True) as tagger:
            assert tagger.ran_on.precision == "fp32"
            assert make.agrees(tagger.predict(make.pixels(3)), make.pixels(3))
            note, certificate = tagger.ran_on.note, tagger.verify()
        told = ["execu_torch2-fp32: no installed package", "onnx-nf4: the precision nf4 is not"]
        assert all(part in note for part in told), note
        assert all(any(part in line for line in certificate.not_run) for part in told)
        assert certificate.verdict == "pass"
        with pytest.raises(WrapperError, match="execu_torch2") as error:
            Wrapper(path, precision="w8")
        assert error.value.code == "EDGE-WRAPPER-001"


def test_an_artifact_that_only_a_later_manifest_can_say_is_passed_over(make: Any) -> None:
    root = make.workspace(
        make.made("onnx-fp32", make.classifier()), make.made("onnx-w8", make.classifier())
    )
    manifest = json.loads((root / "manifest.json").read_bytes())
    manifest["artifacts"][1]["io"]["inputs"][0]["dtype"] = "float4"
    (root / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(BundleError) as error:
        Wrapper(root, threads=1)
    assert error.value.code == "EDGE-BUNDLE-037", "in this version's own manifests it is a fault"
    (root / "manifest.json").write_text(json.dumps(manifest | {"edgeserve": "1.1"}))
    with Wrapper(root, threads=1) as tagger:
        assert tagger.ran_on.precision == "fp32"
        assert "onnx-w8: it is written for a later version of edgeserve" in tagger.ran_on.note
        assert "float4" in tagger.ran_on.note
        assert any("onnx-w8" in line for line in tagger.verify().not_run)
        (refused,) = tagger.manifest.refused
    assert (refused.name, refused.code) == ("onnx-w8", "EDGE-BUNDLE-043")
    manifest["processing"]["inputs"][0]["steps"][1]["step"] = "resize/9"
    (root / "manifest.json").write_text(json.dumps(manifest | {"edgeserve": "1.1"}))
    with pytest.raises(BundleError) as error:
        Wrapper(root, threads=1)
    assert error.value.code == "EDGE-BUNDLE-036"


def test_nothing_is_left_when_no_proof_holds(make: Any) -> None:
    (make.folder / "given").mkdir()
    root = make.workspace(golden=make.golden(make.folder / "given", flip=True))
    with pytest.raises(WrapperError) as error:
        Wrapper(root, threads=1)
    assert error.value.code == "EDGE-WRAPPER-001"
    assert "1 of 4 golden cases" in error.value.got
    assert "golden/001.png" in error.value.got
    with pytest.raises(WrapperError) as error:
        Wrapper(root, threads=1, strict=True)
    assert error.value.code == "EDGE-WRAPPER-004"


def test_strict_takes_what_holds(make: Any) -> None:
    with Wrapper(make.workspace(), threads=1, strict=True) as tagger:
        assert tagger.ran_on.proof == "golden"
    with pytest.raises(WrapperError, match="no golden cases"):
        Wrapper(make.workspace(golden=False), strict=True)
    with pytest.raises(WrapperError, match="unproven"):
        Wrapper(make.workspace(make.made("onnx-fp32", make.classifier(), "unproven")), strict=True)


def test_unproven_is_taken_after_its_own_proof_only(make: Any) -> None:
    made = make.made("onnx-fp32", make.classifier(), "unproven")
    with Wrapper(make.workspace(made), threads=1) as tagger:
        assert tagger.ran_on.proof == "golden"
    with pytest.raises(WrapperError) as error:
        Wrapper(make.workspace(made, golden=False), threads=1)
    assert error.value.code == "EDGE-WRAPPER-001"
    wrong = make.made("onnx-fp32", make.classifier(sign_of_w=-1), "unproven")
    with pytest.raises(WrapperError, match="refused"):
        Wrapper(make.workspace(wrong), threads=1)


def test_a_missing_runtime_is_a_second_choice(make: Any, without: Callable[[str], None]) -> None:
    without("tflite")
    made = [make.made("tflite-fp32", b"-"), make.made("onnx-fp32", make.classifier(), "degraded")]
    with Wrapper(make.workspace(*made), threads=1) as tagger:
        assert tagger.ran_on.format == "onnx"
        assert "tflite-fp32" in tagger.ran_on.note
    with pytest.raises(WrapperError) as error:
        Wrapper(make.workspace(*made), threads=1, strict=True)
    assert error.value.code == "EDGE-WRAPPER-004"
    with Wrapper(make.workspace(*made), format="ort", threads=1, strict=True) as tagger:
        assert "tflite" not in tagger.ran_on.note, "what the caller excludes is no better choice"
        assert "degraded" in tagger.ran_on.note
    with pytest.raises(WrapperError) as error:
        Wrapper(make.workspace(made[0]))
    assert error.value.code == "EDGE-WRAPPER-001"
    assert "tflite-fp32" in error.value.got


def test_an_accelerator_is_used_when_it_holds_and_is_faster(make: Any, npu: Npu) -> None:
    with Wrapper(make.workspace(npu("slow")), threads=1) as tagger:
        assert tagger.ran_on.runtime.delegate == "cpu"
        assert tagger.ran_on.note == ""
    with Wrapper(make.workspace(npu("slow")), threads=1, delegate="npu") as tagger:
        assert tagger.ran_on.runtime.delegate == "npu"
        assert make.agrees(tagger.predict(make.pixels(3)), make.pixels(3))


@pytest.mark.parametrize("fault", ["crash", "wrong", "silent"])
def test_a_faulty_accelerator_never_answers(make: Any, npu: Npu, fault: str) -> None:
    root = make.workspace(npu(fault))
    with Wrapper(root, threads=1) as tagger:
        assert tagger.ran_on.runtime.delegate == "cpu"
        assert "tflite-fp32 on npu" in tagger.ran_on.note
        assert make.agrees(tagger.predict(make.pixels(3)), make.pixels(3))
    with pytest.raises(WrapperError) as error:
        Wrapper(root, threads=1, strict=True)
    assert error.value.code == "EDGE-WRAPPER-004"
    with pytest.raises(WrapperError) as error:
        Wrapper(root, threads=1, delegate="npu")
    assert error.value.code == "EDGE-WRAPPER-001"


def test_without_golden_cases_no_accelerator_is_trusted(make: Any, npu: Npu) -> None:
    with Wrapper(make.workspace(npu("wrong"), golden=False)) as tagger:
        assert tagger.ran_on.runtime.delegate == "cpu"
        assert tagger.ran_on.proof == "none"


def test_a_leftover_of_a_dead_app_is_told_once(make: Any) -> None:
    root = make.workspace()
    with Wrapper(root, threads=1):
        pass
    cache = Path(os.environ["EDGESERVE_CACHE"]) / "wrapper"
    [kept] = cache.glob("*.json")
    kept.with_suffix(".trying").write_bytes(b"")
    with Wrapper(root, threads=1) as tagger:
        assert "ended in the middle" in tagger.ran_on.note
        assert tagger.ran_on.proof == "golden"
    with Wrapper(root, threads=1) as tagger:
        assert tagger.ran_on.note == ""


def test_the_number_of_threads_is_measured_or_given(make: Any) -> None:
    with Wrapper(make.workspace()) as tagger:
        assert tagger.ran_on.proof == "golden"
        assert make.agrees(tagger.predict(make.pixels(3)), make.pixels(3))
    with Wrapper(make.workspace(), threads=2) as tagger:
        engine = tagger._engine
        assert engine is not None
        assert engine.session.threads == 2


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"fallback": "http://gpu.example.com"}, "EDGE-FALLBACK-003"),
        ({"deadline": 0.2}, "EDGE-WRAPPER-002"),
        ({"precision": "fp8"}, "EDGE-WRAPPER-003"),
        ({"threads": -1}, "EDGE-WRAPPER-003"),
        ({"delegate": "cuda"}, "EDGE-WRAPPER-001"),
        ({"precision": "w8"}, "EDGE-WRAPPER-001"),
        ({"profile": "abacus"}, "EDGE-PROFILE-001"),
    ],
)
def test_no_argument_is_ignored(make: Any, given: dict[str, Any], code: str) -> None:
    with pytest.raises(EdgeError) as error:
        Wrapper(make.workspace(), **given)
    assert error.value.code == code


def test_a_bundle_for_a_newer_edgeserve_is_not_opened(make: Any) -> None:
    for version in ("0.1.1", "0.2", "1.0.0"):
        with pytest.raises(BundleError) as error:
            Wrapper(make.workspace(min_wrapper=version))
        assert error.value.code == "EDGE-BUNDLE-041"
    with Wrapper(make.workspace(min_wrapper="0.0.9"), threads=1):
        pass


def test_a_damaged_artifact_reaches_no_runtime(make: Any) -> None:
    root = make.workspace()
    path = root / "artifacts/onnx-fp32/model.onnx"
    path.write_bytes(path.read_bytes().replace(b"logits", b"logitz"))
    with pytest.raises((BundleError, BackendError)):
        Wrapper(root, threads=1)


def test_a_bundle_answers_as_its_workspace_does(make: Any) -> None:
    root = make.workspace()
    bundle = make.bundle(root)
    pictures = [make.pixels(seed) for seed in range(5)]
    with Wrapper(root, threads=1) as one, Wrapper(str(bundle), threads=1, strict=True) as other:
        assert other.ran_on == one.ran_on
        assert encode(other.predict(pictures)) == encode(one.predict(pictures))
    with Wrapper(bundle) as measured:
        assert make.agrees(measured.predict(pictures[0]), pictures[0])


def test_a_bundle_with_one_changed_byte_is_not_run(make: Any) -> None:
    bundle = make.bundle(make.workspace())
    data = bytearray(bundle.read_bytes())
    data[data.index(make.w.tobytes()[:64]) + 5] ^= 1
    bundle.write_bytes(data)
    with pytest.raises(BundleError):
        Wrapper(bundle, threads=1)
    with pytest.raises(BundleError):
        Wrapper(bundle)


def test_verify_certifies_what_runs_and_names_what_does_not(
    make: Any, without: Callable[[str], None]
) -> None:
    without("tflite")
    made = [
        make.made("onnx-fp32", make.classifier()),
        make.made("onnx-w8", make.classifier(sign_of_w=-1), "degraded"),
        make.made("tflite-fp32", b"-"),
    ]
    with Wrapper(make.workspace(*made), threads=1) as tagger:
        certificate = tagger.verify()
    assert certificate.verdict == "fail"
    assert certificate.model_id == tagger.manifest.model_id
    good, bad = certificate.proofs
    assert (good.precision, good.verdict, good.passed, good.total) == ("fp32", "pass", 4, 4)
    assert (bad.precision, bad.verdict, bad.passed, bad.total) == ("w8", "fail", 0, 4)
    assert good.artifact_sha256 == tagger.manifest.artifacts[0].sha256
    assert float(good.min_margin or 0) > 0.3 - 1e-5
    assert [line.partition(":")[0] for line in certificate.not_run] == ["tflite-fp32"]


def test_what_is_for_proofs_proves_and_serves_only_when_asked(make: Any, npu: Npu) -> None:
    root = make.workspace(
        npu("", format="coreml"), make.made("onnx-fp32", make.classifier(), "degraded")
    )
    with Wrapper(root, threads=1) as tagger:
        assert tagger.ran_on.format == "onnx"
        assert "coreml-fp32: its runtime is not here" in tagger.ran_on.note
        proofs = tagger.verify().proofs
    assert [(p.format, p.delegate, p.verdict) for p in proofs] == [
        ("coreml", "interpreter", "pass"),
        ("onnx", "cpu", "pass"),
    ]
    with Wrapper(root, format="coreml") as tagger:
        assert tagger.ran_on.runtime.delegate == "interpreter"
        assert make.agrees(tagger.predict(make.pixels(3)), make.pixels(3))


def test_a_certificate_needs_no_artifact_that_holds(
    make: Any, without: Callable[[str], None]
) -> None:
    without("coreml")
    from edgeserve.types.base import decode
    from edgeserve.wrapper import Certificate, verify

    wrong = make.workspace(make.made("onnx-fp32", make.classifier(sign_of_w=-1)))
    certificate = verify(wrong)
    assert certificate.verdict == "fail"
    assert {p.threads for p in certificate.proofs} >= {1}
    assert decode(encode(certificate), Certificate) == certificate
    assert verify(make.workspace()).verdict == "pass"
    nothing = verify(make.workspace(golden=False))
    assert (nothing.verdict, nothing.golden) == ("unproven", None)
    assert [p.reason for p in nothing.proofs] == ["there are no golden cases"]
    unrunnable = verify(make.workspace(make.made("coreml-fp32", b"-")))
    assert (unrunnable.verdict, unrunnable.proofs) == ("unproven", ())


@pytest.mark.parametrize("strict", [False, True])
def test_a_full_disk_demotes_nothing_for_ever(
    make: Any, strict: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three starts with a full disk, then one with room: the best artifact answers again."""
    good = make.classifier()
    bundle = make.bundle(
        make.workspace(make.made("onnx-fp32", good), make.made("onnx-fp16", good, "degraded"))
    )
    write = Fs.write_chunks

    def full(self: Fs, path: Path, chunks: Iterable[bytes]) -> None:
        if "fp32" in str(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(self, path, chunks)

    for _ in range(4):
        with monkeypatch.context() as patch:
            patch.setattr(Fs, "write_chunks", full)
            if strict:
                with pytest.raises(FilesError, match="EDGE-FILES-001") as refused:
                    Wrapper(bundle, threads=1, strict=True)
                assert "No space left" in refused.value.message
                continue
            with Wrapper(bundle, threads=1) as tagger:
                assert tagger.ran_on.precision == "fp16"
                assert "No space left" in tagger.ran_on.note
    with Wrapper(bundle, threads=1, strict=strict) as tagger:
        assert tagger.ran_on.precision == "fp32"
        assert tagger.ran_on.note == ""


def test_a_cache_of_somebody_elses_is_refused(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    monkeypatch.setenv("EDGESERVE_CACHE", str(tmp_path / "shared"))
    root = make.workspace()
    with pytest.raises(BundleError, match="EDGE-BUNDLE-062"):
        Wrapper(root, threads=1)
    monkeypatch.setenv("EDGESERVE_CACHE", str(tmp_path / "shared" / "mine"))  # as the hint says
    with Wrapper(root, threads=1) as tagger:
        assert tagger.ran_on.note == ""
