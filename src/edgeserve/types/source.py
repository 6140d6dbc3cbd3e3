"""What is converted (`Source`) and what is known of it once it has been exported (`Exported`)."""

from __future__ import annotations

from typing import Literal

from edgeserve.types.artifact import FileEntry
from edgeserve.types.base import Value
from edgeserve.types.processing import Processing
from edgeserve.types.tensors import DType, Signature
from edgeserve.types.vocabulary import Format, Task

SourceKind = Literal["factory", "huggingface", "module", "onnx", "pt2", "workspace"]


class Source(Value, frozen=True):
    """What the user asked to convert.

    Attributes:
        kind: How ``location`` is to be read.
        location: ``package.module:factory``, an absolute path, or of a module given in Python its
            class, ``package.module:Class``.
        folder: The folder whose modules the factory may import (the user's working directory).
    """

    kind: SourceKind
    location: str
    folder: str = "."


class Weight(Value, frozen=True):
    """One weight as it enters the model's identity: sha256 over its little-endian C-order bytes."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    sha256: str


class Exported(Value, frozen=True):
    """A source, exported once: what every format is made from. Lies as ``source/source.json``.

    Attributes:
        source: What the user asked for.
        program: The exported program (``source/model.pt2``); of an ONNX source its own file
            (``source/onnx/model.onnx``).
        examples: The example inputs, ``.npz`` with one array per input name.
        signature: Names, dtypes, shapes and dynamic ranges.
        weights: Sorted by name.
        graph_sha256: sha256 of the graph text without metadata.
        task: Meaning of the outputs.
        processing: Declared processing; empty: callers bring tensors.
        labels: Class names by index.
        fields: Kind of the values of an output ("logits", "boxes", ...), by output name.
        reference: ``module:callable`` of the user's server, where the factory names one.
        assets: Files that the processing names (``assets/tokenizer.json``), beside the program and,
            by the same names, in workspaces and bundles.
        notes: What the export had to give up (e.g. "exported static: ..."), for the report.
        tools: Versions of what exported it.
        program_data: Further files that the program reads its weights from, in its own folder.
    """

    source: Source
    program: FileEntry
    examples: FileEntry
    signature: Signature
    weights: tuple[Weight, ...]
    graph_sha256: str
    task: Task = "tensors"
    processing: Processing = Processing()
    labels: tuple[str, ...] = ()
    fields: dict[str, str] = {}
    reference: str | None = None
    assets: tuple[FileEntry, ...] = ()
    notes: tuple[str, ...] = ()
    tools: dict[str, str] = {}
    program_data: tuple[FileEntry, ...] = ()

    @property
    def format(self) -> Format:
        """The format that the program itself has: "torch", or "onnx" of an ONNX source."""
        return "onnx" if self.program.path.endswith(".onnx") else "torch"
