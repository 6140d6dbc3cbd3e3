"""What is fed: right shapes, safe values, the same every time, errors that name the cause."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgeserve.errors import MeasureError
from edgeserve.measure.inputs import (
    batch_size,
    choose_sizes,
    named_tensors,
    padded_sizes,
    seeded_tensors,
    sizes_in,
)
from edgeserve.types.tensors import IO, Signature, TensorSpec


def io(*inputs: TensorSpec, outputs: tuple[TensorSpec, ...] = ()) -> IO:
    return IO(inputs=inputs, outputs=outputs)


def signature(*inputs: TensorSpec, **dims: tuple[int, int]) -> Signature:
    return Signature(inputs=inputs, outputs=(), dims=dims)


IMAGE = TensorSpec("image", "float32", ("batch", 3, 8, 8))
TEXT = TensorSpec("ids", "int64", ("batch", "length"))
FIXED = TensorSpec("image", "float32", (4, 3, 8, 8))


@pytest.mark.parametrize(
    ("asked", "range_", "size"),
    [(None, (1, 8), 1), (None, (2, 8), 2), (8, (1, 8), 8), (None, (0, 8), 1)],
)
def test_a_dynamic_batch(asked: int | None, range_: tuple[int, int], size: int) -> None:
    assert batch_size(io(IMAGE), signature(IMAGE, batch=range_), asked) == size


@pytest.mark.parametrize("asked", [9, 1])
def test_a_batch_outside_the_range(asked: int) -> None:
    with pytest.raises(MeasureError, match="wanted 2 to 8") as caught:
        batch_size(io(IMAGE), signature(IMAGE, batch=(2, 8)), asked)
    assert caught.value.code == "EDGE-MEASURE-002"


def test_a_fixed_batch_is_taken_as_it_is() -> None:
    assert batch_size(io(FIXED), signature(FIXED), None) == 4
    assert batch_size(io(FIXED), signature(FIXED), 4) == 4
    with pytest.raises(MeasureError, match="wanted 4, got 1"):
        batch_size(io(FIXED), signature(FIXED), 1)


def test_a_file_that_lost_its_dynamic_batch() -> None:
    # A converter may export a fixed size of a dynamic source: the file decides.
    one = TensorSpec("image", "float32", (1, 3, 8, 8))
    with pytest.raises(MeasureError, match="wanted 1, got 2"):
        batch_size(io(one), signature(IMAGE, batch=(1, 8)), 2)


def test_inputs_without_a_common_first_dimension_have_no_batch() -> None:
    other = TensorSpec("scale", "float32", ())
    assert batch_size(io(FIXED, other), signature(FIXED, other), None) == 1


SOURCE = signature(TEXT, batch=(1, 8), length=(1, 512))


def test_dynamic_dimensions_take_the_top_of_their_range_up_to_a_bound() -> None:
    for range_, size in (((1, 128), 128), ((1, 4096), 256), ((300, 4096), 300)):
        found = choose_sizes([io(TEXT)], signature(TEXT, batch=(1, 8), length=range_), 2, {})
        assert found == {"batch": 2, "length": size}
    given = choose_sizes([io(TEXT)], SOURCE, 1, {"length": 7})
    assert given == {"batch": 1, "length": 7}


def test_a_dimension_that_the_converter_renamed_is_found_by_place() -> None:
    renamed = TensorSpec("ids", "int32", ("s77", "s53"))
    source = signature(TEXT, batch=(1, 8), length=(1, 64))
    assert batch_size(io(renamed), source, 3) == 3
    assert choose_sizes([io(renamed)], source, 3, {}) == {"batch": 3, "length": 64}


def bucket(size: int) -> IO:
    return io(TensorSpec("ids", "int32", (1, size)))


def test_a_file_of_several_fixed_lengths() -> None:
    ladder = [bucket(16), bucket(64), bucket(128)]
    assert choose_sizes(ladder, SOURCE, 1, {}, {"ids"}) == {"batch": 1, "length": 128}
    assert choose_sizes(ladder, SOURCE, 1, {"length": 17}, {"ids"}) == {"batch": 1, "length": 17}
    assert padded_sizes(ladder, SOURCE, {"batch": 1, "length": 17}) == {"length": 64}
    assert padded_sizes(ladder, SOURCE, {"batch": 1, "length": 64}) == {}
    with pytest.raises(MeasureError, match="dimension 'length': wanted 1 to 128, got 129"):
        choose_sizes(ladder, SOURCE, 1, {"length": 129}, {"ids"})


def test_a_fixed_length_that_nothing_may_be_padded_to() -> None:
    assert choose_sizes([bucket(40)], SOURCE, 1, {}) == {"batch": 1, "length": 40}
    assert choose_sizes([bucket(600)], SOURCE, 1, {}) == {"batch": 1, "length": 600}
    with pytest.raises(MeasureError, match=r"wanted one of \[40\], got 39"):
        choose_sizes([bucket(40)], SOURCE, 1, {"length": 39})


@pytest.mark.parametrize("given", [{"length": 600}, {"length": 0}])
def test_a_size_outside_its_range(given: dict[str, int]) -> None:
    with pytest.raises(MeasureError, match="dimension 'length': wanted 1 to 512") as caught:
        choose_sizes([io(TEXT)], SOURCE, 1, given)
    assert caught.value.code == "EDGE-MEASURE-003"


def test_what_the_source_fixes_needs_no_size() -> None:
    """A file that leaves more open than its source is fed what the source takes."""
    odd = TensorSpec("x", "float32", (1, "mystery"))
    source = signature(TensorSpec("x", "float32", (1, 5)))
    assert choose_sizes([io(odd)], source, 1, {}) == {}
    assert seeded_tensors(source, {}, 0)["x"].shape == (1, 5)


def test_masks_are_ones() -> None:
    made = seeded_tensors(SOURCE, {"batch": 2, "length": 5}, 0, {"ids"})
    assert (made["ids"] == np.ones((2, 5), np.int64)).all()
    assert made["ids"].dtype == np.int64


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [
        ("float32", -9.0, 9.0),
        ("float16", -9.0, 9.0),
        ("float64", -9.0, 9.0),
        ("int64", 0, 1),
        ("int32", 0, 1),
        ("uint8", 0, 255),
        ("int8", -128, 127),
        ("bool", 0, 1),
        ("uint16", 0, 1),
    ],
)
def test_values_are_safe_for_their_dtype(dtype: str, low: float, high: float) -> None:
    spec = TensorSpec("x", dtype, (64, 64))  # type: ignore[arg-type]
    made = seeded_tensors(signature(spec), {}, 0)["x"]
    assert made.dtype == np.dtype(dtype)
    assert made.shape == (64, 64)
    assert low <= float(made.min()) < float(made.max()) <= high
    if dtype in ("uint8", "int8"):
        assert (made.min(), made.max()) == (low, high)


def test_the_seed_decides_the_tensors() -> None:
    source = signature(IMAGE, batch=(1, 8))
    first = seeded_tensors(source, {"batch": 2}, 0)["image"]
    assert first.shape == (2, 3, 8, 8)
    np.testing.assert_array_equal(first, seeded_tensors(source, {"batch": 2}, 0)["image"])
    assert (first != seeded_tensors(source, {"batch": 2}, 1)["image"]).any()


@pytest.mark.parametrize("dtype", ["string", "bfloat16"])
def test_what_cannot_be_drawn_says_what_to_give(dtype: str) -> None:
    spec = TensorSpec("x", dtype, (1,))  # type: ignore[arg-type]
    with pytest.raises(MeasureError, match=dtype) as caught:
        seeded_tensors(signature(spec), {}, 0)
    assert caught.value.code == "EDGE-MEASURE-004"
    assert "npz" in caught.value.hint


def test_named_tensors_are_repeated_to_fill_the_batch(tmp_path: Path) -> None:
    rows = np.arange(6, dtype=np.int32).reshape(2, 3)
    np.savez(tmp_path / "x.npz", ids=rows)
    made = named_tensors(tmp_path / "x.npz", SOURCE, 5)["ids"]
    assert made.dtype == np.int64
    np.testing.assert_array_equal(made, rows[[0, 1, 0, 1, 0]])
    assert made.flags.c_contiguous
    assert sizes_in({"ids": made}, SOURCE) == {"batch": 5, "length": 3}


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"other": np.zeros((1, 3), np.int64)}, "other"),
        ({"ids": np.zeros(3, np.int64)}, "axes"),
        ({"ids": np.zeros((1, 3), np.float32)}, "float32"),
        ({}, r"got \[\]"),
        ({"ids": np.array([["a"]], object)}, "pickle"),
    ],
)
def test_a_sample_that_does_not_fit(
    arrays: dict[str, np.ndarray], says: str, tmp_path: Path
) -> None:
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(MeasureError, match=says) as caught:
        named_tensors(tmp_path / "x.npz", SOURCE, 1)
    assert caught.value.code == "EDGE-MEASURE-005"


@pytest.mark.parametrize("content", [None, b"", b"PK no zip", b"\x93NUMPY"])
def test_a_sample_that_is_no_npz(content: bytes | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(MeasureError) as caught:
        named_tensors(tmp_path / "x.npz", SOURCE, 1)
    assert caught.value.code == "EDGE-MEASURE-005"
