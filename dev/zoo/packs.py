"""Small nets measured many at a time: a file for a pack, each with outputs of its own.

A conversion costs seconds whatever is in it. Where a format refuses a pack, its halves are tried,
down to the operator that is refused; where it takes it, each operator's own outputs are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

SIZE = 12

_FORMATS = ("onnx", "tflite", "coreml")
_LIMIT = 1e-3

#: Nothing there that could be stored in 16 bits.
_WEIGHTLESS = "EDGE-QUANTIZE-011"

Measure = Callable[[str, Sequence[str]], dict[str, Any]]


def packs(names: Sequence[str]) -> list[list[str]]:
    """Names in packs of at most `SIZE`."""
    return [list(names[start : start + SIZE]) for start in range(0, len(names), SIZE)]


def measure_pack(
    measure: Measure, names: Sequence[str], formats: Sequence[str] = _FORMATS
) -> Iterator[dict[str, Any]]:
    """A row for each operator.

    Args:
        measure: Gives the row of ``group:name+name`` for some formats.
        names: ``group:name``, all of one group.
        formats: What to convert to.
    """
    group = names[0].partition(":")[0]
    together = "+".join(name.partition(":")[2] for name in names)
    whole = measure(f"{group}:{together}", formats)
    if len(names) == 1:
        yield {**whole, "name": names[0]}
        return
    refused = [each for each in formats if _refused(whole, each)]
    again: dict[str, dict[str, Any]] = {}
    if refused:
        middle = len(names) // 2
        for half in (names[:middle], names[middle:]):
            again |= {row["name"]: row for row in measure_pack(measure, half, refused)}
    for name in names:
        yield _own(whole, name, len(names)) | again.get(name, {}) | _kept(whole, name, refused)


def _refused(row: dict[str, Any], format: str) -> bool:
    cell = row.get(format, {})
    return not row["export"]["ok"] or "difference" not in cell or _unhalved(cell)


def _unhalved(cell: dict[str, Any]) -> bool:
    """Whether fp16 failed on account of some operator; that none has weights holds for each."""
    half = cell.get("fp16", {"noise": ()})
    return "noise" not in half and half["code"] != _WEIGHTLESS


def _own(whole: dict[str, Any], name: str, count: int) -> dict[str, Any]:
    """What a pack's row says of one operator, its formats left out."""
    export = whole["export"]
    if not export["ok"]:
        return {"name": name}
    mine = _mine(whole, name)
    still = all(output in whole["still"] for output in mine)
    share = round(export["seconds"] / count, 2)
    return {"name": name, "export": {**export, "moves": not still, "seconds": share}}


def _kept(whole: dict[str, Any], name: str, refused: Sequence[str]) -> dict[str, Any]:
    """The cells of the formats that took the pack, with this operator's own difference."""
    cells = {}
    for format in _FORMATS:
        cell = whole.get(format)
        if cell is None or format in refused:
            continue
        places = [whole["outputs"].index(output) for output in _mine(whole, name)]
        worst = max(cell["outputs"][place] for place in places)
        good = worst <= _LIMIT
        count = len({output.rpartition("__")[0] for output in whole["outputs"]})
        cells[format] = {
            "ok": good,
            "difference": worst,
            "seconds": round(cell["seconds"] / count, 2),
            "route": cell["route"],
            **({} if good else {"code": "WRONG"}),
        }
        half = cell.get("fp16", {})
        if "noise" not in half:
            cells[format] |= {"fp16": half} if half else {}
        else:
            cells[format]["fp16"] = {
                "noise": [half["noise"][place] for place in places],
                "codes": [half["codes"][place] for place in places],
                "seconds": round(half["seconds"] / count, 2),
            }
    return cells


def _mine(whole: dict[str, Any], name: str) -> list[str]:
    bare = name.partition(":")[2]
    return [output for output in whole["outputs"] if output.rpartition("__")[0] == bare]
