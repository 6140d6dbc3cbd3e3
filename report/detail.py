"""The details of one artifact in the lower part of the report."""

from __future__ import annotations

import math
from collections.abc import Sequence

from edgeserve.report.charts import step_order
from edgeserve.report.formatting import (
    VERDICT_WORD,
    accuracy_sentence,
    artifact_name,
    clean,
    field_name,
    flip_sentence,
    join_phrase,
    mebibytes,
    metric_sentence,
    metric_title,
    milliseconds,
    percent,
    plural,
    scientific,
    shorten,
    task_metrics,
)
from edgeserve.report.load import WorkspaceContents
from edgeserve.report.thumbnails import Thumbnails
from edgeserve.report.view_model import (
    BoxOverlay,
    Detail,
    Fact,
    OverlayBox,
    TimingRow,
    WorstInputRow,
)
from edgeserve.types.artifact import Artifact, Provenance, Reason, Refused
from edgeserve.types.base import plain
from edgeserve.types.reports import (
    EmbeddingStats,
    Mark,
    Measurement,
    OutputDiff,
    Report,
    Spread,
    WorstInput,
)

#: Worst inputs shown of each artifact.
_WORST = 6


def detail(loaded: WorkspaceContents, one: Artifact | Refused, thumbnails: Thumbnails) -> Detail:
    """Describe one artifact's report and measurements; of a rejected one its report alone."""
    key, verdict = f"{one.format}-{one.precision}", one.verdict or "unproven"
    artifact = one if isinstance(one, Artifact) else None
    report = loaded.reports.get(key)
    measured = loaded.measurements.get(key, ())
    return Detail(
        anchor=f"a-{key}",
        name=artifact_name(one.format, one.precision),
        verdict=verdict,
        word=VERDICT_WORD[verdict],
        reasons=_reasons(artifact, report),
        checks=report.checks if report else (),
        outputs=_outputs(report) if report else (),
        worst=tuple(_worst(w, thumbnails) for w in report.worst[:_WORST]) if report else (),
        worst_note=_worst_note(report),
        costs=_costs(measured),
        times=_times(measured),
        noisy="; ".join(clean(m.noisy) for m in measured if m.noisy),
        origin=_origin(artifact, report),
        summary=flip_sentence(report) if report else "",
    )


def _reasons(artifact: Artifact | None, report: Report | None) -> tuple[Fact, ...]:
    found: Sequence[Reason] = ()
    if artifact and artifact.judgement:
        found = artifact.judgement.reasons
    elif report:
        found = report.judgement.reasons
    return tuple(Fact(clean(r.code), clean(r.message)) for r in found)


def _outputs(report: Report) -> tuple[Fact, ...]:
    facts = [_output(o, "") for o in report.outputs]
    facts += [_output(o, " (synthetic inputs)") for o in report.generated]
    if report.decisions:
        facts += [Fact(clean(name), value) for name, value in task_metrics(report.decisions)]
    if report.decisions and report.decisions.embedding:
        facts += _vectors(report.decisions.embedding)
    if report.labels:
        title = f"ground truth, {clean(report.labels.metric)}"
        facts.append(Fact(title, accuracy_sentence(report.labels)))
    for stats in report.metrics:
        facts.append(Fact(f"ground truth, {clean(metric_title(stats))}", metric_sentence(stats)))
    if plain(report.error) != 0.0:
        embeds = report.decisions is not None and report.decisions.embedding is not None
        what = "nearest-neighbour cosine" if embeds else "score"
        facts.append(Fact(f"largest error of the {what}", scientific(report.error)))
    return tuple(facts)


def _vectors(stats: EmbeddingStats) -> list[Fact]:
    mean, least, rank = map(plain, (stats.cosine_mean, stats.cosine_min, stats.rank))
    cosines = f"cosine similarity to the reference: mean {mean:.5f}, minimum {least:.5f}"
    ranking = "too few inputs to rank"
    if math.isfinite(rank):
        ranking = f"rank correlation of the neighbours with the reference: {rank:.5f}"
    return [Fact("vectors", cosines), Fact("ranking", ranking)]


def _output(output: OutputDiff, where: str) -> Fact:
    return Fact(
        f"{field_name(output)}{where}",
        f"{scientific(output.relative)} of its scale {scientific(output.scale)}; largest "
        f"{scientific(output.max_abs)}, mean {scientific(output.mean_abs)}; worst on "
        f"{shorten(output.worst)}{_more(output)}",
    )


def _more(output: OutputDiff) -> str:
    """Figures of some outputs only: SNR, KL divergence, the worst channel."""
    parts = []
    if output.snr is not None:
        parts.append(f"SNR {plain(output.snr):.0f} dB")
    if output.kl is not None:
        worst = "" if output.kl_worst is None else f", worst {scientific(output.kl_worst)}"
        parts.append(f"mean KL divergence {scientific(output.kl)} nats{worst}")
    if output.channel is not None:
        share = f"{scientific(output.channel_relative)} of its scale"
        parts.append(f"worst channel {output.channel}, {share}")
    if output.position is not None:
        place = ", ".join(map(str, output.position))
        parts.append(f"worst position {place} ({percent(output.position_share)} of the error)")
    return "".join(f"; {each}" for each in parts)


