"""The numbers that a file holds, under one view for all formats: read, changed, written back."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from edgeserve.files import describe_tree
from edgeserve.types.artifact import Artifact

#: "weight": two axes or more, floats or quantized; "bias": one axis, added; "scale" and "zero" of
#: quantized weights, "range" and "range-zero" of quantized activations.
Role = Literal["weight", "bias", "scale", "zero", "range", "range-zero"]


@dataclass
class Part:
    """One array of a file. Assign to ``array`` to change it; dtype and shape must stay.

    Attributes:
        name: What the file calls it.
        role: What it is.
        array: Its numbers.
        channels: The axis of output channels (0 for rows of an embedding).
        owner: Of scales and zero points: the name of what they belong to.
        op: Kind of the layer that it belongs to: "conv", "linear", "embedding", "other".
        order: The layer's place in the graph, where parts are not found in that order.
    """

    name: str
    role: Role
    array: np.ndarray
    channels: int = 0
    owner: str = ""
    op: str = "other"
    order: int = 0


@dataclass
class OpenFile:
    """A file's parts, and how to write them back.

    Attributes:
        parts: In the order of its graph.
        write: Gives the bytes of each changed file, by path.
        channels_last: Kernels are [out, height, width, in], not [out, in, height, width].
    """

    parts: list[Part]
    write: Callable[[], dict[str, bytes]]
    channels_last: bool = False

    def of(self, role: Role) -> list[Part]:
        """The parts of a role."""
        return [part for part in self.parts if part.role == role]


def open_file(artifact: Artifact, root: Path) -> OpenFile:
    """Read the numbers of an artifact."""
    if artifact.format == "onnx":
        from dev.corpus.damage import onnx_file as module
    elif artifact.format == "tflite":
        from dev.corpus.damage import tflite_file as module  # type: ignore[no-redef]
    else:
        from dev.corpus.damage import coreml_file as module  # type: ignore[no-redef]
    return module.open_parts(artifact, root)


def damaged(artifact: Artifact, root: Path, opened: OpenFile, out: Path) -> Artifact:
    """Write a copy of ``artifact`` with what ``opened`` now holds, hashes made anew."""
    shutil.rmtree(out, ignore_errors=True)
    changed = opened.write()
    for entry in artifact.files:
        target = out / entry.path
        target.parent.mkdir(parents=True, exist_ok=True)
        if entry.path in changed:
            target.write_bytes(changed[entry.path])
        else:
            shutil.copyfile(root / entry.path, target)
    return msgspec.structs.replace(artifact, files=describe_tree(out))
