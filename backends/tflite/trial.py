"""A finished file, tried once: some convert and then have an op that the engine does not run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from edgeserve.backends.tflite.edges import definition_of
from edgeserve.backends.tflite.fit import fitted
from edgeserve.backends.tflite.names import SINGLE, source_of
from edgeserve.backends.tflite.refusals import Blame
from edgeserve.backends.tflite.schema import op_type
from edgeserve.types.tensors import IO

__all__ = ["try_file"]

_OP = re.compile(r"builtin opcode '(\w+)'|Node number \d+ \((\w+)\)")


def try_file(
    data: bytes, model: Any, io: IO, examples: Mapping[str, np.ndarray], blame: Blame
) -> None:
    """Run one signature on the source's example inputs.

    Raises:
        UnsupportedOp: EDGE-OP-012.
    """
    from ai_edge_litert.interpreter import Interpreter

    feed = {spec.name: fitted(examples[spec.name], spec) for spec in io.inputs}
    try:
        engine = Interpreter(model_content=data, num_threads=1)
        engine.get_signature_runner(io.signature or SINGLE)(**feed)
    except Exception as error:  # the engine raises ValueError and RuntimeError
        said = _OP.search(str(error))
        type = (said[1] or said[2]) if said else "of the model"
        raise blame.unrunnable(type, _first(model, io, type), error) from error


def _first(model: Any, io: IO, type: str) -> str | None:
    """The source op of the first op of that type."""
    graph = model.subgraphs[definition_of(model, io.signature).subgraphIndex]
    for op in graph.operators:
        if op_type(model, op) == type:
            source = source_of(type, graph.tensors[op.outputs[0]].name.decode())
            return source[1] if source else None
    return None
