"""What a manifest's bytes must hold to before their values are looked at.

JSON parsers differ in what they let pass: two keys of one name (first wins, last wins), NaN, a
depth that overruns the stack. Two readers that disagree about one file are a way past every check,
so all of it is refused here, in one pass over the tokens that keeps no values.
"""

from __future__ import annotations

import json
import re

import msgspec

from edgeserve.errors import BundleError

__all__ = ["MAX_BYTES", "MAX_DEPTH", "check_json"]

MAX_BYTES = 16 << 20
MAX_DEPTH = 64

# Possessive quantifiers, and an end at the first quote that opens no string: no byte is looked at
# more than a few times, whatever the input. A string with a colon behind it is a key; a run of
# others (a thousand labels) is one token.
_SPACE = rb"[ \t\r\n]*+"
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_TOKEN = re.compile(
    rb"(?P<key>" + _STRING + rb"(?=" + _SPACE + rb":))"
    rb"|(?P<text>(?:" + _STRING + rb"(?!" + _SPACE + rb":)[ \t\r\n,]*+)++)"
    rb"|(?P<open>[\[{])|(?P<close>[\]}])"
    rb'|(?P<rest>[^"\[\]{}]++)|(?P<end>")',
    re.DOTALL,
)
_BRACE = ord("{")
_NOT_A_NUMBER = re.compile(rb"(?:^|[\s,:\[-])(?:NaN|Infinity)")
_HINT = "the bundle was not written by edgeserve package, or was changed since: get it again"


def check_json(data: bytes, thing: str) -> None:
    """Refuse bytes that are not JSON, or that two parsers could read in two ways.

    Args:
        data: The bytes of one JSON document.
        thing: What the document is called in errors.

    Raises:
        BundleError: EDGE-BUNDLE-030 too long; then the first of -032 a key said twice, -033 NaN or
            infinity and -034 too deep; then -031 not JSON.
    """
    if len(data) > MAX_BYTES:
        raise BundleError(
            "EDGE-BUNDLE-030",
            thing,
            wanted=f"at most {MAX_BYTES} bytes",
            got=str(len(data)),
            hint=_HINT,
        )
    _check_tokens(data, thing)
    try:
        data.decode()
        msgspec.json.decode(data, type=msgspec.Raw)
    except ValueError as error:
        raise BundleError(
            "EDGE-BUNDLE-031",
            thing,
            wanted="one JSON document in UTF-8",
            got=str(error),
            hint=_HINT,
        ) from error


def _check_tokens(data: bytes, thing: str) -> None:
    """One pass over keys, brackets and what stands between; the grammar does not matter here."""
    stack: list[set[str] | None] = []
    for match in _TOKEN.finditer(data):
        kind = match.lastgroup
        if kind == "key" and stack and stack[-1] is not None:
            _note(match, stack[-1], data, thing)
        elif kind == "open":
            stack.append(set() if data[match.start()] == _BRACE else None)
            if len(stack) > MAX_DEPTH:
                raise BundleError(
                    "EDGE-BUNDLE-034",
                    f"{thing} at {_path(data, match.start())}",
                    wanted=f"at most {MAX_DEPTH} levels",
                    got="more",
                    hint=_HINT,
                )
        elif kind == "close" and stack:
            stack.pop()
        elif kind == "rest" and _NOT_A_NUMBER.search(match.group()):
            raise BundleError(
                "EDGE-BUNDLE-033",
                f"{thing} at {_path(data, match.end())}",
                wanted="a number",
                got="NaN or infinity",
                hint='write it as the string "nan", "inf" or "-inf"',
            )
        elif kind == "end":
            return  # a quote that opens no string: not JSON, as the grammar will say


def _note(match: re.Match[bytes], seen: set[str], data: bytes, thing: str) -> None:
    """Note a key of the innermost object; the same one twice is refused, however escaped."""
    name = _text(match.group())
    if name in seen:
        raise BundleError(
            "EDGE-BUNDLE-032",
            f"{thing} at {_path(data, match.start(), above=True)}",
            wanted="each key once",
            got=f"{name!r} twice",
            hint=_HINT,
        )
    seen.add(name)


def _text(token: bytes) -> str:
    """The string that a token spells; the raw bytes stand for one that spells none."""
    if b"\\" in token:
        try:
            return str(json.loads(token))
        except ValueError:  # a bad escape, as the grammar will say
            pass
    return token[1:-1].decode("utf-8", "backslashreplace")


def _path(data: bytes, end: int, above: bool = False) -> str:
    """The JSON path of the value at byte ``end``, or of the object that holds it; cut if long."""
    path: list[str] = []
    for match in _TOKEN.finditer(data, 0, end):
        if match.lastgroup == "open":
            path.append("[...]")
        elif match.lastgroup == "close" and path:
            path.pop()
        elif match.lastgroup == "key" and path:
            path[-1] = f".{_text(match.group())}"
    shown = path[:-1] if above else path
    return "$" + "".join(shown[:8]) + ("..." if len(shown) > 8 else "")
