"""The gate on real ONNX files: a good one, and ones broken on purpose.

What the verdict should be is worked out apart: Pillow and numpy prepare the pictures, PyTorch and a
bare ONNX Runtime session answer, scipy gives the bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import helper, numpy_helper
from PIL import Image
from scipy import stats

from edgeserve.data import load_data, split
from edgeserve.types.reports import Report

Weights = dict[str, np.ndarray]


def bare(path: Path, inputs: np.ndarray) -> np.ndarray:
    """Probabilities from a bare ONNX Runtime session."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return softmax(session.run(None, {"image": inputs})[0])


def softmax(logits: np.ndarray) -> np.ndarray:
    return torch.softmax(torch.from_numpy(logits), -1).numpy()


@pytest.fixture(scope="module")
def evaluation(photos: Path, classifier: Any) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and PyTorch's logits on the evaluation half."""
    half = split(load_data(photos))["evaluation"]
    inputs = np.stack([_prepared(Image.open(sample.path)) for sample in half])
    program = torch.export.load(classifier.source / "model.pt2").module()
    return inputs, program(torch.from_numpy(inputs))[0].detach().numpy()


def _prepared(image: Image.Image) -> np.ndarray:
    small = image.convert("RGB").resize((32, 32), Image.Resampling.BILINEAR)
    scaled = (np.asarray(small, np.float64) / 255 - (0.5, 0.45, 0.4)) / (0.25, 0.3, 0.35)
    return scaled.transpose(2, 0, 1).astype(np.float32)


def expected(reference: np.ndarray, logits: np.ndarray) -> str:
    """The verdict by the rules of the design, one group an input."""
    if np.abs(reference - logits).max() / np.abs(reference).max() <= 1e-3:
        return "pass"
    probabilities = softmax(reference)
    best_two = np.sort(probabilities, axis=1)[:, -2:]
    decided = best_two[:, 1] - best_two[:, 0] >= 0.05
    flips = int((reference.argmax(1) != logits.argmax(1))[decided].sum())
    n = int(decided.sum())
    if stats.beta.ppf(0.95, flips + 1, n - flips) <= 0.02:
        return "pass"
    if stats.beta.ppf(0.95, flips + 1, n - flips) <= 0.08:
        return "degraded"
    return "fail" if flips and stats.beta.ppf(0.05, flips, n - flips + 1) > 0.08 else "unproven"


def weights(proto: onnx.ModelProto) -> Weights:
    """The float weights of a file by name."""
    arrays = {i.name: numpy_helper.to_array(i).copy() for i in proto.graph.initializer}
    return {name: a for name, a in arrays.items() if a.dtype == np.float32 and a.size > 1}


def put(proto: onnx.ModelProto, changed: Weights) -> None:
    for initializer in proto.graph.initializer:
        if initializer.name in changed:
            initializer.CopyFrom(
                numpy_helper.from_array(changed[initializer.name], initializer.name)
            )


def last(found: Weights, ndim: int) -> str:
    """The classifier's own weight (2) or bias (1)."""
    return next(n for n, a in found.items() if a.ndim == ndim and 6 in a.shape)


def noise(level: float) -> Callable[[onnx.ModelProto], None]:
    def change(proto: onnx.ModelProto) -> None:
        rng = np.random.default_rng(3)
        found = weights(proto)
        put(proto, {
            n: (a + level * a.std() * rng.standard_normal(a.shape)).astype(np.float32)
            for n, a in found.items()
        })  # fmt: skip

    return change


def shifted_by_a_byte(proto: onnx.ModelProto) -> None:
    """The first convolution's weight begins one byte late, as with a wrong external offset."""
    found = weights(proto)
    name = next(n for n, a in found.items() if a.ndim == 4)
    data = found[name].tobytes()
    moved = np.frombuffer(data[1:] + data[:1], np.float32).reshape(found[name].shape)
    put(proto, {name: np.where(np.isfinite(moved), moved, 0).astype(np.float32)})


