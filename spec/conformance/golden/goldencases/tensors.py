"""Answers that are named outputs."""

from __future__ import annotations

import random
from typing import Any

from goldencases.formulas import INF, NAN, difference, spelled

__all__ = ["tensors"]

Json = dict[str, Any]


def tensor(values: list[Any], dtype: str = "float32", shape: list[int] | None = None) -> Json:
    shown = [spelled(x) if isinstance(x, float) else x for x in values]
    return {"dtype": dtype, "shape": shape or [1, len(values)], "values": shown}


def tensors() -> list[Json]:
    """Cases of answers that are named outputs."""
    return [*_plain(), *_infinite(), *_fields(), *_drawn()]


def _case(
    id_: str,
    outputs: tuple[Json, Json],
    apart: float,
    tolerance: float = 0.001,
    fields: list[Json] | None = None,
    holds: bool | None = None,
) -> Json:
    wanted, got = outputs
    return {
        "id": id_,
        "outputs": {"y": wanted},
        "answer": {"y": got} if got else {},
        "tolerance": tolerance,
        "fields": fields or [],
        "expected": {
            "holds": apart <= tolerance if holds is None else holds,
            "difference": spelled(apart),
        },
    }


def _plain() -> list[Json]:
    three = [1.0, -2.0, 0.5]
    off = [1.0, -2.0, 0.501953125]
    small, moved = [1e-6, 0.0], [2e-6, 0.0]
    made = [
        _case("the same numbers", (tensor(three), tensor(three)), 0.0),
        _case(
            "within a thousandth of the largest",
            (tensor(three), tensor(off)),
            difference(three, off, 1e-3),
        ),
        _case(
            "beyond it",
            (tensor(three), tensor([1.0, -2.0, 0.515625])),
            difference(three, [1.0, -2.0, 0.515625], 1e-3),
        ),
        _case(
            "all numbers small: the scale has a floor",
            (tensor(small, "float64"), tensor(moved, "float64")),
            difference(small, moved, 1e-3),
            tolerance=0.01,
        ),
        _case(
            "integers are numbers",
            (tensor([10, 20], "int64"), tensor([10, 21], "int64")),
            difference([10, 20], [10, 21], 1e-3),
            tolerance=0.1,
        ),
        _case("truth values", (tensor([True, False], "bool"), tensor([True, True], "bool")), 1.0),
        _case(
            "float64 beyond what float32 tells apart",
            (tensor([1.0, 1e-9], "float64"), tensor([1.0, 2e-9], "float64")),
            difference([1.0, 1e-9], [1.0, 2e-9], 1e-3),
            tolerance=1e-10,
        ),
    ]
    missing = _case("an output that is missing", (tensor(three), {}), 0.0, holds=False)
    shaped = _case("another shape", (tensor(three), tensor(three, shape=[3, 1])), 0.0, holds=False)
    for case in (missing, shaped):
        del case["expected"]["difference"]
    extra = _case("an output more", (tensor(three), tensor(three)), 0.0)
    extra["answer"]["z"] = tensor([5.0])
    return [*made, missing, shaped, extra]


def _infinite() -> list[Json]:
    rows = (
        ("equal infinities", [INF, 1.0], [INF, 1.0]),
        ("infinities of two signs", [INF, 1.0], [-INF, 1.0]),
        ("infinity for a number", [2.0, 1.0], [INF, 1.0]),
        ("a number for infinity", [INF, 1.0], [3.0, 1.0]),
        ("equal NaN", [NAN, 1.0], [NAN, 1.0]),
        ("NaN for a number", [2.0, 1.0], [NAN, 1.0]),
        ("a number for NaN", [NAN, 1.0], [2.0, 1.0]),
        ("infinity leaves the rest to compare", [INF, 1.0], [INF, 1.5]),
        ("the largest float stands for infinity", [-3e38, 1.0], [-INF, 1.0]),
        ("two huge numbers", [1e30, 1.0], [2e30, 1.0]),
        ("just below huge", [9e29, 1.0], [8.1e29, 1.0]),
        ("nothing but infinity", [INF], [INF]),
    )
    return [
        _case(id_, (tensor(a, "float64"), tensor(b, "float64")), difference(a, b, 1e-3))
        for id_, a, b in rows
    ]


def _field(scale: float, axis: int | None = None, runs: list[Any] | None = None) -> Json:
    return {"output": "y", "word": "values", "scale": scale, "axis": axis, "runs": runs or []}


def _fields() -> list[Json]:
    wanted, got = [200.0, 100.0, 0.5, 0.25], [200.0, 100.0, 0.5, 0.375]
    boxes_, scores = _field(256.0, 1, [[0, 2]]), _field(1.0, 1, [[2, 4]])
    seen = max(difference(wanted[:2], got[:2], 256.0), difference(wanted[2:], got[2:], 1.0))
    whole = difference(wanted, got, 1e-3)
    pair = (tensor(wanted), tensor(got))
    ids = ([5, 7], [5, 8])
    counted = (tensor(ids[0], "int32"), tensor(ids[1], "int32"))
    return [
        _case("a small field beside a large one", pair, seen, 0.01, [boxes_, scores]),
        _case("the same without fields", pair, whole, 0.01),
        _case(
            "a case beyond the field's scale is weighed by itself",
            (tensor([4.0]), tensor([4.5])),
            difference([4.0], [4.5], 1.0),
            0.2,
            [_field(1.0)],
        ),
        _case(
            "whole numbers with the scale 1",
            counted,
            difference(*ids, 1.0, whole=True),
            0.5,
            [_field(1.0)],
        ),
        _case(
            "whole numbers with another scale", counted, difference(*ids, 2.0), 0.5, [_field(2.0)]
        ),
        _case(
            "an axis that is not there",
            pair,
            difference(wanted, got, 0.5),
            0.01,
            [_field(0.5, 2, [[0, 1]])],
        ),
        _case(
            "channels that are not there",
            pair,
            difference(wanted, got, 0.5),
            0.01,
            [_field(0.5, 1, [[3, 9]])],
        ),
        _case("a field of another output", pair, whole, 0.01, [_field(0.5) | {"output": "z"}]),
        _case(
            "two runs of one field",
            pair,
            difference([200.0, 0.25], [200.0, 0.375], 1.0),
            0.01,
            [_field(1.0, 1, [[0, 1], [3, 4]])],
        ),
    ]


def _drawn() -> list[Json]:
    """Numbers of all magnitudes, the tolerance just on either side of the difference."""
    rng = random.Random(12)
    made = []
    for i in range(16):
        size, scale = rng.randint(1, 6), 10.0 ** rng.randint(-6, 6)
        wanted = [rng.uniform(-scale, scale) for _ in range(size)]
        got = [x + rng.gauss(0, 0.01 * scale) for x in wanted]
        floor = rng.choice([1e-3, 1.0, 1e4])
        apart = difference(wanted, got, floor)
        side = (1 + 1e-6) if i % 2 else (1 - 1e-6)
        fields = [] if floor == 1e-3 else [_field(floor)]
        pair = (tensor(wanted, "float64"), tensor(got, "float64"))
        made.append(_case(f"drawn {i}", pair, apart, apart * side, fields))
    return made
