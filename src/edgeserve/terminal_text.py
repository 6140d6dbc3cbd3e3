"""Characters that do something to a terminal or to the order of a line instead of being seen.

C0 and C1 controls (line breaks, tabs, ESC), line and paragraph separators, and Unicode's overrides,
embeddings and isolates of writing direction, which make a text read as another one.
"""

from __future__ import annotations

import re

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def first_control(text: str) -> str | None:
    """The first such character as ``U+XXXX``; None where there is none."""
    found = _CONTROL.search(text)
    return f"U+{ord(found.group()):04X}" if found else None


def escape_controls(text: str, lines: bool = False) -> str:
    r"""The text with such characters written out, as in ``\x1b``: safe to print.

    Args:
        text: From anywhere, such as the labels of a foreign bundle.
        lines: Line breaks are the text's own, and stay.
    """

    def spelled(found: re.Match[str]) -> str:
        character = found.group()
        return character if lines and character == "\n" else ascii(character)[1:-1]

    return _CONTROL.sub(spelled, text)
