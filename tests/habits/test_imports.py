"""The direction of imports: the core knows no room, rooms never look sideways, few know them all.

An *arrow* is any way to name another module: an import at the top or inside a function, also one
for type checkers only, and a dotted name in a string, as verbs and registries have them.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

CORE = {
    "bundle",
    "codes",
    "data",
    "durations",
    "environment",
    "errors",
    "files",
    "golden_compare",
    "installation",
    "jobs",
    "machine",
    "options",
    "oip",
    "processing",
    "tasks",
    "types",
    "user_lines",
    "verified_files",
    "worker_limits",
    "worker_process",
}
BELOW = CORE | {"profiles", "backends"}
ROOMS = {"convert", "measure", "package", "report", "validate", "wrapper"}

#: Part of edgeserve -> the parts it may name besides itself. A part that is not here fails.
RULES: dict[str, set[str]] = {
    **{part: CORE for part in CORE},
    "profiles": CORE,
    "backends": CORE,
    **{room: BELOW for room in ROOMS},
    "serve": BELOW | {"wrapper"},
    "worker": CORE,
    "fork_server": CORE | {"worker"},
    "pipeline": BELOW | ROOMS | {"serve"},
    "api": BELOW | ROOMS | {"pipeline"},
    "cli": BELOW | ROOMS | {"serve", "pipeline", "worker"},
    "__main__": {"cli"},
    "": {"wrapper"},
}

#: What the core may use of others' libraries, at module level and inside functions.
CORE_LIBRARIES = {"numpy", "msgspec", "filelock", "platformdirs"}
CORE_LIBRARIES_INSIDE = CORE_LIBRARIES | {"PIL", "httpx2", "orjson", "simdjson", "tokenizers"}

#: Arrows that the rules forbid and that are right all the same.
EXCEPTIONS = {
    ("edgeserve.worker_process", "edgeserve.worker"): "names the module that it starts",
    ("edgeserve.worker_process", "edgeserve.fork_server"): "names the module that it starts",
}

DOTTED = re.compile(r"(edgeserve(?:\.\w+)+)(?::\w+)?")


def part(module: str) -> str:
    """Which part of edgeserve a module belongs to: ``edgeserve.convert.source`` -> ``convert``."""
    return [*module.split("."), ""][1]


def arrows(tree: ast.Module, known: set[str]) -> Iterator[tuple[str, int]]:
    """(module named, line) for each arrow that leaves a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                yield (inner if inner in known else base), node.lineno
        elif isinstance(node, ast.Constant) and (named := in_words(node.value)):
            yield named, node.lineno


def in_words(value: object) -> str:
    """The module that a string names; a file's name ("edgeserve.toml") or a key names none."""
    found = DOTTED.fullmatch(value) if isinstance(value, str) else None
    return found[1] if found and part(found[1]) in RULES else ""


def backend(module: str) -> str:
    """Which backend's folder a module lies in, if in one."""
    found = re.match(r"edgeserve\.backends\.(coreml|onnx|tflite|torch)\b", module)
    return found[1] if found else ""


def forbidden(source: str, target: str) -> str:
    """Why ``source`` may not name ``target``; empty if it may."""
    if target.startswith("."):
        return "a relative import"
    if (
        target.split(".")[0] != "edgeserve"
        or target == "edgeserve"
        or (source, target) in EXCEPTIONS
    ):
        return ""
    here, there = part(source), part(target)
    if here not in RULES:
        return "this part has no rule yet"
    if here != there and there not in RULES[here]:
        return f"{here or 'the top'} may not know {there}"
    mine, other = backend(source), backend(target)
    if here == "backends" and other not in ("", mine, "torch") and source != "edgeserve.backends":
        return f"backends/{mine} may not know backends/{other}"
    return ""


def violations(trees: Mapping[str, ast.Module]) -> list[str]:
    found = []
    for module, tree in trees.items():
        for target, line in arrows(tree, set(trees)):
            if why := forbidden(module, target):
                found.append(f"{module}:{line} names {target}: {why}")
    return found


def libraries(tree: ast.Module, *, inside: bool) -> set[str]:
    """Others' libraries that a module imports at its top, or (``inside``) anywhere."""
    nodes = list(ast.walk(tree)) if inside else _at_top(tree)
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add((node.module or "").split(".")[0])
    return names - sys.stdlib_module_names - {"edgeserve"}


def _at_top(tree: ast.AST) -> list[ast.AST]:
    """Every node that runs when the module is imported (not: for type checkers only)."""
    found: list[ast.AST] = []
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            continue
        found += [node, *_at_top(node)]
    return found


def test_every_arrow_points_down(trees: Mapping[str, ast.Module]) -> None:
    assert not violations(trees), "\n".join(violations(trees))


