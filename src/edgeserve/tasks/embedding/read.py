"""An embedding out of one output."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgeserve.errors import ProcessingError
from edgeserve.processing.batch import SampleOrigin
from edgeserve.processing.outputs.checks import (
    ModelOutputs,
    OutputArrays,
    RecordReader,
    result_output,
    wrong_outputs,
)
from edgeserve.processing.outputs.steps import check_form
from edgeserve.tasks.embedding import Embedding
from edgeserve.types.processing import Pool

__all__ = ["embedding", "reader"]


def reader(model: ModelOutputs) -> RecordReader:
    """Reads one vector a sample.

    Raises:
        ProcessingError: EDGE-PROCESS-006, no single output to read, or it is no vector.
    """
    output = result_output(model)
    steps = model.processing.outputs
    pooled = any(isinstance(step, Pool) and step.output == output for step in steps)
    wanted = "[batch, tokens, d], which pool/1 pools" if pooled else "[batch, d]"
    hint = "" if pooled else "; a pool/1 step makes one vector out of those of the tokens"
    check_form(output, model.signature, 3 if pooled else 2, f"{wanted} for an embedding{hint}")

    def read(
        values: OutputArrays, feed: OutputArrays, origins: Sequence[SampleOrigin]
    ) -> list[Embedding]:
        vectors = values[output]
        if vectors.ndim != 2 or vectors.shape[1] == 0 or vectors.dtype.kind != "f":
            got = f"{vectors.dtype} {list(vectors.shape)}"
            raise wrong_outputs("one vector a sample, floats [batch, d]", got)
        return [embedding(row) for row in np.asarray(vectors, np.float32)]

    return read


def embedding(vector: np.ndarray) -> Embedding:
    """The record of one vector [d].

    Raises:
        ProcessingError: EDGE-PROCESS-009, a component is NaN or infinite.
    """
    finite = np.isfinite(vector)
    if not finite.all():
        raise ProcessingError(
            "EDGE-PROCESS-009",
            "vector",
            wanted="numbers",
            got=f"NaN or infinity in {int(vector.size - finite.sum())} of {vector.size} components",
            hint="check this input; if nothing is odd with it, the artifact is broken: validate it",
        )
    return Embedding(vector=vector)
