"""Which (artifact, delegate, threads) may run here, in what order, and which is best.

The caller's constraints are checked first: nothing that is asked for is silently ignored. The
rest are pure functions over the manifest, what the backends report about this device, and the
outcomes of probes; the probing itself is in `edgeserve.wrapper.probe`.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgeserve import backends
from edgeserve.backends import Backend
from edgeserve.backends.versions import versions
from edgeserve.bundle.manifest import UNREADABLE
from edgeserve.environment import environment, usable_cores
from edgeserve.errors import EdgeError, WrapperError
from edgeserve.files import sha256_bytes
from edgeserve.types.artifact import Artifact
from edgeserve.types.base import Value, encode
from edgeserve.types.manifest import Manifest, unsupported_features
from edgeserve.types.profile import DeviceProfile, Profile
from edgeserve.types.vocabulary import PRECISIONS, REFERENCE_FORMAT
from edgeserve.wrapper.engine import ProbeOutcome, ProbeState


@dataclass(frozen=True)
class Constraints:
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


def parse_constraints(
    *,
    format: str | None,
    precision: str | None,
    delegate: str | None,
    strict: bool,
    threads: int | None,
    profile: Profile | str | None,
    deadline: float | None,
) -> Constraints:
    """Check the arguments of a `Wrapper` and make a `Wish` of them.

    Raises:
        WrapperError: EDGE-WRAPPER-002 for what this version cannot do, -003 for a wrong value.
        ProfileError: there is no profile of that name.
    """
    if deadline is not None:
        hint = "leave it out: without a fallback nobody could answer in the device's place"
        raise _bad_argument("EDGE-WRAPPER-002", "deadline", "a fallback beside it", "none", hint)
    if format is not None:
        format = _known_format(format)
    if not (precision is None or precision in PRECISIONS or precision in backends.precisions()):
        raise _unknown_word("precision", precision, backends.precisions())
    if threads is not None and (type(threads) is not int or threads < 1):
        hint = "leave it out to let the Wrapper measure what is best"
        wanted = "a whole number from 1 up"
        raise _bad_argument("EDGE-WRAPPER-003", "threads", wanted, repr(threads), hint)
    return Constraints(format, precision, delegate, threads, bool(strict), _device(profile))


def _known_format(word: str) -> str:
    format = backends.canonical(word)
    if format == REFERENCE_FORMAT or not backends.registered(format):
        known = tuple(backend.format for backend in backends.installed())
        raise _unknown_word("format", word, known)
    return format


def _unknown_word(argument: str, value: str, known: tuple[str, ...]) -> WrapperError:
    wanted = f"one of {', '.join(known)}"
    hint = "`edgeserve inspect BUNDLE` lists what the bundle holds"
    return _bad_argument("EDGE-WRAPPER-003", argument, wanted, repr(value), hint)


def _bad_argument(code: str, argument: str, wanted: str, got: str, hint: str) -> WrapperError:
    return WrapperError(code, f"argument {argument}", wanted=wanted, got=got, hint=hint)


def _device(profile: Profile | str | None) -> DeviceProfile | None:
    """Look a device profile up; a workload's limits belong to the gate, which has spoken."""
    if profile is None or isinstance(profile, DeviceProfile):
        return profile
    if isinstance(profile, str):
        from edgeserve import profiles

        return profiles.device(profile)
    got = "a workload profile, which is not in this version"
    hint = "give its limits to `edgeserve validate`, and a device profile or nothing here"
    raise _bad_argument("EDGE-WRAPPER-002", "profile", "a device profile", got, hint)


#: Best first; what the gate failed is never in a manifest's artifacts.
_TIERS = ("pass", "degraded", "unproven")
#: Packages around the model whose version may change an answer here; a backend names its own.
_PACKAGES = ("edgeserve", "numpy", "pillow", "tokenizers")
#: Out-of-tree drivers say their version here; those in the kernel's tree have the kernel's.
_DRIVERS = ("nvidia", "amdgpu", "mali_kbase", "rknpu", "gasket")
#: A later candidate must be faster by this share: times are noisy, choices should not be.
_MIN_SPEEDUP = 0.10


class ExecutionPlan(Value, frozen=True):
    """One way to run the model on this device.

    Attributes:
        artifact: What would run.
        delegate: On what.
        threads: With how many threads; None: the runtime's own default.
        key: Hash of this and of all that may change its answers: artifact bytes, device, system,
            driver and runtime versions, golden cases.
    """

    artifact: Artifact
    delegate: str
    threads: int | None
    key: str

    @property
    def name(self) -> str:
        """For people: "onnx-fp32 on cpu, 2 threads"."""
        count = f", {self.threads} thread{'s' * (self.threads != 1)}" if self.threads else ""
        return f"{self.artifact.name} on {self.delegate}{count}"

    def outcome(self, state: ProbeState, reason: str, **more: Any) -> ProbeOutcome:
        """How a trial of it ended; ``more`` as in `ProbeOutcome`."""
        return ProbeOutcome(
            key=self.key, name=self.name, state=state, reason=reason, made=time.time(), **more
        )

    def deferred(self, error: EdgeError, tries: int = 0) -> ProbeOutcome:
        """The outcome of a trial that the machine stopped by ``error``, with the tries so far."""
        return self.outcome("deferred", error.message, tries=tries, trouble=error.fields())


