"""Lines and artifacts of other code are stale; what nothing has changed for stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from dev.corpus import revision
from dev.corpus.cases import Case
from dev.corpus.runner import stale


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A repository that has all the paths which are hashed."""
    root = tmp_path / "repo"
    for name in revision._JUDGED:
        path = root / name
        if "." in path.name:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("one\n")
        else:
            path.mkdir(parents=True, exist_ok=True)
            (path / "code.py").write_text("one\n")
    return root


def test_every_path_that_is_hashed_is_there() -> None:
    assert len(revision.sources_hash(revision._JUDGED)) == 12


def test_a_path_that_is_gone_is_no_empty_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        revision.sources_hash(["validate"], tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        lambda p: p.write_text("two\n"),
        lambda p: p.rename(p.with_name("other.py")),
        lambda p: p.with_name("more.py").write_text(""),
    ],
)
def test_bytes_names_and_files_count(repo: Path, change: object) -> None:
    before = revision.sources_hash(["validate"], repo)
    assert before == revision.sources_hash(["validate", "validate"], repo)
    change(repo / "validate" / "code.py")  # type: ignore[operator]
    assert revision.sources_hash(["validate"], repo) != before


def test_what_is_no_code_does_not(repo: Path) -> None:
    before = revision.sources_hash(["validate"], repo)
    (repo / "validate" / "code.pyc").write_bytes(b"\0")
    assert revision.sources_hash(["validate"], repo) == before


def made(out: Path) -> list[str]:
    """Whatever of these is there."""
    held = ("weights", "nets/a/artifacts", "nets/a/samples", "nets/a/packaged", "results.jsonl")
    return [name for name in held if (out / name).exists()]


@pytest.mark.parametrize(
    ("changed", "left"),
    [
        (
            "dev/corpus/kinds.py",
            ["weights", "nets/a/artifacts", "nets/a/samples", "nets/a/packaged"],
        ),
        ("validate/code.py", ["weights", "nets/a/artifacts"]),
        ("backends/code.py", ["weights"]),
        ("dev/corpus/tasks/code.py", []),
    ],
)
def test_what_hangs_on_the_change_goes(
    repo: Path, tmp_path: Path, changed: str, left: list[str]
) -> None:
    out = tmp_path / "out"
    revision.clear_stale(out, repo)
    for name in ("weights", "nets/a/artifacts", "nets/a/samples", "nets/a/packaged"):
        (out / name).mkdir(parents=True)
    (out / "results.jsonl").write_text("")
    (repo / changed).write_text("two\n")
    gone = revision.clear_stale(out, repo)
    assert made(out) == [*left, "results.jsonl"]
    assert bool(gone) == (len(left) < 4)
    assert revision.clear_stale(out, repo) == []


def test_a_line_of_other_code_or_of_another_severity_is_stale() -> None:
    case = Case("digits_s0_w12", "onnx", "fp32", "scale-wrong", 1)
    line = {"value": 3.0, "revision": revision.judged_by()}
    assert not stale(case, line)
    assert stale(case, line | {"revision": "0" * 12})
    assert not stale(case, line | {"revision": "0" * 12}, keep=True)
    assert stale(case, line | {"value": 1.5}, keep=True)
    assert stale(case, {"value": 3.0})
