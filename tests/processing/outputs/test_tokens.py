"""spans/1 and tokens/1: worked out by hand, on the conformance tokenizers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from scipy.special import softmax

from edgeserve.errors import ProcessingError
from edgeserve.files import describe
from edgeserve.processing import Processor
from edgeserve.processing.steps.tokenize import Tokenize
from edgeserve.tasks.text_generation import Picks, Text
from edgeserve.tasks.token_classification import Spans, Tokens
from edgeserve.types.processing import InputProcessing, Processing
from edgeserve.types.tensors import Signature, TensorSpec
from edgeserve.types.vocabulary import Task

FOLDER = Path(__file__).parents[3] / "spec" / "conformance" / "processing"
ASSET = describe(FOLDER, "text/wordpiece.json")
OWN = tokenizers.Tokenizer.from_file(str(FOLDER / "text/wordpiece.json"))
LABELS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")


def reader(
    task: Task,
    step: Any,
    classes: int,
    labels: tuple[str, ...] = (),
    texts: bool = True,
    **tokenize: Any,
) -> Processor:
    rows = ("batch", "tokens")
    specs = [TensorSpec(name=name, dtype="int64", shape=rows) for name in ("ids", "mask")]
    parts = {"ids": "ids", "mask": "attention_mask"}
    made = tuple(
        InputProcessing(
            name=name,
            steps=(Tokenize(ASSET, part, 32, **tokenize),),  # type: ignore[arg-type]
        )
        for name, part in parts.items()
    )
    out = TensorSpec(name="y", dtype="float32", shape=(*rows, classes))
    signature = Signature(
        inputs=tuple(specs), outputs=(out,), dims={"batch": (1, 8), "tokens": (1, 64)}
    )
    processing = Processing(inputs=made if texts else (), outputs=(step,))
    return Processor(
        processing, signature, task, labels, assets=lambda name: (FOLDER / name).read_bytes()
    )


def scores(kinds: list[int], classes: int, by: float = 4.0) -> np.ndarray:
    y = np.zeros((len(kinds), classes), np.float32)
    y[np.arange(len(kinds)), kinds] = by
    return y


def share(classes: int, by: float) -> float:
    return float(softmax([by] + [0.0] * (classes - 1))[0])


TEXT = "the small cat sat on the wall"


def places(text: str) -> list[tuple[int, int]]:
    """Of each token but the special ones, by the library alone."""
    encoding = OWN.encode(text)
    kept = zip(encoding.offsets, encoding.special_tokens_mask, strict=True)
    return [place for place, special in kept if not special]


@pytest.mark.parametrize("padding", ["right", "left"])
@pytest.mark.parametrize("mask", [None, "mask"])
def test_spans_lie_in_the_text(padding: str, mask: str | None) -> None:
    """A batch of a long and a short text: what stands at padding or special tokens is no span."""
    made = reader("token-classification", Spans("y", mask=mask), 5, LABELS, padding=padding)
    texts = [TEXT, "the wall"]
    feed = made.batch([made.prepare(text) for text in texts])
    length = feed["ids"].shape[1]
    y = np.zeros((2, length, 5), np.float32)
    for row, text in enumerate(texts):
        here = places(text)
        kinds = [1] * length  # B-PER everywhere: at padding and special tokens it must not show
        first = (length - len(here) - 2 if padding == "left" else 0) + 1
        kinds[first : first + len(here)] = [3, 4] + [0] * (len(here) - 2)
        y[row] = scores(kinds, 5)
        y[row, first, 3] = 3.0
    for record, text in zip(made.finish({"y": y}, feed), texts, strict=True):
        assert isinstance(record, Tokens)
        here = places(text)
        [span] = record.spans
        assert (span.start, span.end, span.label) == (here[0][0], here[1][1], "LOC")
        assert span.score == pytest.approx(share(5, 3.0), rel=1e-5), "as sure as the least sure"


def cut(kinds: list[int], scheme: str = "bio", labels: tuple[str, ...] = LABELS) -> list[Any]:
    """The spans of tokens without a text: places are numbers of tokens."""
    step = Spans("y", scheme=scheme)  # type: ignore[arg-type]
    made = reader("token-classification", step, len(labels), labels, texts=False)
    [record] = made.finish({"y": scores(kinds, len(labels))[None]})
    assert isinstance(record, Tokens)
    return [(span.start, span.end, span.label) for span in record.spans]


def test_where_spans_begin_and_end() -> None:
    assert cut([0, 1, 2, 2, 0, 3]) == [(1, 4, "PER"), (5, 6, "LOC")]
    assert cut([1, 1]) == [(0, 1, "PER"), (1, 2, "PER")], "B begins anew"
    assert cut([2, 2]) == [(0, 2, "PER")], "I without B begins one"
    assert cut([1, 4, 4]) == [(0, 1, "PER"), (1, 3, "LOC")], "I of another kind begins one"
    assert cut([1, 0, 2]) == [(0, 1, "PER"), (2, 3, "PER")], "O ends one"
    assert cut([0, 0]) == []
    plain = cut([1, 1, 2, 0, 2], "plain", ("O", "name", "place"))
    assert plain == [(0, 2, "name"), (2, 3, "place"), (4, 5, "place")]


def test_labels_are_needed() -> None:
    for labels in ((), LABELS[1:]):
        made = reader("token-classification", Spans("y"), 5, labels, texts=False)
        with pytest.raises(ProcessingError) as refused:
            made.finish({"y": np.zeros((1, 3, 5), np.float32)})
        assert refused.value.code == "EDGE-PROCESS-007"


def test_as_many_scores_as_tokens() -> None:
    made = reader("token-classification", Spans("y"), 5, LABELS)
    feed = made.batch([made.prepare(TEXT)])
    with pytest.raises(ProcessingError, match="scores for"):
        made.finish({"y": np.zeros((1, 2, 5), np.float32)}, feed)


def test_a_text_of_which_the_end_is_kept() -> None:
    """Offsets count from the start of the whole text, also where its start is not even read."""
    made = reader("token-classification", Spans("y"), 5, LABELS, truncation="left")
    text = "x" * 70_000 + " wall"
    feed = made.batch([made.prepare(text)])
    y = scores([1] * feed["ids"].shape[1], 5)[None]
    [record] = made.finish({"y": y}, feed)
    assert isinstance(record, Tokens)
    last = record.spans[-1]
    assert text[last.start : last.end] == "wall"


def test_the_token_at_each_position() -> None:
    rng = np.random.default_rng(0)
    y = rng.normal(0, 2, (2, 5, 7)).astype(np.float32)
    mask = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    made = reader("text-generation", Picks("y", mask="mask"), 7, texts=False)
    found = made.finish({"y": y}, {"ids": mask, "mask": mask})
    for record, row, count in zip(found, y, (5, 3), strict=True):
        assert isinstance(record, Text)
        assert list(record.tokens) == row[:count].argmax(1).tolist()
        shares = np.sort(softmax(row[:count].astype(np.float64), -1), axis=1)
        np.testing.assert_allclose(record.margins, shares[:, -1] - shares[:, -2], atol=1e-6)
        assert record.text == " ".join(map(str, record.tokens))


def test_ctc_repeats_and_blanks() -> None:
    labels = ("-", "a", "b", "|")
    kinds = [1, 1, 0, 1, 0, 0, 3, 2, 2, 2, 0]
    y = scores(kinds, 4)
    y[8, 2] = 9.0  # the surest of three frames of b
    step = Picks("y", blank=0)
    made = reader("automatic-speech-recognition", step, 4, labels, texts=False)
    [record] = made.finish({"y": y[None]})
    assert isinstance(record, Text)
    assert record.tokens == (1, 1, 3, 2)
    assert record.text == "aa b"
    sure = share(4, 9.0) - (1 - share(4, 9.0)) / 3
    assert record.margins[3] == pytest.approx(sure, rel=1e-5)


def test_a_tokenizer_spells() -> None:
    size = OWN.get_vocab_size()
    ids = OWN.encode(TEXT).ids
    made = reader("text-generation", Picks("y", tokenizer=ASSET), size, texts=False)
    [record] = made.finish({"y": scores(ids, size)[None]})
    assert isinstance(record, Text)
    assert record.text == OWN.decode(ids)
    assert "cat" in record.text
    assert Processing(outputs=(Picks("y", tokenizer=ASSET),)).assets == (ASSET,)


def test_masks_that_are_none() -> None:
    with pytest.raises(ProcessingError) as refused:
        reader("text-generation", Picks("y", mask="nothing"), 7, texts=False)
    assert refused.value.code == "EDGE-PROCESS-025"
    made = reader("text-generation", Picks("y", mask="mask"), 7, texts=False)
    with pytest.raises(ProcessingError) as refused:
        made.finish({"y": np.zeros((1, 5, 7), np.float32)})
    assert refused.value.code == "EDGE-PROCESS-026"
