"""Texts that stand in for a user's own, and those at the edges: empty, endless, of any script.

The ordinary ones lie in ``texts.txt``, two wordings of each. Texts of a wanted length are cut from
them by counting tokens, so that the shortest, the longest and an odd length between are tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from importlib import resources

__all__ = ["edges", "of_length", "pairs", "prime_between", "sentences"]

#: Tokens in a text, special ones included.
Count = Callable[[str], int]

#: Words that most tokenizers know whole, to make up a length with.
_SHORT = ("a", "the", "1", "and", ".")


@cache
def pairs() -> tuple[tuple[str, str], ...]:
    """The ordinary texts, each in two wordings."""
    text = (resources.files("edgeserve.validate") / "texts.txt").read_text("utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    blocks = [block.splitlines() for block in "\n".join(lines).strip().split("\n\n")]
    return tuple((first, second) for first, second in blocks)


def sentences() -> tuple[str, ...]:
    """The first wording of each."""
    return tuple(first for first, _ in pairs())


def edges(longest: int) -> Iterator[tuple[str, str]]:
    """Name and text of what is legal and rare.

    Args:
        longest: Tokens beyond which a text is cut off.
    """
    yield "empty", ""
    yield "one character", "x"
    yield "blank", " \t\n "
    yield "repeated word", "very " * (longest // 4 + 2)
    yield "emoji", "👩🏽‍🚀🚀🌍 👍🏿 🏳️‍🌈 1️⃣ ❤️‍🔥"
    yield "accents, combined and not", "Café, cafe\u0301, Ångström, A\u030angstro\u0308m, naïve"
    yield "right to left", "السلام عليكم (abc 123) שלום עולם"
    yield "no spaces", "東京特許許可局長今日急遽休暇許可拒否。人工知能研究所"
    yield ("odd characters", "\u200b\ufeffzero\u00adwidth\u2028 \u202eabc\u202c \ufffd \x07")
    yield "longer than the model takes", " ".join(sentences()) * (longest // 400 + 1)


def of_length(wanted: int, count: Count) -> str | None:
    """A text of so many tokens; None where none was found (a tokenizer that joins words).

    Args:
        wanted: Tokens, special ones included.
        count: The tokens of a text, at most those that the model takes.
    """
    words = " ".join(text for text in sentences() if text.isascii()).split()
    words *= wanted // len(words) + 1
    low, high = 0, len(words)
    while low < high:  # the most words that do not give too many tokens
        middle = (low + high + 1) // 2
        low, high = (
            (middle, high) if count(" ".join(words[:middle])) <= wanted else (low, middle - 1)
        )
    for word in _SHORT:
        longer = words[:low]
        while (got := count(" ".join(longer))) < wanted and len(longer) < low + wanted:
            longer.append(word)
        if got == wanted:
            return " ".join(longer)
    return None


def prime_between(low: int, high: int) -> int | None:
    """A prime near the middle of ``low`` and ``high`` and strictly between; None where none is.

    A length that nothing divides shows what silently assumes a multiple.
    """
    middle = (low + high) // 2
    for away in range(high - low):
        for size in (middle + away, middle - away):
            if low < size < high and _is_prime(size):
                return size
    return None


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % factor for factor in range(2, int(number**0.5) + 1))