def test_every_part_has_a_rule(modules: Mapping[str, Path]) -> None:
    assert {part(module) for module in modules} - RULES.keys() == set()


def test_arrows_are_seen_at_all(trees: Mapping[str, ast.Module]) -> None:
    """Guards the guard: the real tree has hundreds of arrows, of all kinds."""
    seen = [(m, t) for m, tree in trees.items() for t, _ in arrows(tree, set(trees))]
    assert sum(part(t) in CORE for _, t in seen if t.startswith("edgeserve.")) > 100
    assert ("edgeserve.worker_process", "edgeserve.worker") in seen
    assert ("edgeserve", "edgeserve.wrapper") in seen


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("edgeserve.files", "import edgeserve.convert"),
        ("edgeserve.types.base", "from edgeserve import validate"),
        ("edgeserve.bundle.reader", "from edgeserve.package.write import zip_it"),
        ("edgeserve.convert.source", "from edgeserve.validate import judge"),
        ("edgeserve.convert.source", "def f():\n    from edgeserve.measure import run"),
        ("edgeserve.convert.source", "if TYPE_CHECKING:\n    import edgeserve.wrapper"),
        ("edgeserve.convert", 'VERB = "edgeserve.validate.judge:judge"'),
        ("edgeserve.convert", 'x = importlib.import_module("edgeserve.report")'),
        ("edgeserve.profiles", "from edgeserve.backends import get"),
        ("edgeserve.backends.onnx.export", "from edgeserve.backends.tflite import run"),
        ("edgeserve.backends.onnx.export", 'OTHER = "edgeserve.backends.coreml"'),
        ("edgeserve.backends.torch.program.run", "from edgeserve.backends.onnx.run import go"),
        ("edgeserve.backends.base", "from edgeserve.backends.onnx import Onnx"),
        ("edgeserve.wrapper", "from edgeserve.serve import app"),
        ("edgeserve.wrapper", "from edgeserve.pipeline import stages"),
        ("edgeserve.pipeline.run", "from edgeserve.cli import main"),
        ("edgeserve.worker", "from edgeserve.convert import source"),
        ("edgeserve", "from edgeserve.convert import source"),
        ("edgeserve.errors", "from edgeserve.cli import main"),
        ("edgeserve.files", "from . import errors"),
        ("edgeserve.files", "from .errors import EdgeError"),
        ("edgeserve.newroom", "from edgeserve.errors import EdgeError"),
    ],
)
def test_a_planted_violation_is_found(module: str, text: str) -> None:
    names = {"edgeserve.validate", "edgeserve.backends.tflite", "edgeserve.serve"}
    trees = {module: ast.parse(text)} | {name: ast.parse("") for name in names - {module}}
    assert len(violations(trees)) == 1


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("edgeserve.convert.source", "from edgeserve.backends.torch import export"),
        ("edgeserve.backends.onnx.export", "from edgeserve.backends.torch import export"),
        ("edgeserve.backends", 'REGISTRY = {"onnx": "edgeserve.backends.onnx:OnnxBackend"}'),
        ("edgeserve.serve.app", "from edgeserve.wrapper import Wrapper"),
        ("edgeserve.pipeline.run", 'VERB = "edgeserve.validate.judge:judge"'),
        ("edgeserve.backends.onnx.clean", 'KEY = "edgeserve.source"'),
        ("edgeserve.bundle.reader", 'NAME = "edgeserve.toml"'),
        ("edgeserve.convert", '"""Not what edgeserve.validate does: see there."""'),
    ],
)
def test_what_is_allowed_is_left_alone(module: str, text: str) -> None:
    assert violations({module: ast.parse(text)}) == []


def test_the_core_uses_few_libraries(trees: Mapping[str, ast.Module]) -> None:
    found = {
        module: names
        for module, tree in trees.items()
        if part(module) in CORE
        and (
            names := (libraries(tree, inside=False) - CORE_LIBRARIES)
            | (libraries(tree, inside=True) - CORE_LIBRARIES_INSIDE)
        )
    }
    assert found == {}


@pytest.mark.parametrize("module", ["edgeserve", "edgeserve.errors", "edgeserve.codes"])
def test_the_lightest_modules_use_none(trees: Mapping[str, ast.Module], module: str) -> None:
    assert libraries(trees[module], inside=True) == set()


def test_libraries_are_seen_at_all() -> None:
    text = "import torch\nif x:\n    import numpy.linalg\ndef f():\n    from PIL import Image\n"
    text += "if TYPE_CHECKING:\n    import onnx\nclass A:\n    import rich\nimport os\n"
    assert libraries(ast.parse(text), inside=False) == {"torch", "numpy", "rich"}
    assert libraries(ast.parse(text), inside=True) == {"torch", "numpy", "rich", "PIL", "onnx"}
