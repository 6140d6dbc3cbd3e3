"""A Core ML interpreter for any system: runs ``.mlpackage`` programs with PyTorch on the CPU.

    from edgeserve.backends.coreml.interpreter import Interpreter

    tagger = Interpreter(Path("tagger.mlpackage"))
    answer = tagger.run({"x": pixels})

It computes what the program says, op by op, in float32, and rounds where the program says float16.
It is no Apple hardware: the Neural Engine and the GPU sum in other orders and widths. See
docs/explanation/interpreter.md. Importing the package loads neither torch nor coremltools;
using it does.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgeserve.backends.coreml.interpreter.control_flow import State
    from edgeserve.backends.coreml.interpreter.registry import supported_ops
    from edgeserve.backends.coreml.interpreter.session import Interpreter, OpInfo

__all__ = ["Interpreter", "OpInfo", "State", "supported_ops"]

_HOMES = {"Interpreter": "session", "OpInfo": "session", "State": "control_flow"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES.get(name, 'registry')}"), name)
