"""Where the corpus keeps things, and what it counts on."""

from __future__ import annotations

import os
from pathlib import Path

#: The repository: factories and references are imported from here.
REPO = Path(__file__).resolve().parents[2]

#: All that the corpus makes lies here. Another folder: CORPUS_OUT.
OUT = Path(os.environ.get("CORPUS_OUT", REPO / "corpus-out")).resolve()


def write_atomic(path: Path, data: bytes) -> Path:
    """Write a file whole or not at all, its folders made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    stage = path.with_name(f".tmp-{os.getpid()}-{path.name}")
    stage.write_bytes(data)
    stage.replace(path)
    return path
