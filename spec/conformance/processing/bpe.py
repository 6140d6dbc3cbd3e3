"""Byte-level BPE in plain Python: the merges of a tokenizer.json, applied by their ranks."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import regex

__all__ = ["Bpe"]

#: Words with the space before them, numbers, signs, and runs of white space.
_WORDS = regex.compile(
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
)


def _letters() -> dict[int, str]:
    """The printable character that stands for each byte."""
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in kept]
    return {b: chr(b) for b in kept} | {b: chr(256 + n) for n, b in enumerate(others)}


class Bpe:
    """What a tokenizer.json of kind ByteLevel + BPE says, without the special tokens around it."""

    def __init__(self, described: dict[str, Any]) -> None:
        model = described["model"]
        self._ids: dict[str, int] = model["vocab"]
        self._ranks = {tuple(pair): rank for rank, pair in enumerate(model["merges"])}
        self._letters = _letters()
        special = sorted((t["content"] for t in described["added_tokens"]), key=len, reverse=True)
        self._special = regex.compile("|".join(map(regex.escape, special)))

    def ids(self, text: str) -> list[int]:
        """Token ids of a text; special tokens spelled out in it count as such."""
        found: list[int] = []
        at = 0
        for match in self._special.finditer(text):
            found += [*self._plain(text[at : match.start()]), self._ids[match.group()]]
            at = match.end()
        return found + self._plain(text[at:])

    def _plain(self, text: str) -> list[int]:
        words = _WORDS.findall(text)
        return [self._ids[part] for word in words for part in self._merged(word)]

    def _merged(self, word: str) -> list[str]:
        parts = [self._letters[byte] for byte in word.encode()]
        while len(parts) > 1:
            pairs = list(pairwise(parts))
            best = min(pairs, key=lambda pair: self._ranks.get(pair, len(self._ranks)))
            if best not in self._ranks:
                break
            parts = _joined(parts, best)
        return parts


def _joined(parts: list[str], pair: tuple[str, str]) -> list[str]:
    """Every occurrence of a pair as one, from the left."""
    out: list[str] = []
    at = 0
    while at < len(parts):
        both = tuple(parts[at : at + 2]) == pair
        out.append("".join(pair) if both else parts[at])
        at += 2 if both else 1
    return out
