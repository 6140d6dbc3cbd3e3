"""``edgeserve inspect``: what a bundle or workspace holds, every hash checked on the way."""

from __future__ import annotations

from dataclasses import dataclass

from edgeserve import backends
from edgeserve.bundle import Model, open_model
from edgeserve.types.artifact import Artifact
from edgeserve.types.base import encode
from edgeserve.types.manifest import Manifest


@dataclass(frozen=True)
class GraphSummary:
    """One artifact's graph in numbers: ops by type, weights, bytes of weights by dtype."""

    artifact: str
    ops: dict[str, int]
    weights: int
    bytes_by_dtype: dict[str, int]


@dataclass(frozen=True)
class Inspection:
    """What was found.

    Attributes:
        kind: "bundle" or "workspace".
        sha256: Of the sealed file; None for a workspace.
    """

    path: str
    kind: str
    sha256: str | None
    manifest: Manifest
    graphs: tuple[GraphSummary, ...]

    def json(self) -> bytes:
        """The ``--json`` object."""
        graphs = [vars(each) for each in self.graphs]
        return encode({"schema": 1, **vars(self), "graphs": graphs, "error": None})


def inspect(path: str, graph: bool = False) -> Inspection:
    """Open ``path`` strictly and read every member's hash; with ``graph`` also the artifacts' ops.

    Raises:
        BundleError: anything about it is not as the format demands.
    """
    with open_model(path) as model:
        manifest = model.manifest
        for entry in manifest.files:
            model.read(entry.path)
        graphs = tuple(_graph(model, artifact) for artifact in manifest.artifacts) if graph else ()
        sha256 = getattr(model, "sha256", None)
        return Inspection(path, model.kind, sha256, manifest, graphs)


def _graph(model: Model, artifact: Artifact) -> GraphSummary:
    graph = backends.get(artifact.format).inspect(artifact, model.local(artifact))
    ops: dict[str, int] = {}
    for op in graph.ops:
        ops[op.type] = ops.get(op.type, 0) + 1
    sizes: dict[str, int] = {}
    for weight in graph.weights:
        sizes[weight.dtype] = sizes.get(weight.dtype, 0) + weight.bytes
    by_count = dict(sorted(ops.items(), key=lambda item: -item[1]))
    return GraphSummary(artifact.name, by_count, len(graph.weights), sizes)
