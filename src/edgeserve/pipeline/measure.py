"""The measure stage: time and memory of each artifact, each in a process of its own."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from edgeserve import jobs, profiles
from edgeserve.bundle.workspace import Workspace
from edgeserve.errors import MeasureError
from edgeserve.files import write_atomic
from edgeserve.measure.request import VERB, MeasureRequest
from edgeserve.options import check_options, narrow
from edgeserve.pipeline.promote import with_figures
from edgeserve.pipeline.stage_context import QUIET, Ui
from edgeserve.types.artifact import Artifact
from edgeserve.types.base import encode
from edgeserve.types.manifest import Manifest
from edgeserve.types.options import MeasureOptions, MeasureSettings
from edgeserve.types.reports import Measurement

#: What runs this format here only stands in for its engine: there is nothing to measure.
_STANDS_IN = "EDGE-MEASURE-008"


@dataclass(frozen=True)
class MeasureResult:
    """The measurements, by ``{format}-{precision}``."""

    out: str
    measurements: dict[str, Measurement]

    def json(self) -> bytes:
        """The ``--json`` object."""
        rows = list(self.measurements.values())
        return encode({"schema": 1, "out": self.out, "measurements": rows, "error": None})


def measure(options: MeasureOptions, ui: Ui = QUIET) -> MeasureResult:
    """Measure every artifact of a workspace and note the figures in its manifest.

    Raises:
        UsageError: an option's value cannot be used.
        BundleError: ``options.out`` is no workspace, or a file in it changed.
        MeasureError: a measurement could not be taken.
    """
    check_options(options)
    settings = narrow(MeasureSettings, options)
    if settings.threads is None and options.profile:
        threads = profiles.workload(options.profile).threads
        settings = dataclasses.replace(settings, threads=threads)
    workspace = Workspace(Path(options.out))
    with workspace.lock():
        manifest = workspace.manifest
        measured: dict[str, Measurement] = {}
        for artifact in manifest.artifacts:
            request = _request(workspace, manifest, artifact, settings)
            try:
                with ui.stage(f"measure {artifact.name}") as tell:
                    measurement = jobs.run(
                        VERB,
                        request,
                        Measurement,
                        workspace.logs / f"measure-{artifact.name}",
                        timeout=options.timeout,
                        on_progress=tell,
                    )
            except MeasureError as error:
                if error.code != _STANDS_IN:
                    raise
                ui.note(f"{artifact.name}: not measured here, {error.got}")
                continue
            measured[artifact.name] = measurement
            path = workspace.reports / f"{artifact.name}.measure.json"
            write_atomic(path, encode(measurement))
            wall, cpu = measurement.run.wall, measurement.run.cpu
            figures = {"p50_ms": wall.p50, "p90_ms": wall.p90, "cpu_p50_ms": cpu.p50}
            manifest = with_figures(manifest, artifact.name, figures)
        workspace.write_manifest(manifest)
    return MeasureResult(options.out, measured)


def _request(
    workspace: Workspace, manifest: Manifest, artifact: Artifact, settings: MeasureSettings
) -> MeasureRequest:
    """Measure on a golden case where there is one: it is a real input, and may be seen."""
    golden = manifest.golden.cases if manifest.golden else ()
    sample = str(workspace.path.absolute() / golden[0].input.path) if golden else None
    return MeasureRequest(
        artifact=artifact.unjudged(),
        root=str(workspace.local(artifact).absolute()),
        signature=manifest.signature,
        processing=manifest.processing,
        task=manifest.task,
        labels=manifest.labels,
        settings=settings,
        sample=sample,
    )
