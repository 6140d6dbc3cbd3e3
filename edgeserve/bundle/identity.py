"""The model's identity: what is the same over formats, precisions, slices of a bundle and reports.

`identity_bytes` writes the member ``identity.json`` once, when the source has been exported; from
then on its bytes travel as they are. ``model_id`` is their sha256: a reader hashes the member and
never builds it again, so that no two implementations can disagree about how it would be written.
"""

from __future__ import annotations

from edgeserve.files import sha256_bytes
from edgeserve.types.base import Value, encode
from edgeserve.types.processing import Processing
from edgeserve.types.source import Exported, Weight
from edgeserve.types.words import Task

__all__ = ["IDENTITY", "Identity", "identity_bytes", "model_id"]

#: Name of the member.
IDENTITY = "identity.json"


class Identity(Value, frozen=True):
    """What makes a model this model. Lies as ``identity.json``.

    Attributes:
        weights: Name, dtype, shape and sha256 of each weight, sorted by name.
        graph_sha256: sha256 of the graph text without metadata (an ONNX source: of its files).
        processing: What happens around the model.
        labels: Class names by index.
        task: What the outputs mean.
    """

    weights: tuple[Weight, ...]
    graph_sha256: str
    processing: Processing
    labels: tuple[str, ...]
    task: Task


def identity_bytes(exported: Exported) -> bytes:
    """Write ``identity.json`` for an exported source.

    The same weights, graph, processing, labels and task give the same bytes, in whatever order the
    weights are listed.
    """
    return encode(
        Identity(
            weights=tuple(sorted(exported.weights, key=lambda w: w.name)),
            graph_sha256=exported.graph_sha256,
            processing=exported.processing,
            labels=exported.labels,
            task=exported.task,
        )
    )


def model_id(data: bytes) -> str:
    """The model's identity: sha256 in hex of the bytes of the member ``identity.json``."""
    return sha256_bytes(data)
