"""Which inputs share a run: limits, grouping, joining and splitting."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from edgeserve.backends.batching import (
    BatchRunner,
    batch_range,
    grouped,
    join,
    row_count,
    same_shapes,
    split,
)
from edgeserve.types.tensors import IO, Signature, TensorSpec


class Doubles:
    """A session that notes the batches it is given."""

    def __init__(self, io: IO) -> None:
        self.io, self.seen = io, []
        self.buckets: tuple[IO, ...] = ()
        self.runtime = SimpleNamespace(name="doubles")

    def run(self, feed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        self.seen.append(len(feed["x"]))
        return {"y": 2 * feed["x"]}


def runner(shape: tuple[Any, ...], **dims: tuple[int, int]) -> tuple[BatchRunner, Doubles]:
    signature = Signature(
        inputs=(TensorSpec("x", "float32", shape),),
        outputs=(TensorSpec("y", "float32", shape),),
        dims=dims,
    )
    session = Doubles(IO(inputs=signature.inputs, outputs=signature.outputs))
    return BatchRunner(session, signature), session  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("shape", "dims", "most"),
    [
        (("b", 3, 224, 224), {"b": (1, 64)}, 2),
        (("b", 3, 1024, 1024), {"b": (1, 64)}, 2),
        (("b", 3, 96, 96), {"b": (1, 64)}, 14),
        (("b", 10), {"b": (1, 64)}, 16),
        (("b", 10), {"b": (1, 3)}, 3),
        (("b", 3, 1024, 1024), {"b": (4, 64)}, 4),
        (("b", "n"), {"b": (1, 64), "n": (1, 200_000)}, 2),
        ((5, 10), {}, 5),
    ],
)
def test_the_largest_batch(
    shape: tuple[Any, ...], dims: dict[str, tuple[int, int]], most: int
) -> None:
    assert runner(shape, **dims)[0].largest == most


def test_inputs_are_run_in_such_batches_and_answered_in_order() -> None:
    run, session = runner(("b", 3, 224, 224), b=(1, 64))
    feeds = [{"x": np.full((1, 3, 224, 224), i, np.float32)} for i in range(5)]
    assert [float(answer["y"].mean()) for answer in run.run(feeds)] == [0, 2, 4, 6, 8]
    assert session.seen == [2, 2, 1]


def spec(name: str, *shape: int | str) -> TensorSpec:
    return TensorSpec(name=name, dtype="float32", shape=shape)


@pytest.mark.parametrize(
    ("inputs", "outputs", "dims", "wanted"),
    [
        ([("n", 3)], [("n",)], {"n": (1, 8)}, (1, 8)),
        ([("n", 3)], [("n",)], {"n": (2, 4)}, (2, 4)),
        ([("n", 3)], [("n",)], {"n": (0, 4)}, (1, 4)),
        ([(4, 3)], [(4, 2)], {}, (4, 4)),
        ([(4, 3), (1, 3)], [(4, 2)], {}, (1, 1)),
        ([("n", 3)], [(1, 2)], {"n": (1, 8)}, (1, 1)),
        ([()], [()], {}, (1, 1)),
    ],
)
def test_batch_range(inputs: Any, outputs: Any, dims: Any, wanted: tuple[int, int]) -> None:
    signature = Signature(
        inputs=tuple(spec(f"x{i}", *shape) for i, shape in enumerate(inputs)),
        outputs=tuple(spec(f"y{i}", *shape) for i, shape in enumerate(outputs)),
        dims=dims,
    )
    assert batch_range(signature) == wanted


def test_a_fixed_batch_is_filled_and_the_filler_dropped() -> None:
    run, session = runner((4, 10))
    feeds = [{"x": np.full((1, 10), i, np.float32)} for i in range(5)]
    assert [answer["y"].tolist() for answer in run.run(feeds)] == [[[2 * i] * 10] for i in range(5)]
    assert session.seen == [4, 4]


def test_inputs_of_several_rows_or_other_shapes_are_run_alone() -> None:
    run, session = runner(("b", "n"), b=(1, 8), n=(1, 9))
    shapes = [(1, 3), (1, 3), (2, 3), (1, 4), (1, 4), (1, 4)]
    answers = run.run([{"x": np.ones(shape, np.float32)} for shape in shapes])
    assert [answer["y"].shape for answer in answers] == shapes
    assert session.seen == [2, 2, 3]


def test_a_file_may_fix_the_batch_that_the_source_leaves_open() -> None:
    signature = Signature(
        inputs=(spec("x", "n", 3),), outputs=(spec("y", "n", 2),), dims={"n": (1, 8)}
    )
    fixed = IO(inputs=(spec("x", 4, 3),), outputs=(spec("y", 4, 2),))
    assert (batch_range(signature), batch_range(signature, fixed)) == ((1, 8), (4, 4))


def test_joined_feeds_come_apart_again() -> None:
    rng = np.random.default_rng(0)
    feeds = [{"x": rng.random((n, 2))} for n in (1, 3, 2, 1, 1, 5)]
    groups = list(grouped(feeds, 4, lambda one, other: True, row_count))
    assert [[row_count(feed) for feed in group] for group in groups] == [[1, 3], [2, 1, 1], [5]]
    for group in groups:
        pieces = split(join(group), [row_count(feed) for feed in group])
        for feed, piece in zip(group, pieces, strict=True):
            np.testing.assert_array_equal(piece["x"], feed["x"])


def test_groups_are_made_lazily_and_keep_the_order() -> None:
    made: list[int] = []

    def samples() -> Any:
        for i, size in enumerate((2, 2, 2, 3, 2)):
            made.append(i)
            yield {"x": np.full(size, i)}

    groups = grouped(samples(), 2, same_shapes)
    assert [int(x["x"][0]) for x in next(groups)] == [0, 1]
    assert made == [0, 1, 2]
    assert [[int(x["x"][0]) for x in group] for group in groups] == [[2], [3], [4]]
