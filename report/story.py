"""The report's sentences: what the figures allow to be said, and not a word more."""

from __future__ import annotations

import math
from collections.abc import Sequence

from edgeserve.report.load import Loaded
from edgeserve.report.page import Fact, Headline
from edgeserve.report.words import artifact_name, clean, listed, percent, plural, scientific
from edgeserve.types.artifact import Artifact
from edgeserve.types.base import plain
from edgeserve.types.reports import Report

__all__ = ["by_numbers", "compared", "headline", "not_compared", "reference_words"]


def reference_words(loaded: Loaded, report: Report | None) -> str:
    """Whom the artifacts were compared with, as the object of a sentence."""
    said = report.reference if report else ""
    if said in ("", "stored"):
        said = loaded.manifest.reference or said
    if said == "pt2":
        return "its PyTorch source"
    if said in ("", "stored"):
        return "the stored answers of its reference"
    return f"your server ({clean(said)})"


def headline(loaded: Loaded) -> Headline:
    """The verdict over all artifacts: the best one speaks, the refused are counted."""
    artifacts, refused = loaded.manifest.artifacts, loaded.manifest.refused
    by = {v: [a for a in artifacts if a.verdict == v] for v in ("pass", "degraded", "unproven")}
    also = _also(loaded, by)
    if by["pass"]:
        return _ready(loaded, by["pass"], also)
    if by["degraded"]:
        return _degraded(loaded, by["degraded"], also)
    if by["unproven"]:
        return _unproven(loaded, by["unproven"], also)
    if refused:
        one = len(refused) == 1
        count = "Its only conversion was" if one else f"All {len(refused)} conversions were"
        return Headline(
            "fail", "Not ready", "Nothing may ship yet.", f"{count} refused.",
            "The reasons stand below, each with what can be done.",
        )  # fmt: skip
    return Headline(
        "unproven", "Empty", "Nothing has been converted yet.", "This workspace holds no artifact.",
        "Run `edgeserve convert SOURCE -o OUT`, then render this report again.",
    )  # fmt: skip


def _names(artifacts: Sequence[Artifact]) -> str:
    return listed([artifact_name(a.format, a.precision) for a in artifacts])


def _also(loaded: Loaded, by: dict[str, list[Artifact]]) -> str:
    """What else there is beside those that the headline speaks of."""
    parts = []
    if by["pass"] and by["degraded"]:
        parts.append(f"{_names(by['degraded'])} changes some answers")
    if (by["pass"] or by["degraded"]) and by["unproven"]:
        parts.append(f"{_names(by['unproven'])} is not proven")
    if loaded.manifest.refused:
        parts.append(f"{len(loaded.manifest.refused)} more refused")
    return f"{'; '.join(parts)}." if parts else ""


def _ready(loaded: Loaded, artifacts: list[Artifact], also: str) -> Headline:
    reports = [r for a in artifacts if (r := loaded.reports.get(a.name))]
    verb = "decides" if len(artifacts) == 1 else "decide"
    if not reports:
        sentence = f"{_names(artifacts)} passed the gate."
        return Headline(
            "pass", "Ready", sentence, "The gate's report is not in this workspace.", also
        )
    whom = reference_words(loaded, reports[0])
    if all(r.decisions for r in reports):
        return Headline(
            "pass", "Ready", f"{_names(artifacts)} {verb} as {whom} does.", _decided(reports), also
        )
    return Headline(
        "pass", "Ready", f"{_names(artifacts)} {verb.replace('decide', 'compute')} as {whom} does.",
        _tensors(reports), also,
    )  # fmt: skip


def _decided(reports: Sequence[Report]) -> str:
    """What the decisions say, of the artifact that says least."""
    least = max(reports, key=lambda r: plain(r.decisions.decided.upper) if r.decisions else 1.0)
    stats = least.decisions
    assert stats is not None
    same = (
        f"Same answer on {stats.raw.n - stats.raw.count} of {plural(stats.raw.n, 'input')} from "
        f"{plural(stats.groups, 'independent group')}"
    )
    if all(by_numbers(r) for r in reports):
        return (
            f"{same}, and no number differs by more than {scientific(_largest(reports))} of its "
            f"output's scale (limit {scientific(least.limits.tensor)}). By the answers alone, harm "
            f"from {percent(stats.minimum_harm)} up would have been seen (95\u00a0% confidence)."
        )
    return (
        f"{same}. Had {percent(stats.minimum_harm)} of the sure answers changed, this test would "
        f"have seen it (95\u00a0% confidence)."
    )


def by_numbers(report: Report) -> bool:
    """Whether an artifact keeps to the tensor limit, which is what fp32 is judged by."""
    return report.precision == "fp32" and _largest([report]) <= report.limits.tensor


