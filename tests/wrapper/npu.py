"""A third party's backend: a linear layer in numpy, on a processor and a faulty accelerator.

Put in the place of the built-in backends by the `npu` fixture, here and in child processes. An
artifact is an ``.npz`` with W, b and ``fault``: what the accelerator does when it runs (the
processor is always right).
"""

import errno
import os
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from edgeserve.backends import Backend, Graph, LoadOptions, Session
from edgeserve.types.artifact import Artifact
from edgeserve.types.records import Runtime
from edgeserve.types.source import Exported


class NpuSession(Session):
    def __init__(self, artifact: Artifact, root: Path, delegate: str) -> None:
        with np.load(root / artifact.entry) as held:
            self._w, self._b, fault = held["w"], held["b"], str(held["fault"])
        runtime = Runtime(name="npu", version="1.0", delegate=delegate)
        if delegate == "npu" and fault == "silent":
            runtime = Runtime(name="npu", version="1.0", delegate="cpu")
        super().__init__(artifact.io, runtime, 1)
        self._fault = fault if delegate == "npu" else ""

    def _run(self, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        if self._fault == "crash":
            os.abort()
        if self._fault == "memory":
            os.write(2, b"terminate called after throwing an instance of 'std::bad_alloc'\n")
            os.abort()
        if self._fault == "disk":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self._fault == "hang":
            time.sleep(600)
        if self._fault == "slow":
            time.sleep(0.01)
        if self._fault == "raise":
            raise RuntimeError("driver says no")
        x = feed["image"]
        logits = x.reshape(len(x), -1) @ self._w + self._b
        if self._fault == "wrong":
            logits = -logits
        if self._fault == "batch" and len(x) > 1:
            logits = logits[::-1]
        if self._fault == "nan":
            logits = np.full_like(logits, np.nan)
        return {"logits": logits}

    def _close(self) -> None:
        del self._w, self._b


class NpuBackend(Backend):
    """On a processor and the accelerator."""

    format = "tflite"
    all_delegates = ("npu", "cpu")

    def missing(self) -> str | None:
        return None

    def delegates(self) -> tuple[str, ...]:
        return ("npu", "cpu")

    def routes(self) -> tuple[str, ...]:
        return ("none",)

    def _load(self, artifact: Artifact, root: Path, how: LoadOptions) -> Session:
        return NpuSession(artifact, root, how.delegate)

    def _export(self, exported: Exported, root: Path, out: Path, route: str) -> Artifact:
        raise NotImplementedError

    def _inspect(self, artifact: Artifact, root: Path) -> Graph:
        raise NotImplementedError


class ProofBackend(NpuBackend):
    """As Core ML is where there is no Core ML: carried out for proofs, by an interpreter."""

    format = "coreml"
    simulated = ("interpreter",)

    def delegates(self) -> tuple[str, ...]:
        return ("interpreter",)
