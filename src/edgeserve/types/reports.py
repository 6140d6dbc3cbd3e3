"""What the gate found (`Report`) and what was measured (`Measurement`), in numbers."""

from __future__ import annotations

from typing import Literal

from edgeserve.types.artifact import Judgement
from edgeserve.types.base import Number, Value
from edgeserve.types.comparison_stats import (
    EmbeddingStats,
    LabelStats,
    MetricStats,
    OutputDiff,
    Rate,
)
from edgeserve.types.records import Runtime
from edgeserve.types.vocabulary import Format, Precision, Task

__all__ = [
    "Check",
    "DecisionStats",
    "EmbeddingStats",
    "Environment",
    "LabelStats",
    "Limits",
    "Mark",
    "Measurement",
    "MetricStats",
    "OutputDiff",
    "Rate",
    "Report",
    "Spread",
    "Timing",
    "WorstInput",
]


class Limits(Value, frozen=True):
    """The flip rates and differences that are allowed. A workload profile may change these.

    Attributes:
        tensor: Largest difference per output, relative to that output's scale.
        scale_floor: No output's scale counts as smaller than this.
        pass_flips: Upper 95 % bound of decided flips up to which an artifact passes.
        degraded_flips: Likewise for degraded; a lower bound above it fails.
        snr: For quantized files of the ``tensors`` task: signal to noise of each field in dB from
            which it passes; fp16 needs 20 dB more, a single channel 10 dB less.
        degraded_snr: Likewise for degraded; below it fails.
    """

    tensor: float = 1e-3
    scale_floor: float = 1e-3
    pass_flips: float = 0.02
    degraded_flips: float = 0.08
    snr: float = 20.0
    degraded_snr: float = 10.0


class Environment(Value, frozen=True):
    """Where a report was made; made by `edgeserve.environment.environment`. No host or user name.

    Attributes:
        machine: Architecture, e.g. "x86_64", "aarch64".
        processor: Name of the processor, as the system gives it.
        cores: Cores that this process may use.
        system: Operating system and its version.
        python: Implementation and version.
        packages: Versions of the packages that decide numbers or times.
        features: Instruction sets that change numbers or times ("avx2", "avx512_vnni", "dotprod").
    """

    machine: str
    processor: str
    cores: int
    system: str
    python: str
    packages: dict[str, str]
    features: tuple[str, ...] = ()


class Check(Value, frozen=True):
    """One check of the gate.

    Attributes:
        name: "loads", "runs", "finite", "not-constant", "batch", "optimizer", "repeatable", ...
        ok: False: an invariant is broken.
        detail: What was found, in one line.
        value: The figure behind it, where there is one.
        limit: What the figure may be.
    """

    name: str
    ok: bool
    detail: str
    value: Number | None = None
    limit: Number | None = None


class DecisionStats(Value, frozen=True):
    """Decisions compared with the reference's.

    Attributes:
        task: Which decisions.
        inputs: How many inputs.
        groups: How many independent groups they fall into.
        raw: Flips over all inputs.
        decided: Flips over the inputs where the reference was sure; the one that is judged.
        top5: Share of inputs whose top-5 sets differ, for classification.
        minimum_harm: Smallest flip rate that this evidence could have seen (95 %).
        more_groups: How many more groups would settle the verdict, where it is unproven.
        embedding: For feature-extraction, whose decision is the nearest neighbour.
        unit: What ``raw`` and ``decided`` count: "inputs", or an input's "boxes", "pixels", ...
        figures: The task's own figures against the reference's answers: "map50" and "iou", "miou"
            and "agreement", "abs_rel", "f1", "wer"; "kl" and "kl_worst" in nats, where the answer
            is read from logits.
    """

    task: Task
    inputs: int
    groups: int
    raw: Rate
    decided: Rate
    top5: Rate | None = None
    minimum_harm: Number = 1.0
    more_groups: int | None = None
    embedding: EmbeddingStats | None = None
    unit: str = "inputs"
    figures: dict[str, Number] = {}


class Mark(Value, frozen=True):
    """A box to be drawn on a worst input.

    Attributes:
        side: Whose box it is.
        xyxy: Corners, in pixels of the upright photo.
        label: Its class.
        score: Its score.
    """

    side: Literal["reference", "answer"]
    xyxy: tuple[float, float, float, float]
    label: str
    score: Number


class WorstInput(Value, frozen=True):
    """An input on which artifact and reference differ most.

    Attributes:
        id: The sample's id.
        path: Where its raw bytes lie, for the report (workspace only).
        reference: The reference's decision in words (for feature-extraction: the neighbour, with
            its cosine).
        answer: The artifact's decision in words.
        margin: The reference's margin.
        difference: Largest relative tensor difference.
        flipped: The decisions differ.
        text: The input itself, shortened, where it is a text.
        marks: Of a detector: boxes of both sides, the surest of each.
    """

    id: str
    path: str | None
    reference: str
    answer: str
    margin: Number | None
    difference: Number
    flipped: bool
    text: str | None = None
    marks: tuple[Mark, ...] = ()


