"""What each stage can be told: one value a command, the same for the command line and for TOML.

With it the device and workload profiles that may be named (``edgeserve profiles``), and the
limits of a workload.
"""

from __future__ import annotations

import difflib
import math

from edgeserve import profiles
from edgeserve.errors import UsageError
from edgeserve.types.base import Value
from edgeserve.types.profile import Profile
from edgeserve.types.reports import Limits
from edgeserve.types.vocabulary import REFERENCE_FORMAT, TASKS, VERDICTS

__all__ = [
    "ConvertOptions",
    "MeasureOptions",
    "PackageOptions",
    "ReportOptions",
    "ValidateOptions",
    "check_convert_options",
    "check_seconds",
    "choice",
    "choices",
    "formats",
    "limits_of",
    "list_profiles",
    "reject_empty",
    "routes",
]


class ConvertOptions(Value, frozen=True):
    """``edgeserve convert``.

    Attributes:
        source: What to convert, as typed.
        out: The workspace.
        to: Formats.
        precision: Precisions.
        data: Data set the artifacts are judged on.
        preprocess: Name of a preset, or a file with a `Processing` as JSON or TOML.
        task: What the outputs mean, where the source does not say.
        reference: The server: ``module:callable`` or a SOURCE.
        profile: Workload profile that says what harm is allowed.
        require: Least verdict that every artifact must reach.
        all_or_nothing: Keep nothing unless every artifact is kept.
        dry_run: Say what would be done.
        name: Name of the model; None: from the source.
        timeout: Seconds that one worker may take.
        trust_pickle: Load a foreign ``.pt2`` that may run code on loading.
        via: Route to take, by the formats that have it; None: each format's own.
        bisect: Find the smallest part that a format fails on, and write a script of it.
        shapes: "auto" fixes a dynamic size with which the export is refused at the example's, and
            says so; "dynamic" refuses.
    """

    source: str
    out: str
    to: tuple[str, ...] = ("onnx",)
    precision: tuple[str, ...] = ("fp32",)
    data: str | None = None
    preprocess: str | None = None
    task: str | None = None
    reference: str | None = None
    profile: str | None = None
    require: str | None = None
    all_or_nothing: bool = False
    dry_run: bool = False
    name: str | None = None
    timeout: float = 3600.0
    trust_pickle: bool = False
    via: str | None = None
    bisect: bool = False
    shapes: str = "auto"


class ValidateOptions(Value, frozen=True):
    """``edgeserve validate``.

    Attributes:
        out: The workspace.
        data: Another data set; None: the answers stored by the last run.
        reference: Another reference; None: the recorded one.
        golden: Folder of raw inputs that may be shipped as golden cases.
        profile: Workload profile that says what harm is allowed.
        require: Least verdict that every artifact must reach.
        junit: File to write the checks to as JUnit XML.
        against: Earlier reports to compare with: a report, a folder of them or a workspace.
        timeout: Seconds that one worker may take.
    """

    out: str
    data: str | None = None
    reference: str | None = None
    golden: str | None = None
    profile: str | None = None
    require: str | None = None
    junit: str | None = None
    against: str | None = None
    timeout: float = 3600.0


class MeasureOptions(Value, frozen=True):
    """``edgeserve measure``.

    Attributes:
        out: The workspace.
        on: Where to measure; "host" in this version.
        threads: Threads given to the runtime; None: the profile's, else 1.
        batch: Batch size.
        seconds: Time budget of the counted runs of one artifact.
        profile: Workload profile.
        timeout: Seconds that one worker may take.
    """

    out: str
    on: str = "host"
    threads: int | None = None
    batch: int = 1
    seconds: float = 5.0
    profile: str | None = None
    timeout: float = 600.0


class PackageOptions(Value, frozen=True):
    """``edgeserve package``.

    Attributes:
        out: The workspace.
        bundle: The ``.edge`` file to write.
        target: Keep only the formats of one kind of device: android, ios, web or linux.
        name: Name of the model; None: the workspace's.
        version: Monotonic integer; None: the workspace's.
        license: SPDX expression.
    """

    out: str
    bundle: str
    target: str | None = None
    name: str | None = None
    version: int | None = None
    license: str | None = None


class ReportOptions(Value, frozen=True):
    """``edgeserve report``: the workspace and the HTML file to write."""

    out: str
    report: str


