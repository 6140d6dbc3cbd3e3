"""Convert to TFLite, compare with torch: ``python -m dev.benchmarks.plain.to_tflite LIST OUT``."""

from __future__ import annotations

import sys
from pathlib import Path

import litert_torch
import numpy as np
from ai_edge_litert.interpreter import Interpreter

from dev.benchmarks.plain.common import compare, model, photos

if __name__ == "__main__":
    listed, out = Path(sys.argv[1]), Path(sys.argv[2])
    module, examples = model()
    file = out / "model.tflite"
    litert_torch.convert(module, examples).export(str(file))
    interpreter = Interpreter(str(file), num_threads=2)
    run = interpreter.get_signature_runner()
    inputs, name = photos(listed), next(iter(run.get_input_details()))
    answers = [next(iter(run(**{name: row[None]}).values())) for row in inputs]
    compare(module, inputs, np.concatenate(answers))
