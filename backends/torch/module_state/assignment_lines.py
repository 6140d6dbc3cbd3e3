"""The line that assigns or changes an attribute of a module outside of ``__init__``."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType

import torch

from edgeserve.user_lines import user_line

#: Methods of Python's containers that change them; torch's own end in one underscore.
_CHANGING = set(
    "add append appendleft clear discard extend insert pop popleft remove setdefault update".split()
)
_SETTERS = {"setattr", "register_buffer"}


def assignment_line(module: torch.nn.Module, name: str, folder: Path) -> str | None:
    """The user's ``file:line`` where an attribute is set or changed, or None.

    Args:
        module: The whole module.
        name: Dotted name of the attribute.
        folder: The user's folder, see `edgeserve.user_lines`.
    """
    owner, _, attribute = name.rpartition(".")
    first = type(module.get_submodule(owner))
    for cls in dict.fromkeys([first, *map(type, module.modules())]):
        for path, line in _assignments(cls, attribute):
            if shown := user_line(path, line, folder):
                return shown
    return None


def _assignments(cls: type, attribute: str) -> Iterator[tuple[str, int]]:
    """In forward and its callees first: other methods may only prepare the module."""
    methods: dict[str, FunctionType] = {}
    for base in cls.__mro__:
        if base.__module__.partition(".")[0] in ("torch", "builtins"):
            continue
        for word, method in vars(base).items():
            if word != "__init__" and isinstance(method, FunctionType):
                methods.setdefault(word, inspect.unwrap(method))
    order = ["forward"]
    for word in order:  # grows as it goes
        code = getattr(methods.get(word), "__code__", None)
        order += [name for name in getattr(code, "co_names", ()) if name not in order]
    for word in dict.fromkeys([*order, *methods]):
        if word in methods:
            yield from _in_function(methods[word], attribute)


def _in_function(method: object, attribute: str) -> Iterator[tuple[str, int]]:
    try:
        lines, start = inspect.getsourcelines(method)  # type: ignore[arg-type]
        path = inspect.getsourcefile(method)  # type: ignore[arg-type]
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return  # typed into a shell, or created by a decorator
    for node in ast.walk(tree):
        if path and _assigns(node, attribute):
            yield path, start + getattr(node, "lineno", 1) - 1


def _assigns(node: ast.AST, attribute: str) -> bool:
    """Whether a syntax node sets the attribute or an item of it, or calls a mutating method."""
    if isinstance(node, ast.Assign | ast.Delete):
        return any(_is_target(target, attribute) for target in node.targets)
    if isinstance(node, ast.AugAssign | ast.AnnAssign):
        return _is_target(node.target, attribute)
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Attribute) and _is_target(node.func.value, attribute):
        word = node.func.attr
        return word in _CHANGING or (word.endswith("_") and not word.endswith("__"))
    called = getattr(node.func, "attr", getattr(node.func, "id", ""))
    named = [arg.value for arg in node.args[:2] if isinstance(arg, ast.Constant)]
    return called in _SETTERS and attribute in named


def _is_target(node: ast.AST, attribute: str) -> bool:
    if isinstance(node, ast.Tuple | ast.List):
        return any(_is_target(each, attribute) for each in node.elts)
    while isinstance(node, ast.Subscript | ast.Starred):
        node = node.value
    return isinstance(node, ast.Attribute) and node.attr == attribute
