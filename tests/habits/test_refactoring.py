"""The proofs of a restructuring see what they are to see: differences, and nothing that varies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dev.refactoring.compare_archives import Contents
from dev.refactoring.compare_archives import compare as compare_contents
from dev.refactoring.compare_definitions import Renames
from dev.refactoring.snapshot import compare, normalise

SNAPSHOT = Path(__file__).parents[2] / "dev" / "refactoring" / "snapshot-0.1.json"


def snapshot(codes: list[str], **answer: Any) -> dict[str, Any]:
    return {"codes": codes, "commands": {"inspect": {"exit": 0, "answer": answer}}}


def test_what_varies_is_left_out_and_the_rest_stays() -> None:
    value = {
        "run_ms": 3.2,
        "seconds": 0,
        "made": "2026-01-01",
        "sha256": "ab",
        "score": 0.123456789,
        "path": "/tmp/x/out.edge",
        "text": "took 12.5 ms of 3 cores",
    }
    assert normalise(value, "/tmp/x") == {
        "run_ms": "<varies>",
        "seconds": 0,
        "made": "<varies>",
        "sha256": "ab",
        "score": 0.12346,
        "path": "<scratch>/out.edge",
        "text": "took <n> ms of 3 cores",
    }


def test_artifacts_have_one_order() -> None:
    rows = [{"format": "tflite", "precision": "fp32"}, {"format": "onnx", "precision": "fp32"}]
    assert normalise(rows) == normalise(rows[::-1])


def test_long_lists_become_a_digest_that_tells_them_apart() -> None:
    one, other = (normalise([f"{word}{i}" for i in range(50)]) for word in "ab")
    assert one != other
    assert one.startswith("50, ")


def test_sentences_additions_and_differences_are_told_apart() -> None:
    old = snapshot(["EDGE-A-001", "EDGE-A-002"], sha256="ab", hint="do", rows=[1])
    new = snapshot(["EDGE-A-001", "EDGE-A-003"], sha256="cd", hint="act", rows=[1, 2], more=1)
    differences, sentences, additions = compare(old, new)
    assert differences == [
        "code EDGE-A-002 is gone",
        "commands.inspect.answer.sha256: 'ab' -> 'cd'",
    ]
    assert sentences == ["commands.inspect.answer.hint: 'do' -> 'act'"]
    assert additions == [
        "code EDGE-A-003",
        "commands.inspect.answer.rows[1]: 2",
        "commands.inspect.answer.more: 1",
    ]
    assert compare(old, old) == ([], [], [])


def test_more_cases_are_an_addition_and_fewer_a_difference() -> None:
    few, many = ({"codes": [], "conformance": {"a.json": n}} for n in (3, 4))
    assert compare(few, many) == ([], [], ["conformance.a.json: 3 -> 4"])
    assert compare(many, few) == (["conformance.a.json: 4 -> 3"], [], [])


def test_a_field_that_is_gone_is_a_difference() -> None:
    assert compare(snapshot([], sha256="ab"), snapshot([]))[0]


@pytest.mark.parametrize("part", ["modules", "data", "source"])
def test_a_release_that_lost_a_part_is_found(part: str) -> None:
    renames = Renames({"edgeserve.old": "edgeserve.new"}, {}, {})
    old = Contents(*map(frozenset, (["edgeserve.old"], ["edgeserve/py.typed"], ["edgeserve.old"])))
    new = Contents(*map(frozenset, (["edgeserve.new"], ["edgeserve/py.typed"], ["edgeserve.new"])))
    assert compare_contents(old, new, renames, {}) == []
    assert compare_contents(old, new._replace(**{part: frozenset()}), renames, {})


def test_every_part_of_a_divided_module_is_looked_for() -> None:
    renames, none = Renames({}, {}, {}), frozenset[str]()
    old = Contents(frozenset({"edgeserve.a"}), none, frozenset({"edgeserve.a"}))
    new = Contents(frozenset({"edgeserve.b"}), none, frozenset({"edgeserve.b"}))
    divided = {"edgeserve.a": ["edgeserve.b", "edgeserve.c"]}
    assert compare_contents(old, new, renames, divided) == [
        "module edgeserve.a is not at edgeserve.c"
    ]


def test_the_snapshot_of_the_first_release_is_whole() -> None:
    """Later revisions are compared with it: 394 codes, twelve commands and more."""
    old = json.loads(SNAPSHOT.read_text("utf-8"))
    assert SNAPSHOT.stat().st_size <= 300_000
    assert len(old["codes"]) == 394
    assert len(old["commands"]) >= 12
    assert {each["exit"] for each in old["commands"].values()} >= {0, 2, 3}
    assert sum(old["conformance"].values()) > 1000
