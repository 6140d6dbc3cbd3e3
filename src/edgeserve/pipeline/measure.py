"""The measure stage: time and memory of each artifact, each in a process of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edgeserve import jobs, profiles
from edgeserve.bundle.workspace import Workspace
from edgeserve.errors import MeasureError
from edgeserve.files import write_atomic
from edgeserve.measure.request import VERB, MeasureRequest
from edgeserve.pipeline.manifests import with_figures
from edgeserve.pipeline.options import MeasureOptions, check_seconds, choice, reject_empty
from edgeserve.pipeline.stage_context import QUIET, Ui
from edgeserve.types.artifact import Artifact
from edgeserve.types.base import Number, encode
from edgeserve.types.manifest import Manifest
from edgeserve.types.reports import Measurement

__all__ = ["MeasureResult", "measure"]

_TARGETS = ("host",)

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
    reject_empty(options)
    choice("--on", options.on, _TARGETS)
    check_seconds("--seconds", options.seconds)
    check_seconds("--timeout", options.timeout)
    workspace = Workspace(Path(options.out))
    threads = options.threads or _threads(options.profile)
    with workspace.lock():
        manifest = workspace.manifest
        measured: dict[str, Measurement] = {}
        for artifact in manifest.artifacts:
            request = _request(workspace, manifest, artifact, options, threads)
            try:
                found = _measured(workspace, artifact, request, options, ui)
            except MeasureError as error:
                if error.code != _STANDS_IN:
                    raise
                ui.note(f"{artifact.name}: not measured here, {error.got}")
                continue
            measured[artifact.name] = found
            path = workspace.reports / f"{artifact.name}.measure.json"
            write_atomic(path, encode(found))
            manifest = with_figures(manifest, artifact.name, _figures(found))
        workspace.write_manifest(manifest)
    return MeasureResult(options.out, measured)


def _measured(
    workspace: Workspace,
    artifact: Artifact,
    request: MeasureRequest,
    options: MeasureOptions,
    ui: Ui,
) -> Measurement:
    with ui.stage(f"measure {artifact.name}") as tell:
        return jobs.run(
            VERB,
            request,
            Measurement,
            workspace.logs / f"measure-{artifact.name}",
            timeout=options.timeout,
            on_progress=tell,
        )


def _threads(profile: str | None) -> int:
    wanted = profiles.workload(profile).threads if profile else None
    return wanted or 1


def _request(
    workspace: Workspace,
    manifest: Manifest,
    artifact: Artifact,
    options: MeasureOptions,
    threads: int,
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
        target=options.on,
        threads=threads,
        batch=options.batch,
        seconds=options.seconds,
        sample=sample,
    )


def _figures(measured: Measurement) -> dict[str, Number]:
    run = measured.run
    return {"p50_ms": run.wall.p50, "p90_ms": run.wall.p90, "cpu_p50_ms": run.cpu.p50}
