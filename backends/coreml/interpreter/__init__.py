"""A Core ML interpreter for any system: runs ``.mlpackage`` programs with PyTorch on the CPU.

    from edgeserve.backends.coreml.interpreter import Interpreter

    tagger = Interpreter(Path("tagger.mlpackage"))
    answer = tagger.run({"x": pixels})

It computes what the program says, op by op, in float32, and rounds where the program says float16.
It is no Apple hardware: the Neural Engine and the GPU sum in other orders and widths. See
docs/interpreter.md.
"""

from __future__ import annotations

from edgeserve.backends.coreml.interpreter.registry import supported_ops
from edgeserve.backends.coreml.interpreter.session import Interpreter, OpInfo
from edgeserve.backends.coreml.interpreter.state import State

__all__ = ["Interpreter", "OpInfo", "State", "supported_ops"]
