"""Which text cases there are: tokenizer, text, step, and the error where one is wanted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["BATCHES", "TEXTS", "VECTORS"]

Case = dict[str, Any]

#: Texts that every tokenizer has to cut alike, by what is special about them.
_TEXTS = {
    "plain": "The small cat sat on the wall.",
    "empty": "",
    "a space": " ",
    "white space": " \t\n\r\u00a0\u2003\u3000 ",
    "line breaks": "first line\nsecond line\r\nthird\u2028fourth\u2029fifth",
    "leading and trailing spaces": "   the cat   ",
    "double spaces": "the  cat   sat",
    "tabs": "the\tcat\t\tsat",
    "capitals": "THE Cat SAT",
    "dotted capital I": "\u0130stanbul \u0131l\u0131k",
    "sharp s and ligatures": "Stra\u00dfe \ufb01ne \ufb00",
    "punctuation": "(the cat?) \u2014 \u201cyes\u201d; it's the cat's: 100%!",
    "numbers": "7 42 1999 3.14 1,000 \u0664\u0662 \u00bd \u2167",
    "accents composed": "caf\u00e9 na\u00efve \u00c5ngstr\u00f6m",
    "accents decomposed": "cafe\u0301 nai\u0308ve A\u030angstro\u0308m",
    "stacked accents": "e\u0301\u0302\u0323\u0331 o\u0308\u0304",
    "an accent without a letter": "\u0301 alone",
    "Polish and Vietnamese": "\u0141\u00f3d\u017a Vi\u1ec7t Nam",
    "Greek": "\u0397 \u03b3\u03ac\u03c4\u03b1\u03c2 \u039f\u0394\u039f\u03a3",
    "Cyrillic": "\u043c\u0430\u043b\u0435\u043d\u044c \u043a\u043e\u0448\u043a\u0430 \u0451 \u0439",
    "Arabic": "\u0627\u0644\u0642\u0637\u0629 \u062a\u0646\u0627\u0645",
    "Arabic with vowels": "\u0645\u064f\u062d\u064e\u0645\u0651\u064e\u062f \u0640\u0640\u0640",
    "Hebrew": "\u05d4\u05d7\u05ea\u05d5\u05dc\u05d4 \u05d4\u05e7\u05d8\u05e0\u05d4",
    "Hebrew with points": "\u05e9\u05c1\u05b8\u05dc\u05d5\u05b9\u05dd",
    "both directions, with marks": "cat \u200f\u05d7\u05ea\u200e \u202b\u0642\u0637\u202c cat",
    "Chinese": "\u5c0f\u732b\u5728\u6e29\u6696\u7684\u5899\u4e0a\uff0c\u9e1f\u513f\u3002",
    "Japanese": "\u5c0f\u3055\u306a\u732b\u304c\u7720\u308b\u3001\uff76\uff9e\u30ac",
    "Korean": "\uc791\uc740 \uace0\uc591\uc774 \u1100\u1161",
    "Hindi": "\u091b\u094b\u091f\u0940 \u092c\u093f\u0932\u094d\u0932\u0940",
    "Thai": "\u0e41\u0e21\u0e27\u0e15\u0e31\u0e27\u0e40\u0e25\u0e47\u0e01",
    "full width": "\uff34\uff28\uff25 \uff23\uff21\uff34 \uff11\uff12",
    "a rare ideograph": "\U00020000 \U0002a6d6 \u4e00",
    "emoji": "smile \U0001f642 rocket \U0001f680",
    "emoji with a skin tone": "wave \U0001f44b\U0001f3fd \U0001f44b",
    "emoji joined to a family": "\U0001f469\u200d\U0001f469\u200d\U0001f467 home",
    "a flag": "\U0001f1f3\U0001f1f4 \U0001f1f3",
    "a keycap and a variation": "1\ufe0f\u20e3 \u2764\ufe0f \u2764",
    "an emoji between letters": "the\U0001f642cat",
    "zero width": "the\u200bcat\u200c\u200d\ufeffsat\u2060",
    "soft hyphen": "har\u00adbour",
    "control characters": "the\u0007cat\u001b[31m\u007f\u0085sat",
    "NUL": "the\u0000cat\u0000",
    "the replacement character": "the \ufffd cat",
    "private use and no character": "\ue000 \uffff \U0010ffff",
    "mixed scripts": "cat\u043a\u043e\u0442\u732b\u05d7\u05ea\u05d5\u05dc 42",
    "a word of 100": "a" * 100,
    "a word of 101": "a" * 101,
    "a very long word": "harbour" * 40,
    "one letter repeated": "z" * 60,
    "an address": "https://example.org/a/b?c=d&e=f#g",
    "special tokens spelled out": "[CLS] the [SEP] <s> cat </s> [PAD] [UNK]",
    "over-long": "The small cat sat on the warm stone wall and watched the birds over the harbour.",
    "over-long without spaces": "\u5c0f\u732b\u5728\u6e29\u6696" * 12,
}

#: Steps under which each of them is read.
_STEPS: dict[str, tuple[str, int, str]] = {
    "wordpiece": ("wordpiece", 16, "right"),
    "wordpiece from the end": ("wordpiece", 12, "left"),
    "bpe": ("bpe", 24, "right"),
    "bpe from the end": ("bpe", 10, "left"),
}


def _texts() -> Iterator[Case]:
    for how, (tokenizer, length, side) in _STEPS.items():
        for what, text in _TEXTS.items():
            yield _case(f"{how}: {what}", tokenizer, length, side, text=text)
    for tokenizer in ("wordpiece", "bpe"):
        yield from _edges(tokenizer)


def _case(case_id: str, tokenizer: str, length: int, side: str = "right", **more: Any) -> Case:
    step = {"max_length": length, "truncation": side}
    return {"id": case_id, "tokenizer": tokenizer, "step": step, **more}


def _edges(name: str) -> Iterator[Case]:
    yield _case(f"{name}: one token beside the special ones", name, 3, text="the cat")
    yield _case(f"{name}: the text fills the row", name, 6, text="the the the the")
    yield _case(f"{name}: one too many", name, 6, text="the the the the the")
    yield _case(f"{name}: bytes in UTF-8", name, 16, utf8="63 61 66 c3 a9 20 f0 9f 99 82")
    yield _case(f"{name}: a byte order mark", name, 16, utf8="ef bb bf 63 61 74")
    yield _case(f"{name}: ten million characters", name, 8, pieces=[["the cat sat ", 833_334]])
    for what, length, more, code in (
        ("no room for a token", 2, {"text": "the cat"}, "EDGE-PROCESS-023"),
        ("longer than the model takes", 513, {"text": "the cat"}, "EDGE-PROCESS-023"),
        ("half an emoji", 16, {"utf16": [0x63, 0xD83D]}, "EDGE-INPUT-021"),
        ("a surrogate pair turned around", 16, {"utf16": [0xDE42, 0xD83D]}, "EDGE-INPUT-021"),
        ("bytes that are not UTF-8", 16, {"utf8": "63 61 66 e9"}, "EDGE-INPUT-021"),
        ("an overlong byte form", 16, {"utf8": "c0 80"}, "EDGE-INPUT-021"),
        ("a surrogate in bytes", 16, {"utf8": "ed a0 bd"}, "EDGE-INPUT-021"),
        ("bytes that end early", 16, {"utf8": "f0 9f 99"}, "EDGE-INPUT-021"),
    ):
        yield _case(f"{name}: {what}", name, length, **more, error=code)


def _limits() -> Iterator[Case]:
    """65536 characters are read, or 64 for each of ``max_length`` where that is more."""
    spaces = [" ", 65_536]
    for side, beyond, across in (
        ("right", [spaces, ["cat", 1]], [[" ", 65_533], ["cats", 1]]),
        ("left", [["cat", 1], spaces], [["scat", 1], [" ", 65_533]]),
    ):
        what = f"limit, {side}: a word behind what is read"
        yield _case(what, "wordpiece", 8, side, pieces=beyond)
        what = f"limit, {side}: a word of which three letters are read"
        yield _case(what, "wordpiece", 8, side, pieces=across)
    yield _case("limit: counted in characters", "wordpiece", 8, pieces=[["\U0001f642 ", 40_000]])
    far = [[" ", 65_536 + 64], ["cat", 1]]
    yield _case("limit: a longer row reads more", "wordpiece", 1026, pieces=far, longest=2048)


def _batch(batch_id: str, texts: list[str], **more: Any) -> Case:
    step = {"max_length": 12, "truncation": "right", "padding": "right"} | more.pop("step", {})
    rest = {"length": [1, 512], "dtype": "int64"} | more
    return {"id": batch_id, "texts": texts, "step": step, **rest}


_MIXED = [
    "The cat.",
    "",
    "She wrote a letter to her brother and to his cat.",
    "\u732b",
    "\U0001f680",
]


def _batches() -> Iterator[Case]:
    for name in ("wordpiece", "bpe"):
        for side in ("right", "left"):
            step = {"padding": side}
            yield _batch(f"{name}: padded {side}", _MIXED, tokenizer=name, step=step)
            what = f"{name}: padded {side} to a fixed length"
            yield _batch(what, _MIXED, tokenizer=name, step=step, length=20, dtype="int32")
            what = f"{name}: padded {side} to the shortest that is allowed"
            yield _batch(what, ["cat", ""], tokenizer=name, step=step, length=[9, 64])
            what = f"{name}: one text alone, {side}"
            yield _batch(what, ["the cat"], tokenizer=name, step=step)
            what = f"{name}: one text alone, {side}, fixed"
            yield _batch(what, ["the cat"], tokenizer=name, step=step, length=12)
        both = {"padding": "left", "truncation": "left"}
        yield _batch(f"{name}: all on the left", _MIXED, tokenizer=name, step=both)


#: Token vectors [3 samples, 5 tokens, 4] of small numbers, none alike, and masks.
_VALUES = [round(((i * 37) % 101) / 8 - 6.3, 3) for i in range(60)]
_MASKS = {
    "padded right": [[1, 1, 1, 0, 0], [1, 0, 0, 0, 0], [1, 1, 1, 1, 1]],
    "padded left": [[0, 0, 1, 1, 1], [0, 0, 0, 0, 1], [1, 1, 1, 1, 1]],
    "one without tokens": [[1, 1, 0, 0, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 0]],
    "a hole": [[0, 1, 0, 1, 0], [1, 0, 0, 0, 1], [0, 0, 1, 0, 0]],
}


def _vectors() -> Iterator[Case]:
    pools = [{"step": "pool/1", "output": "y", "mask": "m", "mode": m} for m in _MODES]
    unit = {"step": "l2_normalize/1", "output": "y"}
    tokens = {"dtype": "float32", "shape": [3, 5, 4], "values": _VALUES}
    for masked, mask in _MASKS.items():
        for pool in pools:
            for steps in ([pool], [pool, unit], [unit, pool]):
                how = " then ".join(step.get("mode", "unit") for step in steps)
                yield _vector(f"{how}, {masked}", tokens, mask, steps)
    rows = {"dtype": "float32", "shape": [3, 4], "values": _VALUES[:12]}
    yield _vector("unit", rows, None, [unit])
    yield _vector("no steps", rows, None, [])
    half = {"dtype": "float16", "shape": [3, 4], "values": _VALUES[:12]}
    yield _vector("half precision", half, None, [unit])
    for what, values in (
        ("zeros", [0.0] * 4),
        ("tiny", [1e-30, 0.0, 0.0, 0.0]),
        ("subnormal", [1e-40] * 4),
        ("near the floor", [8e-13, 0.0, -6e-13, 0.0]),
        ("huge", [3e38, -3e38, 3e38, 0.0]),
        ("a million", [1e6, 1e-6, 0.0, 0.0]),
    ):
        row = {"dtype": "float32", "shape": [1, 4], "values": values}
        yield _vector(f"unit of {what}", row, None, [unit])
    yield from _refused(tokens, rows, pools[0], unit)


def _refused(tokens: Case, rows: Case, pool: Case, unit: Case) -> Iterator[Case]:
    mask = _MASKS["padded right"]
    nan = {"dtype": "float32", "shape": [1, 4], "values": [1.0, "nan", 0.0, 0.0]}
    infinite = {"dtype": "float32", "shape": [1, 4], "values": [1.0, "inf", 0.0, 0.0]}
    for what, output, masked, steps, code in (
        ("NaN", nan, None, [unit], "EDGE-PROCESS-009"),
        ("infinity", infinite, None, [], "EDGE-PROCESS-009"),
        ("vectors of tokens that are not pooled", tokens, None, [], "EDGE-PROCESS-006"),
        ("a pooled vector pooled again", rows, mask, [pool], "EDGE-PROCESS-006"),
        ("pooled twice", tokens, mask, [pool, pool], "EDGE-PROCESS-006"),
        ("another output", tokens, mask, [pool | {"output": "z"}], "EDGE-PROCESS-006"),
        ("another mask", tokens, mask, [pool | {"mask": "z"}], "EDGE-PROCESS-025"),
        ("no feed", tokens, "not given", [pool], "EDGE-PROCESS-026"),
        ("a mask of another length", tokens, [[1, 1, 1, 1]] * 3, [pool], "EDGE-PROCESS-008"),
    ):
        yield {**_vector(f"refused: {what}", output, masked, steps), "error": code}


def _vector(vector_id: str, output: Case, mask: Any, steps: list[Case]) -> Case:
    return {"id": vector_id, "steps": steps, "output": output, "mask": mask}


_MODES = ("mean", "cls", "max", "last")
TEXTS = [*_texts(), *_limits()]
BATCHES = list(_batches())
VECTORS = list(_vectors())
