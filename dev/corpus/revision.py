"""Which code the figures are of: hashes over the sources that made, asked and judged.

A line of ``results.jsonl`` carries the revision that it was judged by; a line of another one is
stale and judged again, and what other code has made is made again, so that all figures are those
of one revision.
"""

from __future__ import annotations

import functools
import hashlib
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from dev.corpus.paths import OUT, REPO, write_atomic

_CORE = (
    "src/edgeserve/bundle",
    "src/edgeserve/data",
    "src/edgeserve/tasks",
    "src/edgeserve/environment.py",
    "src/edgeserve/errors.py",
    "src/edgeserve/files.py",
    "src/edgeserve/jobs.py",
    "src/edgeserve/processing",
    "src/edgeserve/types",
    "requirements.lock",
)
#: What networks, their data and the reference's answers to the oracle hang on.
_TRAINED = (
    "dev/corpus/tasks",
    "dev/corpus/nets.py",
    "dev/corpus/oracle/decisions.py",
    "dev/corpus/oracle/overlap.py",
    "requirements.lock",
)
#: What artifacts hang on.
_MADE = (
    *_TRAINED,
    *_CORE,
    "backends",
    "convert",
    "dev/corpus/damage",
    "dev/corpus/case_builder.py",
)
#: What stored answers of the servers hang on.
_ASKED = (*_MADE, "validate", "profiles")
#: What a verdict and its harm hang on. Not `dev.corpus.kinds`: lines name their own severity.
_JUDGED = (*_ASKED, "dev/corpus/oracle", "dev/corpus/judging.py")

#: Folders of the corpus, or of each network, by what they are made by.
_KEPT = (
    (_TRAINED, ("data", "training", "weights", "oracle", "nets")),
    (_MADE, ("nets",)),
    (_ASKED, ("nets/*/samples", "nets/*/packaged")),
)


def sources_hash(names: Sequence[str], repo: Path = REPO) -> str:
    """One hash of all source files below these paths: their names and their bytes.

    Raises:
        FileNotFoundError: a path is not there, so that a moved folder is not forgotten.
    """
    found = hashlib.sha256()
    for name in sorted(set(names)):
        for path in _files(repo / name):
            data = hashlib.sha256(path.read_bytes()).hexdigest()
            found.update(f"{path.relative_to(repo).as_posix()} {data}\n".encode())
    return found.hexdigest()[:12]


def _files(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from sorted(p for p in path.rglob("*") if p.suffix in (".py", ".json", ".toml"))
    else:
        path.stat()
        yield path


@functools.cache
def judged_by() -> str:
    """The revision of this process: twelve hexadecimal digits, read once."""
    return sources_hash(_JUDGED)


def sources_changed() -> bool:
    """Whether the sources have changed since this process read them."""
    return sources_hash(_JUDGED) != judged_by()


def clear_stale(out: Path = OUT, repo: Path = REPO) -> list[str]:
    """Delete below ``out`` what other code has made; gives the patterns that went."""
    gone: list[str] = []
    for names, patterns in _KEPT:
        stamp = out / f"made-by-{_KEPT.index((names, patterns))}"
        now = sources_hash(names, repo)
        if not stamp.is_file() or stamp.read_text() != now:
            for pattern in patterns:
                gone += [pattern] if _emptied(out, pattern) else []
            write_atomic(stamp, now.encode())
    return gone


def _emptied(out: Path, pattern: str) -> bool:
    found = list(out.glob(pattern))
    for path in found:
        shutil.rmtree(path)
    return bool(found)
