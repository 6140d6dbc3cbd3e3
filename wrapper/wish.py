"""What the caller asks of a `Wrapper`, checked: nothing that is asked for is silently ignored."""

from __future__ import annotations

from dataclasses import dataclass

from edgeserve.errors import WrapperError
from edgeserve.types.profile import DeviceProfile, Profile
from edgeserve.types.words import FORMAT_SPELLINGS, FORMATS, PRECISIONS

__all__ = ["Wish", "wish"]

_LATER = {
    "deadline": "leave it out: without a fallback nobody could answer in the device's place",
    "trust": "leave it out, and get the bundle over a channel you trust: hashes are always checked",
}


@dataclass(frozen=True)
class Wish:
    """The caller's own conditions; None: no condition.

    Attributes:
        format: Only this format.
        precision: Only this precision.
        delegate: Only this delegate.
        threads: Exactly this many threads.
        strict: Raise rather than take a second choice.
        device: Only what is worth trying on this class of device.
        proofs: Also what can prove an artifact and is not fit to serve it.
    """

    format: str | None = None
    precision: str | None = None
    delegate: str | None = None
    threads: int | None = None
    strict: bool = False
    device: DeviceProfile | None = None
    proofs: bool = False


def wish(
    *,
    format: str | None,
    precision: str | None,
    delegate: str | None,
    strict: bool,
    threads: int | None,
    profile: Profile | str | None,
    later: dict[str, object],
) -> Wish:
    """Check the arguments of a `Wrapper` and make a `Wish` of them.

    Raises:
        WrapperError: EDGE-WRAPPER-002 for what this version cannot do, -003 for a wrong value.
        ProfileError: there is no profile of that name.
    """
    for name, value in later.items():
        if value is not None:
            raise WrapperError(
                "EDGE-WRAPPER-002", f"argument {name}", got="not in this version", hint=_LATER[name]
            )
    if format is not None:
        format = _word("format", FORMAT_SPELLINGS.get(format, format), FORMATS)
    if precision is not None:
        precision = _word("precision", precision, PRECISIONS)
    if threads is not None and (type(threads) is not int or threads < 1):
        raise WrapperError(
            "EDGE-WRAPPER-003",
            "argument threads",
            wanted="a whole number from 1 up",
            got=repr(threads),
            hint="leave it out to let the Wrapper measure what is best",
        )
    return Wish(format, precision, delegate, threads, bool(strict), _device(profile))


def _word(argument: str, value: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise WrapperError(
            "EDGE-WRAPPER-003",
            f"argument {argument}",
            wanted=f"one of {', '.join(known)}",
            got=repr(value),
            hint="`edgeserve inspect BUNDLE` lists what the bundle holds",
        )
    return value


def _device(profile: Profile | str | None) -> DeviceProfile | None:
    """Look a device profile up; a workload's limits belong to the gate, which has spoken."""
    if profile is None or isinstance(profile, DeviceProfile):
        return profile
    if isinstance(profile, str):
        from edgeserve import profiles

        return profiles.device(profile)
    raise WrapperError(
        "EDGE-WRAPPER-002",
        "argument profile",
        wanted="a device profile",
        got="a workload profile, which is not in this version",
        hint="give its limits to `edgeserve validate`, and a device profile or nothing here",
    )
