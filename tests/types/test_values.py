"""The laws of all values: JSON and back is the same value, and the same bytes."""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import edgeserve.types
from dev.schemas import SCHEMAS, schema
from edgeserve.tasks import REGISTRY
from edgeserve.tasks.depth import Depth
from edgeserve.tasks.detection import Detection
from edgeserve.tasks.segmentation import Segmentation
from edgeserve.tasks.values import AnyRecord
from edgeserve.types.base import Number, Value, decode, encode, number, plain

sys.path.append(str(Path(__file__).resolve().parent))

from strategies import of, values


def all_values() -> list[type[Value]]:
    """Every value type of `edgeserve.types` and of the tasks that is not a base of others."""
    types = pkgutil.iter_modules(edgeserve.types.__path__)
    modules = [f"edgeserve.types.{each.name}" for each in types]
    modules += [f"edgeserve.tasks.{entry.folder}" for entry in REGISTRY.values()]
    found = {}
    for module in modules:
        loaded = importlib.import_module(module)
        for name, kind in vars(loaded).items():
            if name.startswith("_") or not isinstance(kind, type) or not issubclass(kind, Value):
                continue
            if kind.__module__ == module and not kind.__subclasses__():
                found[name] = kind
    return [found[name] for name in sorted(found)]


ALL = all_values()
FEW = settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def test_all_types_are_found() -> None:
    assert len(ALL) > 45
    assert {"Manifest", "Artifact", "Report", "Output", "Depth"} <= {kind.__name__ for kind in ALL}


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
@given(data=st.data())
@FEW
def test_a_value_survives_json(kind: type[Value], data: st.DataObject) -> None:
    value = data.draw(values(kind))
    text = encode(value)
    back = decode(text, kind)
    assert encode(back) == text
    if not holds_records(value):
        assert back == value
    json.loads(text)  # another parser takes it as well


def holds_records(value: Any) -> bool:
    """Whether a value holds arrays somewhere, which are compared by their bytes."""
    if isinstance(value, AnyRecord):
        return True
    if isinstance(value, msgspec.Struct):
        return any(holds_records(getattr(value, name)) for name in value.__struct_fields__)
    return isinstance(value, tuple) and any(holds_records(item) for item in value)


@given(value=of(AnyRecord))
@FEW
def test_arrays_come_back_with_their_dtype_and_every_bit(value: Any) -> None:
    back = decode(encode(value), AnyRecord)
    assert type(back) is type(value)
    for name in value.__struct_fields__:
        one, other = getattr(value, name), getattr(back, name)
        if isinstance(one, np.ndarray):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", SCHEMAS)
@given(data=st.data())
@FEW
def test_what_is_written_fits_its_schema(name: str, data: st.DataObject) -> None:
    kind = SCHEMAS[name][1]
    value = data.draw(of(kind))
    if name == "manifest":
        value = msgspec.structs.replace(value, edgeserve="1.0", name="colour", model_id="0" * 64)
    jsonschema.Draft202012Validator(schema(name)).validate(json.loads(encode(value)))


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_a_figure_survives_json_even_where_json_has_no_word_for_it(x: float) -> None:
    back = plain(decode(encode(number(x)), Number))  # type: ignore[arg-type]
    np.testing.assert_equal(back, x)


def test_unknown_fields_are_refused() -> None:
    for kind in ALL:
        with pytest.raises(msgspec.ValidationError):
            decode(b'{"no such field": 1}', kind)


@pytest.mark.parametrize("x", [float("nan"), float("inf"), float("-inf")])
def test_a_float_that_json_cannot_write_is_refused(x: float) -> None:
    class Plain(Value, frozen=True):
        x: float
        more: dict[str, Any] = {}

    assert decode(encode(Plain(x=1.5)), Plain) == Plain(x=1.5)
    for value in (Plain(x=x), Plain(x=1.0, more={"a": [1, {"b": x}]})):
        with pytest.raises(ValueError, match="JSON cannot write"):
            encode(value)


@pytest.mark.parametrize(
    "text", ['[["1"]]', "[[null]]", "[[true]]", "[{}]", "7", '"nan"', "[[1],[1,2]]"]
)
def test_an_array_is_nested_numbers_and_nothing_else(text: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        decode(f'{{"record":"depth","map":{text}}}', Depth)


@pytest.mark.parametrize(
    ("kind", "field", "wrong"),
    [
        (Segmentation, {"mask": [[0.5]]}, "int32"),
        (Segmentation, {"mask": [[1 << 40]]}, "int32"),
        (Segmentation, {"mask": [[float("nan")]]}, "int32"),
        (Segmentation, {"mask": [1, 2]}, "2 dimensions"),
        (Detection, {"boxes": [[1.0, 2.0, 3.0]], "scores": [0.5]}, "not 4"),
        (Detection, {"boxes": np.zeros((1, 4)), "scores": [1e39]}, "float32"),
    ],
)
def test_an_array_that_would_become_another_is_refused(
    kind: type[Any], field: dict[str, Any], wrong: str
) -> None:
    with pytest.raises(ValueError, match=wrong):
        kind(labels=(), **field)


def test_no_boxes_are_boxes() -> None:
    empty = Detection(boxes=np.zeros((0, 4)), scores=np.zeros(0), labels=())
    assert decode(encode(empty), Detection).boxes.shape == (0, 4)
    assert Detection(boxes=[], scores=[], labels=()).boxes.shape == (0, 4)  # type: ignore[arg-type]
