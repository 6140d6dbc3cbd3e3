"""Member names: which are allowed, and which sets of them can lie together on every file system."""

from __future__ import annotations

import re
from collections.abc import Iterable

from edgeserve.errors import BundleError
from edgeserve.types.artifact import check_member_name

__all__ = ["MAX_NAME", "check_name", "check_names"]

MAX_NAME = 200

#: Names that Windows gives to devices, with or without an extension.
_DEVICE = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)
_HINT = "do not repack a bundle: make it with `edgeserve package`"


def check_name(name: str) -> None:
    """Refuse a member name that some system would read as another place, or not take at all.

    Raises:
        BundleError: EDGE-BUNDLE-009.
    """
    try:
        check_member_name(name)
    except ValueError:
        wanted = "a relative path of A-Z a-z 0-9 . _ - and /"
        raise _bad(name, wanted, "something else") from None
    if len(name) > MAX_NAME:
        raise _bad(name[:60], f"at most {MAX_NAME} characters", str(len(name)))
    for part in name.split("/"):
        if part.endswith(".") or _DEVICE.fullmatch(part):
            raise _bad(name, "a name that every system keeps", "one that Windows changes")


def _bad(name: str, wanted: str, got: str) -> BundleError:
    # Only ASCII that shows: a hostile name must not move the cursor of the terminal it is shown on.
    shown = ascii(name)[1:-1]
    return BundleError("EDGE-BUNDLE-009", f"member '{shown}'", wanted=wanted, got=got, hint=_HINT)


def check_names(names: Iterable[str]) -> None:
    """Refuse names of which two would meet on a file system that ignores case, or in one place.

    Every name and every folder above it must be spelled in one way, and be a file or a folder, not
    both.

    Raises:
        BundleError: EDGE-BUNDLE-010.
    """
    files: dict[str, str] = {}
    folders: dict[str, str] = {}
    for name in names:
        key = name.lower()
        if key in files or key in folders:
            raise _meets(name, files.get(key) or folders[key])
        files[key] = name
        parts = name.split("/")
        for depth in range(1, len(parts)):
            folder = "/".join(parts[:depth])
            other = files.get(folder.lower()) or folders.setdefault(folder.lower(), folder)
            if other != folder or folder.lower() in files:
                raise _meets(name, other)


def _meets(name: str, other: str) -> BundleError:
    return BundleError(
        "EDGE-BUNDLE-010",
        f"member '{name}'",
        wanted="a place of its own",
        got=f"the place of '{other}'",
        hint=_HINT,
    )
