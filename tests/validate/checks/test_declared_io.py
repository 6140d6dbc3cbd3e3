"""What a file may be narrower in than its source, and what breaks a promise."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from edgeserve.backends.session import Session
from edgeserve.types.artifact import Artifact, FileEntry, Provenance
from edgeserve.types.records import Runtime
from edgeserve.types.reports import Limits
from edgeserve.types.tensors import IO, Signature, TensorSpec
from edgeserve.validate.checks.declared_io import check_declared_io, check_weights
from edgeserve.validate.checks.invariants import CheckLog, self_consistency_limit
from edgeserve.validate.judge import _executed_by

SOURCE = Signature(
    inputs=(
        TensorSpec(name="ids", dtype="int64", shape=("batch", "length")),
        TensorSpec(name="scale", dtype="float32", shape=("batch", 4)),
    ),
    outputs=(TensorSpec(name="y", dtype="float32", shape=("batch", "length", 2)),),
    dims={"batch": (1, 8), "length": (1, 64)},
)


def io(
    length: int | str = "length",
    batch: int | str = "batch",
    ids: Any = "int64",
    scale: Any = "float32",
    name: str | None = None,
    **more: Any,
) -> IO:
    return IO(
        inputs=(
            TensorSpec(name="ids", dtype=ids, shape=(batch, length)),
            TensorSpec(name="scale", dtype=scale, shape=(batch, more.get("width", 4))),
        ),
        outputs=(TensorSpec(name="y", dtype="float32", shape=(batch, length, 2)),),
        signature=name,
    )


def artifact(*ios: IO, **fields: Any) -> Artifact:
    entry = FileEntry(path="m/model.tflite", size=1, sha256="0" * 64)
    return Artifact(
        **{
            "format": "tflite",
            "precision": "fp32",
            "entry": "m/model.tflite",
            "files": (entry,),
            "io": ios[-1],
            "buckets": ios if len(ios) > 1 else (),
        }
        | fields
    )


@pytest.mark.parametrize(
    "ios",
    [
        [io()],
        [io(ids="int32")],
        [io(batch=1, ids="int32")],
        [io(batch=4)],
        [io(length=16, batch=1)],
        [io(n, 1, "int32", name=f"len_{n}") for n in (16, 32, 64)],
    ],
)
def test_what_a_format_cannot_hold_may_be_narrower(ios: list[IO]) -> None:
    findings = CheckLog()
    assert check_declared_io(artifact(*ios), SOURCE, findings)
    fixed = [spec.shape[1] for each in ios for spec in each.inputs[:1]]
    said = "".join(findings.notes)
    assert said == (
        ""
        if fixed == ["length"]
        else f"dimension 'length' (1 to 64) is fixed to {', '.join(map(str, fixed))} in this file"
    )


@pytest.mark.parametrize(
    ("dtype", "shape", "holds"),
    [("int32", (1,), True), ("int64", (), True), ("int64", (2,), False)],
)
def test_a_scalar_may_be_one_of_one(dtype: Any, shape: tuple[int, ...], holds: bool) -> None:
    """Core ML has no scalars."""
    rate = TensorSpec(name="rate", dtype="int64", shape=())
    source = Signature(inputs=(rate,), outputs=SOURCE.outputs, dims=SOURCE.dims)
    theirs = IO(inputs=(TensorSpec(name="rate", dtype=dtype, shape=shape),), outputs=SOURCE.outputs)
    assert check_declared_io(artifact(theirs), source, CheckLog()) is holds


@pytest.mark.parametrize(
    ("ios", "words"),
    [
        ([io(ids="int8")], "input 'ids': int8 instead of int64"),
        ([io(ids="float32")], "input 'ids': float32 instead of int64"),
        ([io(scale="int8")], "input 'scale': int8 instead of float32"),
        ([io(scale="float16")], "float16 instead of float32"),
        ([io(length=128)], "shape ['batch', 128]"),
        ([io(batch=9)], "shape [9, 'length']"),
        ([io(width=5)], "shape ['batch', 5]"),
        ([io(width="any")], ""),
        ([io(n, 1, name=f"len_{n}") for n in (32, 16)], "does not follow"),
        ([io(n, 1, name=f"len_{n}") for n in (16, 16)], "signatures are called"),
        ([io(16, 1, name="a"), io(16, 1, name="b")], "does not follow"),
        ([io(16, 1, name="a"), io(32, 2, name="b")], "another batch or dtype"),
        ([io(16, 1, "int32", name="a"), io(32, 1, name="b")], "another batch or dtype"),
        ([io(16, 1, name="a"), io("length", 1, name="b")], "does not follow"),
        ([io(16, 1, name="a"), io(128, 1, name="b")], "shape [1, 128]"),
    ],
)
def test_anything_else_is_a_broken_promise(ios: list[IO], words: str) -> None:
    findings = CheckLog()
    assert check_declared_io(artifact(*ios), SOURCE, findings) == (not words)
    if words:
        assert findings.broken[0].code == "EDGE-CHECK-004"
        assert words in findings.broken[0].message


def test_a_width_that_the_format_lacks_names_the_fix() -> None:
    rate = TensorSpec(name="rate", dtype="float64", shape=("batch", 1))
    source = Signature(inputs=(rate,), outputs=SOURCE.outputs, dims=SOURCE.dims)
    single = TensorSpec(name="rate", dtype="float32", shape=("batch", 1))
    findings = CheckLog()
    assert not check_declared_io(
        artifact(IO(inputs=(single,), outputs=SOURCE.outputs)), source, findings
    )
    assert "give float32 examples and cast inside forward" in findings.broken[0].message
    findings = CheckLog()
    assert not check_declared_io(artifact(io(scale="int8")), SOURCE, findings)
    assert "cast inside" not in findings.broken[0].message


def counted(precision: str, **weights: int) -> Artifact:
    return artifact(io(), precision=precision, provenance=Provenance(weights=weights))


@pytest.mark.parametrize(
    ("made", "broken", "remarks"),
    [
        (counted("fp32"), [], []),
        (counted("w8"), [], []),  # nobody counted
        (counted("w8", int8=97, float32=3), [], []),
        (counted("w8a8", uint8=50, float32=50), [], []),
        (counted("w8a8", int8=49, float32=51), [], ["EDGE-CHECK-052"]),
        (counted("w8", float32=100), ["EDGE-CHECK-053"], []),
        (counted("fp16", float16=10, float32=90), [], []),
        (counted("fp16", float32=90), ["EDGE-CHECK-053"], []),
        (counted("w4", int8=90), ["EDGE-CHECK-053"], []),
        (counted("fp32", float32=5), [], []),
    ],
)
def test_weights_of_the_precision(made: Artifact, broken: list[str], remarks: list[str]) -> None:
    findings = CheckLog()
    check_weights(made, findings)
    assert [reason.code for reason in findings.broken] == broken
    assert [reason.code for reason in findings.remarks] == remarks
    if made.precision == "w8a8":
        (check,) = findings.checks
        assert (check.name, check.value) == ("weights-8bit", made.provenance.eight_bit_share)


def test_a_small_share_stands_beside_the_verdict(classifier: Any) -> None:
    weights = {"int8": 4, "float32": 96}
    known = msgspec.structs.replace(
        classifier.artifact,
        precision="w8",
        provenance=msgspec.structs.replace(classifier.artifact.provenance, weights=weights),
    )
    report = type(classifier)(classifier.root, classifier.exported, known).judged()
    assert report.judgement.verdict == "pass", "no answer is worse for it"
    assert [r.code for r in report.judgement.reasons] == ["EDGE-CHECK-052"]
    assert "only 4 % of the weights" in report.judgement.reasons[-1].message


def test_how_far_a_file_may_be_from_itself() -> None:
    limits = Limits()
    found = [self_consistency_limit(p, limits) for p in ("fp32", "fp16", "w8", "w8a8")]  # type: ignore[arg-type]
    assert found == [1e-3, 0.05, 0.05, 0.1]
    assert self_consistency_limit("w8", Limits(tensor=0.2)) == 0.2


def test_what_a_reader_must_know_of_the_engine_is_said() -> None:
    class Standing(Session):
        note = "fp16 rounding; not on Apple hardware"
        simulated = True

        def _run(self, feed: Any) -> Any:
            return {}

        def _close(self) -> None:
            pass

    named = Runtime(name="interpreter", version="1", delegate="torch")
    said = _executed_by(Standing(io(), named, 1))
    assert said == "interpreter 1 (torch); fp16 rounding; not on Apple hardware"
