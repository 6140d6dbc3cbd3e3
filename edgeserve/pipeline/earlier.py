"""What an earlier run refused: said with the reference that it was judged against, and the day."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from edgeserve.types.artifact import Refused
from edgeserve.types.base import decode
from edgeserve.types.manifest import Manifest
from edgeserve.types.reports import Report

__all__ = ["earlier", "with_earlier"]


def earlier(root: Path, refused: Refused) -> str:
    """When and against what it was refused, as far as its report in the workspace tells.

    The manifest itself does not say: bundles carry its refusals, and no reference leaves OUT.
    """
    path = root / "reports" / f"{refused.format}-{refused.precision}.validate.json"
    try:
        report = decode(path.read_bytes(), Report)
        day = datetime.fromtimestamp(path.stat().st_mtime, UTC).date()
    except (OSError, msgspec.MsgspecError):
        return "refused earlier, not judged again"
    if refused.code not in {reason.code for reason in report.judgement.reasons}:
        return "refused earlier, not judged again"  # by a converter: the report is an older one
    return f"refused on {day} against {report.reference}, not judged again"


def with_earlier(root: Path, manifest: Manifest, judged: Collection[str]) -> Manifest:
    """The manifest to show: refusals that this run did not make say whose they are."""
    shown = (
        r
        if f"{r.format}-{r.precision}" in judged
        else msgspec.structs.replace(r, message=f"{r.message} ({earlier(root, r)})")
        for r in manifest.refused
    )
    return msgspec.structs.replace(manifest, refused=tuple(shown))
