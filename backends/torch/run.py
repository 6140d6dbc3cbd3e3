"""The reference session: an exported program run by PyTorch on the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import fx

from edgeserve.backends.feeds import numpy_dtype
from edgeserve.backends.inner import Inner
from edgeserve.backends.session import Session
from edgeserve.backends.torch.buffers import Buffers
from edgeserve.backends.torch.program import load_program
from edgeserve.backends.torch.ranges import Ranging, outcomes
from edgeserve.backends.torch.threads import torch_threads
from edgeserve.environment import usable_cores
from edgeserve.errors import BackendError
from edgeserve.types.artifact import Artifact
from edgeserve.types.records import Runtime

__all__ = ["TorchSession"]


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
                wanted="names of inner tensors, as inspect shows them",
                got=f"{unknown}",
                hint="run `edgeserve inspect` for the names",
            )
        self._taps = taps
        self._names = [spec.name for spec in artifact.io.outputs]
        self._module: fx.GraphModule | None = module
        self._buffers = Buffers(module)

    def _run(self, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        if self._module is None:
            raise RuntimeError("the session was closed during a run")
        inputs = [torch.from_numpy(feed[spec.name].copy()) for spec in self.io.inputs]
        with torch.no_grad(), torch_threads(self.threads):
            if not self._taps:
                outputs, inner = self._module(*inputs), {}
            else:
                tapping = _Tapping(self._module, self._taps)
                outputs, inner = tapping.run(*inputs), tapping.seen
        named = dict(zip(self._names, outputs, strict=True)) | inner
        answer = {name: tensor.detach().numpy().copy() for name, tensor in named.items()}
        self._buffers.restore()  # one run knows nothing of another, as in every other format
        return answer

    def _inner(self, feed: Mapping[str, np.ndarray]) -> dict[str, Inner]:
        """See `Session.inner`; by node of the program."""
        if self._module is None:
            return {}
        inputs = [torch.from_numpy(feed[spec.name].copy()) for spec in self.io.inputs]
        with torch.no_grad(), torch_threads(self.threads):
            ranging = Ranging(self._module)
            ranging.run(*inputs)
        self._buffers.restore()
        ends = outcomes(self._module)
        return {name: ranging.seen[end] for name, end in ends.items() if end in ranging.seen}

    def _close(self) -> None:
        self._module = None


class _Tapping(fx.Interpreter):
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
