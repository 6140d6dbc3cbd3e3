"""Texts that are generated: told apart by length and script, cut by another tokenizer's count."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeserve.validate.inputs.media import (
    paraphrases,
    prime_between,
    sentences,
    text_edge_cases,
    text_of_length,
)


def test_two_wordings_of_each_in_many_scripts() -> None:
    every = [text for both in paraphrases() for text in both]
    assert len(set(every)) == len(every) == 54
    assert len(sentences()) == 27
    letters = {
        "Latin": "a",
        "Greek": "λ",
        "Cyrillic": "ш",
        "Arabic": "ق",
        "Hebrew": "ה",
        "Devanagari": "क",
        "Han": "图",
        "Kana": "の",
        "Hangul": "비",
        "emoji": "🎂",
    }
    for script, letter in letters.items():
        assert any(letter in text for text in every), script
    lengths = sorted(len(text) for text in every)
    assert lengths[0] < 20
    assert lengths[-1] > 600
    for first, second in paraphrases():
        shared = set(first.lower()) & set(second.lower())
        assert len(shared) > 0.7 * len(set(first.lower())), (first, second)


def test_edges_are_what_they_are_called() -> None:
    made = dict(text_edge_cases(256))
    assert made["empty"] == ""
    assert len(made["one character"]) == 1
    assert made["blank"].strip() == ""
    assert len(set(made["repeated word"].split())) == 1
    assert len(made["longer than the model takes"].split()) > 256
    assert len(dict(text_edge_cases(2000))["longer than the model takes"].split()) > 2000
    for text in made.values():
        text.encode("utf-8")


@pytest.fixture(scope="module")
def count(embedder: Any) -> Any:
    made = tokenizers.Tokenizer.from_file(str(embedder.source / "assets" / "tokenizer.json"))
    made.enable_truncation(48)
    return lambda text: len(made.encode(text).ids)


@pytest.mark.parametrize("wanted", [3, 4, 7, 17, 31, 47, 48])
def test_texts_of_a_wanted_length(wanted: int, count: Any) -> None:
    text = text_of_length(wanted, count)
    assert text is not None
    assert count(text) == wanted


def test_a_length_that_no_text_has(count: Any) -> None:
    assert text_of_length(2, lambda text: 3 * len(text.split()) + 1) is None
    assert text_of_length(49, count) is None, "cut off at 48"


@given(st.integers(0, 300), st.integers(0, 300))
@settings(deadline=None)
def test_primes(low: int, high: int) -> None:
    found = prime_between(low, high)
    inside = [n for n in range(low + 1, high) if n > 1 and all(n % d for d in range(2, n))]
    if not inside:
        assert found is None
    else:
        assert found in inside
        middle = (low + high) // 2
        assert abs(found - middle) == min(abs(n - middle) for n in inside)


def test_what_a_text_model_is_asked(embedder: Any) -> None:
    """Sentences, three lengths, edges; tensors whose ids exist and whose masks are not empty."""
    answers = embedder.answers(out="asked")
    names = [filler.name for filler in answers.fillers]
    assert sum(name.startswith("text-") for name in names) == 28
    assert "48 tokens, the most" in names
    assert any(name.endswith("tokens, a prime") for name in names)
    assert any(name.endswith("tokens, the fewest") for name in names)
    assert {"empty", "emoji", "right to left", "longer than the model takes"} <= set(names)
    assert {"zeros", "highest", "random-0"} <= set(names)
    natural = {filler.name for filler in answers.fillers if filler.natural}
    assert all(name.startswith("text-") or "tokens, " in name for name in natural)
    answered = {filler.name for filler in answers.fillers if filler.answer}
    assert answered == natural, "extremes are nobody's neighbours"
    with np.load(embedder.root / "asked" / "fillers.npz") as held:
        for i, name in enumerate(names):
            ids, mask = held[f"{i}.in.0"], held[f"{i}.in.1"]
            assert mask.any(), name
            padded = (np.diff(mask[0]) <= 0).all()  # ones, then zeros
            assert padded or name in ("lowest", "extremes", "one-hot"), name
            assert 0 <= ids.min() <= ids.max() < 1024, name
        lengths = [held[f"{i}.in.0"].shape[1] for i in range(len(names))]
    assert min(lengths) == 2, "nothing but the special tokens"
    assert max(lengths) == 48