def _largest(reports: Sequence[Report]) -> float:
    """The largest relative difference of any output; NaN where one is, or there is none."""
    found = [plain(o.relative) for r in reports for o in r.outputs]
    return math.nan if not found or any(map(math.isnan, found)) else max(found)


def _tensors(reports: Sequence[Report]) -> str:
    worst = _largest(reports)
    limit = min(r.limits.tensor for r in reports)
    return (
        f"The largest difference of any output is {scientific(worst)} of its scale "
        f"(limit {scientific(limit)}). Decisions were not compared."
    )


def _degraded(loaded: Loaded, artifacts: list[Artifact], also: str) -> Headline:
    uppers = [
        plain(r.decisions.decided.upper)
        for a in artifacts
        if (r := loaded.reports.get(a.name)) and r.decisions
    ]
    verb = "changes" if len(artifacts) == 1 else "change"
    evidence = (
        f"At most {percent(max(uppers))} of the answers that {reference_words(loaded, None)} is "
        f"sure of come out differently (95\u00a0% confidence)."
        if uppers
        else "The harm was measured and lies within the looser limit."
    )
    return Headline(
        "degraded", "Usable with known harm", f"{_names(artifacts)} {verb} some answers.", evidence,
        f"{also} Whether that is acceptable is your decision, not a matter of rounding.".strip(),
    )  # fmt: skip


def _unproven(loaded: Loaded, artifacts: list[Artifact], also: str) -> Headline:
    needs = [
        r.decisions.more_groups
        for a in artifacts
        if (r := loaded.reports.get(a.name)) and r.decisions and r.decisions.more_groups
    ]
    then = f"About {plural(max(needs), 'more group')} of inputs would settle it." if needs else ""
    reasons = [
        clean(a.judgement.reasons[0].message)
        for a in artifacts
        if a.judgement and a.judgement.reasons
    ]
    verb = "is" if len(artifacts) == 1 else "are"
    return Headline(
        "unproven", "Not proven", f"{_names(artifacts)} {verb} not proven yet.",
        _sentence(reasons[0]) if reasons else "The evidence does not reach a verdict.",
        f"{then} {also}".strip(),
    )  # fmt: skip


def _sentence(text: str) -> str:
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def compared(loaded: Loaded) -> tuple[Fact, ...]:
    """What the verdicts rest on."""
    facts: list[Fact] = []
    for report in loaded.reports.values():
        who = artifact_name(report.format, report.precision) if len(loaded.reports) > 1 else ""
        prefix = f"{who}: " if who else ""
        facts.append(Fact(f"{prefix}inputs", clean(report.inputs)))
        facts.append(Fact(f"{prefix}compared with", reference_words(loaded, report)))
        if report.decisions:
            stats = report.decisions
            facts.append(Fact(f"{prefix}decisions", _counts(report)))
            facts.append(
                Fact(
                    f"{prefix}evidence",
                    f"{plain(stats.decided.n_eff):.0f} effective inputs; the smallest harm it "
                    f"could have seen is {percent(stats.minimum_harm)}",
                )
            )
        facts.append(Fact(f"{prefix}tensors", plural(len(report.outputs), "output")))
        facts.append(Fact(f"{prefix}preprocessing", clean(report.preprocessing)))
    return tuple(facts)


def _counts(report: Report) -> str:
    stats = report.decisions
    assert stats is not None
    text = (
        f"{stats.raw.count} of {stats.raw.n} changed; of the {stats.decided.n} that the reference "
        f"was sure of, {stats.decided.count}"
    )
    if stats.top5:
        text += f"; top-5 sets differ on {stats.top5.count} of {stats.top5.n}"
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
    if any(r.decisions is None for r in reports):
        facts.append(Fact("Decisions", "some artifacts were compared by their numbers alone"))
    facts.append(Fact("Accuracy", "true labels: the reference's answers are the measure"))
    facts.append(Fact("Devices", f"any other than where this ran: {_where(loaded)}"))
    unmeasured = [a for a in loaded.manifest.artifacts if a.name not in loaded.measurements]
    if unmeasured:
        facts.append(Fact("Cost", f"{_names(unmeasured)} was not measured"))
    return tuple(facts)


def _where(loaded: Loaded) -> str:
    engines = {
        f"{r.runtime.name} {r.runtime.version} ({r.runtime.delegate}), {r.environment.machine}"
        for r in loaded.reports.values()
    } | {
        f"{m.runtime.name} {m.runtime.version} ({m.runtime.delegate}), {m.environment.machine}"
        for some in loaded.measurements.values()
        for m in some
    }
    return clean(listed(sorted(engines))) or "nowhere yet"
