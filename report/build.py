"""From what lies in a workspace to the page that is shown."""

from __future__ import annotations

from edgeserve.report import cost, harm
from edgeserve.report.detail import detail
from edgeserve.report.load import Loaded
from edgeserve.report.page import Fact, Page, Plot, RefusedLine, Row, Tile
from edgeserve.report.series import Series
from edgeserve.report.story import by_numbers, compared, headline, not_compared
from edgeserve.report.thumbs import Thumbnails
from edgeserve.report.words import (
    VERDICT_MEANING,
    VERDICT_WORD,
    artifact_name,
    clean,
    mebibytes,
    milliseconds,
    percent,
    scientific,
)
from edgeserve.types.artifact import Artifact, Refused
from edgeserve.types.base import plain
from edgeserve.types.reports import Environment, Measurement, Report
from edgeserve.types.words import Verdict

__all__ = ["build"]

_ORDER: tuple[Verdict, ...] = ("pass", "degraded", "unproven", "fail")
_MB = 1024.0 * 1024.0

_BOUNDS = (
    "The bar spans what the share of changed answers may be, the dot is what was seen; the diamond "
    "counts all inputs, sure or not. An fp32 artifact within the tensor limit is judged by its "
    "numbers; its pale bar says what answers alone could show."
)
_DIFFERENCES = (
    "Of the output's own scale, over all inputs. fp32 has to stay below the limit; other "
    "precisions are judged by their answers."
)
_SPLIT = "Processing counts: a faster model shortens only its own part."
_COST = "Down and to the left is better; the colour is the verdict."
_LATENCY = "Wall time to the right of CPU time means waiting. The ticks are p50, p90 and p99."


def build(loaded: Loaded, thumbnails: Thumbnails) -> Page:
    """Make the page: best artifacts first, everything that is unknown said to be so."""
    manifest = loaded.manifest
    artifacts = sorted(manifest.artifacts, key=lambda a: _rank(loaded, a))
    details = [
        detail(loaded, a.format, a.precision, a.verdict or "unproven", thumbnails, a)
        for a in artifacts
    ]
    details += [
        detail(loaded, r.format, r.precision, r.verdict, thumbnails, None)
        for r in manifest.refused
        if _key(r) in loaded.reports
    ]
    rows = tuple(_row(loaded, a) for a in artifacts)
    return Page(
        title=clean(manifest.name), about=_about(loaded), headline=headline(loaded),
        tiles=_tiles(loaded, artifacts[0]) if artifacts else (), rows=rows,
        refused=tuple(_refused(loaded, r) for r in manifest.refused),
        plots=_plots(loaded, artifacts), details=tuple(details), compared=compared(loaded),
        missing=not_compared(loaded), environment=_environment(loaded), warnings=_warnings(loaded),
        pictures=sum(w.picture is not None for d in details for w in d.worst),
    )  # fmt: skip


def _key(one: Artifact | Refused) -> str:
    return f"{one.format}-{one.precision}"


def _rank(loaded: Loaded, artifact: Artifact) -> tuple[int, float, str]:
    """Best verdict first, then fastest (CPU time: the steadier clock)."""
    measured = loaded.measurements.get(artifact.name)
    time = plain(measured[0].run.cpu.p50) if measured else float("inf")
    return _ORDER.index(artifact.verdict or "unproven"), time, artifact.name


def _about(loaded: Loaded) -> tuple[Fact, ...]:
    m = loaded.manifest
    facts = [
        Fact("version", str(m.version)),
        Fact("task", m.task),
        Fact("model id", m.model_id[:12]),
    ]
    if m.license:
        facts.append(Fact("license", clean(m.license)))
    return tuple(facts)


def _row(loaded: Loaded, artifact: Artifact) -> Row:
    verdict = artifact.verdict or "unproven"
    report = loaded.reports.get(artifact.name)
    measured = loaded.measurements.get(artifact.name, (None,))[0]
    judgement = artifact.judgement
    return Row(
        name=artifact_name(artifact.format, artifact.precision), anchor=f"a-{artifact.name}",
        verdict=verdict, word=VERDICT_WORD[verdict], meaning=VERDICT_MEANING[verdict],
        size=mebibytes(artifact.size / _MB), **_times(measured), **_agreement(report),
        **_difference(report),
        executed_by=clean(judgement.executed_by if judgement else "") or "nobody",
        noisy=clean(measured.noisy or "") if measured else "",
    )  # fmt: skip


def _times(m: Measurement | None) -> dict[str, str]:
    if m is None:
        return {"wall": "not measured", "wall_note": "", "cpu": "not measured", "cpu_note": ""}
    return {
        "wall": milliseconds(m.run.wall.p50), "wall_note": f"p90 {milliseconds(m.run.wall.p90)}",
        "cpu": milliseconds(m.run.cpu.p50), "cpu_note": f"p90 {milliseconds(m.run.cpu.p90)}",
    }  # fmt: skip


def _agreement(report: Report | None) -> dict[str, str]:
    if report is None or report.decisions is None:
        word = "not compared" if report else "not validated"
        return {"agreement": word, "agreement_note": "", "agreement_count": "", "harm": "unknown"}
    stats = report.decisions
    return {
        "agreement": percent(1.0 - plain(stats.decided.rate)),
        "agreement_note": f"at least {percent(1.0 - plain(stats.decided.upper))}",
        "agreement_count": f"{stats.decided.n - stats.decided.count} of {stats.decided.n} sure",
        "harm": percent(stats.minimum_harm),
    }


