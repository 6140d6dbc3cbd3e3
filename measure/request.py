"""What the worker that measures an artifact is asked: `MeasureRequest`."""

from __future__ import annotations

from edgeserve.types.artifact import Artifact
from edgeserve.types.base import Value
from edgeserve.types.options import MeasureSettings
from edgeserve.types.processing import Processing
from edgeserve.types.tensors import Signature
from edgeserve.types.vocabulary import Task

VERB = "edgeserve.measure.run:measure_artifact"


class MeasureRequest(Value, frozen=True):
    """One artifact, and how to measure it. Knows values and folders, nothing of a workspace.

    Attributes:
        artifact: What is measured.
        root: Absolute folder that the artifact's paths are relative to.
        signature: The source's; says which dimension is the batch and how far the others range.
        processing: Steps around the model; used with a raw ``sample``.
        task: Meaning of the outputs.
        labels: Class names.
        settings: Where, and with what threads, batch size and time.
        delegate: Delegate asked for; None: the backend's own choice.
        dims: Sizes of other dynamic dimensions; by default the top of the range, at most 256.
        min_runs: Runs taken even when that exceeds the time (but never beyond three times it).
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
    settings: MeasureSettings = MeasureSettings()
    delegate: str | None = None
    dims: dict[str, int] = {}
    min_runs: int = 20
    max_runs: int = 1000
    max_warmup: int = 50
    sample: str | None = None
    seed: int = 0
    assets: str | None = None

    @property
    def threads(self) -> int:
        """Threads given to the runtime."""
        return 1 if self.settings.threads is None else self.settings.threads
