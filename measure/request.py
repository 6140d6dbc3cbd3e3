"""What to measure (`MeasureRequest`), and the call that does it in a process of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from edgeserve.jobs import Progress, run
from edgeserve.types.artifact import Artifact
from edgeserve.types.base import Value
from edgeserve.types.processing import Processing
from edgeserve.types.reports import Measurement
from edgeserve.types.tensors import Signature
from edgeserve.types.vocabulary import Task

__all__ = ["VERB", "MeasureRequest", "measure"]

VERB = "edgeserve.measure.run:measure_artifact"

#: Seconds that a measurement may take beyond its budget: import, load, warm-up, one slow last run.
_GRACE_S = 600.0


class MeasureRequest(Value, frozen=True):
    """One artifact, and how to measure it. Knows values and folders, nothing of a workspace.

    Attributes:
        artifact: What is measured.
        root: Absolute folder that the artifact's paths are relative to.
        signature: The source's; says which dimension is the batch and how far the others range.
        processing: Steps around the model; used with a raw ``sample``.
        task: Meaning of the outputs.
        labels: Class names.
        target: The target of the measurement; only "host" in this version.
        delegate: Delegate asked for; None: the backend's own choice.
        threads: Threads given to the runtime.
        batch: Samples a run; None: 1, or the only size that the file takes.
        dims: Sizes of other dynamic dimensions; by default the top of the range, at most 256.
        seconds: Time for the runs that count.
        min_runs: Runs taken even when that exceeds ``seconds`` (but never beyond three times it).
        max_runs: No more runs than this.
        max_warmup: Runs thrown away at most.
        sample: A raw input (a photo, a text in UTF-8) to split the time over the processing steps,
            or an ``.npz`` of named tensors; None: seeded tensors, and no split.
        seed: Seed of the tensors.
        assets: Folder that files named by the processing (a tokenizer) lie in; None: ``root``.
    """

    artifact: Artifact
    root: str
    signature: Signature
    processing: Processing = Processing()
    task: Task = "tensors"
    labels: tuple[str, ...] = ()
    target: str = "host"
    delegate: str | None = None
    threads: int = 1
    batch: int | None = None
    dims: dict[str, int] = {}
    seconds: float = 5.0
    min_runs: int = 20
    max_runs: int = 1000
    max_warmup: int = 50
    sample: str | None = None
    seed: int = 0
    assets: str | None = None


def measure(
    request: MeasureRequest,
    folder: Path | None = None,
    *,
    on_progress: Callable[[Progress], None] | None = None,
) -> Measurement:
    """Measure one artifact in a worker process of its own.

    Args:
        request: What to measure.
        folder: The job folder, kept afterwards; None: a temporary one.
        on_progress: Called with each step forward.

    Raises:
        MeasureError: the request cannot be carried out (EDGE-MEASURE-001 to -008).
        BackendError: the runtime is missing or refuses the artifact.
        WorkerError: the process crashed or hung.
    """
    timeout = 4.0 * request.seconds + _GRACE_S
    with tempfile.TemporaryDirectory(prefix="edgeserve-measure-") as scratch:
        return run(
            VERB,
            request,
            Measurement,
            folder or Path(scratch),
            timeout=timeout,
            on_progress=on_progress,
        )
