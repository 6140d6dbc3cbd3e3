"""What a report rests on, and what nobody should read into it."""

from __future__ import annotations

import math

from edgeserve.report.load import Loaded
from edgeserve.report.page import Fact
from edgeserve.report.story import names, not_run_here, reference_words
from edgeserve.report.words import artifact_name, clean, listed, percent, plural
from edgeserve.types.artifact import Artifact
from edgeserve.types.base import Number, plain
from edgeserve.types.reports import Report

__all__ = ["compared", "not_compared"]


def compared(loaded: Loaded) -> tuple[Fact, ...]:
    """What the verdicts rest on; what is the same for several artifacts is said once."""
    facts: dict[tuple[str, str], list[str]] = {}
    for report in loaded.reports.values():
        who = artifact_name(report.format, report.precision)
        for name, value in _facts(loaded, report):
            facts.setdefault((name, value), []).append(who)
    total = len(loaded.reports)
    ordered = sorted(facts.items(), key=lambda item: _ORDER.index(item[0][0]))
    return tuple(
        Fact(name if len(who) == total else f"{name}, {listed(who)}", value)
        for (name, value), who in ordered
    )


_ORDER = ("inputs", "compared with", "preprocessing", "answers", "evidence", "tensors")


def _facts(loaded: Loaded, report: Report) -> list[tuple[str, str]]:
    facts = [
        ("inputs", clean(report.inputs)),
        ("compared with", reference_words(loaded, report)),
        ("preprocessing", clean(report.preprocessing)),
    ]
    if report.decisions:
        stats = report.decisions
        facts.append(("answers", _counts(report)))
        facts.append(
            (
                "evidence",
                f"{_count(stats.decided.n_eff)}; the smallest harm it could have seen is "
                f"{percent(stats.minimum_harm)} of clear answers changing",
            )
        )
    facts.append(("tensors", plural(len(report.outputs), "output")))
    return facts


def _count(n_eff: Number) -> str:
    known = plain(n_eff)
    return plural(round(known), "independent input") if math.isfinite(known) else "unknown inputs"


def _counts(report: Report) -> str:
    stats = report.decisions
    assert stats is not None
    text = (
        f"{stats.raw.count} of {stats.raw.n} changed; of the {stats.decided.n} clear ones, "
        f"{stats.decided.count}"
    )
    if stats.top5:
        text += f"; the best five differ on {stats.top5.count} of {stats.top5.n}"
    return text


def not_compared(loaded: Loaded) -> tuple[Fact, ...]:
    """What nobody should read into this report."""
    facts = []
    reports = loaded.reports.values()
    if not reports:
        facts.append(Fact("Proof", "no artifact has been validated"))
    if any("not compared" in r.preprocessing for r in reports):
        facts.append(
            Fact(
                "Preprocessing",
                "declared, not compared: both sides used the packaged steps, so a difference from "
                "your server's own preprocessing would not show (give --reference module:fn)",
            )
        )
    absent = [a for a in loaded.manifest.artifacts if not_run_here(a)]
    if absent:
        facts.append(Fact("Not run here", f"{names(absent)}: no engine for it on this machine"))
    others = [a.name for a in absent]
    if any(r.decisions is None and f"{r.format}-{r.precision}" not in others for r in reports):
        facts.append(Fact("Answers", "some artifacts were compared by their numbers alone"))
    facts += _engines(loaded)
    facts.append(Fact("Accuracy", "true labels: the reference's answers are the measure"))
    facts.append(Fact("Devices", f"any other than where this ran: {_where(loaded)}"))
    unmeasured = [a for a in loaded.manifest.artifacts if a.name not in loaded.measurements]
    if unmeasured:
        facts.append(Fact("Cost", f"{names(unmeasured)} was not measured"))
    return tuple(facts)


def _engines(loaded: Loaded) -> list[Fact]:
    """Engines that stand in for others, as the proof says it behind their names."""
    said: dict[str, list[Artifact]] = {}
    for artifact in loaded.manifest.artifacts:
        by = artifact.judgement.executed_by if artifact.judgement else ""
        if ";" in by:
            said.setdefault(clean(by), []).append(artifact)
    return [Fact("Engine", f"{names(some)} ran on {by}") for by, some in said.items()]


def _where(loaded: Loaded) -> str:
    engines = {
        f"{r.runtime.name} {r.runtime.version} ({r.runtime.delegate}), {r.environment.machine}"
        for r in loaded.reports.values()
        if r.runtime.version
    } | {
        f"{m.runtime.name} {m.runtime.version} ({m.runtime.delegate}), {m.environment.machine}"
        for some in loaded.measurements.values()
        for m in some
    }
    return clean(listed(sorted(engines))) or "nowhere yet"