class Report(Value, frozen=True):
    """What the gate found out about one artifact.

    Attributes:
        artifact_sha256: Which artifact.
        reference: What stood for the server: "pt2", "module:fn", an endpoint's address or "stored".
        preprocessing: "declared, not compared", or how it was compared.
        inputs: What inputs were used, in words ("412 crops of 23 photos; 8 fillers").
        checks: Invariants, in the order they were checked.
        outputs: Difference per field of each output, against ``limits.tensor``.
        decisions: None for the ``tensors`` task or without data.
        worst: Worst inputs, worst first.
        judgement: The verdict.
        generated: Difference per output on generated inputs (extremes, zeros, ...), each on the
            larger of its own scale and that of ``outputs``.
        error: Largest difference of a score (for feature-extraction: of a cosine that decides; for
            the ``tensors`` task: of an output, relative) seen on any input. Golden cases must be
            three times as far from flipping.
        notes: What else a reader should know, one line each.
        labels: Where the data hold true labels.
        metrics: The task's own metrics against true labels, where it has such.
        invariant_seconds: CPU seconds that the invariants took (generated inputs, a few others).
    """

    artifact_sha256: str
    format: Format
    precision: Precision
    runtime: Runtime
    reference: str
    preprocessing: str
    inputs: str
    limits: Limits
    checks: tuple[Check, ...]
    outputs: tuple[OutputDiff, ...]
    decisions: DecisionStats | None
    worst: tuple[WorstInput, ...]
    judgement: Judgement
    environment: Environment
    seconds: Number
    generated: tuple[OutputDiff, ...] = ()
    error: Number = 0.0
    notes: tuple[str, ...] = ()
    labels: LabelStats | None = None
    metrics: tuple[MetricStats, ...] = ()
    invariant_seconds: Number = 0.0

    def raise_for_status(self) -> None:
        """Raise `CheckFailed` if the verdict is ``fail``; otherwise do nothing."""
        if self.judgement.verdict == "fail":
            from edgeserve.errors import CheckFailed

            first = self.judgement.reasons[0]
            raise CheckFailed(
                first.code,
                f"{self.format}-{self.precision}",
                got=first.message,
                hint=f"`edgeserve explain {first.code}` says what it means and what to do",
            )


class Spread(Value, frozen=True):
    """A sample of times in milliseconds: n, minimum, percentiles and median absolute deviation."""

    n: int
    min: Number
    p50: Number
    p90: Number
    p99: Number
    mad: Number


class Timing(Value, frozen=True):
    """Wall and CPU time of the same runs, in milliseconds."""

    wall: Spread
    cpu: Spread


class Measurement(Value, frozen=True):
    """What running one artifact costs, measured in a process of its own.

    Attributes:
        target: Where: "host", later "browser", "arm64", "adb:SERIAL".
        threads: Threads the runtime was given.
        batch: Batch size.
        load_ms: From file to session, wall time; the runtime itself is imported before.
        first_ms: First run, wall time.
        warmup: Runs thrown away after the first.
        run: The runs that count: the model alone, on tensors made beforehand.
        split: Times per step where processing is included: "decode", "resize", ..., "batch", "run",
            "finish", and "total" from raw input to decision. Of the whole batch, not per sample.
        rss_mb: Peak resident memory of the process, MiB.
        rss_before_mb: Resident memory with the runtime imported, before loading, MiB.
        size_bytes: Size of the artifact's files.
        noisy: The figures are not to be trusted, and why; None when they are.
        wall_ms: Wall time of each run that counts, in the order they ran.
        cpu_ms: CPU time of the same runs, over all threads.
        dims: Sizes given to dynamic dimensions, by name.
        input: What was fed: "seeded tensors", or the sample's file name.
        notes: What a reader of the figures has to know.
        seconds: How long the measurement took.
    """

    artifact_sha256: str
    format: Format
    precision: Precision
    target: str
    runtime: Runtime
    threads: int
    batch: int
    load_ms: Number
    first_ms: Number
    warmup: int
    run: Timing
    split: dict[str, Timing]
    rss_mb: Number
    rss_before_mb: Number
    size_bytes: int
    noisy: str | None
    environment: Environment
    wall_ms: tuple[float, ...] = ()
    cpu_ms: tuple[float, ...] = ()
    dims: dict[str, int] = {}
    input: str = "seeded tensors"
    notes: tuple[str, ...] = ()
    seconds: Number = 0.0
