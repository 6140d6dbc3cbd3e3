"""Bundles: ``bundle/cases.json``."""

from __future__ import annotations

import hashlib
import sys
import tempfile
from pathlib import Path
from typing import Any

from edgeserve.bundle import Bundle
from edgeserve.errors import BundleError

__all__ = ["check_bundle_case", "write_case"]

Json = dict[str, Any]


def write_case(case: Json, folder: Path, path: Path) -> None:
    """Write a case's file; long runs of zeros become holes.

    Args:
        case: Of ``cases.json``.
        folder: Where that lies.
        path: The file to write.
    """
    base = (folder / "bases" / f"{case['base']}.edge").read_bytes()
    with open(path, "wb") as out:
        for kind, *rest in case["parts"]:
            if kind == "zeros":
                out.truncate(out.seek(rest[0], 1))
            else:
                out.write(base[rest[0] : rest[1]] if kind == "base" else bytes.fromhex(rest[0]))


def check_bundle_case(case: Json, _: Json, folder: Path) -> str | None:
    """Open a case's file, or be refused with its code."""
    if case.get("big") and sys.platform == "win32":
        return None
    with tempfile.TemporaryDirectory(prefix="edgeserve-") as scratch:
        path = Path(scratch, "case.edge")
        write_case(case, folder, path)
        try:
            with Bundle(path) as bundle:
                if "read" in case:
                    bundle.read(case["read"])
                told = _opened(bundle, case)
        except BundleError as error:
            return None if error.code == case.get("error") else f"raised {error}"
    return f"opened instead of {case['error']}" if "error" in case else told


def _opened(bundle: Bundle, case: Json) -> str | None:
    """What differs between an open bundle and what the case says of it."""
    if "opens" not in case:
        return None
    wanted = case["opens"]
    members = [{"name": name, "size": place.size} for name, place in bundle.members.items()]
    if members != [{"name": m["name"], "size": m["size"]} for m in wanted["members"]]:
        return f"members: gave {members}"
    if case.get("big"):
        return None
    if (bundle.sha256, bundle.manifest.model_id) != (wanted["sha256"], wanted["model_id"]):
        return f"sha256 and model_id: gave {bundle.sha256}, {bundle.manifest.model_id}"
    for member in wanted["members"][1:]:
        if hashlib.sha256(bundle.read(member["name"])).hexdigest() != member["sha256"]:
            return f"{member['name']}: other bytes"
    return None
