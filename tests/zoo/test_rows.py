"""What the zoo says of a file: fp16 by the gate's limits, and rows of the code they come from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dev.zoo import revision, run
from dev.zoo.fp16 import decided_flips, judged, noise, worst
from dev.zoo.packs import measure_pack
from dev.zoo.table import write
from edgeserve.types.reports import Limits, OutputDiff
from edgeserve.validate.verdict import Evidence, snr_verdict

VALUES = np.linspace(-3, 3, 400, dtype=np.float32).reshape(40, 10)


def codes(wanted: np.ndarray, found: np.ndarray, name: str = "y") -> str:
    return str(judged([name], [[wanted]], [[found]])["codes"][0])


def test_noise_is_in_decibels() -> None:
    assert noise(VALUES, VALUES) == 999
    offset = np.sqrt(VALUES.astype(np.float64).var() / 1e4)
    assert noise(VALUES, VALUES + offset) == pytest.approx(40, abs=0.1)


@pytest.mark.parametrize(
    ("decibels", "code"),
    [(45, ""), (35, "EDGE-CHECK-064"), (11, "EDGE-CHECK-064"), (9, "EDGE-CHECK-063")],
)
def test_the_limits_are_the_gates(decibels: float, code: str) -> None:
    """The gate judges as much noise alike."""
    offset = np.sqrt(VALUES.astype(np.float64).var() / 10 ** (decibels / 10))
    assert codes(VALUES, (VALUES + offset).astype(np.float32)) == code
    diff = OutputDiff(
        output="y",
        scale=3.0,
        max_abs=float(offset),
        mean_abs=float(offset),
        relative=0.1,
        worst="0",
        snr=decibels,
        channel_snr=decibels,
    )
    evidence = Evidence(precision="fp16", task="tensors", limits=Limits(), outputs=(diff,))
    verdict, reasons = snr_verdict(evidence)
    assert [reason.code for reason in reasons] == ([code] if code else [])
    assert verdict == {"": "pass", "EDGE-CHECK-064": "degraded", "EDGE-CHECK-063": "fail"}[code]


def test_what_overflows_or_is_another_number_is_refused() -> None:
    over = VALUES.copy()
    over[3, 3] = np.inf
    assert codes(VALUES, over) == "EDGE-CHECK-005"
    assert codes(over, over) == ""
    assert codes(np.array([3, 4]), np.array([3, 5])) == "EDGE-CHECK-032"
    assert codes(VALUES, VALUES[:3]) == "EDGE-CHECK-004"


def test_a_decision_flips_where_the_reference_is_sure() -> None:
    wanted = np.array([[0.0, 3.0, 1.0], [1.0, 1.001, 0.0]], np.float32)
    other = wanted[:, [1, 0, 2]]
    assert decided_flips(wanted, other) == 1
    assert decided_flips(wanted[1:], other[1:]) == 0
    many = np.repeat(wanted[:1], 5000, 0)
    many[0] = [3.0, 0.0, 1.0]
    assert codes(np.repeat(wanted[:1], 5000, 0), many, "logits") == "EDGE-CHECK-040"


def test_the_worst_code_counts() -> None:
    assert worst(["EDGE-CHECK-064", "EDGE-CHECK-005", "EDGE-CHECK-063"]) == "EDGE-CHECK-005"


def _cell(good: bool = True) -> dict[str, Any]:
    return {
        "ok": good,
        "difference": 0.0,
        "seconds": 1.0,
        "outputs": [0.0, 0.0],
        "route": "r",
        "fp16": {"noise": [60.0, 31.0], "codes": ["", "EDGE-CHECK-064"], "seconds": 1.0},
    }


def test_a_pack_tells_fp16_of_each() -> None:
    def measured(location: str, formats: Any) -> dict[str, Any]:
        export = {"ok": True, "seconds": 2.0, "dynamic": False, "moves": True}
        return {
            "name": location,
            "export": export,
            "outputs": ["a__0", "b__0"],
            "still": [],
            **{each: _cell() for each in formats},
        }

    one, two = measure_pack(measured, ["ops:a", "ops:b"], ("onnx",))
    assert one["onnx"]["fp16"]["noise"] == [60.0]
    assert two["onnx"]["fp16"]["codes"] == ["EDGE-CHECK-064"]
    assert "tflite" not in one


def test_a_pack_without_weights_is_not_taken_apart() -> None:
    asked = []

    def measured(location: str, formats: Any) -> dict[str, Any]:
        asked.append(location)
        cell = _cell() | {"fp16": {"ok": False, "code": "EDGE-QUANTIZE-011"}}
        export = {"ok": True, "seconds": 2.0, "dynamic": False, "moves": True}
        return {
            "name": location,
            "export": export,
            "outputs": ["a__0", "b__0"],
            "still": [],
            "tflite": cell,
        }

    rows = list(measure_pack(measured, ["ops:a", "ops:b"], ("tflite",)))
    assert asked == ["ops:a+b"]
    assert {row["tflite"]["fp16"]["code"] for row in rows} == {"EDGE-QUANTIZE-011"}


def test_cells_of_other_code_are_stale(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert revision.stale(None, "plain:gru") == revision.FORMATS
    mine = {each: revision.revision("plain", each) for each in revision.FORMATS}
    assert len(set(mine.values())) == 3
    assert revision.stale({"revisions": mine}, "plain:gru") == ()
    assert revision.stale({"revisions": mine | {"tflite": "0"}}, "plain:gru") == ("tflite",)
    monkeypatch.setattr(revision, "HERE", tmp_path / "dev" / "zoo")
    monkeypatch.setattr(revision, "ROOT", tmp_path)
    (tmp_path / "dev" / "zoo").mkdir(parents=True)
    for name in ("torch", "onnx", "tflite"):
        (tmp_path / "backends" / name).mkdir(parents=True)
    for name in revision._MEASURING:
        (tmp_path / "dev" / "zoo" / f"{name}.py").write_text("1")
    fresh = revision.revision.__wrapped__
    before = {each: fresh("plain", each) for each in ("onnx", "tflite")}
    (tmp_path / "backends" / "tflite" / "export.py").write_text("2")
    assert fresh("plain", "onnx") == before["onnx"]
    assert fresh("plain", "tflite") != before["tflite"]
    (tmp_path / "backends" / "torch" / "rules.py").write_text("3")
    assert fresh("plain", "onnx") != before["onnx"]


def test_a_row_is_made_of_the_last_cells(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(run, "OUT", tmp_path)
    export = {"ok": True, "seconds": 1.0, "dynamic": True, "moves": True}
    first = {
        "name": "plain:a",
        "export": export,
        "onnx": _cell(),
        "tflite": _cell(False),
        "revisions": {"onnx": "1", "tflite": "1"},
    }
    then = {"name": "plain:a", "export": export, "tflite": _cell(), "revisions": {"tflite": "2"}}
    lines = [json.dumps(row) + "\n" for row in (first, then)]
    (tmp_path / "plain.jsonl").write_text("".join(lines))
    (row,) = run.rows_of("plain").values()
    assert row["revisions"] == {"onnx": "1", "tflite": "2"}
    assert row["tflite"]["ok"]
    page = tmp_path / "zoo.md"
    write({"plain": {"plain:a": row}}, page)
    assert "| plain | 1 | 1 | 1 | 0 | 0, 1, 0 | 0, 1, 0 | 0, 0, 1 |" in page.read_text()
    assert "degraded 31 dB" in page.read_text()
