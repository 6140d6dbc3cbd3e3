"""The golden proof against an oracle of Pillow and numpy: what holds, and each way not to."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from onnx import helper

from edgeserve import backends
from edgeserve.bundle import open_model
from edgeserve.errors import BundleError
from edgeserve.files import describe
from edgeserve.processing import Processor
from edgeserve.types.processing import Processing
from edgeserve.types.samples import Golden, GoldenCase
from edgeserve.types.tensors import Signature, TensorSpec
from edgeserve.wrapper.engine import Engine, GoldenResult, check_golden, read_arrays


def proof_of(root: Path) -> GoldenResult:
    """The proof of a workspace's only artifact."""
    with open_model(root) as model:
        manifest = model.manifest
        [artifact] = manifest.artifacts
        around = Processor(manifest.processing, manifest.signature, manifest.task, manifest.labels)
        backend = backends.get(artifact.format)
        with backend.load(artifact, model.local(artifact), threads=1) as session:
            return check_golden(Engine(session, around, manifest.signature), model)


def test_the_right_model_holds_and_is_timed(make: Any) -> None:
    proof = proof_of(make.workspace())
    assert (proof.passed, proof.total, proof.wrong) == (4, 4, ())
    assert float(proof.max_difference) < 1e-5
    margins = [np.diff(np.sort(make.oracle_scores(p)))[-1] for p in make.pictures]
    assert float(proof.min_margin or 0) == pytest.approx(min(margins), abs=1e-5)
    assert proof.run_ms is not None
    assert proof.run_ms > 0


def test_a_wrong_model_does_not_hold(make: Any) -> None:
    proof = proof_of(make.workspace(make.made("onnx-fp32", make.classifier(sign_of_w=-1))))
    assert proof.passed == 0
    assert proof.run_ms is None
    label = make.oracle(make.pictures[0]).label
    assert proof.wrong[0].startswith(f"golden/000.png: wanted {label}")


def test_one_flipped_decision_is_enough(make: Any, tmp_path: Path) -> None:
    (tmp_path / "workspaces/given").mkdir()
    golden = make.golden(tmp_path / "workspaces/given", flip=True)
    proof = proof_of(make.workspace(golden=golden))
    assert proof.passed == 3
    assert [line.partition(":")[0] for line in proof.wrong] == ["golden/001.png"]


def test_the_same_decision_with_another_score_does_not_hold(make: Any) -> None:
    softer = make.made("onnx-fp32", make.classifier(sign_of_w=0.9))
    proof = proof_of(make.workspace(softer))
    assert proof.passed < 4
    assert "scores may differ by 0.0001" in proof.wrong[0]
    assert float(proof.max_difference) > 1e-4


def test_nan_never_holds(make: Any) -> None:
    nodes = [
        helper.make_node("Flatten", ["image"], ["flat"]),
        helper.make_node("Gemm", ["flat", "w", "b"], ["logits"]),
    ]
    weights = {"w": np.full_like(make.w, np.nan), "b": make.b}
    made = make.made("onnx-fp32", make.model(nodes, make.signature, weights))
    proof = proof_of(make.workspace(made))
    assert proof.passed == 0


def test_a_damaged_golden_case_is_the_bundles_fault(make: Any) -> None:
    root = make.workspace()
    (root / "golden/002.png").write_bytes(make.png(make.pixels(99)))
    with pytest.raises(BundleError):
        proof_of(root)


def test_without_cases_there_is_nothing_to_prove(make: Any) -> None:
    with pytest.raises(ValueError, match="no golden cases"):
        proof_of(make.workspace(golden=False))


TensorCase = Callable[..., Path]


@pytest.fixture
def tensors(make: Any, tmp_path: Path) -> TensorCase:
    """A workspace of the `tensors` task, y = 2 x, whose golden outputs a test may spoil."""

    def npz(root: Path, path: str, **arrays: np.ndarray) -> Any:
        out = io.BytesIO()
        np.savez(out, **arrays)
        (root / path).write_bytes(out.getvalue())
        return describe(root, path)

    def go(spoil: Callable[[np.ndarray], np.ndarray] = lambda y: y, name: str = "y") -> Path:
        spec = TensorSpec(name="x", dtype="float32", shape=("batch", 3))
        make.signature = Signature(
            inputs=(spec,),
            outputs=(msgspec.structs.replace(spec, name="y"),),
            dims={"batch": (1, 4)},
        )
        given = tmp_path / "workspaces/given"
        (given / "golden").mkdir(parents=True)
        x = np.array([[1, -20, 300], [4, 5, 6]], np.float32)
        case = GoldenCase(
            input=npz(given, "golden/000.in.npz", x=x),
            medium="tensors",
            tolerance=1e-3,
            outputs=npz(given, "golden/000.out.npz", **{name: spoil(x * 2)}),
        )
        data = make.model([helper.make_node("Add", ["x", "x"], ["y"])], make.signature, {})
        return Path(
            make.workspace(
                make.made("onnx-fp32", data),
                golden=Golden(origin="given", cases=(case,)),
                task="tensors",
                processing=Processing(),
                labels=(),
            )
        )

    return go


def test_tensors_are_compared_on_the_scale_of_each_output(tensors: TensorCase) -> None:
    assert proof_of(tensors()).wrong == ()


@pytest.mark.parametrize(("off", "holds"), [(0.59, True), (0.61, False), (-0.61, False)])
def test_the_tolerance_is_relative_to_the_largest_value(
    tensors: TensorCase, off: float, holds: bool
) -> None:
    # The largest value is 600, so 1e-3 of the scale is 0.6, also for the smallest value.
    def spoil(y: np.ndarray) -> np.ndarray:
        y = y.copy()
        y[0, 0] += off
        return y

    proof = proof_of(tensors(spoil))
    assert (proof.wrong == ()) is holds
    assert float(proof.max_difference) == pytest.approx(abs(off) / 600, rel=1e-3)


def test_tensors_of_another_shape_or_name_do_not_hold(tensors: TensorCase) -> None:
    assert "shape" in proof_of(tensors(lambda y: y[:1])).wrong[0]


def test_a_missing_output_does_not_hold(tensors: TensorCase) -> None:
    assert "got nothing" in proof_of(tensors(name="z")).wrong[0]


def test_infinite_reference_values_hold_only_when_equal(tensors: TensorCase) -> None:
    def spoil(y: np.ndarray) -> np.ndarray:
        y = y.copy()
        y[0, 0] = np.inf
        return y

    proof = proof_of(tensors(spoil))
    assert proof.passed == 0
    assert proof.max_difference == "inf"


def test_pickles_and_rubbish_are_no_arrays() -> None:
    out = io.BytesIO()
    np.savez(out, x=np.array([{"a": 1}], dtype=object))
    for data in (out.getvalue(), b"rubbish", b"", out.getvalue()[:40]):
        with pytest.raises(ValueError, match=r"allow_pickle|npz"):
            read_arrays(data)
