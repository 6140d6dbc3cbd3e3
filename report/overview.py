"""The artifacts on one screen: formats against precisions, and the key figures.

Each cell of the matrix is a verdict in colour, a size and a time. The figures are those of the
one artifact, or of the best among several.
"""

from __future__ import annotations

from collections.abc import Sequence

from edgeserve import backends
from edgeserve.report.formatting import (
    VERDICT_MEANING,
    VERDICT_WORD,
    artifact_name,
    clean,
    mebibytes,
    milliseconds,
    percent,
    scientific,
)
from edgeserve.report.load import WorkspaceContents
from edgeserve.report.summary import judged_by_tensors, not_run_here
from edgeserve.report.view_model import ArtifactRow, Matrix, MatrixCell, MatrixRow, Tile
from edgeserve.types.artifact import Artifact, Refused
from edgeserve.types.base import plain
from edgeserve.types.reports import Report
from edgeserve.types.vocabulary import PRECISIONS, Verdict


def clock(loaded: WorkspaceContents) -> str:
    """The clock of all times: one noisy wall time makes all wall times incomparable."""
    noisy = any(m.noisy for some in loaded.measurements.values() for m in some)
    return "CPU" if noisy else "wall"


def matrix(loaded: WorkspaceContents) -> Matrix | None:
    """The cells of all artifacts; None for a single artifact."""
    made: list[Artifact | Refused] = [*loaded.manifest.artifacts, *loaded.manifest.refused]
    if len(made) < 2:
        return None
    cells = {(one.format, one.precision): _cell(loaded, one) for one in made}
    there = {precision for _, precision in cells}
    columns = (*(p for p in PRECISIONS if p in there), *sorted(there.difference(PRECISIONS)))
    rows = tuple(
        MatrixRow(
            name=backends.title(format),
            engine=_engine(loaded, format),
            cells=tuple(cells.get((format, precision)) for precision in columns),
        )
        for format in backends.in_order(format for format, _ in cells)
    )
    embeds = any(r.decisions and r.decisions.embedding for r in loaded.reports.values())
    same = "nearest neighbours" if embeds else "answers"
    untimed = any(not cell.time for cell in cells.values() if cell.size)
    return Matrix(columns, rows, clock(loaded), same, untimed)


def _engine(loaded: WorkspaceContents, format: str) -> str:
    """The runtime that executed a format's artifacts, in short."""
    for artifact in loaded.manifest.artifacts:
        if artifact.format == format and artifact.judgement and artifact.judgement.executed_by:
            return clean(artifact.judgement.executed_by).replace("; ", ", ")
    return "not run here"


def _cell(loaded: WorkspaceContents, one: Artifact | Refused) -> MatrixCell:
    key = f"{one.format}-{one.precision}"
    verdict = one.verdict or "unproven"
    report = loaded.reports.get(key)
    absent = isinstance(one, Artifact) and not_run_here(one)
    return MatrixCell(
        verdict=verdict,
        word="Not run here" if absent else VERDICT_WORD[verdict],
        meaning=VERDICT_MEANING[verdict],
        anchor=f"a-{key}" if isinstance(one, Artifact) or report else "refused",
        size=mebibytes(one.size / _BYTES_PER_MIB) if isinstance(one, Artifact) else "",
        time=milliseconds(_ms(loaded, key)) if key in loaded.measurements else "",
        same=_same(report),
    )


def _same(report: Report | None) -> str:
    if report is None:
        return ""
    if report.decisions and report.decisions.decided.n:
        return f"{percent(1.0 - plain(report.decisions.decided.rate))} same"
    if report.outputs:
        return f"{scientific(max(report.outputs, key=lambda o: plain(o.relative)).relative)} off"
    return ""


_BYTES_PER_MIB = 1024.0 * 1024.0
#: A degraded artifact gets a tile if it saves at least this share.
_MIN_SAVING = 0.1


def key_figures(
    loaded: WorkspaceContents, artifacts: Sequence[Artifact], rows: Sequence[ArtifactRow]
) -> tuple[Tile, ...]:
    """Four figures at most.

    Args:
        loaded: The workspace.
        artifacts: Best first.
        rows: Their lines in the table.
    """
    if not artifacts:
        return ()
    if len(artifacts) == 1:
        return _of_one(loaded, artifacts[0], rows[0])
    picks = [_smallest(loaded, artifacts), _fastest(loaded, artifacts)]
    picks += [_saving(loaded, artifacts), _evidence(loaded, artifacts)]
    return tuple(pick for pick in picks if pick)


def _passing(artifacts: Sequence[Artifact]) -> list[Artifact]:
    """The artifacts that pass; if none does, the degraded ones."""
    passed = [a for a in artifacts if a.verdict == "pass"]
    return passed or [a for a in artifacts if a.verdict == "degraded"]


def _phrase(artifacts: Sequence[Artifact]) -> str:
    passes = any(a.verdict == "pass" for a in artifacts)
    return "that passes" if passes else "degraded"


