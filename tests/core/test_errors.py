"""The tree of errors: as drawn, complete, and the same after a journey to another process."""

from __future__ import annotations

import copy
import json
import pickle
import re
from collections.abc import Iterator

import pytest

from edgeserve import errors
from edgeserve.errors import EdgeError, revive


def tree(base: type[EdgeError] = EdgeError) -> Iterator[type[EdgeError]]:
    """Every class of edgeserve.errors (tests and plugins may add their own elsewhere)."""
    yield base
    for sub in base.__subclasses__():
        if sub.__module__ == "edgeserve.errors":
            yield from tree(sub)


CLASSES = list(tree())


def make(cls: type[EdgeError], **changes: str | None) -> EdgeError:
    fields = {
        "thing": "member 'x'",
        "wanted": "sha256 ab",
        "got": "sha256 cd",
        "hint": "get it again",
        "source_line": "model.py:7",
    } | changes
    return cls(f"EDGE-{cls.area or 'USAGE'}-004", **fields)  # type: ignore[arg-type]


def drawn() -> Iterator[tuple[str, int, str | None]]:
    """(class, depth, exit code if given) of each line of the tree in the module's docstring."""
    for line in (errors.__doc__ or "").split("The tree::")[1].splitlines():
        if found := re.match(r"    ([│ ├└─]*)(\w+) {2,}\S", line):
            code = re.search(r"exit (\d)$", line)
            yield found[2], len(found[1]) // 4, code and code[1]


def test_the_tree_is_as_drawn() -> None:
    path: list[str] = []
    parents = {}
    for name, depth, _ in drawn():
        path[depth:] = [name]
        parents[name] = path[depth - 1] if depth else "Exception"
    assert parents == {cls.__name__: cls.__bases__[0].__name__ for cls in CLASSES}
    assert len(parents) > 15


def test_exit_codes_are_as_drawn() -> None:
    codes = {name: code for name, _, code in drawn() if code}
    assert codes == {cls.__name__: str(cls.exit_code) for cls in CLASSES if cls.exit_code != 3}
    assert set(codes.values()) == {"1", "2"}


def test_every_class_has_a_name_of_the_module_and_is_said_in_a_sentence() -> None:
    assert {cls for cls in errors.tree() if cls.__module__ == errors.__name__} == set(CLASSES)
    assert all(getattr(errors, cls.__name__) is cls for cls in CLASSES)
    for cls in CLASSES:
        assert (cls.__doc__ or "").splitlines()[0].endswith("."), cls


def test_each_class_has_an_area_of_its_own() -> None:
    areas = [cls.area for cls in CLASSES if cls is not EdgeError]
    assert all(re.fullmatch("[A-Z]+", area) for area in areas)
    assert len(set(areas)) == len(areas)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)
def test_an_error_survives_the_journey_to_another_process(cls: type[EdgeError]) -> None:
    error = make(cls)
    again = revive(json.loads(json.dumps(error.fields())))
    for twin in (again, pickle.loads(pickle.dumps(error)), copy.deepcopy(error)):
        assert type(twin) is cls
        assert str(twin) == str(error)
        assert twin.fields() == error.fields()
        assert twin.exit_code == error.exit_code


def test_a_failed_check_stays_one_whatever_its_code() -> None:
    """The gate raises with the reason's code, which may be of any area."""
    error = errors.CheckFailed("EDGE-CONVERT-001", "onnx-fp32", got="an op", hint="see it")
    again = revive(error.fields())
    assert type(again) is errors.CheckFailed
    assert again.exit_code == 1


def test_a_class_that_only_the_worker_knows_becomes_that_of_its_area() -> None:
    fields = make(errors.BackendError).fields() | {"kind": "PluginError"}
    assert type(revive(fields)) is errors.BackendError
    assert type(revive(fields | {"code": "EDGE-NEW-001"})) is EdgeError


@pytest.mark.parametrize("fields", [{}, {"code": "nonsense"}, {"kind": "int", "code": "-"}])
def test_revive_takes_what_it_gets(fields: dict[str, str | None]) -> None:
    assert type(revive(fields)) in (EdgeError, errors.WorkerError)


def test_what_a_user_reads() -> None:
    error = make(errors.BundleError)
    assert error.message == "member 'x': wanted sha256 ab, got sha256 cd"
    assert str(error).splitlines() == [
        "EDGE-BUNDLE-004 member 'x': wanted sha256 ab, got sha256 cd",
        "  at model.py:7",
        "  hint: get it again",
    ]
    short = make(errors.BundleError, wanted="", source_line=None)
    assert str(short) == "EDGE-BUNDLE-004 member 'x': sha256 cd\n  hint: get it again"


NASTY = [
    "two\nlines",
    "a\r\n\ttab",
    "\x1b[2Jclears the screen",
    "null\0",
    "\udcff lone surrogate",
    "\u202ereversed",
    "\u2028separator",
    "x" * 100_000,
    "\x9b31m one-byte escape",
]


@pytest.mark.parametrize("text", NASTY, ids=lambda t: ascii(t[:12]))
@pytest.mark.parametrize("field", ["thing", "wanted", "got", "hint", "source_line"])
def test_a_message_is_one_printable_line(field: str, text: str) -> None:
    error = make(errors.InputError, **{field: text})
    assert error.message.isprintable()
    assert len(error.message) < 3000
    assert len(str(error).splitlines()) == 3
    assert all(line.isprintable() for line in str(error).splitlines())
    str(error).encode("utf-8")
    assert str(revive(error.fields())) == str(error)


@pytest.mark.parametrize("text", ["größe 14 µm", "猫.jpg", "a 'quoted' \\ name", "🐈"])
def test_printable_text_is_left_alone(text: str) -> None:
    assert make(errors.InputError, thing=text).thing == text
