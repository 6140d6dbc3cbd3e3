"""Decisions: ``tasks/cases.json``, its neighbours, and ``tasks/units.json``."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from edgeserve.errors import EdgeError
from edgeserve.tasks import (
    DecisionRule,
    compare,
    decided,
    describe,
    margin,
    same,
    same_top,
    sure_margin,
)
from edgeserve.tasks.embedding.device import nearest_neighbours
from edgeserve.tasks.values import AnyRecord
from edgeserve.types.base import decode
from edgeserve.types.records import Record

__all__ = ["check_decision", "check_neighbours", "check_units", "record"]

Json = dict[str, Any]


def record(value: Json) -> Record:
    """A record out of its JSON."""
    return decode(json.dumps(value), AnyRecord)


def check_decision(case: Json, *_: object) -> str | None:
    """Two classifications: whether they decide the same, and how sure the reference is."""
    reference, answer = record(case["reference"]), record(case["answer"])
    try:
        alike = same(reference, answer)
    except EdgeError as error:
        return None if error.code == case.get("error") else f"raised {error}"
    if "error" in case:
        return f"gave {alike} instead of {case['error']}"
    found = {
        "same": alike,
        "same_top": same_top(reference, answer, case["k"]),
        "margin": margin(reference),
        "decided": decided(reference),
        "describe": describe(reference),
    }
    wrong = [name for name, value in found.items() if value != case[name]]
    return f"{wrong[0]}: gave {found[wrong[0]]!r}" if wrong else None


def check_neighbours(case: Json, listing: Json, *_: object) -> str | None:
    """A set of vectors: each one's nearest neighbour, its lead, and whether that is decided."""
    found, sure = nearest_neighbours(np.array(case["vectors"], np.float64))
    if found.tolist() != case["nearest"]:
        return f"nearest: gave {found.tolist()}"
    if np.abs(sure - np.array(case["margin"])).max(initial=0) > 1e-9:
        return f"margin: gave {sure.tolist()}"
    told = (sure >= listing["neighbour_margin"]).tolist()
    return None if told == case["decided"] else f"decided: gave {told}"


def check_units(case: Json, *_: object) -> str | None:
    """Records of many decisions: how many there are, and how many flip."""
    rule = DecisionRule(case["task"], sure_margin(case["task"]), case.get("threshold", 0.0))
    reference = record(case["reference"])
    answer = record(case["answer"]) if case["answer"] else None
    units = compare(rule, reference, answer, case.get("sure"))
    counted = [units.n, units.flips, units.decided, units.decided_flips]
    if counted != case["units"]:
        return f"units: gave {counted}"
    found = {"margin": margin(reference, rule)} | dict(units.figures)
    wanted = {"margin": case["margin"]} | case.get("figures", {})
    for name, value in wanted.items():
        got = found[name]
        if (got is None) != (value is None) or (got is not None and abs(got - value) > 1e-6):
            return f"{name}: gave {got}"
    return None
