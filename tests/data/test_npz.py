"""``.npz`` data against numpy itself, and everything that is refused in it."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from edgeserve.data import Reader, Rows, input_sha256, load_data, read_arrays, scan, write_arrays
from edgeserve.errors import DataError
from edgeserve.types.tensors import Signature, TensorSpec

IMAGE = TensorSpec(name="image", dtype="float32", shape=("batch", 3, 4, 4))
IDS = TensorSpec(name="ids", dtype="int32", shape=(1, "length"))
OUT = TensorSpec(name="y", dtype="float32", shape=("batch", 2))
ONE = Signature(inputs=(IMAGE,), outputs=(OUT,), dims={"batch": (1, 8)})
TWO = Signature(inputs=(IMAGE, IDS), outputs=(OUT,), dims={"batch": (1, 8), "length": (2, 5)})

RNG = np.random.default_rng(0)


def saved(path: Path, **arrays: Any) -> Path:
    np.savez(path / "data.npz", **arrays)
    return path / "data.npz"


def refused(code: str, *words: str) -> Any:
    def says(error: BaseException) -> bool:
        return getattr(error, "code", "") == code and all(w in str(error) for w in words)

    return pytest.RaisesExc(DataError, check=says)


def images(n: int, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    return RNG.standard_normal((n, 3, 4, 4)).astype(dtype)


def test_rows_are_samples(tmp_path: Path) -> None:
    data = images(3)
    found = scan(saved(tmp_path, image=data), ONE)
    assert (found.kind, [s.id for s in found.samples]) == ("npz", ["row 0", "row 1", "row 2"])
    assert len({s.group for s in found.samples}) == 3
    with Reader(ONE) as reader:
        for i in (2, 0, 1):
            feed = reader.read(found.samples[i])
            assert isinstance(feed, dict)
            np.testing.assert_array_equal(feed["image"], data[i][None])


def test_rows_by_position_and_with_their_own_batch(tmp_path: Path) -> None:
    data = images(4)[:, None].repeat(2, axis=1)  # each row is a batch of two
    ids = np.arange(12, dtype=np.int64).reshape(4, 3)
    samples = load_data(saved(tmp_path, x0=data, x1=ids), TWO)
    with Reader(TWO) as reader:
        feed = reader.read(samples[3])
    assert isinstance(feed, dict)
    assert list(feed) == ["image", "ids"]
    np.testing.assert_array_equal(feed["image"], data[3])
    np.testing.assert_array_equal(feed["ids"], [[9, 10, 11]])
    assert feed["ids"].dtype == np.int32


@pytest.mark.parametrize("group", [[1, 1, 2], ["a", "a", "b"], [b"a", b"a", b"b"]])
def test_groups(tmp_path: Path, group: list[Any]) -> None:
    samples = load_data(saved(tmp_path, image=images(3), group=np.array(group)), ONE)
    first, second, third = (s.group for s in samples)
    assert first == second != third


def test_an_input_called_group_is_an_input(tmp_path: Path) -> None:
    spec = TensorSpec(name="group", dtype="float32", shape=(1, 2))
    signature = Signature(inputs=(spec,), outputs=(OUT,), dims={"batch": (1, 8)})
    samples = load_data(saved(tmp_path, group=np.ones((3, 2), np.float32)), signature)
    assert [s.group for s in samples] == ["row 0", "row 1", "row 2"]
    with Reader(signature) as reader:
        assert reader.read(samples[0])["group"].shape == (1, 2)  # type: ignore[index,union-attr,call-overload]


@pytest.mark.parametrize(
    ("arrays", "code", "words"),
    [
        ({"image": np.array([{}, {}], object)}, "011", ("'image'",)),
        ({"image": images(2), "group": np.array([None, 1])}, "011", ("'group'",)),
        ({"picture": images(2)}, "012", ("image", "picture")),
        ({"image": images(2), "labels": np.zeros(2)}, "012", ("labels",)),
        ({"image": images(2)[:, :2]}, "013", ("[batch, 3, 4, 4]", "[2, 4, 4]")),
        ({"image": np.zeros((2, 9, 3, 4, 4), np.float32)}, "013", ("[9, 3, 4, 4]",)),
        ({"image": np.float32(3)}, "013", ("single number",)),
        ({"image": images(2).astype("U5")}, "013", ("<U5",)),
        ({"image": images(2, np.complex64)}, "013", ("complex64",)),
        ({"image": images(0)}, "006", ()),
        ({}, "006", ()),
        ({"image": images(3), "group": np.arange(2)}, "016", ("3 integers", "[2]")),
        ({"image": images(2), "group": np.ones(2)}, "016", ("float64",)),
    ],
)
def test_refused_arrays(
    tmp_path: Path, arrays: dict[str, Any], code: str, words: tuple[str, ...]
) -> None:
    with refused(f"EDGE-DATA-{code}", "data.npz", *words):
        load_data(saved(tmp_path, **arrays), ONE)


def test_rows_that_do_not_match(tmp_path: Path) -> None:
    with refused("EDGE-DATA-014", "image: 3", "ids: 2"):
        load_data(saved(tmp_path, image=images(3), ids=np.zeros((2, 3), np.int32)), TWO)
    with refused("EDGE-DATA-013", "'ids'", "float64"):
        load_data(saved(tmp_path, image=images(2), ids=np.zeros((2, 3))), TWO)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("order", ["C", "F"])
def test_nan_is_named_by_its_row(tmp_path: Path, bad: float, order: Any) -> None:
    data = np.zeros((40_000, 3, 4, 4), np.float32)  # several chunks
    data[31_234, 1, 2, 3] = bad
    with refused("EDGE-DATA-015", "row 31234"):
        load_data(saved(tmp_path, image=np.asarray(data, order=order)), ONE)


def test_files_that_are_no_npz(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    for data in (b"", b"PK\x03\x04 not a zip"):
        path.write_bytes(data)
        with refused("EDGE-DATA-010"):
            load_data(path, ONE)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("notes.txt", "hello")
    with refused("EDGE-DATA-010", "notes.txt"):
        load_data(path, ONE)


def test_a_truncated_array(tmp_path: Path) -> None:
    inner = io.BytesIO()
    np.lib.format.write_array(inner, images(4))
    with zipfile.ZipFile(tmp_path / "data.npz", "w") as archive:
        archive.writestr("image.npy", inner.getvalue()[:-10])
    with refused("EDGE-DATA-010", "'image' ends early"):
        load_data(tmp_path / "data.npz", ONE)


def test_numbers_that_the_input_cannot_hold(tmp_path: Path) -> None:
    ids = np.array([[1, 2], [3, 2**40]], np.int64)
    samples = load_data(saved(tmp_path, image=images(2), ids=ids), TWO)
    with Reader(TWO) as reader:
        reader.read(samples[0])
        with refused("EDGE-DATA-018", "row 1", "'ids'"):
            reader.read(samples[1])
    huge = np.full((2, 3, 4, 4), 1e300)
    samples = load_data(saved(tmp_path, image=huge), ONE)
    with Reader(ONE) as reader, refused("EDGE-DATA-018", "float32"):
        reader.read(samples[0])


ARRAYS = st.dictionaries(
    st.text("abcxyz_/.", min_size=1, max_size=8) | st.just("file"),
    hnp.arrays(
        st.sampled_from([np.float32, np.int64, np.uint8, np.bool_]),
        hnp.array_shapes(min_dims=1, max_dims=4, max_side=5),
    ),
    max_size=4,
)


@given(ARRAYS)
@settings(deadline=None)
def test_written_arrays_are_read_by_numpy(arrays: dict[str, np.ndarray[Any, Any]]) -> None:
    data = write_arrays(arrays)
    assert data == write_arrays(arrays), "the same bytes every time"
    with np.load(io.BytesIO(data), allow_pickle=False) as loaded:
        assert loaded.files == list(arrays)
        for name, array in arrays.items():
            assert loaded[name].dtype == array.dtype
            np.testing.assert_array_equal(loaded[name], array)


def test_objects_are_not_written() -> None:
    with pytest.raises(ValueError, match=r"[Oo]bject"):
        write_arrays({"a": np.array([{}])})


@given(st.data())
@settings(deadline=None, max_examples=40)
def test_any_rows_in_any_order(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=3, max_side=6))
    dtype = data.draw(st.sampled_from([np.float32, np.float64]))
    array = RNG.standard_normal(shape).astype(dtype)
    array = np.asarray(array, order=data.draw(st.sampled_from(["C", "F"])))
    path = tmp_path_factory.mktemp("rows") / "a.npz"
    data.draw(st.sampled_from([np.savez, np.savez_compressed]))(path, a=array)
    np.testing.assert_array_equal(read_arrays(path)["a"], array)
    with Rows(path) as rows:
        for _ in range(4):
            start = data.draw(st.integers(0, shape[0] - 1))
            count = data.draw(st.integers(1, shape[0] - start))
            np.testing.assert_array_equal(
                rows.rows("a", start, count), array[start : start + count]
            )


def test_fingerprints() -> None:
    from hashlib import sha256

    assert input_sha256(b"abc") == sha256(b"abc").hexdigest()
    assert input_sha256("é") == sha256("é".encode()).hexdigest()
    a, b = images(1), np.arange(3)
    assert input_sha256({"a": a, "b": b}) == sha256(a.tobytes() + b.tobytes()).hexdigest()
    assert input_sha256({"a": a.T}) == sha256(np.ascontiguousarray(a.T).tobytes()).hexdigest()
