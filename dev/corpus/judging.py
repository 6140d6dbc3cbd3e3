"""One case: made, measured by the oracle, judged by the gate; what comes of it is one line."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

from dev.corpus.case_builder import BuiltCase, build_case
from dev.corpus.cases import Case
from dev.corpus.kinds import KINDS
from dev.corpus.oracle.harm import measure, strays
from dev.corpus.oracle.runtimes import RuntimeFailed

#: Codes that tell of what the corpus itself hands over: stored answers that cannot be read.
_OURS = ("EDGE-VALIDATE-010",)


def run_case(case: Case) -> dict[str, Any]:
    """Everything about a case, as JSON.

    The verdict is the gate's; "refused" where edgeserve ended with a coded error before there was
    one, which ships nothing either. "void": the artifact has nothing that the kind damages.
    """
    line: dict[str, Any] = {
        "case": case.name,
        "task": case.of.task,
        "format": case.format,
        "precision": case.precision,
        "kind": case.kind,
        "place": KINDS[case.kind].place,
        "severity": case.severity,
        "value": case.value,
        "reasons": [],
    }
    started = time.process_time()
    try:
        placed = build_case(case)
    except LookupError as error:
        return line | {"verdict": "void", "why": str(error)}
    except Exception as error:
        return line | _refusal(error)
    line["make_s"] = round(time.process_time() - started, 2)
    line |= _judged(placed)
    return line | _measured(case, placed)


def _refusal(error: Exception) -> dict[str, Any]:
    """A coded error is an answer of edgeserve; anything else is a fault of ours, or worse."""
    from edgeserve.errors import EdgeError

    if isinstance(error, EdgeError) and error.code not in _OURS:
        return {"verdict": "refused", "why": str(error).splitlines()[0], "reasons": [error.code]}
    return {"verdict": "broken", "why": f"{type(error).__name__}: {error}"[:400]}


def _judged(placed: BuiltCase) -> dict[str, Any]:
    from edgeserve.validate.judge import judge
    from edgeserve.validate.requests import JudgeRequest

    request = JudgeRequest(
        artifact=placed.artifact,
        root=str(placed.root),
        source_folder=str(placed.source),
        samples=str(placed.samples),
        threads=1,
    )
    started = time.process_time()
    try:
        report = judge(request)
    except Exception as error:
        return _refusal(error)
    said = report.judgement
    return {
        "verdict": said.verdict,
        "reasons": [reason.code for reason in said.reasons],
        "why": said.reasons[0].message if said.reasons else "",
        "judge_s": round(time.process_time() - started, 2),
    }


def _measured(case: Case, placed: BuiltCase) -> dict[str, Any]:
    """Harm by the oracle; and for a float32 file how far it strays on equal tensors."""
    started = time.process_time()
    try:
        harm = measure(case.of, placed.artifact, placed.root, placed.source)
        found: dict[str, Any] = dataclasses.asdict(harm)
        if case.precision == "fp32" and KINDS[case.kind].place != "processing":
            found["strays"] = strays(case.of, placed.artifact, placed.root, placed.source)
    except RuntimeFailed as error:  # it harms everybody
        found = {"share": 1.0, "lower": 1.0, "upper": 1.0, "n": 0, "raw": 1.0, "dead": str(error)}
    except Exception as error:
        return {"verdict": "broken", "why": f"oracle: {type(error).__name__}: {error}"[:400]}
    return {"harm": found, "oracle_s": round(time.process_time() - started, 2)}
