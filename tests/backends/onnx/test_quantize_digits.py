"""What each precision costs in truth: a trained classifier, its labels, and PyTorch as fp32."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from edgeserve import backends
from edgeserve.types.artifact import Artifact

PRECISIONS = ("fp16", "w8", "w8a8")

Run = Callable[..., list[np.ndarray]]


@pytest.fixture(scope="module")
def made(digits: Any) -> dict[str, tuple[Artifact, Path]]:
    found = {p: digits.made.quantize(p, digits.feeds if p == "w8a8" else ()) for p in PRECISIONS}
    return {"fp32": (digits.made.artifact, digits.made.root), **found}


@pytest.fixture(scope="module")
def logits(digits: Any, made: dict[str, tuple[Artifact, Path]]) -> dict[str, np.ndarray]:
    return {precision: digits.answers(*which) for precision, which in made.items()}


def test_the_float_model_has_learned(digits: Any, logits: dict[str, np.ndarray]) -> None:
    assert (digits.logits.argmax(1) == digits.labels).mean() > 0.96
    np.testing.assert_allclose(logits["fp32"], digits.logits, atol=1e-4)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_accuracy_drops_by_half_a_point_at_most(
    precision: str, digits: Any, logits: dict[str, np.ndarray]
) -> None:
    """The drop over the test half, and its 95 % interval from the answers that differ (paired)."""
    before = digits.logits.argmax(1) == digits.labels
    after = logits[precision].argmax(1) == digits.labels
    count, lost, won = len(before), int((before & ~after).sum()), int((after & ~before).sum())
    drop = (lost - won) / count
    half = 1.96 * sqrt(max(lost + won - (lost - won) ** 2 / count, 1)) / count
    print(f"{precision}: drop {drop:+.2%} [{drop - half:+.2%}, {drop + half:+.2%}]")
    assert drop <= 0.005
    assert drop + half <= 0.01


@pytest.mark.parametrize(("precision", "most"), [("fp16", 0.003), ("w8", 0.05), ("w8a8", 0.08)])
def test_numbers_differ_as_bits_allow(
    precision: str, most: float, digits: Any, logits: dict[str, np.ndarray]
) -> None:
    noise = np.sqrt(((logits[precision] - digits.logits) ** 2).mean()) / digits.logits.std()
    assert 0 < noise < most


def test_shares_and_dtypes(made: dict[str, tuple[Artifact, Path]], digits: Any) -> None:
    layers = sum(p.numel() for n, p in digits.made.module.named_parameters() if p.ndim > 1)
    assert made["fp16"][0].provenance.weights["float16"] >= layers
    assert made["fp16"][0].provenance.eight_bit_share == 0
    for precision in ("w8", "w8a8"):
        provenance = made[precision][0].provenance
        assert provenance.weights["int8"] >= layers
        assert provenance.eight_bit_share > 0.9
    fp32 = made["fp32"][0].files[0].size
    assert made["fp16"][0].files[0].size < 0.62 * fp32
    for precision in ("w8", "w8a8"):  # of 4,300 weights: names and nodes weigh on the rest
        assert made[precision][0].files[0].size < 0.95 * fp32


@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_file_keeps_its_face(
    precision: str, made: dict[str, tuple[Artifact, Path]], digits: Any
) -> None:
    artifact, root = made[precision]
    fp32 = digits.made.artifact
    assert artifact.io == fp32.io
    assert (artifact.precision, artifact.provenance.parent) == (precision, fp32.sha256)
    assert {s.dtype for s in (*artifact.io.inputs, *artifact.io.outputs)} == {"float32"}
    before = onnx.load(digits.made.root / fp32.entry)
    after = onnx.load(root / artifact.entry)
    assert {o.domain: o.version for o in after.opset_import} == {
        o.domain: o.version for o in before.opset_import
    }
    assert (after.producer_name, len(after.metadata_props)) == ("edgeserve", 0)
    graph = backends.get("onnx").inspect(artifact, root)
    convolutions = [op for op in graph.ops if op.type == "Conv"]
    assert len(convolutions) == 3
    assert {op.module for op in convolutions} == {"stem.0", "deep", "point"}
    assert all(op.source for op in convolutions)


def test_the_recipe_says_what_was_chosen(made: dict[str, tuple[Artifact, Path]]) -> None:
    recipe = made["w8a8"][0].provenance.recipe
    assert recipe is not None
    assert set(recipe.options) == {"activation", "reduce_range"}
    assert made["w8"][0].provenance.recipe.options == {}  # type: ignore[union-attr]
    assert {"onnxruntime", "onnx-ir"} <= set(made["w8a8"][0].provenance.tools)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_same_bytes_every_time(
    precision: str, made: dict[str, tuple[Artifact, Path]], digits: Any
) -> None:
    again, _ = digits.made.quantize(precision, digits.feeds, name=f"{precision}-again")
    assert again.files == made[precision][0].files


def test_fp16_and_w8_do_not_look_at_samples(digits: Any) -> None:
    def never() -> Any:
        raise AssertionError("samples were touched")
        yield

    for precision in ("fp16", "w8"):
        digits.made.quantize(precision, never(), name=f"{precision}-blind")


def test_7_bit_weights_and_signed_activations(
    digits: Any, made: dict[str, tuple[Artifact, Path]]
) -> None:
    artifact, root = digits.made.quantize(
        "w8a8", digits.feeds, name="s8", activation="s8", reduce_range="true"
    )
    tensors = {
        i.name: onnx.numpy_helper.to_array(i)
        for i in onnx.load(root / artifact.entry).graph.initializer
    }
    weights = [a for n, a in tensors.items() if a.dtype == np.int8 and a.ndim > 1]
    assert len(weights) == 4
    assert max(int(np.abs(a.astype(int)).max()) for a in weights) == 64
    assert not [n for n, a in tensors.items() if a.dtype == np.uint8]
    right = (digits.answers(artifact, root).argmax(1) == digits.labels).mean()
    assert right > (digits.logits.argmax(1) == digits.labels).mean() - 0.015
    assert artifact.provenance.recipe.options == {"activation": "s8", "reduce_range": "true"}


def test_every_layer_really_runs_on_integers(made: dict[str, tuple[Artifact, Path]]) -> None:
    """ONNX Runtime's own optimised graph holds integer kernels where the float layers were."""
    import onnxruntime

    artifact, root = made["w8a8"]
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(root.parent / "optimized.onnx")
    options.log_severity_level = 4
    onnxruntime.InferenceSession(
        str(root / artifact.entry), options, providers=["CPUExecutionProvider"]
    )
    ops = [n.op_type for n in onnx.load(options.optimized_model_filepath).graph.node]
    assert ops.count("QLinearConv") == 3
    assert ops.count("QGemm") == 1
    assert not {"Conv", "Gemm", "MatMul"} & set(ops)
