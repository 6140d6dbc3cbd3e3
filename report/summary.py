"""The report's statements: the headline, the evidence behind it, and what was not compared.

They say what the figures allow to be said, and not a word more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from edgeserve.report.formatting import (
    artifact_name,
    clean,
    join_phrase,
    percent,
    plural,
    scientific,
)
from edgeserve.report.load import WorkspaceContents
from edgeserve.report.view_model import Fact, Headline
from edgeserve.types.artifact import Artifact
from edgeserve.types.base import Number, plain
from edgeserve.types.reports import DecisionStats, Report

__all__ = [
    "artifact_names",
    "evidence_facts",
    "headline",
    "judged_by_tensors",
    "limitation_facts",
    "not_run_here",
    "reference_words",
]


#: Artifacts that are called by their names in a sentence; more are counted.
_MAX_NAMED = 2
_NOT_RUN = "EDGE-CHECK-002"


def reference_words(loaded: WorkspaceContents, report: Report | None) -> str:
    """Whom the artifacts were compared with, as the object of a sentence."""
    said = report.reference if report else ""
    if said in ("", "stored"):
        said = loaded.manifest.reference or said
    if said == "pt2":
        return "its PyTorch source"
    if said in ("", "stored"):
        return "the stored answers of its reference"
    return f"your server ({clean(said)})"


def _reference_short(loaded: WorkspaceContents, report: Report | None) -> str:
    """The same for a headline: its exact name stands below."""
    return reference_words(loaded, report).partition(" (")[0]


def not_run_here(artifact: Artifact) -> bool:
    """Whether nothing is known of an artifact because no engine for it is on this machine."""
    judgement = artifact.judgement
    return judgement is not None and any(r.code == _NOT_RUN for r in judgement.reasons)


def artifact_names(artifacts: Sequence[Artifact]) -> str:
    """All of them by name, as in a sentence."""
    return join_phrase([artifact_name(a.format, a.precision) for a in artifacts])


def headline(loaded: WorkspaceContents) -> Headline:
    """The verdict over all artifacts: the best ones speak, the others are counted."""
    artifacts, refused = loaded.manifest.artifacts, loaded.manifest.refused
    by = {v: [a for a in artifacts if a.verdict == v] for v in ("pass", "degraded", "unproven")}
    if by["pass"]:
        return _ready(loaded, by["pass"], _other_artifacts(loaded, by))
    if by["degraded"]:
        return _degraded(loaded, by["degraded"], _other_artifacts(loaded, by))
    if by["unproven"]:
        return _unproven(loaded, by["unproven"], _other_artifacts(loaded, by))
    if refused:
        one = len(refused) == 1
        count = "Its only conversion was" if one else f"All {len(refused)} conversions were"
        return Headline(
            "fail",
            "Not ready",
            "Nothing may ship yet.",
            f"{count} refused.",
            "The reasons stand below, each with what can be done.",
        )
    return Headline(
        "unproven",
        "Empty",
        "Nothing has been converted yet.",
        "This workspace holds no artifact.",
        "Run `edgeserve convert SOURCE -o OUT`, then render this report again.",
    )


def _subject(loaded: WorkspaceContents, artifacts: Sequence[Artifact]) -> str:
    """Who a sentence is about: by name while they are few, else how many of all."""
    total = len(loaded.manifest.artifacts) + len(loaded.manifest.refused)
    if len(artifacts) <= _MAX_NAMED:
        return artifact_names(artifacts)
    return f"{'All' if len(artifacts) == total else f'{len(artifacts)} of'} {total} conversions"


def _other_artifacts(loaded: WorkspaceContents, by: dict[str, list[Artifact]]) -> str:
    """What else there is beside those that the headline speaks of."""
    first = next((verdict for verdict in ("pass", "degraded", "unproven") if by[verdict]), "")
    absent = [a for a in by["unproven"] if not_run_here(a)]
    unproven = [a for a in by["unproven"] if not not_run_here(a)]
    parts = []
    if by["degraded"] and first != "degraded":
        parts.append(_counted(by["degraded"], "changes some answers", "change some answers"))
    if unproven and first != "unproven":
        parts.append(_counted(unproven, "is not proven", "are not proven"))
    if absent and first != "unproven":
        parts.append(_counted(absent, "was not run here", "were not run here"))
    if count := len(loaded.manifest.refused):
        parts.append(f"{count} {'was' if count == 1 else 'were'} refused")
    return f"{join_phrase(parts)}." if parts else ""


def _counted(artifacts: Sequence[Artifact], one: str, many: str) -> str:
    who = artifact_names(artifacts) if len(artifacts) <= _MAX_NAMED else str(len(artifacts))
    return f"{who} {one if len(artifacts) == 1 else many}"


def _ready(loaded: WorkspaceContents, artifacts: list[Artifact], also: str) -> Headline:
    reports = [r for a in artifacts if (r := loaded.reports.get(a.name))]
    who = _subject(loaded, artifacts)
    one = len(artifacts) == 1
    if not reports:
        sentence = f"{who} passed the gate."
        return Headline(
            "pass", "Ready", sentence, "The gate's report is not in this workspace.", also
        )
    whom = _reference_short(loaded, reports[0])
    decided = all(r.decisions for r in reports)
    verb = ("decide" if decided else "compute") + ("s" if one else "")
    evidence = _flip_evidence(reports) if decided else _tensor_evidence(reports)
    return Headline("pass", "Ready", f"{who} {verb} as {whom} does.", evidence, also)


def _flip_evidence(reports: Sequence[Report]) -> str:
    """What the decisions say, of the artifact that says least."""
    least = max(reports, key=lambda r: plain(r.decisions.decided.upper) if r.decisions else 1.0)
    stats = least.decisions
    assert stats is not None
    same = _same(stats, several=len(reports) > 1)
    if all(judged_by_tensors(r) for r in reports):
        return (
            f"{same}, and no number differs by more than {scientific(_largest(reports))} of its "
            f"output's scale (limit {scientific(least.limits.tensor)}). By the answers alone, harm "
            f"from {percent(stats.minimum_harm)} up would have been seen (95\u00a0% confidence)."
        )
    return (
        f"{same}. Had {percent(stats.minimum_harm)} of the clear answers changed, this test would "
        f"have seen it (95\u00a0% confidence)."
    )


def _same(stats: DecisionStats, *, several: bool) -> str:
    """On how many inputs nothing changed; of several artifacts, on how many at least."""
    what = "nearest neighbour" if stats.embedding else "answer"
    subject = f"Each gives the same {what}" if several else f"Same {what}"
    least = "at least " if several and stats.raw.count else ""
    count = f"{least}{stats.raw.n - stats.raw.count} of {plural(stats.raw.n, 'input')}"
    return f"{subject} on {count}{_independent(stats)}"


def _independent(stats: DecisionStats) -> str:
    """How many inputs really stand for themselves, where some belong together."""
    return f" ({stats.groups} of them independent)" if stats.groups < stats.inputs else ""


def judged_by_tensors(report: Report) -> bool:
    """Whether an artifact keeps to the tensor limit, which is what fp32 is judged by."""
    return report.precision == "fp32" and _largest([report]) <= report.limits.tensor


def _largest(reports: Sequence[Report]) -> float:
    """The largest relative difference of any output; NaN where one is, or there is none."""
    found = [plain(o.relative) for r in reports for o in r.outputs]
    return math.nan if not found or any(map(math.isnan, found)) else max(found)


def _tensor_evidence(reports: Sequence[Report]) -> str:
    worst = _largest(reports)
    limit = min(r.limits.tensor for r in reports)
    return (
        f"The largest difference of any output is {scientific(worst)} of its scale "
        f"(limit {scientific(limit)}). Decisions were not compared."
    )


def _degraded(loaded: WorkspaceContents, artifacts: list[Artifact], also: str) -> Headline:
    uppers = [
        plain(r.decisions.decided.upper)
        for a in artifacts
        if (r := loaded.reports.get(a.name)) and r.decisions
    ]
    verb = "changes" if len(artifacts) == 1 else "change"
    evidence = (
        f"At most {percent(max(uppers))} of the clear answers of {_reference_short(loaded, None)} "
        f"come out differently (95\u00a0% confidence)."
        if uppers
        else "The harm was measured and lies within the looser limit."
    )
    return Headline(
        "degraded",
        "Usable with known harm",
        f"{_subject(loaded, artifacts)} {verb} some answers.",
        evidence,
        f"{also} Whether that is acceptable is your decision, not a matter of rounding.".strip(),
    )


def _unproven(loaded: WorkspaceContents, artifacts: list[Artifact], also: str) -> Headline:
    needs = [
        r.decisions.more_groups
        for a in artifacts
        if (r := loaded.reports.get(a.name)) and r.decisions and r.decisions.more_groups
    ]
    more = plural(max(needs), "more independent input") if needs else ""
    then = f"About {more} would settle it." if needs else ""
    reasons = [
        clean(a.judgement.reasons[0].message)
        for a in artifacts
        if a.judgement and a.judgement.reasons
    ]
    verb = "is" if len(artifacts) == 1 else "are"
    return Headline(
        "unproven",
        "Not proven",
        f"{_subject(loaded, artifacts)} {verb} not proven yet.",
        _sentence(reasons[0]) if reasons else "The evidence does not reach a verdict.",
        f"{then} {also}".strip(),
    )


def _sentence(text: str) -> str:
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def evidence_facts(loaded: WorkspaceContents) -> tuple[Fact, ...]:
    """What the verdicts rest on; what is the same for several artifacts is said once."""
    facts: dict[tuple[str, str], list[str]] = {}
    for report in loaded.reports.values():
        who = artifact_name(report.format, report.precision)
        for name, value in _facts(loaded, report):
            facts.setdefault((name, value), []).append(who)
    total = len(loaded.reports)
    ordered = sorted(facts.items(), key=lambda item: _FACT_ORDER.index(item[0][0]))
    return tuple(
        Fact(name if len(who) == total else f"{name}, {join_phrase(who)}", value)
        for (name, value), who in ordered
    )


_FACT_ORDER = ("inputs", "compared with", "preprocessing", "answers", "evidence", "tensors")


def _facts(loaded: WorkspaceContents, report: Report) -> list[tuple[str, str]]:
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


def limitation_facts(loaded: WorkspaceContents) -> tuple[Fact, ...]:
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
        facts.append(
            Fact("Not run here", f"{artifact_names(absent)}: no engine for it on this machine")
        )
    others = [a.name for a in absent]
    if any(r.decisions is None and f"{r.format}-{r.precision}" not in others for r in reports):
        facts.append(Fact("Answers", "some artifacts were compared by their numbers alone"))
    facts += _engines(loaded)
    facts.append(Fact("Accuracy", "true labels: the reference's answers are the measure"))
    facts.append(Fact("Devices", f"any other than where this ran: {_where(loaded)}"))
    unmeasured = [a for a in loaded.manifest.artifacts if a.name not in loaded.measurements]
    if unmeasured:
        facts.append(Fact("Cost", f"{artifact_names(unmeasured)} was not measured"))
    return tuple(facts)


def _engines(loaded: WorkspaceContents) -> list[Fact]:
    """Engines that stand in for others, as the proof says it behind their names."""
    said: dict[str, list[Artifact]] = {}
    for artifact in loaded.manifest.artifacts:
        by = artifact.judgement.executed_by if artifact.judgement else ""
        if ";" in by:
            said.setdefault(clean(by), []).append(artifact)
    return [Fact("Engine", f"{artifact_names(some)} ran on {by}") for by, some in said.items()]


def _where(loaded: WorkspaceContents) -> str:
    engines = {
        f"{r.runtime.name} {r.runtime.version} ({r.runtime.delegate}), {r.environment.machine}"
        for r in loaded.reports.values()
        if r.runtime.version
    } | {
        f"{m.runtime.name} {m.runtime.version} ({m.runtime.delegate}), {m.environment.machine}"
        for some in loaded.measurements.values()
        for m in some
    }
    return clean(join_phrase(sorted(engines))) or "nowhere yet"
