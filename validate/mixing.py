"""Does the reference answer a row alone as it does within a batch? Some programs do not.

One that subtracts the mean of its batch, numbers its rows, or scans over a first axis that is time
and no batch: a file of it is right to answer a batch in another way than its rows, and a file that
takes one row at a time cannot be right. Whether inputs may be joined and taken apart is therefore
asked of the reference before it is asked of any file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from edgeserve.data import Feed
from edgeserve.errors import BackendError
from edgeserve.types.tensors import IO, Signature
from edgeserve.validate.difference import relative
from edgeserve.validate.feeds import Runner

__all__ = ["mixed_batch", "said_of_split"]

#: From this share of its scale on, an answer is another one: kernels for batches round otherwise,
#: in half precision by up to a thousandth.
_ANOTHER = 0.01
_FLOOR = 1e-3
#: Rows that are tried together, where the program takes so many.
_ROWS = 3


def mixed_batch(
    runner: Runner, signature: Signature, feeds: Sequence[Feed]
) -> tuple[Feed, Feed] | None:
    """A batch in which a row gets another answer than it got elsewhere, and the answers to it.

    Args:
        runner: Runs the reference.
        signature: The source's.
        feeds: Natural inputs; two of one shape are needed to see anything.

    Returns:
        None where rows do not depend on each other, or where that cannot be seen.
    """
    joined = _joined(signature, feeds)
    if joined is None:
        return None
    first, batch = joined
    try:
        alone, together = runner.run_once(first), runner.run_once(batch)
    except BackendError:  # batches have a check of their own, which says what is wrong
        return None
    floats = [name for name, array in alone.items() if array.dtype.kind == "f"] or list(alone)
    apart = relative(
        {name: alone[name][:1] for name in floats},
        {name: together[name][-1:] for name in floats},
        _FLOOR,
    )
    return (batch, together) if apart > _ANOTHER else None


def _joined(signature: Signature, feeds: Sequence[Feed]) -> tuple[Feed, Feed] | None:
    """An input, and a batch of other rows whose last row is that input's first."""
    if signature.batch_dim is None:
        return None
    first, other = next(_pairs(feeds), (None, None))
    if first is None or other is None:
        return None
    own = len(next(iter(first.values())))
    rows = max(own, min(_ROWS, signature.dims[signature.batch_dim][1]))
    if rows < 2:
        return None
    return first, {
        name: np.concatenate([other[name][np.arange(rows - 1) % own], array[:1]])
        for name, array in first.items()
    }


def _pairs(feeds: Sequence[Feed]) -> Iterator[tuple[Feed, Feed]]:
    """Inputs of one shape that are not the same."""
    for i, first in enumerate(feeds):
        for other in feeds[i + 1 :]:
            shapes = all(array.shape == other[name].shape for name, array in first.items())
            if shapes and any((array != other[name]).any() for name, array in first.items()):
                yield first, other


def said_of_split(io: IO, signature: Signature) -> str:
    """Why a file cannot answer as a reference whose rows depend on each other; empty: it may."""
    size = io.inputs[0].shape[0] if io.inputs and io.inputs[0].shape else None
    if signature.batch_dim is None or not isinstance(size, int):
        return ""
    return (
        f"in the source each answer depends on the other rows of its batch, and this file takes"
        f" {size} at a time: fix the batch in the source's example (no dynamic batch), or use onnx"
    )
