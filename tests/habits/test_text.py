"""What any text of the tree must not hold, and how much of it explains."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Mapping
from pathlib import Path

import pytest

#: Patterns no text may match. They are written so that they do not match themselves.
FORBIDDEN = {
    "a path of somebody's machine": r"(?<![A-Za-z0-9])/(?:work|farm|root|home/\w+|Users/\w+)/",
    "a registry's host": r"(?:pypi|pythonhosted|anaconda|npmjs)\.(?:org|com)"
    r"|download\.pytorch\.(?:org)|huggingface\.(?:co)\b",
    "something left to do": r"\b(?:TO[D]O|FIX[M]E|X{3})\b",
    "white space at a line's end": r"[ \t]+$",
    "a merge left half-way": r"^(?:<{7}|>{7}) ",
    "an old Mac's or Windows' line end": r"\r",
    "a page that is not in the tree": r"\bDESI[G]N\b|\bINTERFA[C]E\.md\b",
}

#: Texts that are exactly as others wrote them (setuptools, in a source archive).
AS_THEY_ARE = {"LICENSE", "PKG-INFO", "setup.cfg"}


def offences(text: str) -> list[str]:
    return [
        f"line {text.count(chr(10), 0, found.start()) + 1}: {what}"
        for what, pattern in FORBIDDEN.items()
        if (found := re.search(pattern, text, re.MULTILINE))
    ]


def test_no_text_holds_what_is_forbidden(texts: Mapping[Path, str]) -> None:
    found = {
        str(p): said
        for p, t in texts.items()
        if p.name not in AS_THEY_ARE and (said := offences(t))
    }
    assert not found, "\n".join(f"{path}: {said}" for path, said in found.items())


@pytest.mark.parametrize(
    "text",
    [
        "see /{}/main".format("work"),
        "open('/{}/x')".format("home/jo"),
        "https://{}.org".format("pypi"),
        "# {}: later".format("TO" + "DO"),
        "x \ny",
        "\ty\t\n",
        "a\r\n",
        "as {} says".format("DES" + "IGN"),
    ],
)
def test_a_planted_offence_is_found(text: str) -> None:
    assert len(offences(text)) == 1


def test_texts_end_with_one_newline(texts: Mapping[Path, str]) -> None:
    odd = [
        str(p)
        for p, t in texts.items()
        if p.suffix in (".py", ".md", ".toml")
        and t
        and (not t.endswith("\n") or t.endswith("\n\n"))
    ]
    assert not odd, "\n".join(odd)


def test_pages_that_are_named_exist(texts: Mapping[Path, str], root: Path) -> None:
    """``docs/x.md`` in a docstring or hint, and the links of pages."""
    missing = set()
    for path, text in texts.items():
        if path.parts[0] == "tests":
            continue
        for page in re.findall(r"\bdocs/[\w/.-]+\.md\b", text):
            if not (root / page).is_file():
                missing.add(f"{path} names {page}")
        if path.suffix == ".md":
            for link in re.findall(r"\]\((?!\w+:|#)([^)#\s]+)", text):
                if not (root / path.parent / link).exists():
                    missing.add(f"{path} links to {link}")
    assert not missing, "\n".join(sorted(missing))


def docstring_lines(tree: ast.AST) -> int:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return sum(
        (node.body[0].end_lineno or 0) - node.body[0].lineno + 1
        for node in ast.walk(tree)
        if isinstance(node, kinds) and ast.get_docstring(node, clean=False)
    )


def comment_lines(text: str) -> int:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    said = (token for token in tokens if token.type == tokenize.COMMENT)
    return sum(not token.string.startswith(("# fmt:", "# type:", "# noqa")) for token in said)


def test_the_code_is_explained_but_not_drowned(
    modules: Mapping[str, Path], trees: Mapping[str, ast.Module]
) -> None:
    total = doc = comments = 0
    for name, file in modules.items():
        text = file.read_text("utf-8")
        total += len(text.splitlines())
        doc += docstring_lines(trees[name])
        comments += comment_lines(text)
    assert 0.12 <= doc / total <= 0.30
    assert 0.01 <= comments / total <= 0.10


def test_every_module_begins_with_what_it_is(trees: Mapping[str, ast.Module]) -> None:
    silent = [name for name, tree in trees.items() if len(ast.get_docstring(tree) or "") < 20]
    assert not silent, "\n".join(silent)


def test_public_functions_are_typed(trees: Mapping[str, ast.Module]) -> None:
    """Mypy sees to it too; this one also counts modules that nobody lists for it."""
    untyped = [
        f"{module}:{node.lineno} {node.name}"
        for module, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is None
    ]
    assert not untyped, "\n".join(untyped)
