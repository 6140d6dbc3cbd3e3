"""The report's statements: the headline, its evidence, and the limitations of the comparison.

Every statement follows from the figures of the reports; none claims more than they support.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from edgeserve.report.formatting import (
    artifact_name,
    bound,
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

#: Artifacts that are called by their names in a sentence; more are counted.
_MAX_NAMED = 2
_NOT_RUN = "EDGE-CHECK-002"


def reference_words(loaded: WorkspaceContents, report: Report | None) -> str:
    """The reference of the comparison, as the object of a sentence."""
    reference = report.reference if report else ""
    if reference in ("", "stored"):
        reference = loaded.manifest.reference or reference
    if reference == "pt2":
        return "its PyTorch source"
    if reference in ("", "stored"):
        return "the stored answers of its reference"
    return f"your server ({clean(reference)})"


def _reference_short(loaded: WorkspaceContents, report: Report | None) -> str:
    """The same without its exact name, for a headline."""
    return reference_words(loaded, report).partition(" (")[0]


def not_run_here(artifact: Artifact) -> bool:
    """Whether an artifact has no result because this machine has no runtime for it."""
    judgement = artifact.judgement
    return judgement is not None and any(r.code == _NOT_RUN for r in judgement.reasons)


def artifact_names(artifacts: Sequence[Artifact]) -> str:
    """The names of all artifacts, joined as in a sentence."""
    return join_phrase([artifact_name(a.format, a.precision) for a in artifacts])


def headline(loaded: WorkspaceContents) -> Headline:
    """The verdict over all artifacts: names the best ones and counts the others."""
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
            "No artifact passed.",
            f"{count} rejected.",
            "The reasons are listed below, each with a suggested action.",
        )
    return Headline(
        "unproven",
        "Empty",
        "Nothing has been converted yet.",
        "This workspace holds no artifact.",
        "Run `edgeserve convert SOURCE -o OUT`, then render this report again.",
    )


def _subject(loaded: WorkspaceContents, artifacts: Sequence[Artifact]) -> str:
    """The subject of a sentence: names of a few artifacts, else their number out of all."""
    total = len(loaded.manifest.artifacts) + len(loaded.manifest.refused)
    if len(artifacts) <= _MAX_NAMED:
        return artifact_names(artifacts)
    return f"{'All' if len(artifacts) == total else f'{len(artifacts)} of'} {total} conversions"


def _other_artifacts(loaded: WorkspaceContents, by: dict[str, list[Artifact]]) -> str:
    """The artifacts that the headline does not mention."""
    first = next((verdict for verdict in ("pass", "degraded", "unproven") if by[verdict]), "")
    absent = [a for a in by["unproven"] if not_run_here(a)]
    unproven = [a for a in by["unproven"] if not not_run_here(a)]
    parts = []
    if by["degraded"] and first != "degraded":
        parts.append(_counted(by["degraded"], "is degraded", "are degraded"))
    if unproven and first != "unproven":
        parts.append(_counted(unproven, "is unproven", "are unproven"))
    if absent and first != "unproven":
        parts.append(_counted(absent, "was not run here", "were not run here"))
    if count := len(loaded.manifest.refused):
        parts.append(f"{count} {'was' if count == 1 else 'were'} rejected")
    return f"{join_phrase(parts)}." if parts else ""


def _counted(artifacts: Sequence[Artifact], one: str, many: str) -> str:
    who = artifact_names(artifacts) if len(artifacts) <= _MAX_NAMED else str(len(artifacts))
    return f"{who} {one if len(artifacts) == 1 else many}"


def _ready(loaded: WorkspaceContents, artifacts: list[Artifact], also: str) -> Headline:
    reports = [r for a in artifacts if (r := loaded.reports.get(a.name))]
    who = _subject(loaded, artifacts)
    if not reports:
        evidence = "The validation report is not in this workspace."
        return Headline("pass", "Ready", f"{who} passed validation.", evidence, also)
    whom = _reference_short(loaded, reports[0])
    decided = all(r.decisions for r in reports)
    verb = "matches" if len(artifacts) == 1 else "match"
    compared = whom if decided else f"the tensors of {whom}"
    evidence = _flip_evidence(reports) if decided else _tensor_evidence(reports)
    return Headline("pass", "Ready", f"{who} {verb} {compared}.", evidence, also)


def _flip_evidence(reports: Sequence[Report]) -> str:
    """The evidence of the decisions, from the artifact with the weakest evidence."""
    least = max(reports, key=lambda r: plain(r.decisions.decided.upper) if r.decisions else 1.0)
    stats = least.decisions
    assert stats is not None
    same = _same(stats, several=len(reports) > 1)
    if all(judged_by_tensors(r) for r in reports):
        return (
            f"{same}. The largest output difference is {scientific(_largest(reports))} of the "
            f"output's scale (limit {scientific(least.limits.tensor)}). The decisions alone have a "
            f"detectable flip rate of {percent(stats.minimum_harm)} (95\u00a0% confidence)."
        )
    return (
        f"{same}. Flips of decided answers \u2264 {bound(stats.decided.upper)} (limit "
        f"{percent(least.limits.pass_flips)}); detectable flip rate "
        f"{percent(stats.minimum_harm)} (95\u00a0% confidence)."
    )


def _same(stats: DecisionStats, *, several: bool) -> str:
    """The number of inputs without a flip; of several artifacts, the smallest number."""
    what = "nearest neighbour" if stats.embedding else "answer"
    subject = f"Each gives the same {what}" if several else f"Same {what}"
    least = "at least " if several and stats.raw.count else ""
    count = f"{least}{stats.raw.n - stats.raw.count} of {plural(stats.raw.n, 'input')}"
    return f"{subject} on {count}{_independent(stats)}"


def _independent(stats: DecisionStats) -> str:
    """The number of independent inputs, where some inputs form groups."""
    return f" ({stats.groups} of them independent)" if stats.groups < stats.inputs else ""


def judged_by_tensors(report: Report) -> bool:
    """Whether an fp32 artifact is within the tensor limit, which decides its verdict."""
    return report.precision == "fp32" and _largest([report]) <= report.limits.tensor


def agreement_phrase(report: Report) -> str:
    """Decided answers kept, and the figure with its limit from which the verdict follows.

    "decided 440/440, flips \u2264 7.6 % (limit 2 %)"; an fp32 artifact within the tensor limit is
    judged by its outputs instead: "decided 440/440, outputs within 2e-05 (limit 0.001)".
    """
    stats = report.decisions
    if stats is None:
        return "tensors only"
    if not stats.decided.n:
        return "no decided answer"
    kept = f"decided {stats.decided.n - stats.decided.count}/{stats.decided.n}"
    if judged_by_tensors(report):
        worst, limit = scientific(_largest([report])), scientific(report.limits.tensor)
        return f"{kept}, outputs within {worst} (limit {limit})"
    limit = percent(report.limits.pass_flips)
    return f"{kept}, flips \u2264 {bound(stats.decided.upper)} (limit {limit})"


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
    verb = "is" if len(artifacts) == 1 else "are"
    evidence = (
        f"At most {bound(max(uppers))} of the decided answers of "
        f"{_reference_short(loaded, None)} flip (95\u00a0% confidence)."
        if uppers
        else "The accuracy loss was measured and is within the looser limit."
    )
    return Headline(
        "degraded",
        "Usable with known accuracy loss",
        f"{_subject(loaded, artifacts)} {verb} degraded.",
        evidence,
        f"{also} Decide whether this flip rate is acceptable for your application.".strip(),
    )


def _unproven(loaded: WorkspaceContents, artifacts: list[Artifact], also: str) -> Headline:
    needs = [
        r.decisions.more_groups
        for a in artifacts
        if (r := loaded.reports.get(a.name)) and r.decisions and r.decisions.more_groups
    ]
    more = plural(max(needs), "more independent input") if needs else ""
    then = f"A verdict needs about {more}." if needs else ""
    reasons = [
        clean(a.judgement.reasons[0].message)
        for a in artifacts
        if a.judgement and a.judgement.reasons
    ]
    verb = "is" if len(artifacts) == 1 else "are"
    return Headline(
        "unproven",
        "Unproven",
        f"{_subject(loaded, artifacts)} {verb} unproven.",
        sentence(reasons[0]) if reasons else "The evidence is insufficient for a verdict.",
        f"{then} {also}".strip(),
    )


def sentence(text: str) -> str:
    """A message as a sentence: with a capital and a full stop."""
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def evidence_facts(loaded: WorkspaceContents) -> tuple[Fact, ...]:
    """The evidence behind the verdicts; a fact shared by several artifacts appears once."""
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


_FACT_ORDER = (
    "inputs",
    "compared with",
    "preprocessing",
    "answers",
    "evidence",
    "tensors",
    "accuracy against ground truth",
)


def _facts(loaded: WorkspaceContents, report: Report) -> list[tuple[str, str]]:
    facts = [
        ("inputs", clean(report.inputs)),
        ("compared with", reference_words(loaded, report)),
        ("preprocessing", clean(report.preprocessing)),
    ]
    if report.decisions:
        stats = report.decisions
        facts.append(("answers", _counts(report)))
        harm = f"detectable flip rate {percent(stats.minimum_harm)} of decided answers"
        facts.append(("evidence", f"{_count(stats.decided.n_eff)}; {harm}"))
    facts.append(("tensors", plural(len(report.outputs), "output")))
    if labelled := _labelled(report):
        text = f"evaluated on {plural(labelled, 'labelled input')}; figures below each artifact"
        facts.append(("accuracy against ground truth", text))
    return facts


def _labelled(report: Report) -> int:
    """The number of inputs with true labels; 0 where nothing was compared with them."""
    labels = [report.labels.inputs] if report.labels else []
    return max(labels + [stats.inputs for stats in report.metrics], default=0)


def _count(n_eff: Number) -> str:
    known = plain(n_eff)
    if not math.isfinite(known):
        return "unknown number of inputs"
    return plural(round(known), "independent input")


def _counts(report: Report) -> str:
    stats = report.decisions
    assert stats is not None
    decided = f"of the {stats.decided.n} decided ones, {stats.decided.count}"
    text = f"{stats.raw.count} of {stats.raw.n} flipped; {decided}"
    if stats.top5:
        text += f"; the top 5 differ on {stats.top5.count} of {stats.top5.n}"
    return text


def limitation_facts(loaded: WorkspaceContents) -> tuple[Fact, ...]:
    """The limitations of this report."""
    facts = []
    reports = loaded.reports.values()
    if not reports:
        facts.append(Fact("Validation", "no artifact has been validated"))
    if any("not compared" in r.preprocessing for r in reports):
        facts.append(
            Fact(
                "Preprocessing",
                "declared, not compared: both sides used the packaged steps, so a difference from "
                "your server's own preprocessing is not detected (give --reference module:fn)",
            )
        )
    absent = [a for a in loaded.manifest.artifacts if not_run_here(a)]
    if absent:
        names = artifact_names(absent)
        facts.append(Fact("Not run here", f"{names}: no runtime for it on this machine"))
    others = [a.name for a in absent]
    if any(r.decisions is None and f"{r.format}-{r.precision}" not in others for r in reports):
        facts.append(Fact("Decisions", "some artifacts were compared as tensors only"))
    facts += _engines(loaded)
    facts += _accuracy(loaded)
    facts.append(Fact("Other devices", f"not tested; this report covers {_where(loaded)}"))
    unmeasured = [a for a in loaded.manifest.artifacts if a.name not in loaded.measurements]
    if unmeasured:
        facts.append(Fact("Time and memory", f"not measured: {artifact_names(unmeasured)}"))
    return tuple(facts)


def _accuracy(loaded: WorkspaceContents) -> list[Fact]:
    """The artifacts without a comparison against true labels."""
    reports = loaded.reports.values()
    without = [artifact_name(r.format, r.precision) for r in reports if not _labelled(r)]
    if reports and not without:
        return []
    which = f" for {join_phrase(without)}" if len(without) < len(reports) else ""
    return [Fact("Accuracy against ground truth", f"not evaluated{which}")]


def _engines(loaded: WorkspaceContents) -> list[Fact]:
    """Runtimes that replace the target's own one, with the restriction that the report names."""
    replaced: dict[str, list[Artifact]] = {}
    for artifact in loaded.manifest.artifacts:
        by = artifact.judgement.executed_by if artifact.judgement else ""
        if ";" in by:
            replaced.setdefault(clean(by), []).append(artifact)
    return [Fact("Runtime", f"{artifact_names(some)} ran on {by}") for by, some in replaced.items()]


def _where(loaded: WorkspaceContents) -> str:
    ran = [(r.runtime, r.environment) for r in loaded.reports.values() if r.runtime.version]
    ran += [(m.runtime, m.environment) for some in loaded.measurements.values() for m in some]
    engines = {f"{r.name} {r.version} ({r.delegate}), {e.machine}" for r, e in ran}
    return clean(join_phrase(sorted(engines))) or "no run yet"