def without_bias(proto: onnx.ModelProto) -> None:
    found = weights(proto)
    put(proto, {last(found, 1): np.zeros(6, np.float32)})


def dead_channels(proto: onnx.ModelProto) -> None:
    found = weights(proto)
    name = next(n for n, a in found.items() if a.ndim == 4)
    found[name][:6] = 0
    put(proto, {name: found[name]})


def classes_rotated(proto: onnx.ModelProto) -> None:
    found = weights(proto)
    weight, bias = last(found, 2), last(found, 1)
    axis = found[weight].shape.index(6)
    put(proto, {weight: np.roll(found[weight], 1, axis), bias: np.roll(found[bias], 1)})


def rewired(proto: onnx.ModelProto, *nodes: onnx.NodeProto) -> None:
    """Put nodes between the input and everything that reads it; the last one gives "rewired"."""
    for node in proto.graph.node:
        for i, name in enumerate(node.input):
            if name == "image":
                node.input[i] = "rewired"
    for node in reversed(nodes):
        proto.graph.node.insert(0, node)


def channels_last(proto: onnx.ModelProto) -> None:
    """The input read as HWC although it is CHW."""
    shape = numpy_helper.from_array(np.array([-1, 32, 32, 3]), "hwc")
    proto.graph.initializer.append(shape)
    rewired(
        proto,
        helper.make_node("Reshape", ["image", "hwc"], ["as_hwc"]),
        helper.make_node("Transpose", ["as_hwc"], ["rewired"], perm=[0, 3, 1, 2]),
    )


def blue_first(proto: onnx.ModelProto) -> None:
    proto.graph.initializer.append(numpy_helper.from_array(np.array([2, 1, 0]), "bgr"))
    rewired(proto, helper.make_node("Gather", ["image", "bgr"], ["rewired"], axis=1))


def upside_down(proto: onnx.ModelProto) -> None:
    """Rows and columns exchanged, which hardly changes what these cards show."""
    rewired(proto, helper.make_node("Transpose", ["image"], ["rewired"], perm=[0, 1, 3, 2]))


def test_the_good_file_passes(classifier: Any, evaluation: Any) -> None:
    report = classifier.judged()
    assert report.judgement.verdict == "pass"
    assert report.judgement.reasons == ()
    assert all(check.ok for check in report.checks)
    assert {c.name for c in report.checks} == {
        "loads", "declared", "runs", "finite", "not-constant", "repeatable", "batch", "optimizer",
    }  # fmt: skip
    assert report.preprocessing == "declared, not compared"
    assert report.judgement.executed_by == f"onnxruntime {onnxruntime.__version__} (cpu)"
    assert report.inputs == "200 inputs in 200 groups; 23 generated"


def test_the_numbers_are_those_of_bare_runtimes(classifier: Any, evaluation: Any) -> None:
    reference = evaluation[1]
    report: Report = classifier.judged()
    (diff,) = report.outputs
    assert diff.scale == pytest.approx(np.abs(reference).max(), rel=1e-5)
    assert float(diff.max_abs) < 1e-4
    assert float(report.error) < 1e-5
    probabilities = np.sort(softmax(reference), axis=1)
    decided = int((probabilities[:, -1] - probabilities[:, -2] >= 0.05).sum())
    stats_ = report.decisions
    assert stats_ is not None
    assert (stats_.inputs, stats_.groups, stats_.raw.n, stats_.raw.count) == (200, 200, 200, 0)
    assert (stats_.decided.n, stats_.decided.count) == (decided, 0)
    assert decided in range(150, 200), "some of the cards are meant to be unclear"
    assert stats_.minimum_harm == pytest.approx(1 - 0.05 ** (1 / decided))


LEVELS = (1e-6, 0.003, 0.04, 0.08, 0.12, 0.2, 0.4, 1.0)
SEEN: set[str] = set()


