"""Codes raised in the source and codes in the catalogue are the same, each with one meaning."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from edgeserve import errors
from edgeserve.codes import catalogue
from edgeserve.errors import EdgeError

CODE = re.compile(r"EDGE-[A-Z]+-\d{3}")

CLASSES = {
    name: cls
    for name, cls in vars(errors).items()
    if isinstance(cls, type) and issubclass(cls, EdgeError)
}

#: Codes shown in examples and docstrings of the error tree itself, which need not be in use.
EXAMPLES = {"EDGE-CONVERT-012"}

#: What is no part's error but a fault of edgeserve: raised as the base class, with its exit code.
OF_NO_AREA = {("EdgeError", "EDGE-USAGE-900")}


def literals(tree: ast.AST) -> set[str]:
    """Codes that stand as whole strings: those that can be raised or reported."""
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and CODE.fullmatch(node.value)
    }


def raised(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """(class, code) of each error that is made with a literal code."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            name = ast.unparse(node.func).rpartition(".")[2]
            if name in CLASSES and CODE.fullmatch(str(node.args[0].value)):
                yield name, str(node.args[0].value)


def misfits(trees: Mapping[str, ast.AST]) -> list[str]:
    """Errors whose class is not that of their code's area."""
    return [
        f"{module}: {name} raised with {code}"
        for module, tree in trees.items()
        for name, code in raised(tree)
        if f"EDGE-{CLASSES[name].area}-" != code[:-3] and (name, code) not in OF_NO_AREA
    ]


def test_codes_in_use_and_codes_explained_are_the_same(trees: Mapping[str, ast.Module]) -> None:
    used = set().union(*map(literals, trees.values()))
    assert len(used) > 20, "the codes were not found"
    unexplained, unused = sorted(used - catalogue().keys()), sorted(catalogue().keys() - used)
    assert (unexplained, unused) == ([], []), (
        f"{' '.join(unexplained)} | unused: {' '.join(unused)}"
    )


def test_every_error_has_the_class_of_its_area(trees: Mapping[str, ast.Module]) -> None:
    assert not misfits(trees), "\n".join(misfits(trees))


def test_every_area_has_a_class() -> None:
    areas = {code.split("-")[1] for code in catalogue()}
    assert areas <= {cls.area for cls in CLASSES.values()}


def test_a_planted_misfit_is_found() -> None:
    text = 'def f():\n    raise errors.BundleError("EDGE-FILES-001", "x", got="y", hint="z")'
    assert misfits({"m": ast.parse(text)}) == ["m: BundleError raised with EDGE-FILES-001"]
    assert misfits({"m": ast.parse(text.replace("FILES", "BUNDLE"))}) == []


def test_a_code_has_one_class(trees: Mapping[str, ast.Module]) -> None:
    classes = defaultdict(set)
    for tree in trees.values():
        for name, code in raised(tree):
            classes[code].add(name)
    assert {code: names for code, names in classes.items() if len(names) > 1} == {}


def test_every_error_has_a_hint_and_a_literal_code(trees: Mapping[str, ast.Module]) -> None:
    """A code that is put together at run time cannot be found, by a test or by a reader."""
    odd = [
        f"{module}:{node.lineno} {ast.unparse(node)[:60]}"
        for module, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).rpartition(".")[2] in CLASSES
        and node.args
        and isinstance(node.args[0], ast.JoinedStr | ast.BinOp)
    ]
    assert not odd, "\n".join(odd)


def test_codes_that_are_mentioned_exist(
    texts: Mapping[Path, str], trees: Mapping[str, ast.Module]
) -> None:
    """In docstrings and pages; tests may make codes up."""
    used = set().union(*map(literals, trees.values()))
    pages = {p: t for p, t in texts.items() if p.parts[0] != "tests" and p.suffix in (".py", ".md")}
    unknown = {
        f"{path}: {code}"
        for path, text in pages.items()
        for code in CODE.findall(text)
        if code not in used and code not in EXAMPLES
    }
    assert not unknown, "\n".join(sorted(unknown))


@pytest.mark.parametrize("code", catalogue())
def test_explanations_are_written_for_people(code: str) -> None:
    entry = catalogue()[code]
    assert len(entry.title) <= 90
    assert not entry.title.endswith(".")
    sentences = len(re.findall(r"[.!?](?=\s|$)", entry.story))
    assert 2 <= sentences <= 7, f"a story is two to five sentences, give or take: {sentences}"
    assert len(entry.story) > 100
    assert entry.fix.endswith(".")
    assert all(c in catalogue() for c in CODE.findall(f"{entry.title} {entry.story} {entry.fix}"))
