"""How many inputs go into one run: no more than stay in a processor's cache, two at least."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from edgeserve.types.tensors import IO, Signature, TensorSpec
from edgeserve.validate.inference import BatchRunner


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
    assert runner(shape, **dims)[0].most == most


def test_inputs_are_run_in_such_batches_and_answered_in_order() -> None:
    run, session = runner(("b", 3, 224, 224), b=(1, 64))
    feeds = [{"x": np.full((1, 3, 224, 224), i, np.float32)} for i in range(5)]
    assert [float(answer["y"].mean()) for answer in run.run(feeds)] == [0, 2, 4, 6, 8]
    assert session.seen == [2, 2, 1]
