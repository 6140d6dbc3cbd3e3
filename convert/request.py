"""What the convert room's two verbs are asked."""

from __future__ import annotations

from typing import Literal

from edgeserve.types.artifact import Artifact
from edgeserve.types.base import Value
from edgeserve.types.processing import Processing
from edgeserve.types.source import Source
from edgeserve.types.words import Format, Precision, Task

__all__ = ["ExportRequest", "TargetRequest"]


class ExportRequest(Value, frozen=True):
    """Export a source once, for all formats.

    Attributes:
        source: What to export.
        out: Absolute folder to write ``model.pt2``, ``examples.npz`` and ``source.json`` into.
        task: Goes before the task that the source names.
        processing: Goes before the processing that the source declares.
        trust_pickle: Load a foreign ``.pt2`` even if that could run code it carries.
        shapes: What becomes of a dynamic size with which the export is refused: "auto" fixes it at
            the example's, with a note; "dynamic" refuses.
    """

    source: Source
    out: str
    task: Task | None = None
    processing: Processing | None = None
    trust_pickle: bool = False
    shapes: Literal["auto", "dynamic"] = "auto"


class TargetRequest(Value, frozen=True):
    """Make one artifact from an exported source.

    Attributes:
        source_folder: Absolute folder that holds ``source.json`` and the files it names.
        format: What to make.
        precision: In what precision.
        out: Absolute folder to write into; the artifact's paths are relative to it.
        routes: Routes to try, in order; empty: the backend's own order.
        options: Settings of the export, by names that the backend lists (`Backend.options`).
        parent: Absolute folder of an fp32 artifact of this format that is already made; None: it
            is made on the way where the precision derives from it.
        parent_artifact: That artifact, its files relative to ``parent``.
        data: Absolute path of the data whose calibration half may be used; None: there is none.
        seed: Seed of the split into halves: the one that the gate splits with.
        calibration: Most samples to calibrate with.
        reduce_range: Quantize weights to 7 bits, for processors whose 8-bit products saturate;
            None: as this machine needs it.
        activation: Type of 8-bit activations: unsigned is faster on x86, signed elsewhere; None:
            as suits this machine.
        keep_float: Source ops (module path or fx node) to keep in float.
    """

    source_folder: str
    format: Format
    precision: Precision
    out: str
    routes: tuple[str, ...] = ()
    options: dict[str, str] = {}
    parent: str | None = None
    parent_artifact: Artifact | None = None
    data: str | None = None
    seed: int = 0
    calibration: int = 64
    reduce_range: bool | None = None
    activation: Literal["u8", "s8"] | None = None
    keep_float: tuple[str, ...] = ()
