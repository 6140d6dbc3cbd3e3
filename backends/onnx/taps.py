"""Inner tensors of an ONNX model as extra outputs, in memory only."""

from __future__ import annotations

from pathlib import Path

from edgeserve.backends.onnx.clean import all_nodes
from edgeserve.backends.onnx.inspect import read
from edgeserve.errors import BackendError

__all__ = ["with_taps"]


def with_taps(path: Path, taps: tuple[str, ...]) -> bytes:
    """The model at ``path`` with the tensors named in ``taps`` appended to its outputs.

    Raises:
        BackendError: EDGE-BACKEND-014 no such tensor in the main graph, -004 onnx_ir is not
        installed.
    """
    try:
        import onnx_ir as ir
    except ImportError as error:
        raise BackendError(
            "EDGE-BACKEND-004",
            "taps",
            wanted="onnx_ir, which edits the graph",
            got="not installed",
            hint="pip install 'edgeserve[convert]'",
        ) from error
    model = read(path)
    values = {
        value.name: value
        for node in all_nodes(model)
        for value in node.outputs
        if node.graph is model.graph
    }
    outputs = {value.name for value in model.graph.outputs}
    if unknown := [tap for tap in taps if tap not in values or tap in outputs]:
        raise BackendError(
            "EDGE-BACKEND-014",
            "taps",
            wanted="names of inner tensors, as inspect shows them",
            got=f"{unknown}",
            hint="run `edgeserve inspect` for the names",
        )
    model.graph.outputs.extend(values[tap] for tap in taps)
    return bytes(ir.to_proto(model).SerializeToString())
