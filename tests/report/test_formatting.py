"""Figures as people read them: never rounded into a lie."""

from __future__ import annotations

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeserve.report.formatting import (
    artifact_name,
    clean,
    field_name,
    join_phrase,
    mebibytes,
    milliseconds,
    percent,
    plural,
    scientific,
    shorten,
)
from edgeserve.types.reports import OutputDiff

NB = "\u00a0"


@pytest.mark.parametrize(
    ("share", "said"),
    [
        (0.0, "0 %"),
        (1.0, "100 %"),
        (0.5, "50 %"),
        (0.0096, "0.96 %"),
        (0.021, "2.1 %"),
        (0.123456, "12.3 %"),
        (0.993, "99.3 %"),
        (0.9996, "99.96 %"),
        (0.99999, "99.999 %"),
        (411 / 412, "99.75 %"),
        (0.00001, "0.001 %"),
        (0.99, "99 %"),
        ("nan", "unknown"),
        ("inf", "unknown"),
    ],
)
def test_percent(share: float, said: str) -> None:
    assert percent(share).replace(NB, " ") == said


@given(st.floats(1e-9, 1 - 1e-9))
def test_a_share_is_never_rounded_to_none_or_all(share: float) -> None:
    figure = float(percent(share).split(NB)[0])
    assert 0.0 < figure < 100.0
    assert figure == pytest.approx(100 * share, rel=0.051)


@pytest.mark.parametrize(
    ("ms", "said"),
    [
        (9.512, "9.5 ms"),
        (9.0, "9.0 ms"),
        (36.04, "36.0 ms"),
        (142.3, "142 ms"),
        (0.0384, "38.4 µs"),
        (0.85, "850 µs"),
        (12_345.0, "12.3 s"),
        (0.0, "0 ms"),
        ("nan", "unknown"),
    ],
)
def test_milliseconds(ms: float, said: str) -> None:
    assert milliseconds(ms).replace(NB, " ") == said


@pytest.mark.parametrize(
    ("mb", "said"),
    [(18.31, "18.3 MiB"), (0.05, "51.2 KiB"), (2048.0, "2.0 GiB"), (0.5, "0.50 MiB"), (0, "0 MiB")],
)
def test_mebibytes(mb: float, said: str) -> None:
    assert mebibytes(mb).replace(NB, " ") == said


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (0.0, "0"),
        (3.14e-6, "3.1 \u00d7 10⁻⁶"),
        (1e-3, "10⁻³"),
        (0.031, "0.031"),
        (12.5, "12.5"),
        (6.75, "6.8"),
        (-2e-9, "-2 \u00d7 10⁻⁹"),
        (1.5e12, "1.5 \u00d7 10¹²"),
        ("nan", "not a number"),
        ("inf", "infinite"),
    ],
)
def test_scientific(number: float, said: str) -> None:
    assert scientific(number).replace(NB, " ") == said


@given(st.floats(1e-300, 1e300))
def test_scientific_keeps_two_digits(value: float) -> None:
    text = scientific(value).replace(NB, "").replace("\u00d7", "e").replace("e10", "e")
    plain = text.translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789"))
    if re.fullmatch("10[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+", text):  # a bare power of ten
        plain = f"1e{plain[2:]}"
    assert float(plain) == pytest.approx(value, rel=0.051)


def test_sentence_parts() -> None:
    assert join_phrase([]) == ""
    assert join_phrase(["a"]) == "a"
    assert join_phrase(["a", "b"]) == "a and b"
    assert join_phrase(["a", "b", "c"]) == "a, b and c"
    assert plural(1, "input") == "1 input"
    assert plural(412, "input") == "412 inputs"
    assert plural(2, "entry", "entries") == "2 entries"
    assert artifact_name("tflite", "w8a8") == "LiteRT w8a8"


@given(st.text())
def test_nothing_that_reorders_or_breaks_text_is_left(text: str) -> None:
    cleaned = clean(text)
    assert not re.search(
        "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", cleaned
    )
    cleaned.encode("utf-8")


def test_a_label_that_reads_backwards_is_defused() -> None:
    assert clean("\u202etac\u202c") == "\ufffdtac\ufffd"
    assert clean("Katze \U0001f408 猫") == "Katze \U0001f408 猫"


@given(st.text(max_size=200), st.integers(5, 80))
def test_shortened_text_keeps_both_ends(text: str, longest: int) -> None:
    short = shorten(text, longest)
    assert len(short) <= longest
    if len(clean(text)) > longest:
        assert short[0] == clean(text)[0]
        assert short[-1] == clean(text)[-1]


def test_a_field_of_an_output_is_named_with_its_part() -> None:
    whole = OutputDiff("head", 1.0, 0.1, 0.1, 0.1, "a", field="logits")
    assert field_name(whole) == "head"
    part = msgspec.structs.replace(whole, field="scores", part="channels 4-83")
    assert field_name(part) == "head: scores, channels 4-83"
