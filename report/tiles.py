"""Figures to remember: of the one artifact, or of the picks among several."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from edgeserve.report.load import Loaded
from edgeserve.report.matrix import clock
from edgeserve.report.page import Row, Tile
from edgeserve.report.story import by_numbers
from edgeserve.report.words import artifact_name, mebibytes, milliseconds, percent
from edgeserve.types.artifact import Artifact
from edgeserve.types.base import plain
from edgeserve.types.reports import DecisionStats
from edgeserve.types.words import Verdict

__all__ = ["tiles"]

_MB = 1024.0 * 1024.0
#: A pick with known harm is worth a tile where it saves at least this share.
_WORTH = 0.1

_Key = Callable[[Artifact], float]


def tiles(loaded: Loaded, artifacts: Sequence[Artifact], rows: Sequence[Row]) -> tuple[Tile, ...]:
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
    """Those that pass; where none does, those with known harm."""
    passed = [a for a in artifacts if a.verdict == "pass"]
    return passed or [a for a in artifacts if a.verdict == "degraded"]


def _phrase(artifacts: Sequence[Artifact]) -> str:
    passes = any(a.verdict == "pass" for a in artifacts)
    return "that passes" if passes else "with known harm"


def _smallest(loaded: Loaded, artifacts: Sequence[Artifact]) -> Tile | None:
    some = _passing(artifacts)
    if not some:
        return None
    best = min(some, key=lambda a: (a.size, _ms(loaded, a)))
    note = artifact_name(best.format, best.precision)
    whole = next((a for a in artifacts if (a.format, a.precision) == (best.format, "fp32")), None)
    if whole and best.size < (1 - _WORTH) * whole.size:
        note += f", {100 * best.size / whole.size:.0f}\u00a0% of its fp32"
    return Tile(f"Smallest {_phrase(artifacts)}", mebibytes(best.size / _MB), note, _tone(best))


def _fastest(loaded: Loaded, artifacts: Sequence[Artifact]) -> Tile | None:
    some = [a for a in _passing(artifacts) if a.name in loaded.measurements]
    if not some:
        return None
    best = min(some, key=lambda a: _ms(loaded, a))
    threads = loaded.measurements[best.name][0].threads
    on = f"{clock(loaded)} time, {threads} thread{'s' * (threads != 1)}"
    note = f"{artifact_name(best.format, best.precision)}, {on}"
    return Tile(f"Fastest {_phrase(artifacts)}", milliseconds(_ms(loaded, best)), note, _tone(best))


def _saving(loaded: Loaded, artifacts: Sequence[Artifact]) -> Tile | None:
    """What could be saved with known harm: time where it is measured, else size."""
    passed = [a for a in artifacts if a.verdict == "pass"]
    harmed = [a for a in artifacts if a.verdict == "degraded"]
    if not passed or not harmed:
        return None
    measured = [a for a in harmed if a.name in loaded.measurements]
    times = [_ms(loaded, a) for a in passed if a.name in loaded.measurements]
    if measured and times:
        best = min(measured, key=lambda a: _ms(loaded, a))
        if _ms(loaded, best) < (1 - _WORTH) * min(times):
            return _pick("Fastest with known harm", milliseconds(_ms(loaded, best)), loaded, best)
    best = min(harmed, key=lambda a: a.size)
    if best.size >= (1 - _WORTH) * min(a.size for a in passed):
        return None
    return _pick("Smallest with known harm", mebibytes(best.size / _MB), loaded, best)


def _pick(label: str, value: str, loaded: Loaded, best: Artifact) -> Tile:
    note = artifact_name(best.format, best.precision)
    report = loaded.reports.get(best.name)
    if report and report.decisions:
        note += f", changes {percent(report.decisions.decided.rate)}"
    return Tile(label, value, note, _tone(best))


def _evidence(loaded: Loaded, artifacts: Sequence[Artifact]) -> Tile | None:
    """The weakest evidence among those that may ship."""
    found: list[DecisionStats] = [
        report.decisions
        for a in artifacts
        if (report := loaded.reports.get(a.name)) and report.decisions
    ]
    if not found:
        return None
    least = max(plain(stats.minimum_harm) for stats in found)
    return Tile("Smallest harm it would notice", percent(least), "of clear answers changing")


def _tone(artifact: Artifact) -> Verdict:
    return artifact.verdict or "unproven"


def _ms(loaded: Loaded, artifact: Artifact) -> float:
    measured = loaded.measurements.get(artifact.name)
    if not measured:
        return float("inf")
    run = measured[0].run
    return plain((run.cpu if clock(loaded) == "CPU" else run.wall).p50)


def _of_one(loaded: Loaded, best: Artifact, row: Row) -> tuple[Tile, ...]:
    report, measured = loaded.reports.get(best.name), loaded.measurements.get(best.name)
    largest = Tile("Largest difference", row.difference, row.difference_note, row.verdict)
    if report is not None and report.decisions is None:
        found = [largest]
    elif report is not None and by_numbers(report):
        found = [Tile("Answers as the reference", row.agreement, row.agreement_count, row.verdict)]
        found.append(largest)
    else:
        found = [Tile("Answers as the reference", row.agreement, _both(row), row.verdict)]
        found.append(Tile("Smallest harm it would notice", row.harm, "of clear answers changing"))
    found.append(_time_tile(row, measured is not None))
    memory = (
        f"{mebibytes(measured[0].rss_mb)} memory at its peak" if measured else "memory not measured"
    )
    found.append(Tile("Size", row.size, row.eight_bit or memory))
    return tuple(found)


def _time_tile(row: Row, measured: bool) -> Tile:
    """The median run: CPU time where wall time is not to be trusted."""
    if not measured:
        return Tile("Median run", row.wall, "run `edgeserve measure`")
    if row.noisy:
        return Tile("Median run, CPU time", row.cpu, f"wall {row.wall} is noisy", "degraded")
    return Tile("Median run", row.wall, f"{row.wall_note}; CPU {row.cpu}")


def _both(row: Row) -> str:
    return ", ".join(note for note in (row.agreement_note, row.agreement_count) if note)
