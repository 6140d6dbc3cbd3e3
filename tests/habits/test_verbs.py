"""Every verb that is named anywhere exists, and has the form a worker accepts."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import get_type_hints

import pytest

from edgeserve.backends import installed
from edgeserve.errors import WorkerError
from edgeserve.types.base import Value
from edgeserve.worker import _verb

#: A function of a module; a registry's classes begin with a capital.
VERB = re.compile(r"edgeserve(?:\.\w+)+:[a-z_]+")


def named(trees: Mapping[str, ast.Module]) -> set[str]:
    return {
        node.value
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and VERB.fullmatch(node.value)
    }


def test_every_verb_takes_a_value_and_returns_one(trees: Mapping[str, ast.Module]) -> None:
    verbs = named(trees) - {name for each in installed() for name in each.slow_imports}
    assert "edgeserve.validate.judge:judge" in verbs
    for verb in sorted(verbs):
        function, request = _verb(verb)
        answer = get_type_hints(function)["return"]
        assert issubclass(request, Value), verb
        assert isinstance(answer, type), verb
        assert issubclass(answer, Value), verb


def test_a_verb_that_is_misspelt_is_found() -> None:
    with pytest.raises(WorkerError):
        _verb("edgeserve.validate.judge:jugde")
