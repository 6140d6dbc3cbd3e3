"""Which of coremltools' core ops the interpreter runs, and which test names each; run with -s.

A name in a test file is no proof, but an op that no test file names is surely untested. That ops
with numpy code of their own are compared with it is held by `test_value_inference`.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

from coremltools.converters.mil.mil.ops.registry import SSAOpRegistry

from edgeserve.backends.coreml.interpreter import supported_ops

HERE = Path(__file__).parent
CORE = set(SSAOpRegistry.core_ops)
NUMPY = "test_value_inference"

#: Core ops without a kernel, with the reason.
NO_KERNEL = {
    "_const_symbolic": "holds a symbol while a program is built; no package can have one",
    "const": "is no step of a plan: constants are tensors before a run",
}

#: Ops that a test runs without naming them.
BY_OTHER_NAME = {"classify": "test_package"}  # through a ClassifierConfig


def names_in(file: Path) -> set[str]:
    """Core ops that a file names: as a string, or as a method of coremltools' builder."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    strings = {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    built = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") in ("Builder", "mb")
    }
    return CORE & (strings | built)


def files_by_op() -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for file in sorted(HERE.glob("test_*.py")):
        if file != Path(__file__):
            for name in names_in(file):
                found[name].append(file.stem)
    for name, file_name in BY_OTHER_NAME.items():
        found[name].append(file_name)
    return found


def test_every_core_op_has_a_kernel_and_a_test() -> None:
    named, supported = files_by_op(), set(supported_ops())
    for name in sorted(CORE):
        kernel = "kernel" if name in supported else NO_KERNEL.get(name, "MISSING")
        print(f"{name:34} {kernel:8} {', '.join(named[name])}")
    assert len(CORE) == 168
    assert CORE - supported == set(NO_KERNEL)
    untested = {name for name in CORE & supported if not set(named[name]) - {NUMPY}}
    assert not sorted(untested)
