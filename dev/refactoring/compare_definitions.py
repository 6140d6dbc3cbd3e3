"""Prove that a renaming moved definitions and changed nothing in them.

    python -m dev.refactoring.compare_definitions OLD_REVISION NEW_REVISION

Both revisions are read from git. Every function, class and assignment at the top of a module of the
product is parsed, its identifiers are normalised through ``renames.toml``, and it is looked up in
the module where the table says it went. Equal syntax trees are counted; everything else is listed
and the command exits with 1.

The normalisation knows nothing of the tool that renamed: an old and a new spelling of one name are
one equivalence class, applied to both revisions alike. Comments and layout are no part of a syntax
tree; docstrings are compared word by word through the same classes.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOMS = (
    "backends",
    "convert",
    "measure",
    "package",
    "profiles",
    "report",
    "serve",
    "validate",
    "wrapper",
)
_DOTTED = re.compile(r"edgeserve(?:\.\w+)+")
_PATH = re.compile(r"(?:[\w-]+/)+[\w-]+\.py\b")
_WORD = re.compile(r"[A-Za-z_]\w*")


@dataclass
class Renames:
    """The table of moves: modules, names and attributes, and the classes of equal spellings."""

    modules: Mapping[str, str]
    names: Mapping[str, str]
    attributes: Mapping[str, str]
    _parent: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Join the old and the new spelling of everything that was renamed."""
        for old, new in self.modules.items():
            self._join(old.rsplit(".", 1)[-1], new.rsplit(".", 1)[-1])
        for old, new in (*self.names.items(), *self.attributes.items()):
            self._join(re.split(r"[.:]", old)[-1], new)

    @classmethod
    def read(cls, path: Path) -> Renames:
        """The table in a TOML file."""
        table = tomllib.loads(path.read_text())
        return cls(table["modules"], table["names"], table["attrs"])

    def word(self, word: str) -> str:
        """One spelling for all spellings of a name."""
        while word in self._parent:
            word = self._parent[word]
        return word

    def module(self, module: str) -> str:
        """Where a module went."""
        if module in self.modules:
            return self.modules[module]
        head, _, tail = module.rpartition(".")
        return f"{self.module(head)}.{tail}" if head else module

    def name(self, module: str, name: str) -> str:
        """What a definition of an old module is called now; ``(a, b)`` of a tuple's targets too."""
        return _WORD.sub(lambda m: self.names.get(f"{module}:{m[0]}", m[0]), name)

    def text(self, text: str) -> str:
        """A string or docstring with paths dropped and names in one spelling."""
        text = _PATH.sub("", text)
        text = _DOTTED.sub(lambda m: self.word(m[0].rsplit(".", 1)[-1]), text)
        return _WORD.sub(lambda m: self.word(m[0]), text)

    def _join(self, one: str, other: str) -> None:
        one, other = self.word(one), self.word(other)
        if one != other:
            self._parent[one] = other


class _Normalise(ast.NodeTransformer):
    """Spell every identifier of a definition in one way; forget which module a name comes from."""

    def __init__(self, renames: Renames, modules: set[str]) -> None:
        self.renames, self.modules = renames, modules

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for name, value in ast.iter_fields(node):
            if isinstance(value, str) and name in ("id", "attr", "name", "arg", "asname"):
                setattr(node, name, self.renames.word(value))
        if isinstance(node, ast.Global):
            node.names = [self.renames.word(name) for name in node.names]
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, str):
            node.value = self.renames.text(node.value)
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        """A docstring may break its lines elsewhere."""
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            node.value.value = " ".join(node.value.value.split())
        return self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if isinstance(node.value, ast.Name) and node.value.id in self.modules:
            return ast.Name(self.renames.word(node.attr), node.ctx)
        return self.generic_visit(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        """Leave out imports of the product inside functions: the move changes where from."""
        return None if (node.module or "").startswith("edgeserve") else node

    def visit_Pass(self, node: ast.Pass) -> None:
        return None


def _tree(revision: str) -> dict[str, str]:
    """Path -> text of each Python file of the product in a revision."""
    listed = subprocess.check_output(["git", "ls-tree", "-r", "--name-only", revision], text=True)
    tops = ("src/edgeserve/", "edgeserve/", *(f"{room}/" for room in ROOMS))
    paths = [p for p in listed.splitlines() if p.endswith(".py") and p.startswith(tops)]
    texts = subprocess.run(
        ["git", "cat-file", "--batch"],
        input="".join(f"{revision}:{p}\n" for p in paths).encode(),
        capture_output=True,
        check=True,
    ).stdout
    return dict(_blobs(paths, texts))


def _blobs(paths: list[str], texts: bytes) -> Iterator[tuple[str, str]]:
    at = 0
    for path in paths:
        end = texts.index(b"\n", at)
        size = int(texts[at:end].split()[-1])
        yield path, texts[end + 1 : end + 1 + size].decode()
        at = end + 1 + size + 1


def _module(path: str) -> str:
    module = path.removesuffix(".py").removesuffix("/__init__").removeprefix("src/")
    module = module.replace("wrapper/python", "wrapper").replace("/", ".")
    return module if module.startswith("edgeserve") else f"edgeserve.{module}"


def _definitions(text: str, renames: Renames, known: set[str]) -> Iterator[tuple[str, str]]:
    """(name, normalised syntax) of each definition at the top of a module."""
    tree = ast.parse(text)
    modules = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if f"{node.module}.{alias.name}" in known
    }
    for node in tree.body:
        name = _name(node)
        if name not in ("", "__all__"):
            yield name, ast.dump(_Normalise(renames, modules).visit(node))


def _name(node: ast.stmt) -> str:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return node.name
    if isinstance(node, ast.Assign | ast.AnnAssign):
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        return target.id if isinstance(target, ast.Name) else ast.unparse(target)
    return ""


def compare(
    old: Mapping[str, str], new: Mapping[str, str], renames: Renames
) -> tuple[int, list[str]]:
    """How many definitions are equal, and a line for each that is not.

    Args:
        old: Path -> text before.
        new: Path -> text after.
        renames: What was moved where, and called what.
    """
    known_new, known_old = {_module(path) for path in new}, {_module(path) for path in old}
    there: dict[tuple[str, str], str] = {}
    for path, text in new.items():
        for name, syntax in _definitions(text, renames, known_new):
            there[_module(path), name] = syntax
    equal, lines, seen = 0, [], set[tuple[str, str]]()
    for path, text in old.items():
        module = _module(path)
        for name, syntax in _definitions(text, renames, known_old):
            key = (renames.module(module), renames.name(module, name))
            seen.add(key)
            if there.get(key) == syntax:
                equal += 1
            else:
                lines.append(f"{module}:{name} is not the same in {key[0]}")
    return equal, [*lines, *(f"{module}:{name} is new" for module, name in there.keys() - seen)]


def main() -> int:
    """Compare two revisions and print what differs."""
    old, new = sys.argv[1:3]
    renames = Renames.read(Path(__file__).with_name("renames.toml"))
    equal, lines = compare(_tree(old), _tree(new), renames)
    print(*lines, f"{equal} definitions are equal, {len(lines)} are not", sep="\n")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
