"""A callable reference: the user's server, with its own preprocessing, seen through its answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edgeserve.errors import ValidateError
from edgeserve.tasks.classification import Classification
from edgeserve.types.reports import Report
from edgeserve.types.tensors import Signature, TensorSpec
from edgeserve.validate.reference.python_callable import parse_answer

#: A server written as users write them: Pillow, numpy, PyTorch, its own preprocessing.
SERVER = """
import io
import numpy as np
import torch
from PIL import Image

LABELS = {labels!r}
PROGRAM = torch.export.load({program!r}).module()


def scores(raw):
    image = Image.open(io.BytesIO(raw)).convert("RGB")
    small = np.asarray(image.resize((32, 32), Image.Resampling.{filter}), np.float64)
    chw = ((small / 255 - (0.5, 0.45, 0.4)) / (0.25, 0.3, 0.35)).transpose(2, 0, 1){order}
    logits = PROGRAM(torch.from_numpy(chw.astype(np.float32))[None])[0]
    return logits.detach()


def predict(raw):
    probabilities = torch.softmax(scores(raw), -1)[0]
    top = [(LABELS[i], float(probabilities[i])) for i in probabilities.argsort(descending=True)[:5]]
    return {{"label": top[0][0], "score": top[0][1], "top": top}}


def label(raw):
    return predict(raw)["label"]


def index(raw):
    return int(scores(raw).argmax())


def tensors(raw):
    return {{"logits": scores(raw).numpy()}}


def mixed(raw):
    return tensors(raw) if len(raw) % 2 else predict(raw)


def flat(raw):
    return {{"logits": scores(raw).numpy().reshape(2, 3)}}


def stranger(raw):
    return "a zebra"


def broken(raw):
    return {{}}["nothing"]


class Service:
    predict = staticmethod(predict)
