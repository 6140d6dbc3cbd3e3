"""Fixed sizes: batch 1, lengths that processing pads in powers of two, other sizes as they were."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from edgeserve.backends.sizes import plan_sizes
from edgeserve.processing.steps.tokenize import Tokenize
from edgeserve.types.artifact import FileEntry
from edgeserve.types.processing import InputProcessing, Processing
from edgeserve.types.source import Exported, Source
from edgeserve.types.tensors import Signature, TensorSpec

PLAIN = Processing()
TOKENIZER = FileEntry("assets/tokenizer.json", 0, "0" * 64)


def text(low: int, high: int, longest: int = 512, padded: tuple[str, ...] = ("ids", "mask")) -> Any:
    shape = ("batch", "length")
    signature = Signature(
        inputs=(TensorSpec("ids", "int64", shape), TensorSpec("mask", "int64", shape)),
        outputs=(TensorSpec("out", "float32", ("batch", 4)),),
        dims={"batch": (1, 8), "length": (low, high)},
    )
    steps = tuple(InputProcessing(n, (Tokenize(TOKENIZER, "ids", longest),)) for n in padded)
    return exported(signature, Processing(inputs=steps))


def exported(signature: Signature, processing: Processing = PLAIN) -> Exported:
    entry = FileEntry("model.pt2", 0, "0" * 64)
    return Exported(
        source=Source("factory", "x:y"),
        program=entry,
        examples=entry,
        signature=signature,
        weights=(),
        graph_sha256="",
        processing=processing,
    )


@pytest.mark.parametrize(
    ("low", "high", "longest", "lengths"),
    [
        (1, 256, 512, [16, 32, 64, 128, 256]),
        (1, 512, 256, [16, 32, 64, 128, 256]),
        (1, 100, 512, [16, 32, 64, 100]),
        (20, 100, 512, [32, 64, 100]),
        (1, 16, 512, [16]),
        (1, 9, 512, [9]),
        (1, 2**31 - 1, 64, [16, 32, 64]),
        (48, 48, 512, [48]),
    ],
)
def test_text_gets_powers_of_two_and_its_own_greatest_length(
    low: int, high: int, longest: int, lengths: list[int]
) -> None:
    sizes, notes = plan_sizes(text(low, high, longest), {"ids": (2, 7), "mask": (2, 7)})
    assert [each.dims for each in sizes] == [{"batch": 1, "length": n} for n in lengths]
    names = [f"len_{n}" for n in lengths] if len(lengths) > 1 else [None]
    assert [each.name for each in sizes] == names
    assert notes == ()


def test_a_length_that_one_input_cannot_be_padded_in_is_fixed() -> None:
    sizes, notes = plan_sizes(text(1, 256, padded=("ids",)), {"ids": (2, 7), "mask": (2, 7)})
    assert [(each.name, each.dims) for each in sizes] == [(None, {"batch": 1, "length": 7})]
    assert notes == ("dimension 'length' is fixed at 7, as in the example inputs",)


def test_two_padded_lengths_grow_together() -> None:
    one = text(1, 64)
    shapes = (("batch", "long"), ("batch", "short"))
    signature = msgspec.structs.replace(
        one.signature,
        inputs=(TensorSpec("ids", "int64", shapes[0]), TensorSpec("mask", "int64", shapes[1])),
        dims={"batch": (1, 8), "long": (1, 64), "short": (1, 20)},
    )
    sizes, _ = plan_sizes(exported(signature, one.processing), {"ids": (1, 9), "mask": (1, 5)})
    assert [each.name for each in sizes] == ["len_16_16", "len_32_20", "len_64_20"]
    assert sizes[1].of(("batch", "short", 3)) == (1, 20, 3)


def test_a_batch_that_cannot_be_one_takes_its_least_size() -> None:
    signature = Signature(
        inputs=(TensorSpec("x", "float32", ("batch", 3)),),
        outputs=(TensorSpec("y", "float32", ("batch", 3)),),
        dims={"batch": (2, 8)},
    )
    sizes, notes = plan_sizes(exported(signature), {"x": (4, 3)})
    assert (sizes[0].dims, notes) == ({"batch": 2}, ())
