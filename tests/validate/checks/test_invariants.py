"""What no artifact may do, whatever its decisions: each broken on purpose, each by its own code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper


def last(weights: dict[str, np.ndarray]) -> np.ndarray:
    """The classifier's own weight."""
    return next(a for a in weights.values() if a.ndim == 2 and 6 in a.shape)


def test_nan_weight(classifier: Any, sabotaged: Any) -> None:
    def change(graph: Any) -> None:
        weights = graph.weights()
        last(weights)[0, 0] = np.nan
        graph.put(weights)

    report = classifier.judged(sabotaged(classifier, change))
    assert report.judgement.verdict == "fail"
    assert report.judgement.reasons[0].code == "EDGE-CHECK-005"
    assert report.outputs[0].relative == "inf"
    assert report.worst[0].answer == "no decision"


def test_constant_output(classifier: Any, sabotaged: Any) -> None:
    def change(graph: Any) -> None:
        weights = graph.weights()
        last(weights)[:] = 0
        graph.put(weights)

    report = classifier.judged(sabotaged(classifier, change))
    assert report.judgement.verdict == "fail"
    assert report.judgement.reasons[0].code == "EDGE-CHECK-006"
    assert "'logits'" in report.judgement.reasons[0].message


def fixed_batch(graph: Any) -> None:
    """A batch of one written into the graph, though the file declares any."""
    graph.put({"one": np.array([1, 3, 32, 32])})
    graph.before(helper.make_node("Reshape", ["image", "one"], ["changed"]))


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

    def change(graph: Any) -> None:
        graph.put({"axis": np.array([0]), "little": np.float32([0.2])})
        graph.before(
            helper.make_node("ReduceMean", ["image", "axis"], ["batch_mean"]),
            helper.make_node("Sub", ["image", "batch_mean"], ["rest"]),
            helper.make_node("Mul", ["rest", "little"], ["share"]),
            helper.make_node("Sub", ["image", "share"], ["changed"]),
        )

    report = classifier.judged(sabotaged(classifier, change))
    assert report.judgement.verdict == "fail"
    assert "EDGE-CHECK-007" in {reason.code for reason in report.judgement.reasons}


def test_answers_that_do_not_repeat(classifier: Any, sabotaged: Any) -> None:
    def change(graph: Any) -> None:
        graph.before(
            helper.make_node("RandomNormalLike", ["image"], ["noise"], scale=0.01),
            helper.make_node("Add", ["image", "noise"], ["changed"]),
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
    def change(graph: Any) -> None:
        double = onnx.TensorProto.DOUBLE
        graph.proto.graph.output[0].type.tensor_type.elem_type = double
        graph.after("logits", helper.make_node("Cast", ["inner"], ["logits"], to=double))

    report = classifier.judged(sabotaged(classifier, change))
    assert report.judgement.verdict == "fail"
    assert report.judgement.reasons[0].code in ("EDGE-CHECK-001", "EDGE-CHECK-004")


def test_scores_that_are_no_probabilities(on_rows: Any, sabotaged: Any) -> None:
    """A reference that ends in a softmax, and a file that lost it."""

    def change(graph: Any) -> None:
        for node in graph.proto.graph.node:
            if node.op_type == "Softmax":
                node.op_type = "Identity"
                del node.attribute[:]

    report = on_rows.judged(sabotaged(on_rows, change))
    assert report.judgement.verdict == "fail"
    assert report.judgement.reasons[0].code == "EDGE-CHECK-013"


def test_not_run_here_is_unproven(classifier: Any) -> None:
    report = classifier.judged(delegate="cuda")
    assert report.judgement.verdict == "unproven"
    assert report.judgement.reasons[0].code == "EDGE-CHECK-002"
    assert "cuda" in report.judgement.reasons[0].message