"""

Serve = Callable[..., Report]


@pytest.fixture
def serve(classifier: Any, few_photos: Path, tmp_path: Path) -> Serve:
    """Judge the good file against a server: ``serve("predict", filter=..., order=...)``."""

    def judged(function: str, *, data: Path | None = few_photos, **code: str) -> Report:
        name = f"server_{tmp_path.name}_{len(list(tmp_path.iterdir()))}".replace("-", "_")
        text = SERVER.format(
            labels=list(classifier.exported.labels),
            program=str(classifier.source / "model.pt2"),
            filter=code.get("filter", "BILINEAR"),
            order=code.get("order", ""),
        )
        (tmp_path / f"{name}.py").write_text(text)
        out = f"samples-{name}"
        classifier.answers(
            data=None if data is None else str(data),
            reference=f"{name}:{function}",
            folder=str(tmp_path),
            out=out,
        )
        report: Report = classifier.judged(out=out)
        return report

    return judged


@pytest.mark.parametrize("function", ["predict", "Service.predict", "label", "index"])
def test_the_same_preprocessing_passes(serve: Serve, function: str) -> None:
    report = serve(function)
    assert report.judgement.verdict == "pass"
    assert report.preprocessing == "compared (through the reference's decisions)"
    assert report.reference.endswith(f":{function}")
    assert report.decisions is not None
    assert report.decisions.raw.count == 0
    told_scores = "predict" in function
    assert (report.decisions.top5 is not None) == told_scores
    assert any("scores differ" in note for note in report.notes) == told_scores
    if not told_scores:
        assert report.worst[0].reference in report.worst[0].answer, "a bare label, no score of 0"


def test_the_servers_own_tensors(serve: Serve) -> None:
    report = serve("tensors")
    assert report.judgement.verdict == "pass"
    assert report.preprocessing == "compared (through the reference's tensors)"
    off = serve("tensors", filter="NEAREST")
    assert float(off.outputs[0].relative) > 0.01, "the filter is seen in the tensors"
    assert off.judgement.verdict == "fail"


def test_another_resize_filter_is_seen(serve: Serve) -> None:
    """The exported program and the file agree to the last bit; only the server tells."""
    report = serve("predict", filter="NEAREST")
    assert float(report.outputs[0].relative) < 1e-5
    assert report.judgement.verdict == "fail"
    assert report.judgement.reasons[0].code == "EDGE-CHECK-040"
    assert report.worst[0].flipped


@pytest.mark.parametrize("function", ["predict", "label"])
def test_blue_first_is_seen(serve: Serve, function: str) -> None:
    report = serve(function, order="[::-1].copy()")
    assert report.judgement.verdict == "fail"
    assert report.decisions is not None
    assert report.decisions.raw.count > 20


def test_a_slight_drift_is_seen_before_any_flip(serve: Serve) -> None:
    """Another deviation in the normalisation turns no answer here, but moves the scores."""
    report = serve("predict", order=" * 1.06")
    assert report.decisions is not None
    assert report.decisions.decided.count == 0
    assert any("too much" in note for note in report.notes)
    assert report.judgement.verdict == "degraded", "40 groups without a flip prove 8 %, not 2 %"


def test_without_data_drawn_pictures_are_asked(serve: Serve) -> None:
    same = serve("predict", data=None)
    assert same.judgement.verdict == "pass"
    assert same.preprocessing.startswith("compared on generated pictures only")
    assert [reason.code for reason in same.judgement.reasons] == ["EDGE-CHECK-050"]
    other = serve("predict", data=None, order="[::-1].copy()")
    assert other.judgement.verdict == "fail"
    assert other.judgement.reasons[0].code == "EDGE-CHECK-045"


def test_an_exception_names_the_users_line(serve: Serve, tmp_path: Path) -> None:
    with pytest.raises(ValidateError) as caught:
        serve("broken")
    error = caught.value
    assert error.code == "EDGE-VALIDATE-005"
    assert "KeyError: 'nothing'" in error.message
    file, _, line = str(error.source_line).rpartition(":")
    code = (tmp_path / file).read_text().splitlines()
    assert code[int(line) - 1] == '    return {}["nothing"]'


def test_a_label_that_the_model_does_not_have(serve: Serve) -> None:
    with pytest.raises(ValidateError) as caught:
        serve("stranger")
    assert caught.value.code == "EDGE-VALIDATE-007"
    assert "a zebra" in caught.value.message


def test_answers_in_two_forms(serve: Serve) -> None:
    with pytest.raises(ValidateError) as caught:
        serve("mixed")
    assert caught.value.code == "EDGE-VALIDATE-011"


def test_tensors_of_another_shape(serve: Serve) -> None:
    with pytest.raises(ValidateError) as caught:
        serve("flat")
    assert caught.value.code == "EDGE-VALIDATE-006"
    assert "[1, 6]" in caught.value.message


def test_nothing_to_call(serve: Serve) -> None:
    with pytest.raises(ValidateError) as caught:
        serve("predikt")
    assert caught.value.code == "EDGE-VALIDATE-004"


@pytest.mark.parametrize(
    ("code", "text", "line"),
    [("EDGE-VALIDATE-003", "import nothing_of_this_name", 1), ("EDGE-VALIDATE-003", "x = (", 1)],
)
def test_a_module_that_cannot_be_imported(
    classifier: Any, tmp_path: Path, code: str, text: str, line: int
) -> None:
    name = f"bad_{abs(hash(text))}"
    (tmp_path / f"{name}.py").write_text(text)
    with pytest.raises(ValidateError) as caught:
        classifier.answers(reference=f"{name}:predict", folder=str(tmp_path), out="bad")
    assert caught.value.code == code
    assert caught.value.source_line == f"{name}.py:{line}"


@pytest.mark.parametrize(
    ("reference", "code"),
    [
        ("grpc://gpu.example.com", "EDGE-VALIDATE-002"),
        ("server.py", "EDGE-VALIDATE-001"),
        ("a:b:c", "EDGE-VALIDATE-001"),
    ],
)
def test_references_of_other_kinds(classifier: Any, reference: str, code: str) -> None:
    with pytest.raises(ValidateError) as caught:
        classifier.answers(reference=reference, out="other")
    assert caught.value.code == code


SIGNATURE = Signature(
    inputs=(TensorSpec(name="x", dtype="float32", shape=(1, 4)),),
    outputs=(TensorSpec(name="y", dtype="float32", shape=(1, 3)),),
)


def said(answer: object, labels: tuple[str, ...] = ("a", "b", "b")) -> Any:
    return parse_answer(answer, "image-classification", SIGNATURE, labels, "answer")


def test_answers_in_every_form() -> None:
    whole = said({"label": "a", "score": 0.7, "top": [("b", 0.2), ("a", 0.7)]})
    assert (whole.scored, whole.record.index) == (True, 0)
    assert whole.record.top == (("a", 0.7), ("b", 0.2)), "best first"
    assert whole.record.indexes == (), "two classes are called b"
    assert said({"index": 2}).record.label == "b"
    assert said({"label": "b"}).record.index == -1
    assert said(np.int64(1)).record.index == 1
    assert said("a").record.indexes == (0,)
    assert said("2", labels=()).record.index == 2
    record = Classification(label="a", score=0.9, top=(("a", 0.9), ("b", 0.1)), index=0)
    assert said(record).record.score == 0.9
    np.testing.assert_array_equal(said({"y": [0.1, 0.2, 0.7]}).tensors["y"], [[0.1, 0.2, 0.7]])
    assert said({"y": torch.ones(1, 3)}).tensors["y"].shape == (1, 3)


@pytest.mark.parametrize(
    "answer",
    [
        None,
        True,
        3.5,
        [],
        {},
        {"score": 0.4},
        {"label": "a", "score": "high"},
        {"label": "a", "score": float("nan")},
        {"label": "a", "score": 0.4, "top": [("a",)]},
        {"label": ["a"]},
        object(),
        Classification(label="a", score=float("inf"), top=(("a", float("inf")),)),
    ],
)
def test_answers_that_are_none(answer: object) -> None:
    with pytest.raises(ValidateError) as caught:
        said(answer)
    assert caught.value.code == "EDGE-VALIDATE-006"


@pytest.mark.parametrize(
    "answer",
    [
        {"label": "b", "index": 0},
        {"label": "b", "index": 0, "score": 0.5},
        Classification(label="b", score=0.9, top=(("b", 0.9),), index=0),
        {"label": "a", "score": 0.2, "top": [("b", 0.8), ("a", 0.2)]},
        {"label": "a", "score": 0.5, "top": [("a", 0.5), ("a", 0.3)]},
    ],
)
def test_answers_that_contradict_themselves(answer: object) -> None:
    with pytest.raises(ValidateError) as caught:
        said(answer)
    assert caught.value.code == "EDGE-VALIDATE-006"


def test_answers_that_only_seem_to() -> None:
    tie = said({"label": "a", "score": 0.5, "top": [("b", 0.5), ("a", 0.5)]})
    assert tie.record.label == "a"
    twins = said({"label": "b", "index": 2, "score": 0.6, "top": [("b", 0.6), ("b", 0.4)]})
    assert twins.record.index == 2, "two classes are called b"


@pytest.mark.parametrize("answer", [7, -1, "c", {"label": "c", "score": 1.0}, {"index": 3}])
def test_classes_that_the_model_does_not_have(answer: object) -> None:
    with pytest.raises(ValidateError) as caught:
        said(answer)
    assert caught.value.code == "EDGE-VALIDATE-007"


def test_the_tensors_task_takes_tensors_only() -> None:
    with pytest.raises(ValidateError) as caught:
        parse_answer("a", "tensors", SIGNATURE, (), "answer")
    assert caught.value.code == "EDGE-VALIDATE-006"
    assert "['y']" in caught.value.message
