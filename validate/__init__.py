"""The gate: does an artifact decide as the server does, and would it have been seen otherwise.

    from edgeserve.validate import validate

    for report in validate("out", data="photos"):
        print(report.format, report.judgement.verdict)

The verbs that workers run are `edgeserve.validate.collect.collect_answers` (the reference, once),
`edgeserve.validate.judge.judge` (one artifact) and `edgeserve.validate.golden.make_golden`.
The rules stand in ``docs/explanation/verdicts.md``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgeserve.types.reports import Limits, Report

__all__ = ["validate"]


def validate(
    workspace: str | Path,
    data: str | Path | None = None,
    reference: str | None = None,
    *,
    limits: Limits | None = None,
    folder: str | Path = ".",
    timeout: float = 3600.0,
) -> tuple[Report, ...]:
    """Judge every artifact of a workspace, each in a worker process; the manifest stays as it is.

    Args:
        workspace: What ``edgeserve convert`` wrote.
        data: What to judge on; None: the data of the last run, where there was one.
        reference: "pt2", ``module:callable`` or an endpoint's address; None: that of the last run,
            else the manifest's.
        limits: What harm is allowed; None: the default.
        folder: Where a callable's modules are found.
        timeout: Seconds that one worker may take.

    Returns:
        One report an artifact, in the manifest's order.

    Raises:
        EdgeError: there is no workspace, the data cannot be used, or the reference cannot be asked.
    """
    from edgeserve.validate.verdict import judge_workspace

    return judge_workspace(
        Path(workspace),
        None if data is None else str(Path(data).absolute()),
        reference,
        limits,
        Path(folder),
        timeout,
    )