def _worst(worst: WorstInput, thumbnails: Thumbnails) -> WorstInputRow:
    margin = plain(worst.margin) if worst.margin is not None else math.nan
    known = math.isfinite(margin)
    picture = None if worst.text else thumbnails(worst.path)
    return WorstInputRow(
        id=shorten(worst.id, 44),
        text=clean(worst.text or ""),
        picture=picture,
        reference=clean(worst.reference),
        answer=clean(worst.answer),
        margin=f"{margin:.2f}" if known else "unknown",
        share=min(1.0, max(0.0, margin)) if known else None,
        difference=scientific(worst.difference),
        flipped=worst.flipped,
        marked=_marked(worst, thumbnails) if picture else None,
    )


def _marked(worst: WorstInput, thumbnails: Thumbnails) -> BoxOverlay | None:
    """The boxes of both sides, drawn over the picture."""
    size = thumbnails.size(worst.path)
    if size is None or not worst.marks:
        return None
    return BoxOverlay(*size, tuple(_box(mark) for mark in worst.marks))


def _box(mark: Mark) -> OverlayBox:
    x0, y0, x1, y1 = mark.xyxy
    whose = "reference" if mark.side == "reference" else "answer"
    text = f"{whose}: {clean(mark.label)} {plain(mark.score):.2f}"
    return OverlayBox(mark.side, x0, y0, max(0.0, x1 - x0), max(0.0, y1 - y0), text)


def _worst_note(report: Report | None) -> str:
    if report is None or not report.worst:
        return ""
    flipped = sum(w.flipped for w in report.worst[:_WORST])
    shown = min(_WORST, len(report.worst))
    if flipped:
        text = f"{flipped} of these {shown} flipped."
    else:
        text = "None of them flipped; these have the largest differences."
    if any(w.marks for w in report.worst):
        text += " Solid boxes: reference. Dashed boxes: artifact."
    if report.decisions and report.decisions.embedding:
        text += " Reference and answer name the nearest neighbour with its cosine."
    return text


def _costs(measured: Sequence[Measurement]) -> tuple[Fact, ...]:
    facts = []
    for m in measured:
        prefix = f"Batch {m.batch}: " if len(measured) > 1 else ""
        grown = plain(m.rss_mb) - plain(m.rss_before_mb)
        load = f"{milliseconds(m.load_ms)}, first run {milliseconds(m.first_ms)}"
        memory = f"peak {mebibytes(m.rss_mb)}, of which {mebibytes(grown)} for the model"
        runs = (
            f"{plural(m.run.wall.n, 'run')} after {m.warmup} warm-up runs, batch {m.batch}, "
            f"{plural(m.threads, 'thread')}, input: {shorten(m.input)}"
        )
        rows = [("Load", load), ("Memory", memory), ("Runs", runs)]
        rows += [("Note", clean(note)) for note in m.notes]
        facts += [Fact(f"{prefix}{name}", value) for name, value in rows]
    return tuple(facts)


def _times(measured: Sequence[Measurement]) -> tuple[TimingRow, ...]:
    rows = []
    for m in measured:
        name = "model alone" if len(measured) == 1 else f"model alone, batch {m.batch}"
        rows.append(TimingRow(name, _spread(m.run.wall), _spread(m.run.cpu)))
        for step in sorted(m.split, key=step_order):
            timing = m.split[step]
            rows.append(TimingRow(shorten(step, 24), _spread(timing.wall), _spread(timing.cpu)))
    return tuple(rows)


def _spread(s: Spread) -> tuple[str, ...]:
    return tuple(milliseconds(v) for v in (s.min, s.p50, s.p90, s.p99, s.mad))


def _origin(artifact: Artifact | None, report: Report | None) -> tuple[Fact, ...]:
    facts = []
    if artifact:
        made = artifact.provenance
        tools = ", ".join(f"{k} {v}" for k, v in sorted(made.tools.items()))
        count = plural(len(artifact.files), "file")
        facts.append(Fact("Files", f"{count}, {clean(artifact.entry)}"))
        facts.append(Fact("sha256", artifact.sha256))
        if made.route or tools:
            facts.append(Fact("Converted by", clean(f"{made.route or 'unknown route'}; {tools}")))
        if made.weights:
            facts.append(Fact("Weights", _weights(made)))
        if made.rewrites:
            facts.append(Fact("Rewrites", clean(", ".join(made.rewrites))))
    if report:
        facts.append(Fact("Limits", _limits(report)))
        facts.append(Fact("Validation time", f"{plain(report.seconds):.1f} s"))
        facts += [Fact("Note", clean(note)) for note in report.notes]
    return tuple(facts)


def _weights(made: Provenance) -> str:
    counts = sorted(made.weights.items())
    kinds = join_phrase([plural(count, dtype, dtype) for dtype, count in counts])
    share = made.eight_bit_share
    return f"{kinds}; {percent(share)} of them in 8 bits" if share else kinds


def _limits(report: Report) -> str:
    limits = report.limits
    return (
        f"tensors {scientific(limits.tensor)} of scale; flips "
        f"{percent(limits.pass_flips)} for pass, {percent(limits.degraded_flips)} for degraded"
    )
