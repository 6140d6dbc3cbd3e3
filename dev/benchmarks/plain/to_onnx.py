"""Convert to ONNX and compare with PyTorch: ``python -m dev.benchmarks.plain.to_onnx LIST OUT``."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnxruntime
import torch

from dev.benchmarks.plain.common import BATCH, compare, model, photos

if __name__ == "__main__":
    listed, out = Path(sys.argv[1]), Path(sys.argv[2])
    module, (example,) = model()
    batch = torch.export.Dim("batch", min=1, max=BATCH)
    file = out / "model.onnx"
    examples = (example.repeat(2, 1, 1, 1),)
    torch.onnx.export(module, examples, file, dynamo=True, dynamic_shapes=({0: batch},))
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    inputs, name = photos(listed), session.get_inputs()[0].name
    answers = [
        session.run(None, {name: inputs[i : i + BATCH]})[0] for i in range(0, len(inputs), BATCH)
    ]
    compare(module, inputs, np.concatenate(answers))
