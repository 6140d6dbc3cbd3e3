"""`Certificate`: what the golden proof said on one device at one moment."""

from __future__ import annotations

from typing import Literal

from edgeserve.types.base import Number, Value
from edgeserve.types.records import Runtime
from edgeserve.types.reports import Environment
from edgeserve.types.words import Format, Precision, Verdict

__all__ = ["Certificate", "CertificateVerdict", "Proven"]

CertificateVerdict = Literal["pass", "fail", "unproven"]


class Proven(Value, frozen=True):
    """How one runnable artifact did, on one delegate and number of threads.

    Attributes:
        format: Format of the artifact.
        precision: Precision of the artifact.
        artifact_sha256: Identity of its bytes.
        gate: The gate's verdict that it was shipped with.
        delegate: The delegate asked for; what really ran stands in ``runtime``.
        threads: Threads of the runtime; None: its own default.
        runtime: The engine that answered; None where it never came so far.
        passed: Golden cases answered as the reference did.
        total: Golden cases asked.
        min_margin: Smallest margin among the answers; None where the task has none.
        max_difference: Largest difference from the reference, as the cases' tolerance counts it.
        run_ms: Median time of one run of the model, milliseconds.
        verdict: "pass": every case holds. "fail": one does not, or it crashed or hung. "unproven":
            there was nothing to ask, or no time to (another process was at it).
        reason: Why it is not "pass"; empty when it is.
    """

    format: Format
    precision: Precision
    artifact_sha256: str
    gate: Verdict | None
    delegate: str
    threads: int | None
    runtime: Runtime | None
    passed: int
    total: int
    min_margin: Number | None
    max_difference: Number
    run_ms: float | None
    verdict: CertificateVerdict
    reason: str = ""


class Certificate(Value, frozen=True):
    """The golden proof, run now, on this device.

    Attributes:
        model_id: Identity of the model.
        name: Its name.
        version: Its version.
        made: UTC time, ISO 8601.
        device: Processor, system and package versions.
        golden: "generated" or "given"; None where the bundle has no golden cases.
        proofs: One entry per runnable artifact, delegate and number of threads.
        not_run: Artifacts that cannot run here, and why, one line each.
        verdict: "pass": all that ran holds, and something ran. "fail": something does not hold.
            "unproven": nothing could be asked.
    """

    model_id: str
    name: str
    version: int
    made: str
    device: Environment
    golden: str | None
    proofs: tuple[Proven, ...]
    not_run: tuple[str, ...]
    verdict: CertificateVerdict