def _smallest(loaded: WorkspaceContents, artifacts: Sequence[Artifact]) -> Tile | None:
    some = _passing(artifacts)
    if not some:
        return None
    best = min(some, key=lambda a: (a.size, _ms(loaded, a.name)))
    note = artifact_name(best.format, best.precision)
    whole = next((a for a in artifacts if (a.format, a.precision) == (best.format, "fp32")), None)
    if whole and best.size < (1 - _MIN_SAVING) * whole.size:
        note += f", {100 * best.size / whole.size:.0f}\u00a0% of its fp32"
    size = mebibytes(best.size / _BYTES_PER_MIB)
    return Tile(f"Smallest {_phrase(artifacts)}", size, note, _tone(best))


def _fastest(loaded: WorkspaceContents, artifacts: Sequence[Artifact]) -> Tile | None:
    some = [a for a in _passing(artifacts) if a.name in loaded.measurements]
    if not some:
        return None
    best = min(some, key=lambda a: _ms(loaded, a.name))
    threads = loaded.measurements[best.name][0].threads
    on = f"{clock(loaded)} time, {threads} thread{'s' * (threads != 1)}"
    note = f"{artifact_name(best.format, best.precision)}, {on}"
    time = milliseconds(_ms(loaded, best.name))
    return Tile(f"Fastest {_phrase(artifacts)}", time, note, _tone(best))


def _saving(loaded: WorkspaceContents, artifacts: Sequence[Artifact]) -> Tile | None:
    """The saving of a degraded artifact: time where it is measured, else size."""
    passed = [a for a in artifacts if a.verdict == "pass"]
    degraded = [a for a in artifacts if a.verdict == "degraded"]
    if not passed or not degraded:
        return None
    best = min(degraded, key=lambda a: _ms(loaded, a.name))
    time, least = _ms(loaded, best.name), min(_ms(loaded, a.name) for a in passed)
    if time < (1 - _MIN_SAVING) * least < float("inf"):
        return _pick("Fastest degraded", milliseconds(time), loaded, best)
    best = min(degraded, key=lambda a: a.size)
    if best.size >= (1 - _MIN_SAVING) * min(a.size for a in passed):
        return None
    return _pick("Smallest degraded", mebibytes(best.size / _BYTES_PER_MIB), loaded, best)


def _pick(label: str, value: str, loaded: WorkspaceContents, best: Artifact) -> Tile:
    note = artifact_name(best.format, best.precision)
    report = loaded.reports.get(best.name)
    if report and report.decisions:
        note += f", flips {percent(report.decisions.decided.rate)}"
    return Tile(label, value, note, _tone(best))


def _evidence(loaded: WorkspaceContents, artifacts: Sequence[Artifact]) -> Tile | None:
    """The weakest evidence among the artifacts of the bundle."""
    reports = [loaded.reports[a.name] for a in artifacts if a.name in loaded.reports]
    found = [plain(r.decisions.minimum_harm) for r in reports if r.decisions]
    if not found:
        return None
    return Tile("Detectable flip rate", percent(max(found)), "of decided answers, at worst")


def _tone(artifact: Artifact) -> Verdict:
    return artifact.verdict or "unproven"


def _ms(loaded: WorkspaceContents, name: str) -> float:
    """The median run of an artifact; infinite where it was not measured."""
    measured = loaded.measurements.get(name)
    if not measured:
        return float("inf")
    run = measured[0].run
    return plain((run.cpu if clock(loaded) == "CPU" else run.wall).p50)


def _of_one(loaded: WorkspaceContents, best: Artifact, row: ArtifactRow) -> tuple[Tile, ...]:
    report, measured = loaded.reports.get(best.name), loaded.measurements.get(best.name)
    largest = Tile("Largest difference", row.difference, row.difference_note, row.verdict)
    if report is not None and report.decisions is None:
        found = [largest]
    elif report is not None and judged_by_tensors(report):
        found = [Tile("Agreement with reference", row.agreement, row.agreement_count, row.verdict)]
        found.append(largest)
    else:
        both = ", ".join(filter(None, (row.agreement_note, row.agreement_count)))
        found = [Tile("Agreement with reference", row.agreement, both, row.verdict)]
        found.append(Tile("Detectable flip rate", row.detectable, "of decided answers"))
    found.append(_time_tile(row, measured is not None))
    memory = f"{mebibytes(measured[0].rss_mb)} peak memory" if measured else "memory not measured"
    found.append(Tile("Size", row.size, row.eight_bit or memory))
    return tuple(found)


def _time_tile(row: ArtifactRow, measured: bool) -> Tile:
    """The median run: CPU time where the wall time is noisy."""
    if not measured:
        return Tile("Median run", row.wall, "run `edgeserve measure`")
    if row.noisy:
        return Tile("Median run, CPU time", row.cpu, f"wall {row.wall} is noisy", "degraded")
    return Tile("Median run", row.wall, f"{row.wall_note}; CPU {row.cpu}")
