"""The reference session: an exported program run by PyTorch on the CPU.

Also the number of threads of PyTorch, and recorders of the values or ranges of a program's nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import fx

from edgeserve.backends.checks import unknown_taps
from edgeserve.backends.edge_values import Edge
from edgeserve.backends.graph import ActivationRange, channel_axis
from edgeserve.backends.session import LoadOptions, Session, numpy_dtype
from edgeserve.backends.torch.module_state.snapshot import BufferSnapshot
from edgeserve.backends.torch.program.edges import find_edges
from edgeserve.backends.torch.program.index_bounds import index_bounds
from edgeserve.backends.torch.program.io import load_program
from edgeserve.backends.torch.program.rounding import RoundingInterpreter, draws
from edgeserve.environment import usable_cores
from edgeserve.types.artifact import Artifact
from edgeserve.types.records import Runtime


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch use this many threads for a while; the setting is process-wide."""
    before = torch.get_num_threads()
    if before == count:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


#: Ops that converters fuse into the op before them, whose output is then that of the fused op.
#: Clipping activations are safe even if they were not fused: the artifact's op then has a larger
#: range, never a smaller one.
_FUSED = ("batch_norm", "relu", "clamp", "hardtanh", "dropout", "alias", "clone", "contiguous")

_MAX_CHAIN = 4


class NodeRecorder(fx.Interpreter):
    """Runs a graph node by node and keeps what a function makes of each node's value.

    Args:
        module: The graph's.
        record: Called with each node and its value; None: nothing is kept.

    Attributes:
        records: By node, in the order they ran.
    """

    def __init__(self, module: fx.GraphModule, record: Callable[[fx.Node, Any], Any]) -> None:
        super().__init__(module)
        self._record = record
        self.records: dict[fx.Node, Any] = {}

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if (record := self._record(n, value)) is not None:
            self.records[n] = record
        return value


def _record_range(node: fx.Node, value: Any) -> ActivationRange | None:
    """The range of a float tensor that an operator gives."""
    floats = isinstance(value, torch.Tensor) and value.is_floating_point()
    if node.op != "call_function" or not floats:
        return None
    array = value.detach().float().numpy()
    return ActivationRange.of(array, channel_axis(array.shape))


def fused_outputs(module: fx.GraphModule) -> dict[str, str]:
    """For each node the last node that a converter may fuse into it, or itself."""
    return {n.name: _fused_output(n).name for n in module.graph.nodes if n.op == "call_function"}


def _fused_output(node: fx.Node) -> fx.Node:
    for _ in range(_MAX_CHAIN):
        users = list(node.users)
        if len(users) != 1 or not _is_fused(str(users[0].target)):
            break
        node = users[0]
    return node


def _is_fused(target: str) -> bool:
    name = target.removeprefix("aten.").partition(".")[0].rstrip("_")
    return any(name in (word, f"{word}6", f"_{word}") for word in _FUSED)


class TorchSession(Session):
    """Runs an exported program under ``no_grad``. `optimize` has no meaning here and is ignored."""

    def __init__(self, artifact: Artifact, root: Path, how: LoadOptions) -> None:
        runtime = Runtime(name="torch", version=torch.__version__.split("+")[0], delegate="cpu")
        super().__init__(artifact.io, runtime, how.threads or usable_cores())
        for spec in artifact.io.outputs:
            numpy_dtype(spec.dtype, spec.name)
        program = load_program(artifact, root)
        module: Any = program.module()
        known = {node.name for node in module.graph.nodes if node.op != "output"}
        if unknown := [tap for tap in how.taps if tap not in known]:
            raise unknown_taps(unknown)
        self._taps = how.taps
        self._names = [spec.name for spec in artifact.io.outputs]
        self._module: fx.GraphModule | None = module
        self._buffers = BufferSnapshot(module)

    def _run(self, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        if self._module is None:
            raise RuntimeError("the session was closed during a run")
        inputs = [torch.from_numpy(feed[spec.name].copy()) for spec in self.io.inputs]
        with torch.no_grad(), torch_threads(self.threads):
            if not self._taps:
                outputs, inner = self._module(*inputs), {}
            else:
                recorder = NodeRecorder(self._module, self._tapped)
                outputs = recorder.run(*inputs)
                inner = {node.name: value for node, value in recorder.records.items()}
        named = dict(zip(self._names, outputs, strict=True)) | inner
        answer = {name: tensor.detach().numpy().copy() for name, tensor in named.items()}
        self._buffers.restore()  # runs are independent, as in every other format
        return answer

    def _inner(self, feed: Mapping[str, np.ndarray]) -> dict[str, ActivationRange]:
        """See `Session.inner`; by node of the program."""
        if self._module is None:
            return {}
        inputs = [torch.from_numpy(feed[spec.name].copy()) for spec in self.io.inputs]
        with torch.no_grad(), torch_threads(self.threads):
            recorder = NodeRecorder(self._module, _record_range)
            recorder.run(*inputs)
        self._buffers.restore()
        ranges = {node.name: value for node, value in recorder.records.items()}
        ends = fused_outputs(self._module)
        return {name: ranges[end] for name, end in ends.items() if end in ranges}

    def index_bounds(self) -> dict[str, int]:
        """See `Session.index_bounds`."""
        if self._module is None:
            return {}
        found = zip(self.io.inputs, index_bounds(self._module), strict=True)
        return {spec.name: bound for spec, bound in found if bound is not None}

    def edges(self) -> dict[str, tuple[Edge, ...]]:
        """See `Session.edges`."""
        if self._module is None:
            return {}
        names = [spec.name for spec in self.io.inputs]
        return {names[place]: edges for place, edges in find_edges(self._module).items()}

    def _rounded(self, feed: Mapping[str, np.ndarray], seed: int) -> list[dict[str, np.ndarray]]:
        """See `Session.rounded`."""
        if self._module is None:
            return []
        answers = []
        with torch.no_grad(), torch_threads(self.threads):
            for draw in draws(seed):
                inputs = [torch.from_numpy(feed[spec.name].copy()) for spec in self.io.inputs]
                outputs = RoundingInterpreter(self._module, draw).run(*inputs)
                self._buffers.restore()
                pairs = zip(self._names, outputs, strict=True)
                answers.append({name: value.numpy().copy() for name, value in pairs})
        return answers

    def _tapped(self, node: fx.Node, value: Any) -> torch.Tensor | None:
        if node.name not in self._taps:
            return None
        if isinstance(value, torch.Tensor):
            return value.clone()
        return torch.as_tensor(value) if isinstance(value, bool | int | float) else None

    def _close(self) -> None:
        self._module = None
