"""``python -m dev.corpus``: run the corpus and print its figures.

Exit code 1: a bad artifact was missed; 3: a case broke the corpus itself.

python -m dev.corpus                    all cases, resuming what was interrupted; what other code
                                    has made or judged is made and judged again
python -m dev.corpus --keep             lines of other code count as done
python -m dev.corpus --quick            a few of each task, two minutes at most
python -m dev.corpus --only TEXT        cases whose name holds TEXT, judged anew
python -m dev.corpus --summary          only the figures of what is done
python -m dev.corpus --docs             also write them into docs/explanation/corpus.md
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dev.corpus.cases import Case, cases, quick
from dev.corpus.paths import OUT, REPO, write_atomic
from dev.corpus.plot import draw
from dev.corpus.revision import clear_stale, sources_changed
from dev.corpus.runner import results, run_all
from dev.corpus.scoring import score
from dev.corpus.summary import summary

_MARK = "<!-- figures: python -m dev.corpus --docs -->"


def main() -> int:
    """Run as asked."""
    asked = _arguments()
    path = OUT / ("quick.jsonl" if asked.quick else "results.jsonl")
    chosen = quick() if asked.quick else cases(asked.task or ())
    if asked.only:
        chosen = [each for each in chosen if asked.only in each.name]
        path = OUT / "only.jsonl"
        path.unlink(missing_ok=True)
    names = {each.name for each in chosen}
    known = results(path) if asked.summary else _run(chosen, path, asked)
    lines = [line for name, line in known.items() if name in names]
    text = summary(lines, len(chosen))
    lost = sorted(names - set(known))
    print(text)
    write_atomic(path.with_suffix(".md"), text.encode())
    draw(lines, path.with_suffix(".svg"))
    if asked.docs:
        _write_docs(text, path.with_suffix(".svg"))
    if lost and not asked.summary:
        print(f"{len(lost)} cases broke the corpus itself, see {path}: {lost[:3]}", file=sys.stderr)
        return 3
    return 1 if score(lines).missed else 0


def _run(chosen: Sequence[Case], path: Path, asked: argparse.Namespace) -> dict[str, Any]:
    if gone := clear_stale():
        print(f"the code has changed, made anew: {' '.join(gone)}", file=sys.stderr)
    found = run_all(chosen, path, asked.workers, asked.keep)
    if sources_changed():
        print("the code has changed meanwhile; run again for figures of one", file=sys.stderr)
    return found


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m dev.corpus", description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--task", action="append")
    parser.add_argument("--summary", action="store_true")
    parser.add_argument("--docs", action="store_true")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    return parser.parse_args()


def _write_docs(text: str, picture: Path) -> None:
    page = REPO / "docs" / "explanation" / "corpus.md"
    write_atomic(REPO / "docs" / "explanation" / "corpus.svg", picture.read_bytes())
    write_atomic(page, (page.read_text().partition(_MARK)[0] + _MARK + "\n\n" + text).encode())


if __name__ == "__main__":
    sys.exit(main())