def _difference(report: Report | None) -> dict[str, str]:
    if report is None or not report.outputs:
        return {"difference": "unknown", "difference_note": ""}
    worst = max(report.outputs, key=lambda o: _badness(plain(o.relative)))
    return {
        "difference": scientific(worst.relative),
        "difference_note": f"limit {scientific(report.limits.tensor)}",
    }


def _badness(value: float) -> float:
    return float("inf") if value != value else value


def _tiles(loaded: Loaded, best: Artifact) -> tuple[Tile, ...]:
    """Four figures of the best artifact."""
    row = _row(loaded, best)
    report, measured = loaded.reports.get(best.name), loaded.measurements.get(best.name)
    largest = Tile("Largest difference", row.difference, row.difference_note, row.verdict)
    if report is not None and report.decisions is None:
        tiles = [largest]
    elif report is not None and by_numbers(report):
        tiles = [Tile("Answers as the reference", row.agreement, row.agreement_count, row.verdict)]
        tiles.append(largest)
    else:
        tiles = [Tile("Answers as the reference", row.agreement, _both(row), row.verdict)]
        tiles.append(Tile("Smallest harm it would notice", row.harm, "of sure answers changing"))
    tiles.append(_time_tile(row, measured is not None))
    memory = (
        f"{mebibytes(measured[0].rss_mb)} memory at its peak" if measured else "memory not measured"
    )
    tiles.append(Tile("Size", row.size, memory))
    return tuple(tiles)


def _time_tile(row: Row, measured: bool) -> Tile:
    """The median run: CPU time where wall time is not to be trusted."""
    if not measured:
        return Tile("Median run", row.wall, "run `edgeserve measure`")
    if row.noisy:
        return Tile("Median run, CPU time", row.cpu, f"wall {row.wall} is noisy", "degraded")
    return Tile("Median run", row.wall, f"{row.wall_note}; CPU {row.cpu}")


def _both(row: Row) -> str:
    return ", ".join(note for note in (row.agreement_note, row.agreement_count) if note)


def _refused(loaded: Loaded, one: Refused) -> RefusedLine:
    return RefusedLine(
        name=artifact_name(one.format, one.precision), code=clean(one.code),
        message=clean(one.message), hint=clean(one.hint), path=clean(one.path or ""),
        anchor=f"a-{_key(one)}" if _key(one) in loaded.reports else "",
    )  # fmt: skip


def _plots(loaded: Loaded, artifacts: list[Artifact]) -> tuple[tuple[Plot, ...], ...]:
    """The plots in up to two columns."""
    series = [_series(loaded, a) for a in artifacts]
    judged = series + [
        _series(loaded, r) for r in loaded.manifest.refused if _key(r) in loaded.reports
    ]
    left = (
        ("Changed answers", harm.bounds(judged), _BOUNDS),
        ("Difference per output", harm.differences(judged), _DIFFERENCES),
        ("From raw input to answer", cost.split(series), _SPLIT),
    )
    right = (
        ("Size and latency", cost.size_against_latency(series), _COST),
        ("Run times", cost.latency(series), _LATENCY),
    )
    columns = [tuple(Plot(t, svg, c) for t, svg, c in some if svg) for some in (left, right)]
    return tuple(column for column in columns if column)


def _series(loaded: Loaded, one: Artifact | Refused) -> Series:
    report = loaded.reports.get(_key(one))
    measured = loaded.measurements.get(_key(one))
    return Series(
        name=artifact_name(one.format, one.precision), verdict=one.verdict or "unproven",
        size_mb=one.size / _MB if isinstance(one, Artifact) else None,
        measurement=measured[0] if measured else None,
        decisions=report.decisions if report else None,
        outputs=report.outputs if report else (), limits=report.limits if report else None,
        by_numbers=report is not None and by_numbers(report),
    )  # fmt: skip


def _environment(loaded: Loaded) -> tuple[Fact, ...]:
    """Each different machine once: usually there is only one."""
    found: list[Environment] = [r.environment for r in loaded.reports.values()]
    found += [m.environment for some in loaded.measurements.values() for m in some]
    unique = [e for i, e in enumerate(found) if e not in found[:i]]
    facts = []
    for e in unique:
        facts += [
            Fact("Processor", clean(f"{e.processor}, {e.machine}")),
            Fact("Cores", f"{e.cores} usable"),
            Fact("Instruction sets", clean(", ".join(e.features)) or "not known"),
            Fact("System", clean(f"{e.system}, {e.python}")),
            Fact("Packages", clean(", ".join(f"{k} {v}" for k, v in sorted(e.packages.items())))),
        ]
    return tuple(facts)


def _warnings(loaded: Loaded) -> tuple[str, ...]:
    said = [
        f"Times of {artifact_name(m.format, m.precision)} are not to be trusted: {clean(m.noisy)}."
        for some in loaded.measurements.values()
        for m in some
        if m.noisy
    ]
    if loaded.stale:
        said.append(
            f"{clean(', '.join(loaded.stale))} speaks of bytes that are no longer here: left aside."
        )
    return tuple(said)
