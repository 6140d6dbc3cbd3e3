"""``docs/explanation/zoo.md`` out of the rows that were measured, and out of nothing else."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dev.zoo.fp16 import worst

__all__ = ["write"]

_DEGRADED = "EDGE-CHECK-064"

_FORMATS = ("onnx", "tflite", "coreml")
_EMPTY = "|---|---|---|---|---|---|---|---|\n"
_TOOLS = (
    "torch",
    "transformers",
    "onnxscript",
    "onnxruntime",
    "litert-torch",
    "ai-edge-litert",
    "coremltools",
)

_HEAD = """# The zoo

Small relatives of what people bring, with random weights, each exported once and converted to three
formats. Every file is run on three or more input sets and compared with PyTorch: `ok` means that no
value is off by more than a thousandth of its output's scale. Core ML is run by our
[interpreter](interpreter.md), not on Apple hardware. A code is a refusal (`edgeserve explain`);
`WRONG` is a file that answers otherwise, which only running it tells.

Written by `make zoo` and `make zoo-ops`. The difference is the largest, as a share of the scale;
the seconds are those of one conversion on two shared cores. Plain nets and operators are converted
in packs, each with outputs of its own, and alone where a format refuses the pack; their seconds are
a share of the pack's. `batch` says whether it was left open in the export.

The columns behind are the same model in fp16, judged as the gate judges it: `ok` with the signal to
noise of the noisiest output (from 40 dB on), `degraded` (from 10 dB on), or the code with which it
is refused: EDGE-CHECK-063 below that, -040 where a decision flips of which the reference is sure,
-032 where whole numbers are other ones, -005 where it overflows. An operator that cuts values off
(`round`, `argmax`) answers in steps, and a step over is much noise.

"""


def write(groups: Mapping[str, Mapping[str, dict[str, Any]]], path: Path) -> None:
    """Write the page.

    Args:
        groups: For each group the rows by name.
        path: The file.
    """
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in _TOOLS)
    parts = [_HEAD, f"Versions: {versions}.\n\n", _summary(groups)]
    for group, rows in groups.items():
        if rows:
            parts.append(f"\n## {group.capitalize()}\n\n{_table(rows)}")
    failing = [
        f"- `{name}`, {format}: {_said(row[format])}"
        for rows in groups.values()
        for name, row in rows.items()
        for format in _FORMATS
        if format in row and not row[format]["ok"]
    ]
    failing += [
        f"- `{name}`, export: {_said(row['export'])}"
        for rows in groups.values()
        for name, row in rows.items()
        if not row["export"]["ok"]
    ]
    if failing:
        parts.append("\n## What was said where it is not ok\n\n" + "\n".join(failing) + "\n")
    path.write_text("".join(parts))


def _summary(groups: Mapping[str, Mapping[str, dict[str, Any]]]) -> str:
    halves = " | ".join(f"{format} fp16" for format in _FORMATS)
    lines = [f"| group | models | {' | '.join(_FORMATS)} | {halves} |\n{_EMPTY}"]
    for group, rows in groups.items():
        if rows:
            cells = [
                str(sum(bool(row.get(format, {}).get("ok")) for row in rows.values()))
                for format in _FORMATS
            ]
            cells += [_halves(rows, format) for format in _FORMATS]
            lines.append(f"| {group} | {len(rows)} | " + " | ".join(cells) + " |\n")
    kinds = "fp16: proven, degraded and refused (or not tried, where float32 is refused)."
    return "".join([*lines, f"\n{kinds}\n"])


def _halves(rows: Mapping[str, dict[str, Any]], format: str) -> str:
    """How many are proven, degraded, refused."""
    words = [_half(row.get(format)).partition(" ")[0] for row in rows.values()]
    good, less = words.count("ok"), words.count("degraded")
    return f"{good}, {less}, {len(words) - good - less}"


def _half(cell: dict[str, Any] | None) -> str:
    """What became of fp16; "-" where it was not tried."""
    found = (cell or {}).get("fp16")
    if found is None:
        return "-"
    if "noise" not in found:
        return str(found["code"])
    code = worst([each for each in found["codes"] if each] or [""])
    if code and code != _DEGRADED:
        return code
    known = [each for each in found["noise"] if each is not None]
    least = f" {min(known):.0f} dB" if known and min(known) < 999 else ""
    return ("degraded" if code else "ok") + least


def _table(rows: Mapping[str, dict[str, Any]]) -> str:
    halves = " | ".join(f"{format} fp16" for format in _FORMATS)
    lines = [f"| model | batch | {' | '.join(_FORMATS)} | {halves} |\n{_EMPTY}"]
    for name, row in sorted(rows.items(), key=lambda pair: pair[0].partition(":")[0]):
        cells = [_cell(row.get(format)) for format in _FORMATS]
        cells += [_half(row.get(format)) for format in _FORMATS]
        lines.append(f"| {name.partition(':')[2]} | {_batch(row)} | " + " | ".join(cells) + " |\n")
    return "".join(lines)


def _batch(row: dict[str, Any]) -> str:
    export = row["export"]
    if not export["ok"]:
        return str(export["code"])
    return ("open" if export["dynamic"] else "fixed") + ("" if export["moves"] else ", still")


def _cell(cell: dict[str, Any] | None) -> str:
    if cell is None:
        return "-"
    if not cell["ok"]:
        return (
            f"{cell['code']} {cell.get('difference', 0):.0e}"
            if cell["code"] == "WRONG"
            else (str(cell["code"]))
        )
    return f"ok {cell['difference']:.0e}, {cell['seconds']:.1f} s"


def _said(cell: dict[str, Any]) -> str:
    if cell["code"] == "WRONG":
        return f"WRONG, off by {cell['difference']:.1e} of the scale"
    line = " ".join(str(cell.get("said", cell["code"])).split())[:300]
    plain = line.replace("`", "'").replace("](", "] (").strip()
    return f"`{plain}`"  # as code, and no "](": what converters say would pass for links
