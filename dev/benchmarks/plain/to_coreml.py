"""Convert to Core ML: ``python -m dev.benchmarks.plain.to_coreml OUT``; nothing here can run it."""

from __future__ import annotations

import sys
from pathlib import Path

import coremltools as ct
import torch

from dev.benchmarks.plain.common import model

if __name__ == "__main__":
    module, examples = model()
    program = torch.export.export(module, examples).run_decompositions()
    ct.convert(program, compute_precision=ct.precision.FLOAT32).save(
        str(Path(sys.argv[1]) / "model.mlpackage")
    )
