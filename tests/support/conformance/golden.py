"""Golden answers: ``golden/records.json`` and ``golden/tensors.json``."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np

from conformance.decisions import record
from edgeserve.golden_compare import GoldenComparison, compare_arrays, compare_records
from edgeserve.tasks import DecisionRule, sure_margin
from edgeserve.types.samples import GoldenField

__all__ = ["check_golden_records", "check_golden_tensors", "tensor"]

Json = dict[str, Any]


def tensor(value: Json) -> np.ndarray:
    """An array out of its dtype, shape and values."""
    numbers = [float(x) if isinstance(x, str) else x for x in value["values"]]
    return np.array(numbers).astype(value["dtype"]).reshape(value["shape"])


def check_golden_records(case: Json, *_: object) -> str | None:
    """Answers to several golden cases, compared with the reference's records."""
    rule = DecisionRule(case["task"], sure_margin(case["task"]), case.get("threshold", 0.0))
    references = [record(each) for each in case["references"]]
    answers = [each and record(each) for each in case["answers"]]
    found = compare_records(references, answers, case["tolerances"], rule)
    pairs = zip(found, case["expected"], strict=True)
    return next((told for pair in pairs if (told := _differs(*pair))), None)


def check_golden_tensors(case: Json, *_: object) -> str | None:
    """Named outputs, each part on its own scale."""
    found = compare_arrays(
        {name: tensor(each) for name, each in case["outputs"].items()},
        {name: tensor(each) for name, each in case["answer"].items()},
        case["tolerance"],
        msgspec.convert(case["fields"], list[GoldenField]),
    )
    return _differs(found, case["expected"])


def _differs(found: GoldenComparison, wanted: Json) -> str | None:
    if (not found.wrong) is not wanted["holds"]:
        return f"holds: gave {found.wrong or 'it holds'}"
    for name in ("difference", "margin"):
        if name in wanted and not _close(getattr(found, name), wanted[name]):
            return f"{name}: gave {getattr(found, name)}, not {wanted[name]}"
    return None


def _close(got: float | None, wanted: float | str | None) -> bool:
    """Within a millionth: records hold float32."""
    if got is None or wanted is None:
        return got is wanted
    return math.isclose(got, float(wanted), rel_tol=1e-6, abs_tol=1e-6)
