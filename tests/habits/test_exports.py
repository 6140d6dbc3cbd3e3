"""Every module says what it offers: ``__all__`` is there, sorted, true and complete."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest


def exported(tree: ast.Module) -> list[str] | None:
    """The literal value of ``__all__``, if there is one."""
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name("__all__")], value=value):
                return list(ast.literal_eval(value))
            case ast.AnnAssign(target=ast.Name("__all__"), value=ast.expr() as value):
                return list(ast.literal_eval(value))
    return None


def bound(tree: ast.Module) -> set[str]:
    """Names that a module binds at its top level, also inside ``if`` and ``try``."""
    names: set[str] = set()
    for node in _statements(tree.body):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif isinstance(node, ast.Assign):
            names |= {n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)}
        elif isinstance(node, ast.AnnAssign):
            names.add(ast.unparse(node.target))
    return names


def _statements(body: list[ast.stmt]) -> list[ast.stmt]:
    found = []
    for node in body:
        found.append(node)
        if isinstance(node, ast.If | ast.Try | ast.With):
            found += _statements(node.body)
    return found


def defined(tree: ast.Module) -> set[str]:
    """Public functions and classes that a module defines itself, for others to call."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return {
        node.name
        for node in tree.body
        if isinstance(node, kinds)
        and not node.name.startswith("_")
        and "command" not in map(ast.unparse, node.decorator_list)  # the command line calls those
    }


def problems(module: str, tree: ast.Module) -> list[str]:
    names = exported(tree)
    if names is None:
        nothing = not defined(tree) and not any(isinstance(n, ast.ImportFrom) for n in tree.body)
        return [] if nothing or module == "edgeserve.__main__" else [f"{module} has no __all__"]
    found = []
    if missing := defined(tree) - set(names):
        found.append(f"{module} defines {sorted(missing)} and does not export them")
    if untrue := set(names) - bound(tree):
        found.append(f"{module} exports {sorted(untrue)} and has no such names")
    if len(set(names)) != len(names):
        found.append(f"{module} exports a name twice")
    if private := [n for n in names if n.startswith("_") and not n.endswith("__")]:
        found.append(f"{module} exports the private {private}")
    return found


def test_every_module_exports_what_it_defines(trees: Mapping[str, ast.Module]) -> None:
    found = [line for module, tree in trees.items() for line in problems(module, tree)]
    assert not found, "\n".join(found)


def test_exports_are_sorted(modules: Mapping[str, Path]) -> None:
    """As ruff sorts: CONSTANTS, Classes, functions."""
    command = [
        sys.executable,
        "-m",
        "ruff",
        "check",
        "--isolated",
        "--no-cache",
        "--select",
        "RUF022",
    ]
    done = subprocess.run(
        [*command, "--output-format", "concise", *map(str, modules.values())],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def f(): ...", "no __all__"),
        ("from x import y", "no __all__"),
        ("__all__ = []\nclass A: ...", "does not export"),
        ("__all__ = ['f', 'g']\ndef f(): ...", "no such names"),
        ("__all__ = ['f', 'f']\ndef f(): ...", "twice"),
        ("__all__ = ['_f']\ndef _f(): ...", "private"),
    ],
)
def test_a_planted_problem_is_found(text: str, said: str) -> None:
    assert said in " ".join(problems("edgeserve.x", ast.parse(text)))


def test_the_top_keeps_its_word() -> None:
    import edgeserve

    for name in edgeserve.__all__:
        assert getattr(edgeserve, name) is not None
    with pytest.raises(AttributeError, match="no_such"):
        _ = edgeserve.no_such