@dataclass(frozen=True)
class SkippedArtifact:
    """Something that was not even tried, and why."""

    what: str
    why: str

    def __str__(self) -> str:
        return f"{self.what}: {self.why}"


@dataclass(frozen=True)
class PlanTiers:
    """All that may be tried, in tiers by the gate's verdict, best tier first.

    Attributes:
        tiers: Candidates of each tier in order of preference; no tier is empty.
        passed_over: What is not among them, and why.
        missed: Those of ``passed_over`` that the caller's own conditions allow and that are of a
            better tier than the first: with these missing, the first tier is a second choice.
        unknown: Those of ``passed_over`` that this version does not know how to run: of another
            format or precision than it has, or of a later version of the manifest.
    """

    tiers: tuple[tuple[ExecutionPlan, ...], ...]
    passed_over: tuple[SkippedArtifact, ...]
    missed: tuple[SkippedArtifact, ...] = ()
    unknown: tuple[SkippedArtifact, ...] = ()


def plan_tiers(
    manifest: Manifest, wish: Constraints, backend: Callable[[str], Backend], digest: str
) -> PlanTiers:
    """Sort the manifest's artifacts into what may be tried here and what not.

    Args:
        manifest: Of the open bundle or workspace.
        wish: The caller's conditions.
        backend: Looks a format's backend up; raises a coded error where there is none.
        digest: `device_digest` of this device.
    """
    digest = _model_digest(manifest, digest)
    tiers: dict[str, list[ExecutionPlan]] = {}
    passed_over: list[tuple[str, SkippedArtifact]] = []
    unknown = [SkippedArtifact(r.name, r.message) for r in manifest.refused if r.code == UNREADABLE]
    for artifact in sorted(manifest.artifacts, key=_width):
        tier = artifact.verdict or "unproven"
        if why := _excluded(artifact, wish):
            passed_over.append((tier, SkippedArtifact(artifact.name, why)))
        elif why := _unknown(artifact, backend):
            unknown.append(SkippedArtifact(artifact.name, why))
            passed_over.append((tier, unknown[-1]))
        else:
            found, why = _plans_of(artifact, manifest, wish, backend, digest)
            if found:
                tiers.setdefault(tier, []).extend(found)
            else:
                passed_over.append((tier, SkippedArtifact(artifact.name, why)))
    best = min(map(_TIERS.index, tiers), default=len(_TIERS))
    missed = [
        left
        for tier, left in passed_over
        if _TIERS.index(tier) < best and not _excluded(manifest.artifact(left.what), wish)
    ]
    ordered = tuple(tuple(tiers[tier]) for tier in _TIERS if tier in tiers)
    unreadable = [left for left in unknown if left not in [over for _, over in passed_over]]
    return PlanTiers(
        ordered, (*(left for _, left in passed_over), *unreadable), tuple(missed), tuple(unknown)
    )


def _width(artifact: Artifact) -> int:
    """Rank of an artifact's precision, the widest first; those that are not known come last."""
    known = artifact.precision in PRECISIONS
    return PRECISIONS.index(artifact.precision) if known else len(PRECISIONS)


def _unknown(artifact: Artifact, backend: Callable[[str], Backend]) -> str:
    """Why this version cannot know how to run an artifact; empty where it does."""
    if not backends.registered(artifact.format):
        return f"no installed package has the format {artifact.format}"
    try:
        made = backend(artifact.format).precisions
    except EdgeError:  # its package is broken, which is another reason
        return ""
    if artifact.precision not in (*PRECISIONS, *made):
        return f"the precision {artifact.precision} is not known to this version of edgeserve"
    if unsupported := unsupported_features(artifact):
        return f"it requires {', '.join(unsupported)}, which this version does not support"
    return ""


def _plans_of(
    artifact: Artifact,
    manifest: Manifest,
    wish: Constraints,
    backend: Callable[[str], Backend],
    digest: str,
) -> tuple[list[ExecutionPlan], str]:
    """The candidates of one artifact, or why it has none."""
    golden = manifest.golden is not None and bool(manifest.golden.cases)
    if why := _unproven(artifact, wish, golden):
        return [], why
    try:
        engine = backend(artifact.format)
        if missing := engine.missing():
            return [], f"its runtime is not here ({missing})"
        usable = engine.delegates()
    except EdgeError as error:
        return [], error.message
    delegates = _delegates(engine, wish, usable, golden)
    if not delegates and set(usable) <= set(engine.simulated):
        reason = f"its runtime is not here, and the {', '.join(usable)} is for proofs"
        return [], f"{reason} (format={artifact.format!r} takes it all the same)"
    if not delegates:
        return [], f"no delegate that is asked for is usable here, which are {', '.join(usable)}"
    # Of the device with the versions of the packages that run a format.
    digest = sha256_bytes(f"{digest} {sorted(versions(*engine.packages).items())}".encode())
    return [
        ExecutionPlan(artifact=artifact, delegate=d, threads=n, key=_key(artifact, d, n, digest))
        for d in delegates
        for n in _threads(d, wish, golden)
    ], ""


