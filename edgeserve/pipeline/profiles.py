"""``edgeserve profiles``: the device and workload profiles that this version knows."""

from __future__ import annotations

from edgeserve import profiles
from edgeserve.types.profile import Profile
from edgeserve.types.reports import Limits

__all__ = ["limits_of", "listing"]


def listing(name: str | None = None) -> tuple[Profile, ...]:
    """All profiles, devices first; or the one called ``name``.

    Raises:
        ProfileError: no profile has this name.
    """
    devices, workloads = profiles.devices(), profiles.workloads()
    if name is None:
        return (*devices.values(), *workloads.values())
    if name in workloads:
        return (workloads[name],)
    return (profiles.device(name),)


def limits_of(name: str | None) -> Limits:
    """The limits of a workload profile; the defaults without one.

    Raises:
        ProfileError: no workload profile has this name.
    """
    return profiles.workload(name).limits if name else Limits()
