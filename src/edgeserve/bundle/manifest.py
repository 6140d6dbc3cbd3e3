"""Read and write ``manifest.json``: strict JSON, strict values, and every cross-reference held.

Law: ``write_manifest(read_manifest(b)) == b`` for any ``b`` that `write_manifest` wrote. The
bytes are hashed and signed as they lie; nothing here writes a manifest again in order to verify
one.

JSON parsers differ in what they let pass: two keys of one name (first wins, last wins), NaN, a
depth that overruns the stack. Two readers that disagree about one file are a way past every
check, so all of it is refused by `check_json`, in one pass over the tokens that keeps no values.
"""

from __future__ import annotations

import contextlib
import json
import re
from typing import Any

import msgspec

from edgeserve.bundle.rules import check_manifest
from edgeserve.errors import BundleError
from edgeserve.installation import upgrade_command
from edgeserve.types.artifact import Artifact, Refused
from edgeserve.types.base import check_word, decode, encode
from edgeserve.types.manifest import FORMAT_VERSION, Manifest

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


def _bad_json(code: str, where: str, wanted: str, got: str) -> BundleError:
    hint = "the bundle was not written by edgeserve package, or was changed since: get it again"
    return BundleError(code, where, wanted=wanted, got=got, hint=hint)


def _too_new(code: str, where: str, wanted: str, got: str) -> BundleError:
    hint = f"install a newer edgeserve: {upgrade_command()}"
    return BundleError(code, where, wanted=wanted, got=got, hint=hint)


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
        raise _bad_json("EDGE-BUNDLE-030", thing, f"at most {MAX_BYTES} bytes", str(len(data)))
    _check_tokens(data, thing)
    try:
        data.decode()
        msgspec.json.decode(data, type=msgspec.Raw)
    except ValueError as error:
        wanted = "one JSON document in UTF-8"
        raise _bad_json("EDGE-BUNDLE-031", thing, wanted, str(error)) from error


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
                where = f"{thing} at {_path(data, match.start())}"
                raise _bad_json("EDGE-BUNDLE-034", where, f"at most {MAX_DEPTH} levels", "more")
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
        where = f"{thing} at {_path(data, match.start(), above=True)}"
        raise _bad_json("EDGE-BUNDLE-032", where, "each key once", f"{name!r} twice")
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


#: Name of the member.
MANIFEST = "manifest.json"

#: Code of the refusal that stands for an artifact of a later version in the manifest's ``refused``.
UNREADABLE = "EDGE-BUNDLE-043"

_MINOR = int(FORMAT_VERSION.split(".")[1])
_VERSION = re.compile(r"(0|[1-9][0-9]{0,5})\.(0|[1-9][0-9]{0,5})")
_UNKNOWN_STEP = re.compile(r"Invalid value (?P<step>'[^`]*') - at `(?P<path>[^`]*)\.step`")
_PLACED = re.compile(r"(?P<message>.*) - at `(?P<path>[^`]*)`", re.DOTALL)
_HINT = "open it with the edgeserve that wrote it, or package the model again"


class _Version(msgspec.Struct):
    """The one field that every version of the format has; all others are passed over."""

    edgeserve: str


def read_manifest(data: bytes) -> Manifest:
    """Read a manifest, refusing whatever this version does not know exactly.

    A newer minor version is read: it may add meaning only under ``x``, and artifacts. One that this
    version cannot read stands among ``refused`` then, so that whoever opens the bundle passes it
    over and says so.

    Raises:
        BundleError: EDGE-BUNDLE-030 to -034 and -031 for the JSON itself, -035 another version of
            the format, -036 a processing step that is not known, -037 values that do not fit (with
            their JSON path), -038 and -040 references that do not hold.
    """
    check_json(data, MANIFEST)
    minor = _minor_version(data)
    try:
        manifest = _decode(data, newer=minor > _MINOR)
    except (ValueError, TypeError, ArithmeticError) as error:  # msgspec's, or numpy's of arrays
        raise _misfit(str(error)) from error
    check_manifest(manifest)
    return manifest