#: What people call a precision elsewhere.
_OTHER_WORDS = {"int8": "w8a8", "float32": "fp32", "float16": "fp16", "half": "fp16", "int4": "w4"}


def choice(
    option: str, value: str, allowed: tuple[str, ...], spellings: tuple[str, ...] = ()
) -> str:
    """``value`` if it is one of ``allowed``.

    Raises:
        UsageError: EDGE-USAGE-001, naming what is allowed and what may have been meant
            (``spellings`` are further words that would have been understood).
    """
    if value in allowed:
        return value
    near = difflib.get_close_matches(value.lower(), (*allowed, *spellings), n=1)
    meant = _OTHER_WORDS.get(value.lower()) or (near[0] if near else None)
    raise UsageError(
        "EDGE-USAGE-001",
        option,
        wanted=f"one of {', '.join(allowed)}",
        got=repr(value),
        hint=f"did you mean {meant}?" if meant else f"write {option} {allowed[0]}, for example",
    )


def choices(option: str, values: tuple[str, ...], allowed: tuple[str, ...]) -> tuple[str, ...]:
    """Each of ``values`` checked by `choice`, repeats dropped, order kept."""
    return tuple(dict.fromkeys(choice(option, v, allowed) for v in values))


def formats(values: tuple[str, ...]) -> tuple[str, ...]:
    """Registered formats with other spellings (litert, ort, ...) made standard."""
    from edgeserve import backends

    allowed = tuple(f for f in backends.in_order(backends.formats()) if f != REFERENCE_FORMAT)
    known = tuple(word for each in backends.installed() for word in each.spellings)
    standard = map(backends.canonical, values)
    return tuple(dict.fromkeys(choice("--to", value, allowed, known) for value in standard))


def routes(formats: tuple[str, ...]) -> tuple[str, ...]:
    """All routes to some formats, those that are taken only on demand too."""
    from edgeserve import backends

    known = (backends.get(format) for format in formats)
    return tuple(dict.fromkeys(r for each in known for r in (*each.routes(), *each.asked_routes)))


#: How fields are called on the command line, where that is not ``--`` and their name.
_CALLED = {"source": "SOURCE", "bundle": "--out", "report": "--out"}


def reject_empty(options: Value) -> None:
    """See that no option was given as an empty text, which would be read as "not given" or "here".

    Raises:
        UsageError: EDGE-USAGE-005, naming the option.
    """
    for field in options.__struct_fields__:
        value = getattr(options, field)
        if value not in ("", ()):
            continue
        option = _CALLED.get(field, f"--{field.replace('_', '-')}")
        if field == "out" and not isinstance(options, ConvertOptions):
            option = "OUT"
        raise UsageError(
            "EDGE-USAGE-005",
            option,
            wanted="a value",
            got="an empty one",
            hint=f"give {option} a value, or leave it out if it need not be there",
        )


def check_seconds(option: str, value: float) -> None:
    """See that a time is one.

    Raises:
        UsageError: EDGE-USAGE-005.
    """
    if not (value > 0 and math.isfinite(value)):
        raise UsageError(
            "EDGE-USAGE-005",
            option,
            wanted="a number of seconds above 0",
            got=str(value),
            hint=f"give {option} a number like 600, or leave it out",
        )


def check_convert_options(options: ConvertOptions) -> ConvertOptions:
    """The same options with every closed set checked and spellings made standard."""
    import msgspec

    from edgeserve import backends
    from edgeserve.bundle.rules import MODEL_NAME

    reject_empty(options)
    if options.name is not None and not MODEL_NAME.fullmatch(options.name):
        raise UsageError(
            "EDGE-USAGE-005",
            "--name",
            wanted="letters, digits, dots, hyphens and underscores, at most 128",
            got=repr(options.name),
            hint="the name becomes part of addresses: choose one like tagger-v2",
        )
    check_seconds("--timeout", options.timeout)
    if options.via is not None:
        choice("--via", options.via, routes(formats(options.to)))
    choice("--shapes", options.shapes, ("auto", "dynamic"))
    if options.task is not None:
        choice("--task", options.task, TASKS)
    if options.require is not None:
        choice("--require", options.require, VERDICTS)
    to = formats(options.to)
    known = backends.precisions(to)
    return msgspec.structs.replace(
        options, to=to, precision=choices("--precision", options.precision, known)
    )


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
