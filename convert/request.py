"""What the convert room's two verbs are asked."""

from __future__ import annotations

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
    """

    source: Source
    out: str
    task: Task | None = None
    processing: Processing | None = None
    trust_pickle: bool = False


class TargetRequest(Value, frozen=True):
    """Make one artifact from an exported source.

    Attributes:
        source_folder: Absolute folder that holds ``source.json`` and the files it names.
        format: What to make.
        precision: In what precision.
        out: Absolute folder to write into; the artifact's paths are relative to it.
        routes: Routes to try, in order; empty: the backend's own order.
    """

    source_folder: str
    format: Format
    precision: Precision
    out: str
    routes: tuple[str, ...] = ()
