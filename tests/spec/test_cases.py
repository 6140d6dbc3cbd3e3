"""Every case of ``spec/conformance``, run through one runner; what holds for the listings."""

from __future__ import annotations

import copy
import hashlib
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from conformance import ROOT, SUITES, ConformanceCase, cases

ALL = list(cases())
INDEX = json.loads((ROOT / "index.json").read_text("utf-8"))
#: What makes the cases that are not written by hand, relative to the folder of cases.
GENERATORS = (
    "bundle/generate.py",
    "golden/generate.py",
    "processing/generate.py",
    "processing/generate_sounds.py",
)


@pytest.mark.parametrize("case", ALL, ids=lambda case: f"{case.suite}:{case.id}")
def test_case(case: ConformanceCase) -> None:
    assert case.problem() is None


def test_the_index_names_each_listing_and_the_runner_each_suite() -> None:
    assert [entry["suite"] for entry in INDEX["suites"]] == list(SUITES)
    listed = {entry["file"] for entry in INDEX["suites"]}
    found = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("*/*.json")}
    assert listed == found


def test_ids_are_unique_in_their_suite() -> None:
    twice = [name for name, count in Counter((c.suite, c.id) for c in ALL).items() if count > 1]
    assert twice == []


def test_values_in_blobs_have_their_hash() -> None:
    for case in ALL:
        wanted = case.case.get("expected")
        if isinstance(wanted, dict) and "sha256" in wanted:
            blob = (case.folder / case.listing["blob"]).read_bytes()
            data = blob[wanted["offset"] : wanted["offset"] + wanted["bytes"]]
            assert hashlib.sha256(data).hexdigest() == wanted["sha256"], case.id


def test_the_cases_are_many_and_small() -> None:
    """A phone's test app carries them all."""
    refused = [case for case in ALL if case.suite == "bundle/files" and "error" in case.case]
    assert len(refused) >= 400
    assert len({case.case["error"] for case in refused}) >= 28
    sizes = {path: path.stat().st_size for path in ROOT.rglob("*") if path.is_file()}
    assert max(sizes.values()) < 1 << 20
    assert sum(n for path, n in sizes.items() if "__pycache__" not in path.parts) < 3 << 20


@pytest.mark.parametrize("name", GENERATORS)
def test_the_cases_are_what_their_generator_makes(name: str) -> None:
    command = [sys.executable, str(ROOT / name), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_generators_import_nothing_of_edgeserve() -> None:
    """The expected values come from elsewhere: a case cannot repeat a fault of ours."""
    for path in ROOT.rglob("*.py"):
        assert "edgeserve" not in {
            line.split()[1].split(".")[0]
            for line in path.read_text("utf-8").splitlines()
            if line.startswith(("import ", "from "))
        }, path


def test_the_command_counts_and_fails(tmp_path: Path) -> None:
    run = Path(__file__).with_name("run.py")
    done = subprocess.run(
        [sys.executable, run, "tasks"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "tasks/classification: 21 of 21"
    nothing = subprocess.run([sys.executable, run, "no-suite"], check=False, capture_output=True)
    assert nothing.returncode == 1


def first(suite: str, name: str = "") -> ConformanceCase:
    """A case of a suite, with a listing of its own to spoil."""
    found = next(case for case in ALL if case.suite == suite and name in ("", case.id))
    return found._replace(case=copy.deepcopy(found.case), listing=copy.deepcopy(found.listing))


def spoiled(suite: str, spoil: Any, name: str = "") -> str:
    """What the runner says to a case whose expectation is wrong."""
    case = first(suite, name)
    spoil(case.case)
    return case.problem() or "nothing"


def test_the_runner_notices_a_wrong_byte(tmp_path: Path) -> None:
    for suite, name, told in (
        ("processing/inputs", "decode small.png", "1 values differ, by 1 at most"),
        ("processing/sounds", "samples of pcm16.wav", "values differ"),
    ):
        case = first(suite, name)
        blob = bytearray((case.folder / case.listing["blob"]).read_bytes())
        blob[case.case["expected"]["offset"]] ^= 1  # of a sound: a unit in the last place
        (tmp_path / "blob").write_bytes(blob)
        case.listing["blob"] = str(tmp_path / "blob")
        assert told in (case.problem() or "")
        case.case["error"] = "EDGE-INPUT-099"
        assert "instead of EDGE-INPUT-099" in (case.problem() or "")


def test_the_runner_notices_a_wrong_expectation() -> None:
    def add(key: str, *path: Any) -> Any:
        def change(case: dict[str, Any]) -> None:
            place: Any = case[key]
            for step in path[:-1]:
                place = place[step]
            place[path[-1]] += 1e-2 if isinstance(place[path[-1]], float) else 1

        return change

    def other(key: str, value: object) -> Any:
        return lambda case: case.update({key: value})

    assert "boxes: gave" in spoiled("processing/readings", add("expected", 0, "boxes", 0, 2))
    assert "ids: gave" in spoiled("processing/texts", add("expected", "ids", 1))
    assert "attention_mask: gave" in spoiled(
        "processing/batches", add("expected", "attention_mask", 0, -1)
    )
    assert "is off by" in spoiled("processing/vectors", add("expected", "values", 0))
    assert "units: gave" in spoiled("tasks/units", add("units", 1))
    assert "nearest: gave" in spoiled("tasks/neighbours", add("nearest", 0))
    assert "margin: gave" in spoiled("tasks/classification", other("margin", -1.0))
    assert "sha256 and model_id" in spoiled("bundle/files", lambda c: c["opens"].update(sha256=""))
    assert "instead of" in spoiled("bundle/files", other("error", "EDGE-BUNDLE-001"))
    assert "holds: gave" in spoiled("golden/tensors", lambda c: c["expected"].update(holds=False))
    assert "tiers: gave" in spoiled("selection/plans", lambda c: c["expected"].update(tiers=[]))
    assert "chose" in spoiled("selection/choice", lambda c: c["expected"].update(chosen="z"))
    assert "answer" in spoiled(
        "fallback/calls", lambda c: c["calls"][0]["expected"].update(answer="b")
    )
    assert "gave" in spoiled("fallback/breaker", lambda c: c["events"][0].__setitem__(2, False))
    assert "title: gave" in spoiled("errors/codes", other("title", "another"))