def _decode(data: bytes, newer: bool) -> Manifest:
    try:
        return decode(data, Manifest)
    except msgspec.ValidationError:
        whole = msgspec.json.decode(data)
        if not newer or not isinstance(whole.get("artifacts"), list):
            raise
        kept: list[Any] = []
        refused: list[Refused] = []
        for each in whole["artifacts"]:
            try:
                decode(msgspec.json.encode(each), Artifact)
                kept.append(each)
            except msgspec.ValidationError as error:
                refused.append(_unreadable(each, error))
        if not refused:
            raise
        fewer = whole | {"artifacts": kept, "refused": [*whole.get("refused", ()), *refused]}
        return decode(encode(fewer), Manifest)


def _unreadable(artifact: Any, error: msgspec.ValidationError) -> Refused:
    """What stands for an artifact that only a later version can read."""
    words = {"format": "unknown", "precision": "unknown"}
    for field in words:
        word = artifact.get(field) if isinstance(artifact, dict) else None
        if isinstance(word, str):
            with contextlib.suppress(ValueError):
                check_word(field, word)
                words[field] = word
    return Refused(
        **words,
        verdict="unproven",
        code=UNREADABLE,
        message=f"it is written for a later version of edgeserve ({str(error)[:200]})",
        hint=f"install a newer edgeserve: {upgrade_command()}",
    )


def _minor_version(data: bytes) -> int:
    """Look at the version before anything else: another major may differ in every other field."""
    try:
        version = msgspec.json.decode(data, type=_Version).edgeserve
    except msgspec.DecodeError as error:
        raise _misfit(str(error)) from error
    match = _VERSION.fullmatch(version)
    if match is None or match[1] != FORMAT_VERSION.split(".")[0]:
        where, wanted = f"{MANIFEST} at $.edgeserve", f"a version like {FORMAT_VERSION}"
        raise _too_new("EDGE-BUNDLE-035", where, wanted, ascii(version[:40]))
    return int(match[2])


def _misfit(message: str) -> BundleError:
    """Put a decoder's complaint into our words: its JSON path is the thing."""
    if match := _UNKNOWN_STEP.fullmatch(message):
        where, wanted = (
            f"{MANIFEST} at {match['path']}",
            "a processing step that this version knows",
        )
        return _too_new("EDGE-BUNDLE-036", where, wanted, ascii(match["step"])[1:-1])
    match = _PLACED.fullmatch(message)
    where, got = (match["path"], match["message"]) if match else ("$", message)
    return BundleError("EDGE-BUNDLE-037", f"{MANIFEST} at {where}", got=got[:300], hint=_HINT)


def write_manifest(manifest: Manifest) -> bytes:
    """Write a manifest, holding it to all that a reader will.

    Raises:
        BundleError: as `read_manifest`.
    """
    try:
        data = encode(manifest)
    except ValueError as error:
        raise _misfit(str(error)) from error
    read_manifest(data)
    return data


def check_wrapper(manifest: Manifest, version: str) -> None:
    """Refuse a manifest whose ``min_wrapper`` is above ``version`` (of edgeserve, e.g. "0.1.0").

    Raises:
        BundleError: EDGE-BUNDLE-041.
    """
    if _release(manifest.min_wrapper) > _release(version):
        wanted = f"edgeserve {manifest.min_wrapper} or newer"
        raise _too_new("EDGE-BUNDLE-041", manifest.name, wanted, f"edgeserve {version}")


def _release(version: str) -> tuple[int, ...]:
    """The release numbers of a version, end zeros off: 0.1 equals 0.1.0, 1.0rc1 is 1.0."""
    numbers = [int(n) for n in re.findall(r"\d+", re.split(r"[a-zA-Z+]", version)[0])]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
