"""``validate --against OLD``: what has become of each artifact since an earlier report.

Two reports hold counts, not the inputs they were counted on, so that their flip rates are compared
as those of two samples, over the effective numbers of inputs.

Source:
    R. A. Fisher, "On the interpretation of chi-squared from contingency tables, and the calculation
    of P", Journal of the Royal Statistical Society 85 (1922) 87-94: the exact test.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path

import msgspec

from edgeserve.bundle.workspace import Workspace
from edgeserve.errors import BundleError, UsageError
from edgeserve.pipeline.result import Change, meets
from edgeserve.types.base import decode, plain
from edgeserve.types.reports import Rate, Report

#: Chance of so many more flips by luck alone, below which they count as more.
_CHANCE = 0.05
_SUFFIX = ".validate.json"


def reports_at(path: Path) -> dict[str, Report]:
    """Earlier reports, by ``{format}-{precision}``.

    Args:
        path: A ``*.validate.json``, a folder of them, or a workspace.

    Raises:
        UsageError: EDGE-USAGE-011, there is none, or one cannot be read.
    """
    folders = [folder for folder in (path / "reports", path) if folder.is_dir()]
    files = [path] if path.is_file() else [f for d in folders for f in d.glob(f"*{_SUFFIX}")]
    if not files:
        raise _unreadable(path, "nothing of the kind")
    found = [_read(file) for file in sorted(files)]
    return {f"{report.format}-{report.precision}": report for report in found}


def _read(file: Path) -> Report:
    try:
        return decode(file.read_bytes(), Report)
    except (OSError, msgspec.MsgspecError) as error:
        raise _unreadable(file, str(error)) from error


def _unreadable(path: Path, got: str) -> UsageError:
    wanted = "a report of the gate (OUT/reports/*.validate.json), a folder of them, or OUT"
    hint = "keep a copy of OUT/reports before you convert again, and name that"
    return UsageError("EDGE-USAGE-011", f"--against {path}", wanted=wanted, got=got, hint=hint)


def model_id_at(path: Path) -> str | None:
    """The model_id of the workspace that earlier reports lie in; None where they lie elsewhere."""
    path = path.absolute()
    for folder in (path, path.parent, path.parent.parent):
        workspace, inside = Workspace(folder), path.is_relative_to(folder / "reports")
        if workspace.exists and (folder == path or inside):
            try:
                return workspace.manifest.model_id
            except BundleError:  # another kind of manifest.json, or a damaged one: it does not tell
                return None
    return None


def compare_reports(
    old: Mapping[str, Report], new: Mapping[str, Report], other: str | None = None
) -> tuple[Change, ...]:
    """What has become of each artifact that both know; new and missing ones are named as such.

    Args:
        old: The earlier reports.
        new: Those of now.
        other: The earlier reports' model_id, where it is known and not the present one.
    """
    changes = [_change(name, old[name], report) for name, report in new.items() if name in old]
    if other is not None:
        note = f"; of another model before, model_id {other[:16]}…"
        changes = [dataclasses.replace(c, words=c.words + note) for c in changes]
    changes += [Change(name, False, "was not there before") for name in new if name not in old]
    changes += [Change(name, False, "is not there any more") for name in old if name not in new]
    return tuple(sorted(changes, key=lambda change: change.name))


def _change(name: str, old: Report, new: Report) -> Change:
    if not _same_model(old, new):
        return Change(name, False, "is of another model than before: not compared")
    before, now = old.judgement.verdict, new.judgement.verdict
    fell = not meets(now, before)
    more, words = _flips(old, new)
    verdicts = f"still {now}" if before == now else f"{before} before, {now} now"
    same = (old.reference, old.inputs, old.limits) == (new.reference, new.inputs, new.limits)
    basis = "" if same else "; judged on other inputs or another reference"
    return Change(name, fell or more, f"{verdicts}; {words}{basis}")


def _same_model(old: Report, new: Report) -> bool:
    """The same task and outputs, as far as both reports tell."""
    tasks = {report.decisions.task for report in (old, new) if report.decisions}
    names = [{diff.output for diff in report.outputs} for report in (old, new)]
    return len(tasks) < 2 and (not all(names) or names[0] == names[1])


def _flips(old: Report, new: Report) -> tuple[bool, str]:
    """Whether significantly more decided answers flip than before, with both counts."""
    if old.decisions is None or new.decisions is None:
        return False, "no decisions to compare"
    before, now = old.decisions.decided, new.decisions.decided
    chance = fisher_p(before, now)
    counts = f"{_count(before)} decided answers flipped before, {_count(now)} now"
    if chance < _CHANCE:
        return True, f"{counts}, more than chance explains (p = {chance:.2g})"
    return False, counts


def _count(rate: Rate) -> str:
    return f"{rate.count} of {rate.n}"


def fisher_p(before: Rate, now: Rate) -> float:
    """Probability that at least so many of all flips fall into the second sample by chance alone.

    Fisher's exact test, one-sided, on effective numbers rounded to whole ones.
    """
    (a, n), (b, m) = _whole(before), _whole(now)
    total = math.comb(n + m, a + b)
    most = min(a + b, m)
    ways = (math.comb(m, k) * math.comb(n, a + b - k) for k in range(b, most + 1))
    return sum(ways) / total


def _whole(rate: Rate) -> tuple[int, int]:
    n = round(plain(rate.n_eff))
    return (round(plain(rate.rate) * n) if rate.n else 0), n
