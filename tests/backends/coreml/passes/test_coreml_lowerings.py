"""What edgeserve puts into coremltools' table, and the watch over names that get lost."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from edgeserve.backends.coreml.passes.argument_checks import check_unread_keywords


def node(**named: Any) -> SimpleNamespace:
    return SimpleNamespace(kind="add", kwinputs={key: (value,) for key, value in named.items()})


def test_a_name_that_is_not_read_is_an_error() -> None:
    table = {"add": lambda context, node: None}
    check_unread_keywords(table)
    with pytest.raises(NotImplementedError, match="argument 'alpha' of add"):
        table["add"](None, node(alpha=2))


def test_names_that_are_read_or_say_nothing_pass() -> None:
    table = {"add": lambda context, node: node.kwinputs.get("alpha")}
    check_unread_keywords(table)
    assert table["add"](None, node(alpha=2, dtype=6, device="cpu")) == (2,)
    empty = SimpleNamespace(kind="add", kwinputs=None)
    with pytest.raises(AttributeError):
        table["add"](None, empty)


def test_a_translation_is_watched_once() -> None:
    table = {"add": lambda context, node: None}
    check_unread_keywords(table)
    first = table["add"]
    check_unread_keywords(table)
    assert table["add"] is first
