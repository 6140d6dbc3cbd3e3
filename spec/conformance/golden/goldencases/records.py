"""Answers that are records; what holds is written by hand beside each."""

from __future__ import annotations

import math
from typing import Any

from goldencases.formulas import distance, leads

__all__ = ["records"]

Json = dict[str, Any]


def label(name: str, score: float, second: float = 0.0, index: int = -1) -> Json:
    made: Json = {"record": "classification", "label": name, "score": score}
    made["top"] = [[name, score], ["other", second]]
    return made | ({"index": index} if index >= 0 else {})


def vector(*numbers: float | str) -> Json:
    return {"record": "embedding", "vector": list(numbers)}


def turned(*degrees: float, length: float = 1.0) -> list[list[float]]:
    """Vectors of the plane."""
    return [
        [length * math.cos(math.radians(a)), length * math.sin(math.radians(a))] for a in degrees
    ]


def boxes(*found: tuple[list[float], float, str]) -> Json:
    return {
        "record": "detection",
        "boxes": [box for box, _, _ in found],
        "scores": [score for _, score, _ in found],
        "labels": [name for _, _, name in found],
    }


def records() -> list[Json]:
    """Cases of answers that are records."""
    return [*_classifications(), *_embeddings(), *_boxes(), *_rest()]


def _one(id_: str, task: str, pair: tuple[Json, Any], tolerance: float, **expected: Any) -> Json:
    reference, answer = pair
    threshold = {"threshold": 0.5} if task == "object-detection" else {}
    return {
        "id": id_,
        "task": task,
        **threshold,
        "references": [reference],
        "answers": [answer],
        "tolerances": [tolerance],
        "expected": [expected],
    }


def _classifications() -> list[Json]:
    cat = label("cat", 0.75, 0.25)
    kind = "image-classification"

    def case(id_: str, answer: Any, tolerance: float, **expected: Any) -> Json:
        return _one(id_, kind, (cat, answer), tolerance, **expected)

    return [
        case("the same", cat, 0.001, holds=True, difference=0.0, margin=0.5),
        case(
            "a score at the tolerance",
            label("cat", 0.6875, 0.3125),
            0.0625,
            holds=True,
            difference=0.0625,
            margin=0.375,
        ),
        case(
            "a score beyond the tolerance",
            label("cat", 0.625, 0.375),
            0.0625,
            holds=False,
            difference=0.125,
            margin=0.25,
        ),
        case(
            "another class with the same score",
            label("dog", 0.75, 0.25),
            0.0625,
            holds=False,
            difference=0.0,
            margin=0.5,
        ),
        case(
            "another index with the same label",
            label("cat", 0.75, 0.25, index=4),
            0.0625,
            holds=True,
            difference=0.0,
            margin=0.5,
        ),
        _one(
            "two classes of one name",
            kind,
            (label("crane", 0.75, 0.25, index=1), label("crane", 0.75, 0.25, index=2)),
            0.0625,
            holds=False,
            difference=0.0,
            margin=0.5,
        ),
        case("a record of another kind", vector(1.0, 0.0), 0.0625, holds=False),
        case("no record", None, 0.0625, holds=False),
    ]


def _embeddings() -> list[Json]:
    made = []
    for id_, wanted, got, tolerance, holds in (
        ("the same vectors", turned(0, 90, 100), turned(0, 90, 100), 1e-6, [True] * 3),
        (
            "all turn by two degrees",
            turned(0, 90, 100),
            turned(2, 92, 102),
            1.01 * distance(*turned(0, 2)),
            [True] * 3,
        ),
        (
            "all turn by more than the tolerance",
            turned(0, 90, 100),
            turned(2, 92, 102),
            0.99 * distance(*turned(0, 2)),
            [False] * 3,
        ),
        (
            "length does not count",
            turned(0, 90, 100),
            turned(0, 90, 100, length=7),
            1e-6,
            [True] * 3,
        ),
        (
            "one has another neighbour, though each is near",
            turned(0, 46, 90),
            turned(1, 45, 93),
            1.1 * distance(*turned(0, 3)),
            [True, False, True],
        ),
        (
            "the reference barely prefers its neighbour",
            turned(0, 46, 90),
            turned(1, 45, 93),
            1.1 * (math.cos(math.radians(44)) - math.cos(math.radians(46))),
            [True] * 3,
        ),
        ("two vectors have no lead", turned(0, 90), turned(0, 90), 1e-6, [True] * 2),
    ):
        lead = leads(got)
        expected = [
            {"holds": held, "difference": distance(a, b), "margin": margin}
            for held, a, b, (_, margin) in zip(holds, wanted, got, lead, strict=True)
        ]
        made.append(
            {
                "id": id_,
                "task": "feature-extraction",
                "references": [vector(*each) for each in wanted],
                "answers": [vector(*each) for each in got],
                "tolerances": [tolerance] * len(wanted),
                "expected": expected,
            }
        )
    one = "feature-extraction"
    plane = vector(1.0, 0.0)
    made += [
        _one("one vector", one, (plane, plane), 1e-6, holds=True, difference=0.0, margin=None),
        _one("another length", one, (plane, vector(1.0, 0.0, 0.0)), 0.5, holds=False),
        _one("NaN", one, (plane, vector("nan", 0.0)), 0.5, holds=False),
        _one("zeros", one, (plane, vector(0.0, 0.0)), 0.5, holds=False, difference=1.0),
        _one("opposite", one, (plane, vector(-1.0, 0.0)), 0.5, holds=False, difference=2.0),
    ]
    return made


