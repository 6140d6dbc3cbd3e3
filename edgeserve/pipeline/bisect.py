"""``--bisect``: for each format that failed, the smallest part it fails on, and a script of it."""

from __future__ import annotations

from collections.abc import Iterable

from edgeserve.convert.bisect import Bisected, BisectRequest
from edgeserve.errors import EdgeError
from edgeserve.pipeline.bench import HEAVY, Bench
from edgeserve.pipeline.judging import Judged
from edgeserve.types.artifact import Refused

__all__ = ["bisect_failed", "forget_scripts"]

_VERB = "edgeserve.convert.bisect:bisect"

#: Most seconds that one format is searched for, and the share of a worker's time.
_SECONDS, _SHARE = 600.0, 0.8


def bisect_failed(
    bench: Bench, refused: Iterable[Refused], judged: Iterable[Judged]
) -> dict[str, str]:
    """Search each format that was refused, or that answers wrongly in float32.

    Returns:
        The scripts that were written, by format; relative to the workspace.
    """
    failed = [r.format for r in refused if r.code.startswith(("EDGE-OP-", "EDGE-CONVERT-"))]
    failed += [j.artifact.format for j in judged if j.failed and j.artifact.precision == "fp32"]
    scripts = {}
    for format in dict.fromkeys(failed):
        script = _script(format)
        found = _search(bench, format, script)
        bench.ui.note(f"{format}: {found.words}")
        if found.script:
            scripts[str(format)] = script
    return scripts


def forget_scripts(bench: Bench, formats: Iterable[str]) -> None:
    """Remove what an earlier run left: it would be about another conversion."""
    for format in formats:
        (bench.root / _script(format)).unlink(missing_ok=True)


def _script(format: str) -> str:
    return f"failed/repro_{format}.py"


def _search(bench: Bench, format: str, script: str) -> Bisected:
    request = BisectRequest(
        source_folder=str(bench.root / "source"),
        format=format,  # type: ignore[arg-type]
        script=str(bench.root / script),
        seconds=min(_SECONDS, _SHARE * bench.timeout),
    )
    (bench.root / script).parent.mkdir(exist_ok=True)
    try:
        return bench.work(f"bisect {format}", _VERB, request, Bisected, f"bisect-{format}", HEAVY)
    except EdgeError as error:
        if error.code == "EDGE-WORKER-006":  # the command is ending
            raise
        return Bisected(words=f"the part at fault was not found: {error.code} {error.message}")
