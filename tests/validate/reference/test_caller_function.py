"""A function of the calling process as the reference: what it is called, told and asked.

The oracle is the other way to the same function: `CallableReference` imports and calls it in one
process, and nothing is packed.
"""

from __future__ import annotations

import functools
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edgeserve import jobs
from edgeserve.errors import ValidateError
from edgeserve.tasks.classification import Classification
from edgeserve.tasks.detection import Detection
from edgeserve.tasks.text_generation import Text
from edgeserve.tasks.token_classification import Span
from edgeserve.types.base import encode
from edgeserve.types.tensors import Signature, TensorSpec
from edgeserve.validate.reference.caller_function import (
    CallerFunction,
    CallerReference,
    function_name,
)
from edgeserve.validate.reference.python_callable import check_reference, parse_answer

LABELS = ("cat", "dog")
SPEC = TensorSpec(name="logits", dtype="float32", shape=(1, 2))
SIGNATURE = Signature(inputs=(SPEC,), outputs=(SPEC,))


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., list[Any]]:
    """Both ends of the channel in one process: answers of a function to raw inputs."""

    def ask(function: Callable[[Any], object], *raws: Any) -> list[Any]:
        caller = CallerFunction(function, tmp_path)
        monkeypatch.setattr(jobs, "ask_parent", caller.answer)
        return CallerReference(caller.name).ask(raws, [], [f"input {i}" for i in range(len(raws))])

    return ask


ANSWERS: list[tuple[str, Any]] = [
    ("image-classification", "cat"),
    ("image-classification", 1),
    ("image-classification", np.int64(1)),
    ("image-classification", {"label": "dog", "score": np.float32(0.75), "top": [("dog", 0.75)]}),
    ("image-classification", OrderedDict(index=torch.tensor(1).item(), score=0.5)),
    ("image-classification", Classification(label="cat", score=0.5, top=(("cat", 0.5),))),
    ("image-classification", {"logits": torch.tensor([0.1, 0.9], requires_grad=True).detach()}),
    ("image-classification", {"logits": np.array([[0.1, 0.9]], np.float16)}),
    ("tensors", {"logits": [[0.25, 0.75]]}),
    ("feature-extraction", torch.rand(4, requires_grad=True)),
    ("feature-extraction", {"embedding": np.arange(3.0)}),
    (
        "object-detection",
        {"boxes": torch.tensor([[0.0, 1, 2, 3]]), "scores": np.array([0.5]), "labels": [1]},
    ),
    (
        "object-detection",
        Detection(boxes=np.zeros((1, 4)), scores=np.array([0.5]), labels=("cat",), floor=0.1),
    ),
    ("token-classification", {"spans": [Span(start=0, end=3, label="PER", score=0.5)]}),
    ("automatic-speech-recognition", Text(tokens=(1, 2), text="hi", margins=(0.5, 0.25))),
    ("image-segmentation", {"mask": np.zeros((2, 3), np.uint8)}),
]


@pytest.mark.parametrize(("task", "answer"), ANSWERS)
def test_an_answer_means_the_same_over_the_channel(
    task: Any, answer: object, ask: Callable[..., list[Any]]
) -> None:
    (arrived,) = ask(lambda raw: answer, b"x")
    direct = parse_answer(answer, task, SIGNATURE, LABELS, "it")
    over = parse_answer(arrived, task, SIGNATURE, LABELS, "it")
    assert encode([over.record, over.scored]) == encode([direct.record, direct.scored])
    assert (over.tensors is None) == (direct.tensors is None)
    for name, array in (direct.tensors or {}).items():
        assert over.tensors is not None
        assert over.tensors[name].dtype == array.dtype
        np.testing.assert_array_equal(over.tensors[name], array)


def test_raw_inputs_arrive_as_they_are(ask: Callable[..., list[Any]]) -> None:
    arrived: list[Any] = []
    feed = {"x": np.arange(6, dtype=np.int32).reshape(2, 3)}
    ask(lambda raw: arrived.append(raw) or "cat", b"\x00\xff", "Grüße", feed)  # type: ignore[func-returns-value]
    assert arrived[:2] == [b"\x00\xff", "Grüße"]
    assert arrived[2]["x"].dtype == np.int32
    np.testing.assert_array_equal(arrived[2]["x"], feed["x"])


@pytest.mark.parametrize("answer", [object(), open, 2**80, np.array([object()]), {"x": object()}])
def test_other_answers_are_refused_by_name(answer: object, ask: Callable[..., list[Any]]) -> None:
    with pytest.raises(ValidateError) as error:
        ask(lambda raw: answer, b"x")
    assert error.value.code == "EDGE-VALIDATE-006"
    assert "to input 0" in error.value.message


def test_an_exception_keeps_its_trace_and_line(ask: Callable[..., list[Any]]) -> None:
    cell = compile("def predict(raw):\n    return {}['model']\n", "/tmp/ipykernel_9/7.py", "exec")
    names: dict[str, Any] = {}
    exec(cell, names)
    with pytest.raises(ValidateError, match="KeyError") as error:
        ask(names["predict"], b"x")
    assert error.value.code == "EDGE-VALIDATE-005"
    assert error.value.source_line == "/tmp/ipykernel_9/7.py:2"
    assert isinstance(error.value.__cause__, KeyError)


def test_one_call_at_a_time(tmp_path: Path) -> None:
    running = [0, 0]

    def slow(raw: Any) -> str:
        running[0] += 1
        running[1] = max(running)
        time.sleep(0.02)
        running[0] -= 1
        return "cat"

    caller = CallerFunction(slow, tmp_path)
    message = CallerReference(caller.name)
    sent: list[bytes] = []
    packed = pytest.MonkeyPatch()
    packed.setattr(jobs, "ask_parent", lambda data: sent.append(data) or caller.answer(data))  # type: ignore[func-returns-value]
    with packed.context():
        threads = [
            threading.Thread(target=message.ask, args=([b"x"] * 3, [], ["a", "b", "c"]))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    packed.undo()
    assert (len(sent), running) == (4, [0, 1])


class Server:
    """Answers by a method, or when called."""

    def predict(self, raw: Any) -> str:
        return "cat"

    def __call__(self, raw: Any) -> str:
        return "cat"


def test_only_what_can_be_imported_is_recorded_by_its_path() -> None:
    def inner(raw: Any) -> str:
        return "cat"

    assert function_name(parse_answer) == (
        "edgeserve.validate.reference.python_callable:parse_answer"
    )
    check_reference(function_name(parse_answer))
    others = (inner, lambda raw: 1, Server().predict, Server(), functools.partial(parse_answer))
    for function in others:
        name = function_name(function)
        assert name.startswith("<")
        assert name.endswith(">")
        with pytest.raises(ValidateError) as error:
            check_reference(name)
        assert error.value.code == "EDGE-VALIDATE-049"
        assert "validate(reference=function)" in error.value.hint


async def awaited(raw: Any) -> str:
    return "cat"


@pytest.mark.parametrize("thing", [3, {"a": 1}, awaited])
def test_what_cannot_be_called_is_refused(thing: Any, tmp_path: Path) -> None:
    with pytest.raises(ValidateError) as error:
        CallerFunction(thing, tmp_path)
    assert error.value.code == "EDGE-VALIDATE-001"
    assert "server:predict" in error.value.hint
