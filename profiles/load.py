"""Reading profiles: TOML files beside this module, or a user's own, checked to the last field."""

from __future__ import annotations

import difflib
import functools
import tomllib
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec

from edgeserve.errors import ProfileError
from edgeserve.types.profile import DeviceProfile, WorkloadProfile

P = TypeVar("P", DeviceProfile, WorkloadProfile)

#: TOML has no null: what a workload may leave away.
_ABSENT: dict[str, Any] = {"deadline_ms": None, "threads": None}


@functools.cache
def devices() -> Mapping[str, DeviceProfile]:
    """All device profiles that ship with edgeserve, by name, sorted."""
    return _all("devices", read_device)


@functools.cache
def workloads() -> Mapping[str, WorkloadProfile]:
    """All workload profiles that ship with edgeserve, by name, sorted."""
    return _all("workloads", read_workload)


def device(name: str) -> DeviceProfile:
    """Look up a device profile, or read the user's own where ``name`` is a ``.toml`` file.

    Raises:
        ProfileError: EDGE-PROFILE-001, there is none; EDGE-PROFILE-002 or -003, the file is bad.
    """
    return _find("device", name, devices(), read_device)


def workload(name: str) -> WorkloadProfile:
    """Look up a workload profile, or read the user's own where ``name`` is a ``.toml`` file.

    Raises:
        ProfileError: EDGE-PROFILE-001, there is none; EDGE-PROFILE-002 or -003, the file is bad.
    """
    return _find("workload", name, workloads(), read_workload)


def read_device(text: str, name: str) -> DeviceProfile:
    """Read a device profile from TOML.

    Args:
        text: The file's text.
        name: The file's name without ``.toml``; the profile must carry the same.

    Raises:
        ProfileError: EDGE-PROFILE-002 not TOML, -003 a field is missing, unknown or wrong.
    """
    return _checked(_parse(text, name), name, DeviceProfile)


def read_workload(text: str, name: str) -> WorkloadProfile:
    """Read a workload profile from TOML; like `read_device`."""
    return _checked(_ABSENT | _parse(text, name), name, WorkloadProfile)


def _parse(text: str, name: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        hint = "compare with a profile that ships with edgeserve (edgeserve profiles NAME)"
        file, got = f"profile {name}.toml", str(error)
        raise ProfileError("EDGE-PROFILE-002", file, wanted="TOML", got=got, hint=hint) from error


def _checked(data: dict[str, Any], name: str, type_: type[P]) -> P:
    try:
        profile = msgspec.convert(data, type_)
        if profile.name != name:
            raise msgspec.ValidationError(f"the file is called {name}, its profile {profile.name}")
    except msgspec.ValidationError as error:
        file, hint = f"profile {name}.toml", "docs/reference/profiles.md lists every field"
        raise ProfileError("EDGE-PROFILE-003", file, got=str(error), hint=hint) from error
    return profile


def _all(folder: str, read: Callable[[str, str], P]) -> Mapping[str, P]:
    entries = (resources.files("edgeserve.profiles") / folder).iterdir()
    files = {e.name.removesuffix(".toml"): e for e in entries if e.name.endswith(".toml")}
    return MappingProxyType(
        {name: read(files[name].read_text("utf-8"), name) for name in sorted(files)}
    )


def _find(kind: str, name: str, known: Mapping[str, P], read: Callable[[str, str], P]) -> P:
    if name in known:
        return known[name]
    if name.endswith(".toml"):
        try:
            text = Path(name).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ProfileError(
                "EDGE-PROFILE-002",
                f"profile {name}",
                wanted="a readable file in UTF-8",
                got=getattr(error, "strerror", None) or str(error),
                hint="check the path",
            ) from error
        return read(text, Path(name).stem)
    close = difflib.get_close_matches(name.lower(), known, n=3, cutoff=0.5)
    raise ProfileError(
        "EDGE-PROFILE-001",
        f"{kind} profile {name!r}",
        wanted=f"one of {', '.join(known)}",
        got="no such profile",
        hint=f"did you mean {' or '.join(close)}?" if close else "see `edgeserve profiles`",
    )
