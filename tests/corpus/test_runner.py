"""Results are kept by line, and what is done is not done again."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from dev.corpus import runner
from dev.corpus.cases import Case, case, cases
from dev.corpus.kinds import KINDS
from dev.corpus.revision import judged_by


def test_names_and_cases_agree() -> None:
    held = cases()
    assert len({each.name for each in held}) == len(held)
    assert all(case(each.name) == each for each in held[::37])


def test_there_are_enough_kinds() -> None:
    assert len(KINDS) - 1 >= 30
    swept = {each.kind for each in cases()}
    assert swept == set(KINDS)


def test_a_line_that_was_cut_off_is_run_again(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text('{"case": "a", "verdict": "pass"}\n{"case": "b", "ver')
    assert list(runner.results(path)) == ["a"]


class Worker:
    """Answers by the case's severity: 0 passes, else the process dies."""

    returncode = -11

    def wait(self) -> int:
        return self.returncode


def test_a_case_that_takes_its_process_down_is_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def ask(_: object, each: Case) -> dict[str, object] | None:
        asked.append(each.name)
        line = {"case": each.name, "verdict": "pass", "value": each.value, "revision": judged_by()}
        return line if each.severity == 0 else None

    monkeypatch.setattr(runner, "_start", Worker)
    monkeypatch.setattr(runner, "_ask", ask)
    monkeypatch.setattr(runner, "_stop", lambda worker: None)
    held = [Case("digits_s0_w12", "onnx", "fp32", "scale-wrong", i) for i in range(3)]
    path = tmp_path / "results.jsonl"
    found = runner.run_all(held, path, workers=1)
    assert [found[each.name]["verdict"] for each in held] == ["pass", "crash", "crash"]
    runner.run_all(held, path, workers=1)
    assert len(asked) == 3
    assert len([json.loads(text) for text in path.read_text().splitlines()]) == 3


def test_workers_stay_out_of_each_others_way() -> None:
    held = [[Case(net, "onnx", "fp32", "honest", i)] for net in "aabbc" for i in (0,)]
    blocks, taken, other = runner._Blocks(held), [], []
    taken.append(blocks.take())
    thread = threading.Thread(target=lambda: other.extend([blocks.take(), blocks.take()]))
    thread.start()
    thread.join()
    taken += iter(blocks.take, None)
    assert [block[0].net for block in other if block] == ["b", "b"]
    assert [block[0].net for block in taken if block] == ["a", "a", "c"]
