"""The tutorial docs/tutorials/add-a-step.md runs: one file in a copy of the package, no edit."""

from __future__ import annotations

from pathlib import Path

from testkit.tutorials import run_tutorial


def test_the_step_of_the_page_is_one_file(tmp_path: Path) -> None:
    done = run_tutorial("add-a-step.md", tmp_path)
    assert done.added == ["src/edgeserve/processing/steps/pad_square.py"]
    assert done.lines == 0
    assert done.passed == 6
