"""Figures and names as people read them. Everything that a report prints goes through here."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from edgeserve.types.base import Number, plain
from edgeserve.types.reports import OutputDiff
from edgeserve.types.words import Verdict

__all__ = [
    "FORMAT_NAMES",
    "VERDICT_MEANING",
    "VERDICT_WORD",
    "artifact_name",
    "clean",
    "field_name",
    "listed",
    "mebibytes",
    "milliseconds",
    "percent",
    "plural",
    "scientific",
    "shorten",
    "thousands",
]

FORMAT_NAMES = {"onnx": "ONNX", "tflite": "LiteRT", "coreml": "Core ML", "torch": "PyTorch"}

VERDICT_WORD: dict[Verdict, str] = {
    "pass": "Pass",
    "degraded": "Degraded",
    "fail": "Refused",
    "unproven": "Unproven",
}

VERDICT_MEANING: dict[Verdict, str] = {
    "pass": "proven within limits",
    "degraded": "harm measured, within the looser limit",
    "fail": "harm beyond the limit, or broken",
    "unproven": "not run here, or more data needed",
}

#: No-break space, between a figure and its unit.
_NB = "\u00a0"
_TIMES = "\u00a0\u00d7\u00a0"
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

#: What must not reach a reader's eye: control characters, lone surrogates, and the marks that
#: reorder text (they can make "tac" read "cat").
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\u200e\u200f\u202a-\u202e\u2066-\u2069\ufffe\uffff]"
)


def clean(text: str) -> str:
    """Replace what has no place in HTML or reorders text; escaping is the template's part."""
    return _UNPRINTABLE.sub("\ufffd", text)


def shorten(text: str, longest: int = 60) -> str:
    """`clean`, and cut in the middle: both ends of a path say something."""
    text = clean(text)
    if len(text) <= longest:
        return text
    head = (longest - 1) // 2
    return f"{text[:head]}…{text[-(longest - 1 - head) :]}"


def field_name(diff: OutputDiff, longest: int = 48) -> str:
    """An output, and where it holds several things, which: "head: scores, channels 4-83"."""
    name = shorten(diff.output, longest)
    return f"{name}: {diff.field}, {clean(diff.part)}" if diff.part else name


def artifact_name(format: str, precision: str) -> str:
    """E.g. "ONNX fp32"."""
    return f"{FORMAT_NAMES.get(format, format)} {precision}"


def listed(names: Sequence[str]) -> str:
    """Join as in a sentence: "a", "a and b", "a, b and c"."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def plural(count: int, one: str, many: str = "") -> str:
    """E.g. "1 input", "412 inputs"."""
    return f"{thousands(count)} {one if count == 1 else many or one + 's'}"


def thousands(count: int) -> str:
    """A whole number with thin spaces: "12 345"."""
    return f"{count:,}".replace(",", "\u202f")


def percent(share: Number) -> str:
    """A share in percent, two or three digits; never "0 %" or "100 %" unless it is exactly that."""
    value = 100.0 * plain(share)
    if not math.isfinite(value):
        return "unknown"
    if value in (0.0, 100.0):
        return f"{value:.0f}{_NB}%"
    if 0.0 < 100.0 - value < 1.0:  # rounded down, as 99.97 must not become 100
        digits = 1 - math.floor(math.log10(100.0 - value))
        down = math.floor(round(value * 10**digits, 6)) / 10**digits
        return f"{f'{down:.{digits}f}'.rstrip('0')}{_NB}%"
    return f"{_rounded(value)}{_NB}%"


def _rounded(value: float, *, keep: bool = False) -> str:
    """Three digits from 10 up, else two; ``keep`` the zeros at the end of a measured figure."""
    if value == 0.0:
        return "0"
    size = math.floor(math.log10(abs(value)))
    digits = max(0, (2 if size >= 1 else 1) - size)
    text = f"{value:.{digits}f}"
    return text if keep or "." not in text else text.rstrip("0").rstrip(".")


def milliseconds(ms: Number) -> str:
    """A time: "38.0 µs", "9.5 ms", "12.3 s"."""
    value = plain(ms)
    if not math.isfinite(value):
        return "unknown"
    if value >= 10_000.0:
        return f"{_rounded(value / 1e3, keep=True)}{_NB}s"
    if 0.0 < value < 1.0:
        return f"{_rounded(value * 1e3, keep=True)}{_NB}µs"
    return f"{_rounded(value, keep=True)}{_NB}ms"


def mebibytes(mb: Number) -> str:
    """A size given in MiB: "512 KiB", "18.3 MiB", "1.2 GiB"."""
    value = plain(mb)
    if not math.isfinite(value):
        return "unknown"
    if value >= 1024.0:
        return f"{_rounded(value / 1024, keep=True)}{_NB}GiB"
    if 0.0 < value < 0.1:
        return f"{_rounded(value * 1024, keep=True)}{_NB}KiB"
    return f"{_rounded(value, keep=True)}{_NB}MiB"


def scientific(number: Number) -> str:
    """A small difference: "0", "0.012", "3.1 times ten to the minus six"."""
    value = plain(number)
    if math.isnan(value):
        return "not a number"
    if math.isinf(value):
        return "infinite"
    if value == 0.0 or 0.001 < abs(value) < 10_000.0:
        return _rounded(value)
    mantissa, exponent = f"{value:.1e}".replace(".0e", "e").split("e")
    power = f"10{str(int(exponent)).translate(_SUPERSCRIPT)}"
    return power if mantissa == "1" else f"{mantissa}{_TIMES}{power}"
