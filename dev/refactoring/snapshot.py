"""Record what users of a revision can rely on, and compare two such records.

    python -m dev.refactoring.snapshot take TREE OUT.json [--demo DIR] [--python PYTHON]
    python -m dev.refactoring.snapshot compare OLD.json NEW.json [--words]

A snapshot of a source tree holds the answers (``--json``) and exit codes of commands on the demo's
workspace and bundles and on a small model that is converted anew, every error code, the exit code
of every class of errors, and the number of conformance cases. ``--demo`` names another tree's
``demo-out``: then the snapshot shows how this revision reads what that one made. The tree itself is
only read; commands run on a copy.

Times, paths and the machine are left out. Differences of sentences (messages, hints, titles) are
counted, and listed with ``--words``; what only the new one has is listed; any other difference
makes `compare` exit with 1.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

#: Commands by name; "{demo}" is the copy of the demo's folder, "{none}" an area that no code has.
_COMMANDS: dict[str, str] = {
    "inspect bundle": "inspect {demo}/tagger.edge",
    "inspect workspace": "inspect {demo}/tagger",
    "inspect text bundle": "inspect {demo}/minilm.edge",
    "profiles": "profiles",
    "one profile": "profiles raspberry-pi-5",
    "predict onnx": "predict {demo}/tagger.edge {demo}/example.jpg --format onnx --precision fp32",
    "predict tflite": "predict {demo}/tagger.edge {demo}/example.jpg --format tflite "
    "--precision fp32",
    "predict text": "predict {demo}/minilm.edge cat --format onnx --precision fp32",
    "verify": "verify {demo}/tagger.edge",
    "package": "package {demo}/tagger -o again.edge --name tagger --version 1 --license Apache-2.0",
    "report": "report {demo}/tagger -o report.html",
    "convert": "convert snapshot_model:build -o small --to onnx,tflite --precision fp32",
    "validate": "validate small --require pass",
    "package small": "package small -o small.edge --name small --version 1",
    "no such bundle": "inspect missing.edge",
    "cut bundle": "verify cut.edge",
    "no output": "convert snapshot_model:build",
    "unknown format": "convert snapshot_model:build -o other --to nonsense",
    "unknown code": "explain EDGE-{none}-001",
}

_MODEL = """\
import torch


def build():
    torch.manual_seed(7)
    layers = torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)
    return torch.nn.Sequential(*layers).eval(), (torch.randn(1, 16),)
"""

#: Keys whose values differ from run to run or from machine to machine.
_VARYING = re.compile(r"made|device|environment|threads|.*_ms|.*_mb|.*seconds|.*per_second")
#: Keys that hold sentences.
_WORDS = {
    "detail",
    "fix",
    "got",
    "hint",
    "message",
    "note",
    "notes",
    "reason",
    "reasons",
    "remarks",
    "story",
    "title",
    "wanted",
    "why",
    "words",
}
_MEASURED = re.compile(r"\b\d[\d.,]*(?: ?(?:ms|s|MB|MiB|GiB)\b)")
_LONG = 40


def take(tree: Path, demo: Path, python: Path) -> dict[str, Any]:
    """The snapshot of a tree.

    Args:
        tree: The root of a checkout.
        demo: What `make demo` left: ``tagger/``, ``tagger.edge``, ``minilm.edge``, ``photos/``.
        python: An interpreter that has the tree's libraries.

    Raises:
        RuntimeError: the tree's package cannot be imported.
    """
    with tempfile.TemporaryDirectory(prefix="edgeserve-snapshot-") as folder:
        scratch = Path(folder)
        _lay_out(demo, scratch)
        call = _Caller(tree, python, scratch)
        snapshot: dict[str, Any] = {"commands": {}}
        for name, words in _COMMANDS.items():
            print(name, file=sys.stderr, flush=True)
            snapshot["commands"][name] = call.command(words.format(demo="demo", none="NONE"))
        codes = call.json("-m", "edgeserve", "explain", "--json")["codes"]
        snapshot["codes"] = [entry["code"] for entry in codes]
        snapshot["exit_codes"] = call.json("-c", _EXIT_CODES)
    return snapshot | {"conformance": _conformance(tree)}


def _lay_out(demo: Path, scratch: Path) -> None:
    """A copy of the demo, a bundle whose end is cut off, and the small model's factory."""
    (scratch / "demo").mkdir()
    shutil.copytree(demo / "tagger", scratch / "demo" / "tagger")
    shutil.copy(demo / "photos" / "example.jpg", scratch / "demo")
    for name in ("tagger.edge", "minilm.edge"):
        (scratch / "demo" / name).symlink_to((demo / name).resolve())
    (scratch / "cut.edge").write_bytes((demo / "tagger.edge").read_bytes()[:-100])
    (scratch / "snapshot_model.py").write_text(_MODEL)


_EXIT_CODES = """
import json
from edgeserve import errors
kinds = {n: k for n, k in vars(errors).items() if hasattr(k, "exit_code")}
print(json.dumps({n: kinds[n].exit_code for n in sorted(kinds)}))
"""


