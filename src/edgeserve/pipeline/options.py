"""Options of ``convert`` that only the rooms can check, and the profiles that may be named."""

from __future__ import annotations

import dataclasses

from edgeserve import backends, profiles
from edgeserve.bundle.rules import MODEL_NAME
from edgeserve.errors import BackendError
from edgeserve.options import check_choice, check_options, value_error
from edgeserve.types.options import ConvertOptions
from edgeserve.types.profile import Profile
from edgeserve.types.reports import Limits
from edgeserve.types.vocabulary import REFERENCE_FORMAT

#: What ``--to`` and ``--precision`` call all that can be made here.
ALL = "all"


def formats(values: tuple[str, ...]) -> tuple[str, ...]:
    """Registered formats with other spellings (litert, ort, ...) made standard."""
    allowed = tuple(f for f in backends.in_order(backends.formats()) if f != REFERENCE_FORMAT)
    known = tuple(word for each in backends.installed() for word in each.spellings)
    standard = map(backends.canonical, values)
    return tuple(dict.fromkeys(check_choice("--to", value, allowed, known) for value in standard))


def routes(formats: tuple[str, ...]) -> tuple[str, ...]:
    """All routes to some formats, those that are taken only on demand too."""
    known = (backends.get(format) for format in formats)
    return tuple(dict.fromkeys(r for each in known for r in (*each.routes(), *each.asked_routes)))


def expand_all(options: ConvertOptions) -> tuple[ConvertOptions, dict[str, str]]:
    """The word ``all`` of formats and precisions as what can be made here; other words stay.

    Returns:
        The options without the word, and the reason for each format and precision left out.

    Raises:
        BackendError: EDGE-BACKEND-004, no format of ``all`` is installed.
    """
    left: dict[str, str] = {}
    to = tuple(word for word in options.to if word != ALL)
    precision = tuple(word for word in options.precision if word != ALL)
    if ALL in options.to:
        missing = {b.format: _install_hint(b) for b in backends.installed()}
        left = {format: f"not installed: {hint}" for format, hint in missing.items() if hint}
        to += tuple(format for format in missing if format not in left)
        if not to:
            check_installed(next(iter(missing)))
    if ALL in options.precision:
        makers = [backends.get(format) for format in formats(to)]
        made = dict.fromkeys(p for backend in makers for p in backend.precisions)
        calibrated = {p for backend in makers for p in backend.calibrated} - {*precision}
        if options.data is None:
            reason = "calibration needs samples: give --data"
            left |= {p: reason for p in made if p in calibrated}
        precision += tuple(p for p in made if p not in left)
    return dataclasses.replace(options, to=to, precision=precision), left


def _install_hint(backend: backends.Backend) -> str | None:
    """What to install before artifacts of a format can be made and run, or None."""
    return backend.missing_tools() or backend.missing()


def check_installed(format: str) -> None:
    """See that a format's packages are installed.

    Raises:
        BackendError: EDGE-BACKEND-004.
    """
    if missing := _install_hint(backends.get(format)):
        where = f"format {format}"
        got = "not installed"
        raise BackendError("EDGE-BACKEND-004", where, wanted="its packages", got=got, hint=missing)


def check_convert_options(options: ConvertOptions) -> ConvertOptions:
    """The same options with every closed set checked and spellings made standard.

    Raises:
        UsageError: EDGE-USAGE-001 or -005, naming the option.
    """
    check_options(options)
    if options.name is not None and not MODEL_NAME.fullmatch(options.name):
        wanted = "letters, digits, dots, hyphens and underscores, at most 128"
        hint = "the name becomes part of addresses: choose one like tagger-v2"
        raise value_error("--name", wanted, repr(options.name), hint)
    to = formats(options.to)
    if options.via is not None:
        check_choice("--via", options.via, routes(to))
    known = backends.precisions(to)
    precisions = (check_choice("--precision", each, known) for each in options.precision)
    return dataclasses.replace(options, to=to, precision=tuple(dict.fromkeys(precisions)))


def list_profiles(name: str | None = None) -> tuple[Profile, ...]:
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
