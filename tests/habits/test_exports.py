"""What a module offers: its names without an underscore, all of which somebody uses.

A package, and a module that hands on names of others, lists them in ``__all__``.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import defaultdict
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


def problems(module: str, tree: ast.Module, is_package: bool) -> list[str]:
    names = exported(tree)
    if names is None:
        offers = any(isinstance(node, ast.ImportFrom) for node in tree.body) and is_package
        return [f"{module} has no __all__"] if offers else []
    found = []
    if untrue := set(names) - bound(tree):
        found.append(f"{module} exports {sorted(untrue)} and has no such names")
    if len(set(names)) != len(names):
        found.append(f"{module} exports a name twice")
    if private := [n for n in names if n.startswith("_") and not n.endswith("__")]:
        found.append(f"{module} exports the private {private}")
    return found


def test_packages_list_what_they_offer(
    trees: Mapping[str, ast.Module], modules: Mapping[str, Path]
) -> None:
    found = [
        line
        for module, tree in trees.items()
        for line in problems(module, tree, modules[module].name == "__init__.py")
    ]
    assert not found, "\n".join(found)


def unused(files: Mapping[Path, str], product: Mapping[str, Path]) -> list[str]:
    """Public functions of the product whose name stands in no file but their own."""
    users: dict[str, set[Path]] = defaultdict(set)
    for path, text in files.items():
        for word in set(re.findall(r"[A-Za-z]\w*", text)):
            users[word].add(path)
    return [
        f"{module}.{node.name}"
        for module, path in product.items()
        for node in ast.parse(files[path]).body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
        if not node.decorator_list and users[node.name] <= {path}
    ]


def test_a_public_function_has_a_user_elsewhere(
    texts: Mapping[Path, str], modules: Mapping[str, Path], root: Path
) -> None:
    files = {(root / path).resolve(): text for path, text in texts.items()}
    product = {module: path.resolve() for module, path in modules.items()}
    assert unused(files, product) == []


def test_an_unused_function_is_found() -> None:
    files = {Path("a"): "def used(): ...\ndef alone(): ...\n", Path("b"): "used()"}
    assert unused(files, {"m": Path("a")}) == ["m.alone"]


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
        ("from x import y", "no __all__"),
        ("__all__ = ['f', 'g']\ndef f(): ...", "no such names"),
        ("__all__ = ['f', 'f']\ndef f(): ...", "twice"),
        ("__all__ = ['_f']\ndef _f(): ...", "private"),
    ],
)
def test_a_planted_problem_is_found(text: str, said: str) -> None:
    assert said in " ".join(problems("edgeserve.x", ast.parse(text), is_package=True))


def test_the_top_keeps_its_word() -> None:
    import edgeserve

    for name in edgeserve.__all__:
        assert getattr(edgeserve, name) is not None
    with pytest.raises(AttributeError, match="no_such"):
        _ = edgeserve.no_such