def _boxes() -> list[Json]:
    here, there = [0.0, 0.0, 10.0, 10.0], [20.0, 20.0, 30.0, 30.0]
    cat, dog = (here, 0.75, "cat"), (there, 0.625, "dog")
    near = (there, 0.53125, "dog")
    kind = "object-detection"

    def case(id_: str, pair: tuple[Json, Json], tolerance: float, holds: bool) -> Json:
        return _one(id_, kind, pair, tolerance, holds=holds)

    return [
        case("the same boxes", (boxes(cat, dog), boxes(cat, dog)), 0.05, True),
        case("a sure box is lost", (boxes(cat, dog), boxes(cat)), 0.05, False),
        case("an unsure box is lost", (boxes(cat, near), boxes(cat)), 0.05, True),
        case("a box below the tolerance is lost", (boxes(cat, dog), boxes(cat)), 0.1875, True),
        case("no box is sure", (boxes(near), boxes(near)), 0.05, False),
        case("a sure box of another class", (boxes(cat), boxes((here, 0.75, "dog"))), 0.05, False),
        case(
            "a box that moved by a fifth",
            (boxes(cat), boxes(([2.0, 0.0, 12.0, 10.0], 0.75, "cat"))),
            0.05,
            True,
        ),
    ]


def _rest() -> list[Json]:
    """Frames, tokens, pixels, spans, depths."""
    frames = {"record": "voice", "step_s": 0.01}
    sure = frames | {"prob": [0.875, 0.125, 0.5]}
    text: Json = {"record": "text", "text": "a b", "tokens": [1, 2], "margins": [0.5, 0.03125]}
    mask: Json = {"record": "segmentation", "labels": ["a", "b"], "mask": [[0, 1]]}
    spans: Json = {
        "record": "tokens",
        "spans": [{"start": 0, "end": 3, "label": "P", "score": 1.0}],
    }
    return [
        _one(
            "unsure frames turn",
            "voice-activity",
            (sure, frames | {"prob": [0.875, 0.125, 0.40625]}),
            0.05,
            holds=True,
        ),
        _one(
            "a sure frame turns",
            "voice-activity",
            (sure, frames | {"prob": [0.25, 0.125, 0.5]}),
            0.05,
            holds=False,
        ),
        _one(
            "another number of frames",
            "voice-activity",
            (sure, frames | {"prob": [0.875, 0.125]}),
            0.05,
            holds=False,
        ),
        _one(
            "an unsure token is another",
            "text-generation",
            (text, text | {"tokens": [1, 3]}),
            0.05,
            holds=True,
        ),
        _one(
            "a sure token is another",
            "text-generation",
            (text, text | {"tokens": [2, 2]}),
            0.05,
            holds=False,
        ),
        _one(
            "an unsure pixel is another",
            "image-segmentation",
            (
                mask | {"margin": [[0.5, 0.03125]]},
                mask | {"mask": [[0, 0]], "margin": [[0.5, 0.1]]},
            ),
            0.05,
            holds=True,
        ),
        _one(
            "a sure pixel is another",
            "image-segmentation",
            (mask | {"margin": [[0.5, 0.5]]}, mask | {"mask": [[0, 0]], "margin": [[0.5, 0.1]]}),
            0.05,
            holds=False,
        ),
        _one("the same spans", "token-classification", (spans, spans), 0.05, holds=True),
        _one(
            "no span",
            "token-classification",
            (spans, {"record": "tokens", "spans": []}),
            0.05,
            holds=False,
        ),
        _one(
            "a depth off by a twentieth",
            "depth-estimation",
            ({"record": "depth", "map": [[1.0, 2.0]]}, {"record": "depth", "map": [[1.05, 2.0]]}),
            0.05,
            holds=True,
        ),
        _one(
            "a depth off by a fifth",
            "depth-estimation",
            ({"record": "depth", "map": [[1.0, 2.0]]}, {"record": "depth", "map": [[1.2, 2.0]]}),
            0.05,
            holds=False,
        ),
    ]
