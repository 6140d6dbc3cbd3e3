"""Random programs: drawn from a seed, judged against PyTorch, made small; rows are kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from dev import fuzz_convert
from dev.fuzz.generate import generate
from dev.fuzz.judge import excess, judge
from dev.fuzz.program import Input, Program, Step, evaluate, inputs_of, module_of, source
from dev.fuzz.shrink import shrink, valid
from dev.zoo.run import Worker
from edgeserve.backends.onnx import export
from edgeserve.backends.torch.passes.fx_utils import insert, overloads, replace_each

SMALL = Program(
    0,
    (Input("x0", "float32", (2, 3), -2, 2), Input("x1", "int64", (3,), -9, 9)),
    (
        Step("scale", ("v0",), "x0 * 2", "element"),
        Step("tanh", ("v1",), "torch.tanh(v0)", "element"),
        Step("sort", ("v2", "v3"), "torch.sort(v1 + x1)", "element"),
        Step("sum", ("v4",), "v0.sum(1)", "whole"),
    ),
    ("v2", "v3", "v4"),
)


@pytest.mark.parametrize("seed", range(4))
def test_a_seed_is_one_program_whose_source_answers_as_its_steps(seed: int) -> None:
    program = generate(seed)
    assert source(program) == source(generate(seed)) != source(generate(seed + 100))
    assert 4 <= len(program.steps) <= 10
    module = module_of(program)
    for inputs in inputs_of(program):
        found = module(*inputs)
        found = found if isinstance(found, tuple) else (found,)
        assert all(map(torch.equal, found, evaluate(program, inputs)))
        exact = evaluate(program, inputs, noise=0)
        for one, other in zip(found, exact, strict=True):
            torch.testing.assert_close(one.double(), other.double(), atol=1e-2, rtol=1e-2)


def test_a_program_is_made_small_while_its_fault_stays() -> None:
    def fails(program: Program) -> bool:
        return valid(program) and any("tanh" in step.call for step in program.steps)

    small = shrink(SMALL, fails)
    assert [step.call for step in small.steps] == ["torch.tanh(v0)"]
    assert [(each.name, each.shape) for each in small.inputs] == [("v0", (2, 3))]
    assert small.outputs == ("v1",)


def test_a_wrong_lowering_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(module: Any) -> bool:
        erf = torch.ops.aten.erf.default
        return replace_each(module, overloads("tanh"), lambda at: insert(at, erf, at.args[0]))

    assert judge(SMALL, "onnx")["status"] == "right"
    monkeypatch.setattr(export, "_PASSES", (*export._PASSES, wrong))
    row = judge(SMALL, "onnx")
    assert row["status"] == "wrong"
    assert "v2" in row["said"]


def test_an_error_is_measured_by_what_rounding_does() -> None:
    wanted = torch.tensor([1.0, 2.0])
    exact = wanted.double()
    assert excess(wanted, exact, [exact], wanted + 1e-3) > 1
    assert excess(wanted, exact, [exact + 1e-3], wanted + 1e-3) < 1
    assert excess(wanted, exact, [exact], torch.tensor([1.0, float("nan")])) > 1
    assert excess(wanted.long(), exact, [exact], torch.tensor([1, 2], dtype=torch.int32)) == 0
    assert excess(wanted.long(), exact, [exact], torch.tensor([1, 3])) > 1


def test_a_crash_is_a_row_and_rows_are_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Seed 1 takes its worker down; another one answers for seed 2."""
    (tmp_path / "crashing.py").write_text(
        "import os, sys\n"
        "for line in sys.stdin:\n"
        "    if '\"seed\": 1' in line: os.abort()\n"
        '    print(\'{"status": "right", "format": "onnx"}\', flush=True)\n'
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    rows = tmp_path / "rows.jsonl"
    monkeypatch.setattr(fuzz_convert, "worker_of", lambda _: Worker(tmp_path / "log", "crashing"))
    for _ in range(2):
        fuzz_convert.run(range(3), ["onnx"], rows, workers=1)
    found = [json.loads(line) for line in rows.read_text().splitlines()]
    assert [row["status"] for row in found] == ["right", "crash", "right"]
    assert found[1]["code"] == -6
    assert "fault: 1 onnx crash -6" in fuzz_convert.summary(found)
    capsys.readouterr()