def _excluded(artifact: Artifact | None, wish: Constraints) -> str:
    """Which of the caller's own conditions an artifact does not meet; empty if it meets all."""
    if artifact is None:
        return "not in the manifest"
    for what, asked, got in (
        ("format", wish.format, artifact.format),
        ("precision", wish.precision, artifact.precision),
    ):
        if asked is not None and asked != got:
            return f"only {what} {asked} is asked for"
    device = wish.device
    if device and artifact.format not in device.formats:
        return f"profile {device.name} does not run {artifact.format}"
    if device and artifact.precision not in device.precisions:
        return f"profile {device.name} has no use for {artifact.precision}"
    return ""


def _unproven(artifact: Artifact, wish: Constraints, golden: bool) -> str:
    if artifact.verdict != "unproven":
        return ""
    if wish.strict:
        return "the gate's verdict is unproven, which strict never takes"
    return "" if golden else "the gate's verdict is unproven, and no golden cases can prove it here"


def _delegates(
    engine: Backend, wish: Constraints, usable: Sequence[str], golden: bool
) -> tuple[str, ...]:
    """Delegates worth trying, best first, in the backend's own words.

    Without golden cases nothing proves an accelerator here, and the gate's own proof was made on
    the processor: so only that one is taken, unless the caller names another. What is for proofs is
    taken where the caller asks for it, for its format, or for a proof.
    """
    wanted: Iterable[str] = usable
    if wish.delegate is None and not (wish.proofs or wish.format == engine.format):
        usable = [delegate for delegate in usable if delegate not in engine.simulated]
    if wish.delegate is not None:
        wanted = (wish.delegate,)
    elif not golden:
        wanted = ("cpu", *engine.simulated)
    elif wish.device and engine.format in wish.device.delegates:
        wanted = (*wish.device.delegates[engine.format], *engine.simulated)
    return tuple(dict.fromkeys(d for d in map(engine.delegate, wanted) if d in usable))


def _threads(delegate: str, wish: Constraints, golden: bool) -> tuple[int | None, ...]:
    """Numbers of threads worth trying: several only on the processor, and only if timed."""
    if wish.threads is not None:
        return (wish.threads,)
    if delegate != "cpu" or not (golden or wish.device):
        return (None,)
    return thread_counts(usable_cores(), wish.device)


def thread_counts(cores: int, device: DeviceProfile | None = None) -> tuple[int, ...]:
    """1, up to 4, and all of the cores in use; with a profile the device's big cores alone."""
    if device:
        return (max(1, min(cores, device.cores)),)
    return tuple(sorted({1, min(4, cores), cores}))


def _key(artifact: Artifact, delegate: str, threads: int | None, digest: str) -> str:
    what = f"{artifact.name} {artifact.sha256} {delegate} {threads} {digest}"
    return sha256_bytes(what.encode() + encode(artifact.io))


def _model_digest(manifest: Manifest, digest: str) -> str:
    """Hash of the device with all of a manifest that may change an answer or what it is held to."""
    of = manifest
    parts = (of.task, of.signature, of.processing, of.labels, of.golden)
    return sha256_bytes(f"{digest} {manifest.model_id} ".encode() + encode(parts))


def device_digest() -> str:
    """Hash of the device, its system, drivers and what runs around a model."""
    here = environment()
    drivers = []
    for name in _DRIVERS:
        try:
            drivers.append(f"{name} {Path(f'/sys/module/{name}/version').read_text().strip()}")
        except OSError:
            continue
    packages = [f"{name} {here.packages[name]}" for name in _PACKAGES if name in here.packages]
    facts = [here.machine, here.processor, *here.features, str(here.cores), here.system]
    facts += [platform.release(), here.python, *drivers, *packages]
    return sha256_bytes("\n".join(facts).encode())


def fastest(
    accepted: Sequence[tuple[ExecutionPlan, ProbeOutcome]],
) -> tuple[ExecutionPlan, ProbeOutcome]:
    """The quickest of those accepted (at least one), given in order of preference.

    A later one must be faster by a tenth, so that noise does not choose; one that was not timed
    counts as slowest.
    """
    best = accepted[0]
    for contender in accepted[1:]:
        mine, other = best[1].run_ms, contender[1].run_ms
        if other is not None and (mine is None or other < mine * (1 - _MIN_SPEEDUP)):
            best = contender
    return best
