"""What an artifact holds inside, in words that all formats share: ops, weights and their sizes."""

from __future__ import annotations

from collections import Counter

from edgeserve.types.base import Value
from edgeserve.types.tensors import TensorSpec

__all__ = ["Graph", "Op", "WeightInfo"]


class WeightInfo(Value, frozen=True):
    """One constant tensor of the file.

    Attributes:
        name: As the file names it.
        dtype: In lower case as the format says it ("float32", "int4").
        shape: Its dimensions.
        bytes: Bytes it takes in the file.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int


class Op(Value, frozen=True):
    """One operation of the file.

    Attributes:
        name: As the file names it; may be empty.
        type: Operator, with its domain where that is not the format's own ("Conv", "com.x::Foo").
        inputs: Names of the tensors it reads; an omitted optional one is "".
        outputs: Names of the tensors it makes: what `taps` of `Backend.load` takes.
        source: Node of the exported program that it came from, where known.
        module: Path of the module that held that node ("features.0"), where known.
    """

    name: str
    type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    source: str | None = None
    module: str | None = None


class Graph(Value, frozen=True):
    """A file's graph, in execution order.

    Attributes:
        inputs: What the file takes.
        outputs: What the file gives.
        ops: All operations; those of an inner graph (a branch, a loop) follow the op that holds it.
        weights: All constant tensors, each stored one counted once.
        opset: Operator set versions by domain ("" is the format's own); empty where there are none.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    ops: tuple[Op, ...]
    weights: tuple[WeightInfo, ...]
    opset: dict[str, int] = {}

    @property
    def op_counts(self) -> dict[str, int]:
        """How often each op type occurs, most frequent first."""
        return dict(Counter(op.type for op in self.ops).most_common())

    @property
    def weight_bytes(self) -> int:
        """Bytes of all weights together."""
        return sum(weight.bytes for weight in self.weights)
