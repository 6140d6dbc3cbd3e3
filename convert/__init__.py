"""From a source to candidates: exported once, then converted to each format in its own process.

    from edgeserve.convert import convert

    artifacts = convert("tagger:factory", "out", to=("onnx",))   # files below out/

No gate is run here: `edgeserve convert` judges every candidate before it counts as an artifact.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from edgeserve import backends, jobs
from edgeserve.convert.request import ExportRequest, TargetRequest, parse_source
from edgeserve.files import staged
from edgeserve.types.artifact import Artifact
from edgeserve.types.source import Exported

__all__ = ["ExportRequest", "TargetRequest", "convert", "parse_source"]


def convert(
    source: str,
    out: str | Path,
    to: Sequence[str] = ("onnx",),
    precision: Sequence[str] = ("fp32",),
    *,
    folder: str | Path = ".",
    timeout: float = 3600.0,
    trust_pickle: bool = False,
    data: str | Path | None = None,
    on_progress: Callable[[jobs.Progress], None] | None = None,
    shapes: Literal["auto", "dynamic"] = "auto",
) -> tuple[Artifact, ...]:
    """Export a source and convert it, each step in a worker process; nothing is judged.

    Args:
        source: See `parse_source`.
        out: Folder to write ``source/``, ``artifacts/`` and ``logs/`` into.
        to: Formats.
        precision: Precisions; every format is made in each.
        folder: The user's folder.
        timeout: Seconds allowed for each step.
        trust_pickle: Load a foreign ``.pt2`` even if that could run code it carries.
        data: Calibration data for 8-bit activations (one half of it is used,
            docs/reference/quantization.md).
        on_progress: Called with each step forward.
        shapes: See `ExportRequest`.

    Returns:
        The candidates, files relative to ``out``.

    Raises:
        EdgeError: whatever a step raised; WorkerError where it crashed or took too long.
    """
    root = Path(out).absolute()
    what = parse_source(source, Path(folder))

    with staged(root / "source") as stage:
        jobs.run(
            "edgeserve.convert.source:export_source",
            ExportRequest(source=what, out=str(stage), trust_pickle=trust_pickle, shapes=shapes),
            Exported,
            root / "logs" / "export",
            timeout=timeout,
            on_progress=on_progress,
        )
    made = []
    for word, level in itertools.product(to, precision):
        format = backends.canonical(word)
        folder_name = f"artifacts/{format}-{level}"
        with staged(root / folder_name) as stage:
            artifact = jobs.run(
                "edgeserve.convert.target:convert_target",
                TargetRequest(
                    source_folder=str(root / "source"),
                    out=str(stage),
                    format=format,
                    precision=level,
                    data=str(Path(data).absolute()) if data is not None else None,
                ),
                Artifact,
                root / "logs" / f"{format}-{level}",
                timeout=timeout,
                on_progress=on_progress,
            )
        made.append(artifact.moved(folder_name))
    return tuple(made)
