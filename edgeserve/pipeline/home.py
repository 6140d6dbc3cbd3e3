"""Where a workspace may be made: in a new or empty folder, or where one has been begun."""

from __future__ import annotations

from pathlib import Path

from edgeserve.errors import UsageError

__all__ = ["check_out"]

#: What a workspace holds; an interrupted first run leaves some of it and no manifest.
_OURS = frozenset(
    {
        "artifacts",
        "assets",
        "failed",
        "golden",
        "identity.json",
        "logs",
        "manifest.json",
        "reports",
        "samples",
        "source",
    }
)


def check_out(out: Path) -> None:
    """See that conversion would not spread into a folder of the user's own things.

    Raises:
        UsageError: EDGE-USAGE-012.
    """
    if not out.is_dir() or (out / ".lock").exists() or (out / "source" / "source.json").exists():
        return
    try:
        strange = sorted(p.name for p in out.iterdir() if p.name[0] != "." and p.name not in _OURS)
    except OSError:  # the workspace's lock says what is wrong
        return
    if strange:
        shown = ", ".join(strange[:3]) + (", ..." if len(strange) > 3 else "")
        raise UsageError(
            "EDGE-USAGE-012",
            f"--out {out}",
            wanted="a new or empty folder, or a workspace",
            got=f"a folder with {shown}",
            hint=f"name one inside it: -o {out / 'edgeserve-out'}",
        )
