"""The examples in docstrings do what they say.

Modules are imported by their real names: ``pytest --doctest-modules convert`` would import a
second, different module ``convert``.
"""

from __future__ import annotations

import doctest
import importlib
import types
from collections.abc import Mapping
from pathlib import Path

OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def run(module: types.ModuleType) -> doctest.TestResults:
    return doctest.testmod(module, optionflags=OPTIONS, raise_on_error=False, report=True)


def test_examples_do_what_they_say(modules: Mapping[str, Path]) -> None:
    with_examples = [name for name, file in modules.items() if ">>> " in file.read_text("utf-8")]
    results = {name: run(importlib.import_module(name)) for name in with_examples}
    assert {name: r for name, r in results.items() if r.failed} == {}
    assert [name for name, r in results.items() if r.attempted == 0] == []


def test_a_wrong_example_is_found() -> None:
    planted = types.ModuleType("planted", ">>> 1 + 1\n3\n")
    assert run(planted).failed == 1