@pytest.mark.parametrize("level", LEVELS)
def test_noise_sweep(classifier: Any, evaluation: Any, sabotaged: Any, level: float) -> None:
    inputs, reference = evaluation
    path = sabotaged(classifier, noise(level))
    answers = np.log(bare(path, inputs))
    wanted = expected(reference, _logits(path, inputs))
    report = classifier.judged(path)
    assert report.judgement.verdict == wanted
    flips = int((answers.argmax(1) != reference.argmax(1)).sum())
    assert report.decisions is not None
    assert report.decisions.raw.count == flips
    SEEN.add(wanted)


def test_the_sweep_saw_every_verdict() -> None:
    assert not {"pass", "degraded", "fail"} - SEEN


def _logits(path: Path, inputs: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    found: np.ndarray = session.run(None, {"image": inputs})[0]
    return found


@pytest.mark.parametrize(
    "change",
    [
        shifted_by_a_byte, without_bias, dead_channels, classes_rotated, channels_last, blue_first,
        upside_down,
    ],
)  # fmt: skip
def test_sabotage(classifier: Any, evaluation: Any, sabotaged: Any, change: Any) -> None:
    inputs, reference = evaluation
    path = sabotaged(classifier, change)
    report = classifier.judged(path)
    assert report.judgement.verdict == expected(reference, _logits(path, inputs))
    if change is shifted_by_a_byte:  # garbage, of which some is infinite
        assert report.judgement.verdict == "fail"
        return
    assert "EDGE-CHECK-030" in {reason.code for reason in report.judgement.reasons}
    if change in (classes_rotated, channels_last, blue_first):
        assert report.judgement.verdict == "fail"
        assert report.judgement.reasons[0].code == "EDGE-CHECK-040"
        assert report.worst[0].flipped
        assert report.worst[0].reference != report.worst[0].answer


def test_sabotage_is_seen_without_data(classifier: Any, sabotaged: Any, tmp_path: Path) -> None:
    classifier.answers(out="undated")
    assert classifier.judged(out="undated").judgement.verdict == "pass"
    for change in (shifted_by_a_byte, classes_rotated, channels_last):
        report = classifier.judged(sabotaged(classifier, change), out="undated")
        assert report.judgement.verdict == "fail", change
        assert report.decisions is None


def test_nan_weight(classifier: Any, sabotaged: Any) -> None:
    def change(proto: onnx.ModelProto) -> None:
        found = weights(proto)
        name = last(found, 2)
        found[name][0, 0] = np.nan
        put(proto, {name: found[name]})

    report = classifier.judged(sabotaged(classifier, change))
    assert report.judgement.verdict == "fail"
    assert report.judgement.reasons[0].code == "EDGE-CHECK-005"
    assert report.outputs[0].relative == "inf"
    assert report.worst[0].answer == "no decision"


def test_constant_output(classifier: Any, sabotaged: Any) -> None:
    def change(proto: onnx.ModelProto) -> None:
        found = weights(proto)
        put(proto, {last(found, 2): np.zeros_like(found[last(found, 2)])})

    report = classifier.judged(sabotaged(classifier, change))
    assert report.judgement.verdict == "fail"
    assert report.judgement.reasons[0].code == "EDGE-CHECK-006"
    assert "'logits'" in report.judgement.reasons[0].message


def fixed_batch(proto: onnx.ModelProto) -> None:
    """A batch of one written into the graph, though the file declares any."""
    proto.graph.initializer.append(numpy_helper.from_array(np.array([1, 3, 32, 32]), "one"))
    rewired(proto, helper.make_node("Reshape", ["image", "one"], ["rewired"]))


def test_a_hidden_fixed_batch(classifier: Any, sabotaged: Any) -> None:
    report = classifier.judged(sabotaged(classifier, fixed_batch))
    assert report.judgement.verdict == "fail"
    assert report.judgement.reasons[0].code == "EDGE-CHECK-003"
    classifier.answers(out="undated")
    report = classifier.judged(sabotaged(classifier, fixed_batch), out="undated")
    assert report.judgement.verdict == "fail"
    assert report.judgement.reasons[0].code == "EDGE-CHECK-007"


def test_answers_that_depend_on_the_batch(classifier: Any, sabotaged: Any) -> None:
    """Normalised over the batch, as batch norm left in training mode would."""

    def change(proto: onnx.ModelProto) -> None:
        rewired(
            proto,
            helper.make_node("ReduceMean", ["image", "axis"], ["mean"]),
            helper.make_node("Sub", ["image", "mean"], ["rest"]),
            helper.make_node("Mul", ["rest", "little"], ["share"]),
            helper.make_node("Sub", ["image", "share"], ["rewired"]),
        )
        proto.graph.initializer.append(numpy_helper.from_array(np.array([0]), "axis"))
        proto.graph.initializer.append(numpy_helper.from_array(np.float32([0.2]), "little"))

    report = classifier.judged(sabotaged(classifier, change))
    assert report.judgement.verdict == "fail"
    assert "EDGE-CHECK-007" in {reason.code for reason in report.judgement.reasons}


def test_answers_that_do_not_repeat(classifier: Any, sabotaged: Any) -> None:
    def change(proto: onnx.ModelProto) -> None:
        rewired(
            proto,
            helper.make_node("RandomNormalLike", ["image"], ["noise"], scale=0.01),
            helper.make_node("Add", ["image", "noise"], ["rewired"]),
        )

    report = classifier.judged(sabotaged(classifier, change))
    assert report.judgement.verdict == "fail"
    assert "EDGE-CHECK-009" in {reason.code for reason in report.judgement.reasons}


def test_a_file_that_does_not_load(classifier: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(classifier.onnx.read_bytes()[:-1000])
    report = classifier.judged(path)
    assert report.judgement.verdict == "fail"
    assert report.judgement.reasons[0].code == "EDGE-CHECK-001"
    with pytest.raises(Exception, match="EDGE-CHECK-001"):
        report.raise_for_status()


def test_another_output_type(classifier: Any, sabotaged: Any) -> None:
    def change(proto: onnx.ModelProto) -> None:
        proto.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
        node = next(n for n in proto.graph.node if "logits" in n.output)
        node.output[list(node.output).index("logits")] = "inner"
        proto.graph.node.append(
            helper.make_node("Cast", ["inner"], ["logits"], to=onnx.TensorProto.DOUBLE)
        )

    report = classifier.judged(sabotaged(classifier, change))
    assert report.judgement.verdict == "fail"
    assert report.judgement.reasons[0].code in ("EDGE-CHECK-001", "EDGE-CHECK-004")


def test_scores_that_are_no_probabilities(classifier: Any, sabotaged: Any, build: Any) -> None:
    """A reference that ends in a softmax, and a file that lost it."""
    inner = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Softmax(-1))
    made = build(inner, torch.randn(1, 4), task="image-classification")
    made.answers()

    def change(proto: onnx.ModelProto) -> None:
        for node in proto.graph.node:
            if node.op_type == "Softmax":
                node.op_type = "Identity"
                del node.attribute[:]

    report = made.judged(sabotaged(made, change))
    assert report.judgement.verdict == "fail"
    assert report.judgement.reasons[0].code == "EDGE-CHECK-013"


def test_not_run_here_is_unproven(classifier: Any) -> None:
    report = classifier.judged(delegate="cuda")
    assert report.judgement.verdict == "unproven"
    assert report.judgement.reasons[0].code == "EDGE-CHECK-002"
    assert "cuda" in report.judgement.reasons[0].message


def test_another_precision_is_judged_by_decisions_alone(
    classifier: Any, evaluation: Any, sabotaged: Any
) -> None:
    path = sabotaged(classifier, noise(1e-6))
    assert classifier.judged(path, precision="fp16").judgement.verdict == "pass"
    classifier.answers(out="undated")
    report = classifier.judged(path, precision="fp16", out="undated")
    assert report.judgement.verdict == "unproven"
    assert report.judgement.reasons[0].code == "EDGE-CHECK-043"
