"""Which (artifact, delegate, threads) may run here, in what order, and which is best.

Pure functions over the manifest, the backends' word about this device, and the outcomes of proofs;
the trying itself is in `edgeserve.wrapper.trial`.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgeserve.backends import Backend
from edgeserve.environment import environment, usable_cores
from edgeserve.errors import EdgeError
from edgeserve.files import sha256_bytes
from edgeserve.types.artifact import Artifact
from edgeserve.types.base import Value, encode
from edgeserve.types.manifest import Manifest
from edgeserve.types.profile import DeviceProfile
from edgeserve.types.words import PRECISIONS
from edgeserve.wrapper.cache import Outcome
from edgeserve.wrapper.wish import Wish

__all__ = ["Candidate", "Field", "PassedOver", "device_digest", "fastest", "field", "thread_counts"]

#: Best first; what the gate failed is never in a manifest's artifacts.
_TIERS = ("pass", "degraded", "unproven")
#: Packages whose version may change an answer here.
_RUNTIMES = (
    "edgeserve",
    "numpy",
    "pillow",
    "tokenizers",
    "onnxruntime",
    "onnxruntime-gpu",
    "ai-edge-litert",
    "coremltools",
    "torch",
)
#: Out-of-tree drivers say their version here; those in the kernel's tree have the kernel's.
_DRIVERS = ("nvidia", "amdgpu", "mali_kbase", "rknpu", "gasket")
#: Delegates that carry a format out where its runtime is not, to prove an artifact: right and slow.
_FOR_PROOFS = ("interpreter",)
#: A later candidate must be faster by this share: times are noisy, choices should not be.
_GAIN = 0.10


class Candidate(Value, frozen=True):
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


@dataclass(frozen=True)
class PassedOver:
    """Something that was not even tried, and why."""

    what: str
    why: str

    def __str__(self) -> str:
        return f"{self.what}: {self.why}"


@dataclass(frozen=True)
class Field:
    """All that may be tried, in tiers by the gate's verdict, best tier first.

    Attributes:
        tiers: Candidates of each tier in order of preference; no tier is empty.
        passed_over: What is not among them, and why.
        missed: Those of ``passed_over`` that the caller's own conditions allow and that are of a
            better tier than the first: with these missing, the first tier is a second choice.
    """

    tiers: tuple[tuple[Candidate, ...], ...]
    passed_over: tuple[PassedOver, ...]
    missed: tuple[PassedOver, ...] = ()


def field(manifest: Manifest, wish: Wish, backend: Callable[[str], Backend], digest: str) -> Field:
    """Sort the manifest's artifacts into what may be tried here and what not.

    Args:
        manifest: Of the open bundle or workspace.
        wish: The caller's conditions.
        backend: Looks a format's backend up; raises a coded error where there is none.
        digest: `device_digest` of this device.
    """
    digest = _asked_digest(manifest, digest)
    tiers: dict[str, list[Candidate]] = {}
    passed_over: list[tuple[str, PassedOver]] = []
    for artifact in sorted(manifest.artifacts, key=lambda a: PRECISIONS.index(a.precision)):
        found, why = _candidates(artifact, manifest, wish, backend, digest)
        tier = artifact.verdict or "unproven"
        if found:
            tiers.setdefault(tier, []).extend(found)
        else:
            passed_over.append((tier, PassedOver(artifact.name, why)))
    best = min(map(_TIERS.index, tiers), default=len(_TIERS))
    missed = [
        left
        for tier, left in passed_over
        if _TIERS.index(tier) < best and not _excluded(manifest.artifact(left.what), wish)
    ]
    ordered = tuple(tuple(tiers[tier]) for tier in _TIERS if tier in tiers)
    return Field(ordered, tuple(left for _, left in passed_over), tuple(missed))


def _candidates(
    artifact: Artifact,
    manifest: Manifest,
    wish: Wish,
    backend: Callable[[str], Backend],
    digest: str,
) -> tuple[list[Candidate], str]:
    """The candidates of one artifact, or why it has none."""
    golden = manifest.golden is not None and bool(manifest.golden.cases)
    if why := _excluded(artifact, wish) or _unproven(artifact, wish, golden):
        return [], why
    try:
        engine = backend(artifact.format)
        if missing := engine.missing():
            return [], f"its runtime is not here ({missing})"
        usable = engine.delegates()
    except EdgeError as error:
        return [], error.message
    delegates = _delegates(artifact, wish, usable, golden)
    if not delegates and set(usable) <= set(_FOR_PROOFS):
        told = f"its runtime is not here, and the {', '.join(usable)} is for proofs"
        return [], f"{told} (format={artifact.format!r} takes it all the same)"
    if not delegates:
        return [], f"no delegate that is asked for is usable here, which are {', '.join(usable)}"
    return [
        Candidate(artifact=artifact, delegate=d, threads=n, key=_key(artifact, d, n, digest))
        for d in delegates
        for n in _threads(d, wish, golden)
    ], ""


def _excluded(artifact: Artifact | None, wish: Wish) -> str:
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


def _unproven(artifact: Artifact, wish: Wish, golden: bool) -> str:
    if artifact.verdict != "unproven":
        return ""
    if wish.strict:
        return "the gate's verdict is unproven, which strict never takes"
    return "" if golden else "the gate's verdict is unproven, and no golden cases can prove it here"


def _delegates(
    artifact: Artifact, wish: Wish, usable: Sequence[str], golden: bool
) -> tuple[str, ...]:
    """Delegates worth trying, best first.

    Without golden cases nothing proves an accelerator here, and the gate's own proof was made on
    the processor: so only that one is taken, unless the caller names another. What is for proofs is
    taken where the caller asks for it, for its format, or for a proof.
    """
    wanted: Iterable[str] = usable
    if wish.delegate is None and not (wish.proofs or wish.format == artifact.format):
        usable = [delegate for delegate in usable if delegate not in _FOR_PROOFS]
    if wish.delegate is not None:
        wanted = (wish.delegate,)
    elif not golden:
        wanted = ("cpu", *_FOR_PROOFS)
    elif wish.device and artifact.format in wish.device.delegates:
        wanted = wish.device.delegates[artifact.format]
    return tuple(d for d in wanted if d in usable)


def _threads(delegate: str, wish: Wish, golden: bool) -> tuple[int | None, ...]:
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


def _asked_digest(manifest: Manifest, digest: str) -> str:
    """Hash of the device with all of a manifest that may change an answer or what it is held to."""
    parts = (
        manifest.task,
        manifest.signature,
        manifest.processing,
        manifest.labels,
        manifest.golden,
    )
    return sha256_bytes(f"{digest} {manifest.model_id} ".encode() + encode(parts))


def device_digest() -> str:
    """Hash of the device, its system, drivers and runtime versions: what a proof holds for."""
    here = environment()
    drivers = []
    for name in _DRIVERS:
        try:
            drivers.append(f"{name} {Path(f'/sys/module/{name}/version').read_text().strip()}")
        except OSError:
            continue
    runtimes = [f"{name} {here.packages[name]}" for name in _RUNTIMES if name in here.packages]
    facts = [
        here.machine,
        here.processor,
        *here.features,
        str(here.cores),
        here.system,
        platform.release(),
        here.python,
        *drivers,
        *runtimes,
    ]
    return sha256_bytes("\n".join(facts).encode())


def fastest(accepted: Sequence[tuple[Candidate, Outcome]]) -> tuple[Candidate, Outcome]:
    """The quickest of those accepted (at least one), given in order of preference.

    A later one must be faster by a tenth, so that noise does not choose; one that was not timed
    counts as slowest.
    """
    best = accepted[0]
    for contender in accepted[1:]:
        mine, other = best[1].run_ms, contender[1].run_ms
        if other is not None and (mine is None or other < mine * (1 - _GAIN)):
            best = contender
    return best
