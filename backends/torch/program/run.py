"""The reference session: an exported program run by PyTorch on the CPU.

With it come the number of threads that PyTorch computes with, and the ranges that a program's
nodes take while it runs, for which no tensor is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import fx

from edgeserve.backends.graph import ActivationRange, channel_axis
from edgeserve.backends.session import Session, numpy_dtype
from edgeserve.backends.torch.module_state.snapshot import BufferSnapshot
from edgeserve.backends.torch.program.io import load_program
from edgeserve.environment import usable_cores
from edgeserve.errors import BackendError
from edgeserve.types.artifact import Artifact
from edgeserve.types.records import Runtime

__all__ = ["RangeRecorder", "TorchSession", "fused_outputs", "torch_threads"]


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Give torch this many threads for a while; it has one setting for the whole process."""
    before = torch.get_num_threads()
    if before == count:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


#: What converters fuse into the op before it, so that its outcome is what the file's op gives.
#: Activations that only cut off are safe to take where they were not fused: the file's op then
#: ranges over more, never over less.
_FUSED = ("batch_norm", "relu", "clamp", "hardtanh", "dropout", "alias", "clone", "contiguous")

_MAX_CHAIN = 4


class RangeRecorder(fx.Interpreter):
    """Runs a graph node by node and notes each float tensor's range.

    Attributes:
        seen: By node.
    """

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.seen: dict[str, ActivationRange] = {}

    def run_node(self, n: fx.Node) -> Any:
        made = super().run_node(n)
        if n.op == "call_function" and isinstance(made, torch.Tensor) and made.is_floating_point():
            array = made.detach().float().numpy()
            self.seen[n.name] = ActivationRange.of(array, channel_axis(array.shape))
        return made


def fused_outputs(module: fx.GraphModule) -> dict[str, str]:
    """For each node the last of those that a converter may fuse into it; itself where none."""
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

    def __init__(
        self, artifact: Artifact, root: Path, threads: int | None, taps: tuple[str, ...]
    ) -> None:
        runtime = Runtime(name="torch", version=torch.__version__.split("+")[0], delegate="cpu")
        super().__init__(artifact.io, runtime, threads or usable_cores())
        for spec in artifact.io.outputs:
            numpy_dtype(spec.dtype, spec.name)
        program = load_program(artifact, root)
        module: Any = program.module()
        known = {node.name for node in module.graph.nodes if node.op != "output"}
        if unknown := [tap for tap in taps if tap not in known]:
            raise BackendError(
                "EDGE-BACKEND-014",
                "taps",
                wanted="names of activations, as inspect shows them",
                got=f"{unknown}",
                hint="run `edgeserve inspect` for the names",
            )
        self._taps = taps
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
                tapping = _TapInterpreter(self._module, self._taps)
                outputs, inner = tapping.run(*inputs), tapping.seen
        named = dict(zip(self._names, outputs, strict=True)) | inner
        answer = {name: tensor.detach().numpy().copy() for name, tensor in named.items()}
        self._buffers.restore()  # one run knows nothing of another, as in every other format
        return answer

    def _inner(self, feed: Mapping[str, np.ndarray]) -> dict[str, ActivationRange]:
        """See `Session.inner`; by node of the program."""
        if self._module is None:
            return {}
        inputs = [torch.from_numpy(feed[spec.name].copy()) for spec in self.io.inputs]
        with torch.no_grad(), torch_threads(self.threads):
            ranging = RangeRecorder(self._module)
            ranging.run(*inputs)
        self._buffers.restore()
        ends = fused_outputs(self._module)
        return {name: ranging.seen[end] for name, end in ends.items() if end in ranging.seen}

    def _close(self) -> None:
        self._module = None


class _TapInterpreter(fx.Interpreter):
    """Runs a graph node by node and keeps the tensors asked for."""

    def __init__(self, module: fx.GraphModule, taps: tuple[str, ...]) -> None:
        super().__init__(module)
        self._wanted = set(taps)
        self.seen: dict[str, torch.Tensor] = {}

    def run_node(self, n: fx.Node) -> Any:
        made = super().run_node(n)
        if n.name in self._wanted:
            self.seen[n.name] = (
                made.clone() if isinstance(made, torch.Tensor) else torch.as_tensor(made)
            )
        return made
