"""The Python implementation's runner of the cases in ``spec/conformance``.

`SUITES` says which function checks a case of which suite; each returns what is wrong in a line, or
None. ``spec/conformance/README.md`` is the contract that runners of all languages keep.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from conformance import (
    bundles,
    decisions,
    errors,
    fallback,
    golden,
    images,
    readings,
    selection,
    sounds,
    texts,
)

__all__ = ["ROOT", "SUITES", "ConformanceCase", "cases"]

#: The folder of all cases.
ROOT = Path(__file__).resolve().parents[3] / "spec" / "conformance"

Check = Callable[[dict[str, Any], dict[str, Any], Path], str | None]
#: Check of a case by its suite's name: called with the case, its whole listing, and the folder
#: that the paths in it start from.
SUITES: dict[str, Check] = {
    "bundle/files": bundles.check_bundle_case,
    "processing/inputs": images.check_input_case,
    "processing/outputs": images.check_output_case,
    "processing/texts": texts.check_text_case,
    "processing/batches": texts.check_batch_case,
    "processing/vectors": texts.check_vector_case,
    "processing/sounds": sounds.check_sound_case,
    "processing/readings": readings.check_reading_case,
    "tasks/classification": decisions.check_decision,
    "tasks/neighbours": decisions.check_neighbours,
    "tasks/units": decisions.check_units,
    "golden/records": golden.check_golden_records,
    "golden/tensors": golden.check_golden_tensors,
    "selection/plans": selection.check_plans,
    "selection/choice": selection.check_choice,
    "selection/journal": selection.check_journal,
    "fallback/policy": fallback.check_policy,
    "fallback/local-only": fallback.check_local_only,
    "fallback/triggers": fallback.check_triggers,
    "fallback/calls": fallback.check_call,
    "fallback/budget": fallback.check_budget,
    "fallback/hedge": fallback.check_hedge,
    "fallback/breaker": fallback.check_breaker,
    "fallback/egress": fallback.check_egress,
    "errors/format": errors.check_format,
    "errors/codes": errors.check_code,
}


class ConformanceCase(NamedTuple):
    """One case, with what its check needs."""

    suite: str
    id: str
    case: dict[str, Any]
    listing: dict[str, Any]
    folder: Path

    def problem(self) -> str | None:
        """Run the case: what is wrong, or None."""
        try:
            return SUITES[self.suite](self.case, self.listing, self.folder)
        except Exception as error:
            return f"{type(error).__name__}: {error}"


def cases() -> Iterator[ConformanceCase]:
    """Every case of every suite that the index lists."""
    index = json.loads((ROOT / "index.json").read_text("utf-8"))
    for entry in index["suites"]:
        path = ROOT / entry["file"]
        listing = json.loads(path.read_text("utf-8"))
        for case in listing[entry["cases"]]:
            yield ConformanceCase(entry["suite"], case["id"], case, listing, path.parent)
