"""A file, run by its bare runtime over many inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from edgeserve.types.artifact import Artifact

_BATCH = 100
Arrays = dict[str, np.ndarray]


class RuntimeFailed(Exception):
    """No runtime runs this file: whoever gets it gets no answer."""


def outputs(artifact: Artifact, root: Path, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Run all inputs: each output [n, ...], in the file's own order.

    Args:
        artifact: What to run, under ``root``.
        root: See ``artifact``.
        feeds: [n, ...] for each input, by name.

    Raises:
        Dead: the engine refuses the file, or fails on an input.
    """
    try:
        return _outputs(artifact, root, feeds)
    except Exception as error:  # each engine raises its own kinds
        raise RuntimeFailed(f"{type(error).__name__}: {error}"[:200]) from error


def _outputs(artifact: Artifact, root: Path, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    count = len(next(iter(feeds.values())))
    size = artifact.io.inputs[0].shape[0]
    step = size if isinstance(size, int) else _BATCH
    found: list[list[np.ndarray]] = []
    with _opened(artifact, root) as run:
        for start in range(0, count, step):
            piece = {
                s.name: feeds[s.name][start : start + step].astype(s.dtype)
                for s in artifact.io.inputs
            }
            rows = len(next(iter(piece.values())))
            if isinstance(size, int) and rows < size:
                piece = {
                    n: np.concatenate([a, *[a[-1:]] * (size - rows)]) for n, a in piece.items()
                }
            found.append([array[:rows] for array in run(piece)])
    return [np.concatenate(parts) for parts in zip(*found, strict=True)]


@contextmanager
def _opened(artifact: Artifact, root: Path) -> Iterator[Any]:
    names = [spec.name for spec in artifact.io.outputs]
    path = str(root / artifact.entry)
    if artifact.format == "onnx":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"])
        yield lambda feed: session.run(names, feed)
    elif artifact.format == "tflite":
        from ai_edge_litert.interpreter import Interpreter

        engine = Interpreter(model_path=path, num_threads=1)
        engine.allocate_tensors()
        runner = engine.get_signature_runner(next(iter(engine.get_signature_list())))
        yield lambda feed: [array for found in [runner(**feed)] for array in map(found.get, names)]
    else:
        from edgeserve import backends

        with backends.get("coreml").load(artifact, root, threads=1) as mil:
            yield lambda feed: [mil.run(feed)[name] for name in names]