class _Caller:
    """Runs a tree's package in a scratch folder, with a cache of its own."""

    def __init__(self, tree: Path, python: Path, scratch: Path) -> None:
        self.python, self.scratch = python, scratch
        source = str(tree / "src") if (tree / "src").is_dir() else ""
        cache = str(scratch / "cache")
        self.variables = {"EDGESERVE_CACHE": cache, "HF_HUB_OFFLINE": "1", "PYTHONPATH": source}

    def command(self, words: str) -> dict[str, Any]:
        """The exit code and the normalised answer of one command."""
        done = self._run("-m", "edgeserve", *words.split(), "--json")
        try:
            answer = json.loads(done.stdout)
        except ValueError:
            answer = {"not json": done.stderr[-400:]}
        if words.startswith("report"):
            answer.pop("size", None)  # of a page that holds times
        return {"exit": done.returncode, "answer": normalise(answer, str(self.scratch))}

    def json(self, *words: str) -> Any:
        """What a call prints, as JSON."""
        done = self._run(*words)
        if done.returncode:
            raise RuntimeError(done.stderr[-2000:])
        return json.loads(done.stdout)

    def _run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.python), *words],
            cwd=self.scratch,
            env=os.environ | self.variables,
            capture_output=True,
            text=True,
        )


def normalise(value: Any, scratch: str = "") -> Any:
    """JSON without what varies: times, paths, the machine; long lists become their SHA-256."""
    if isinstance(value, dict):
        return {
            key: "<varies>" if _VARYING.fullmatch(key) and each else normalise(each, scratch)
            for key, each in sorted(value.items())
        }
    if isinstance(value, list):
        rows = [normalise(each, scratch) for each in value]
        if rows and isinstance(rows[0], dict) and "precision" in rows[0]:
            rows.sort(key=lambda row: (row["format"], row["precision"]))
        if len(rows) > _LONG and not isinstance(rows[0], dict):
            return f"{len(rows)}, {hashlib.sha256(json.dumps(rows).encode()).hexdigest()}"
        return rows
    if isinstance(value, str):
        text = value.replace(scratch, "<scratch>") if scratch else value
        return _MEASURED.sub(lambda found: f"<n>{found[0].lstrip('0123456789.,')}", text)
    return float(f"{value:.5g}") if isinstance(value, float) else value


def _conformance(tree: Path) -> dict[str, int]:
    """The number of cases in each file of cases; a folder's old name is given as its new one."""
    root = tree / "spec" / "conformance"
    root = root if root.is_dir() else tree / "tests" / "conformance"
    counts = {}
    for file in sorted(root.rglob("*.json")):
        table = json.loads(file.read_text("utf-8"))
        if isinstance(table, dict) and isinstance(table.get("cases"), list):
            name = file.relative_to(root).as_posix().replace("decisions/", "tasks/")
            counts[name] = len(table["cases"])
    return counts


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(path, value) of every value that holds no other; an empty list or object is one."""
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from _leaves(each, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value:
        for index, each in enumerate(value):
            yield from _leaves(each, f"{path}[{index}]")
    else:
        yield path, value


def compare(
    old: Mapping[str, Any], new: Mapping[str, Any]
) -> tuple[list[str], list[str], list[str]]:
    """Differences, changed sentences and additions, a line each.

    Codes are compared as sets: a new one is an addition, a dropped one a difference. More cases of
    conformance are additions too.
    """
    differences = [f"code {code} is gone" for code in sorted({*old["codes"]} - {*new["codes"]})]
    additions = [f"code {code}" for code in sorted({*new["codes"]} - {*old["codes"]})]
    sentences = []
    parts = [dict(_leaves({**each, "codes": None})) for each in (old, new)]
    for path, before in parts[0].items():
        after = parts[1].get(path, "nothing")
        if before != after:
            keys = set(re.findall(r"[^.\[\]]+", path))
            line = f"{path}: {before!r:.200} -> {after!r:.200}"
            more = path.startswith("conformance.") and after != "nothing" and after > before
            place = additions if more else sentences if keys & _WORDS else differences
            place.append(line)
    additions += [f"{path}: {parts[1][path]!r:.200}" for path in parts[1] if path not in parts[0]]
    return differences, sentences, additions


def main() -> int:
    """Take a snapshot, or compare two."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    taking = verbs.add_parser("take")
    taking.add_argument("tree", type=Path)
    taking.add_argument("out", type=Path)
    taking.add_argument("--demo", type=Path)
    taking.add_argument("--python", type=Path)
    comparing = verbs.add_parser("compare")
    comparing.add_argument("old", type=Path)
    comparing.add_argument("new", type=Path)
    comparing.add_argument("--words", action="store_true")
    said = parser.parse_args()
    if said.verb == "take":
        tree = said.tree.resolve()
        python = said.python or tree / ".venv" / "bin" / "python"
        snapshot = take(tree, (said.demo or tree / "demo-out").resolve(), python.absolute())
        said.out.write_text(json.dumps(snapshot, indent=1, ensure_ascii=False) + "\n")
        return 0
    old, new = (json.loads(file.read_text("utf-8")) for file in (said.old, said.new))
    differences, sentences, additions = compare(old, new)
    groups = [("differs", differences), ("new", additions)]
    if said.words:
        groups.append(("words", sentences))
    for title, lines in groups:
        print(*(f"{title}: {line}" for line in lines), sep="\n", end="\n" if lines else "")
    print(f"{len(differences)} differ, {len(sentences)} reworded, {len(additions)} new")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
