"""What an artifact holds inside, alike for all formats: ops, weights, ranges of activations.

Formats lay tensors out differently and fuse ops, so single values of activations cannot be
compared; the smallest and largest value of each channel can.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from edgeserve.types.base import Value
from edgeserve.types.tensors import TensorSpec


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
        trace: Of an exported program: the stack trace of the user's code.
    """

    name: str
    type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    source: str | None = None
    module: str | None = None
    trace: str = ""


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


@dataclass(frozen=True)
class ActivationRange:
    """The range of one inner tensor.

    Attributes:
        numel: How many numbers it holds.
        low: Smallest value of each channel, float64 [channels]; infinite where none is finite.
        high: Largest value of each channel, float64 [channels].
        finite: All numbers are.
    """

    numel: int
    low: np.ndarray
    high: np.ndarray
    finite: bool = True

    @classmethod
    def of(cls, array: np.ndarray, axis: int | None) -> ActivationRange:
        """The range of an array along its channel axis."""
        values = array if array.dtype.kind == "f" else array.astype(np.float32)
        lined = values.reshape(1, -1) if axis is None else np.moveaxis(values, axis, 0)
        lined = lined.reshape(lined.shape[0], -1)
        known = np.isfinite(lined)
        every = bool(known.all())
        where = True if every else known
        low = lined.min(axis=1, initial=np.inf, where=where).astype(np.float64)
        high = lined.max(axis=1, initial=-np.inf, where=where).astype(np.float64)
        return cls(int(array.size), low, high, every)

    def joined(self, other: ActivationRange) -> ActivationRange:
        """The range over both; where sizes differ, over all channels."""
        if self.low.shape != other.low.shape:
            return self.whole().joined(other.whole())
        low, high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)
        return ActivationRange(self.numel, low, high, self.finite and other.finite)

    def whole(self) -> ActivationRange:
        """The same with all channels as one."""
        low, high = self.low.min(initial=np.inf), self.high.max(initial=-np.inf)
        return ActivationRange(self.numel, np.array([low]), np.array([high]), self.finite)

    @property
    def largest(self) -> float:
        """Largest finite magnitude; 0 where there is none."""
        both = np.concatenate([self.low, self.high])
        return float(np.abs(both[np.isfinite(both)]).max(initial=0.0))

    @property
    def spread(self) -> np.ndarray:
        """What each channel ranges over; 0 where nothing is finite."""
        return np.where(self.high >= self.low, self.high - self.low, 0.0)


def channel_axis(shape: tuple[int, ...]) -> int | None:
    """Where PyTorch has a tensor's channels: behind the batch of pictures, else last."""
    if len(shape) < 2:
        return None
    return 1 if len(shape) in (4, 5) else len(shape) - 1
