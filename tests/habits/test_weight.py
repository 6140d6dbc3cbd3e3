"""How much there is: sizes of files, functions and folders, and how many names mean two things."""

from __future__ import annotations

import ast
import re
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

#: In lines as the formatter lays them, which are more than those that a hand lays.
LONGEST_FILE = 480
LONGEST_FUNCTION = 90
NEARLY_ALL_FUNCTIONS = 50

#: Of the product, which is what the wheel holds.
MOST_FILES = 448
LOWEST_MEDIAN = 140
MOST_LINES = 77_000

#: Modules of one folder, without ``__init__.py``. A family has one module a kind of the same thing.
MOST_MODULES = 25
FAMILIES = {"edgeserve.backends.coreml.interpreter", "edgeserve.backends.torch.passes"}

#: Class names that stand in several files all the same: at most five.
SHARED_CLASS_NAMES = frozenset({"Workspace"})  # the folder; with its stages, `edgeserve.api`

#: Written so that it does not match itself.
BY_HAND = re.compile(r"#\s*fmt:\s*(?:ski[p]|of[f])")
MOST_BY_HAND = 49


def functions(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """(name, lines) of each function, decorators not counted."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


def lines(file: Path) -> int:
    return len(file.read_text("utf-8").splitlines())


def shared_class_names(trees: Mapping[str, ast.Module]) -> dict[str, list[str]]:
    """Public classes, at any depth, that several modules define."""
    where = defaultdict(set)
    for module, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                where[node.name].add(module)
    return {name: sorted(modules) for name, modules in where.items() if len(modules) > 1}


def test_files_have_one_idea(texts: Mapping[Path, str]) -> None:
    sizes = {p: len(t.splitlines()) for p, t in texts.items() if p.suffix == ".py"}
    assert {str(path): size for path, size in sizes.items() if size > LONGEST_FILE} == {}


def test_functions_are_short(texts: Mapping[Path, str]) -> None:
    sizes = {
        (str(path), name): lines
        for path, text in texts.items()
        if path.suffix == ".py"
        for name, lines in functions(ast.parse(text))
    }
    assert {where: lines for where, lines in sizes.items() if lines > LONGEST_FUNCTION} == {}
    assert statistics.quantiles(sizes.values(), n=20)[-1] <= NEARLY_ALL_FUNCTIONS
    assert statistics.median(sizes.values()) <= 15


def test_the_product_stays_small_and_its_files_whole(modules: Mapping[str, Path]) -> None:
    """A file of a few lines costs its reader a jump; thousands of lines cost everybody."""
    sizes = [lines(file) for file in modules.values()]
    assert len(sizes) <= MOST_FILES
    assert statistics.median(sizes) >= LOWEST_MEDIAN
    assert sum(sizes) <= MOST_LINES


def test_no_folder_is_a_heap(packages: Mapping[str, Path]) -> None:
    counts = {name: len([*folder.glob("*.py")]) - 1 for name, folder in packages.items()}
    heaps = {name: count for name, count in counts.items() if count > MOST_MODULES}
    assert heaps.keys() <= FAMILIES, heaps
    assert counts.keys() >= FAMILIES, "a family that is gone"


def test_a_class_name_has_one_meaning(trees: Mapping[str, ast.Module]) -> None:
    shared = shared_class_names(trees)
    assert shared.keys() == SHARED_CLASS_NAMES, shared
    assert len(SHARED_CLASS_NAMES) <= 5


def test_a_name_that_is_used_twice_is_found() -> None:
    one, two = ast.parse("class Plan: ..."), ast.parse("def f():\n    class Plan: ...")
    assert shared_class_names({"one": one, "two": two}) == {"Plan": ["one", "two"]}
    private = ast.parse("class _Plan: ...")
    assert shared_class_names({"one": private, "two": private}) == {}


def test_the_formatter_wins(texts: Mapping[Path, str]) -> None:
    found = [f"{path}: {hit[0]}" for path, text in texts.items() for hit in BY_HAND.finditer(text)]
    assert len(found) <= MOST_BY_HAND, "\n".join(found)
    assert BY_HAND.search("x = 1  # fmt: {}".format("skip"))
