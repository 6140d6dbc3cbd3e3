"""The tutorial docs/tutorials/add-a-task.md runs: one folder, one line in a copy of the package."""

from __future__ import annotations

from pathlib import Path

from testkit.tutorials import run_tutorial


def test_the_task_of_the_page_is_one_folder_and_one_line(tmp_path: Path) -> None:
    done = run_tutorial("add-a-task.md", tmp_path)
    assert {Path(name).parent for name in done.added} == {Path("src/edgeserve/tasks/rating")}
    assert done.lines == 1
    assert done.passed == 6
