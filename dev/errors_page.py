"""``docs/reference/errors.md``: every code, area by area, as the catalogue tells it.

python -m dev.errors_page --write docs/reference/errors.md   # after a code or its text changed
python -m dev.errors_page --check docs/reference/errors.md   # what CI runs; exit 1 if it is stale

The page says what the files of `edgeserve.codes` say, and nothing else.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from edgeserve import errors
from edgeserve.codes import Explanation, catalogue
from edgeserve.files import write_atomic

_HEAD = """# Errors

Every error has a stable code, one line that names the object, the expected and the actual value,
the line of your own code where there is one, and a hint. `edgeserve explain CODE` prints the same
text as this page. Exit codes: 1 a check failed, 2 usage, 3 an error.

`python -m dev.errors_page --write docs/reference/errors.md` generates this page.
"""

#: What Markdown would take for more than a letter.
_MARKUP = re.compile(r"`[^`]*`|__|[*<]|](?=\()")


def page() -> str:
    """The page, from the catalogue alone."""
    return "".join(_parts())


def _parts() -> Iterator[str]:
    yield _HEAD
    # The area of a class that has none of its own is its parent's.
    classes = {kind.area: kind for kind in errors.tree() if vars(kind).get("area")}
    for area, entries in groupby(
        catalogue(published=True).values(), lambda entry: entry.code.split("-")[1]
    ):
        kind = classes[area]
        yield f"\n## {area}\n\n`{kind.__name__}`, exit code {kind.exit_code}. {_first(kind)}\n"
        for entry in entries:
            yield _entry(entry)


def _first(kind: type[errors.EdgeError]) -> str:
    return (kind.__doc__ or "").strip().splitlines()[0].replace("``", "`")


def _entry(entry: Explanation) -> str:
    title, story, fix = map(_plain, (entry.title, entry.story, entry.fix))
    return f"\n### {entry.code}\n\n**{title}.** {story}\n\nWhat to do: {fix}\n"


def _plain(text: str) -> str:
    """A text as Markdown that reads as it stands."""
    return _MARKUP.sub(lambda found: _escaped(found[0]), text)


def _escaped(found: str) -> str:
    return found if found.startswith("`") else "".join(f"\\{letter}" for letter in found)


def main(words: list[str]) -> int:
    """Write or check; the exit code."""
    if len(words) != 2 or words[0] not in ("--write", "--check"):
        print(__doc__)
        return 2
    path, text = Path(words[1]), page()
    if words[0] == "--write":
        write_atomic(path, text.encode())
        print(f"{path}: {len(catalogue())} codes")
        return 0
    if path.is_file() and path.read_text("utf-8") == text:
        return 0
    print(f"{path} is not what the catalogue says: write it again with --write")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
