"""`Adapter`: a file with fixed batch, lengths and int32 ids, fed as its source is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from edgeserve.backends.adapter import Adapter
from edgeserve.backends.session import Session
from edgeserve.errors import BackendError
from edgeserve.processing.steps.tokenize import Tokenize
from edgeserve.types.artifact import FileEntry
from edgeserve.types.records import Runtime
from edgeserve.types.tensors import IO, Signature, TensorSpec

SIGNATURE = Signature(
    inputs=(
        TensorSpec(name="ids", dtype="int64", shape=("batch", "sequence")),
        TensorSpec(name="mask", dtype="int64", shape=("batch", "sequence")),
    ),
    outputs=(
        TensorSpec(name="states", dtype="float32", shape=("batch", "sequence", 2)),
        TensorSpec(name="sums", dtype="float32", shape=("batch", 1)),
    ),
    dims={"batch": (1, 8), "sequence": (1, 16)},
)


def io(length: int, batch: int = 1) -> IO:
    """What a file takes and gives that is fixed to this length."""
    return IO(
        inputs=(
            TensorSpec(name="ids", dtype="int32", shape=(batch, length)),
            TensorSpec(name="mask", dtype="int32", shape=(batch, length)),
        ),
        outputs=(
            TensorSpec(name="states", dtype="float32", shape=(batch, length, 2)),
            TensorSpec(name="sums", dtype="float32", shape=(batch, 1)),
        ),
        signature=f"len_{length}",
    )


def formula(ids: np.ndarray, mask: np.ndarray) -> dict[str, np.ndarray]:
    """The model: any batch, any length; where the mask is 0 an id does not count."""
    kept = (ids * mask).astype(np.float32)
    states = np.stack([kept, kept * np.arange(ids.shape[1], dtype=np.float32)], -1)
    return {"states": states, "sums": kept.sum(1, keepdims=True)}


class Fixed(Session):
    """Runs the formula like a file that is fixed to a few sizes, and keeps what it was fed."""

    def __init__(self, buckets: Sequence[IO]) -> None:
        super().__init__(buckets[-1], Runtime("numpy", np.__version__, "cpu"), 1, buckets)
        self.fed: list[Mapping[str, np.ndarray]] = []

    def _run(self, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        self.fed.append(feed)
        return formula(feed["ids"], feed["mask"])

    def _close(self) -> None:
        self.fed.clear()


def steps(padding: str = "right") -> dict[str, Tokenize]:
    """How text becomes ids and a mask."""
    entry = FileEntry(path="assets/tokenizer.json", size=1, sha256="0" * 64)
    return {
        "ids": Tokenize(entry, "ids", 16, pad_id=9, padding=padding),  # type: ignore[arg-type]
        "mask": Tokenize(entry, "attention_mask", 16, padding=padding),  # type: ignore[arg-type]
    }


def feed(batch: int, length: int) -> dict[str, np.ndarray]:
    """Seeded ids, nothing masked."""
    rng = np.random.default_rng(length)
    ids = rng.integers(1, 1000, (batch, length))
    return {"ids": ids, "mask": np.ones_like(ids)}


@pytest.mark.parametrize("batch", [1, 2, 5])
@pytest.mark.parametrize("length", [1, 3, 4, 7, 8, 13, 16])
def test_any_batch_and_length_is_answered_as_by_the_source(batch: int, length: int) -> None:
    session = Fixed([io(4), io(8), io(16)])
    given = feed(batch, length)
    answer = Adapter(session, SIGNATURE, steps()).run(given)
    for name, right in formula(given["ids"], given["mask"]).items():
        np.testing.assert_array_equal(answer[name], right)
    smallest = next(size for size in (4, 8, 16) if size >= length)
    assert [f["ids"].shape for f in session.fed] == [(1, smallest)] * batch
    assert all(f["ids"].dtype == np.int32 for f in session.fed)
    assert all((f["ids"][:, length:] == 9).all() for f in session.fed)


def test_left_padding_is_cut_off_on_the_left() -> None:
    session = Fixed([io(4)])
    given = feed(1, 3)
    answer = Adapter(session, SIGNATURE, steps("left")).run(given)
    np.testing.assert_array_equal(answer["states"][..., 0], given["ids"])
    assert session.fed[0]["ids"][0, 0] == 9


def test_a_fixed_batch_above_one_is_filled_up() -> None:
    session = Fixed([io(4, batch=3)])
    given = feed(5, 4)
    answer = Adapter(session, SIGNATURE, steps()).run(given)
    np.testing.assert_array_equal(answer["states"][..., 0], given["ids"])
    assert [f["ids"].shape for f in session.fed] == [(3, 4), (3, 4)]


@pytest.mark.parametrize("length", [3, 5])
def test_without_a_word_on_padding_only_the_fixed_size_is_taken(length: int) -> None:
    adapter = Adapter(Fixed([io(4)]), SIGNATURE)
    assert adapter.takes(feed(2, 4))
    assert not adapter.takes(feed(1, length))
    with pytest.raises(BackendError) as caught:
        adapter.run(feed(1, length))
    assert caught.value.code == "EDGE-BACKEND-020"


def test_longer_than_all_sizes_is_refused() -> None:
    adapter = Adapter(Fixed([io(4), io(8)]), SIGNATURE, steps())
    with pytest.raises(BackendError) as caught:
        adapter.run(feed(1, 9))
    assert caught.value.code == "EDGE-BACKEND-020"


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1])
def test_a_number_that_int32_cannot_hold_is_refused(value: int) -> None:
    given = feed(1, 4)
    given["ids"][0, 2] = value
    with pytest.raises(BackendError) as caught:
        Adapter(Fixed([io(4)]), SIGNATURE, steps()).run(given)
    assert caught.value.code == "EDGE-BACKEND-021"


def test_a_file_like_its_source_is_run_directly() -> None:
    session = Fixed([IO(inputs=SIGNATURE.inputs, outputs=SIGNATURE.outputs)])
    assert Adapter(session, SIGNATURE, steps()).run == session.run


def test_a_session_refuses_what_none_of_its_signatures_takes() -> None:
    session = Fixed([io(4), io(8)])
    with pytest.raises(BackendError) as caught:
        session.run({name: x.astype(np.int32) for name, x in feed(1, 5).items()})
    assert caught.value.code == "EDGE-BACKEND-010"


def _holding(*names: str) -> Signature:
    return Signature(SIGNATURE.inputs, SIGNATURE.outputs, SIGNATURE.dims, ("sequence",), names)


def test_an_empty_row_is_never_filled_up() -> None:
    session = Fixed([io(4), io(8)])
    adapter = Adapter(session, _holding("mask"))
    given = feed(3, 6)
    given["mask"][1] = 0
    assert not adapter.takes(given)
    with pytest.raises(BackendError) as caught:
        adapter.run(given)
    assert caught.value.code == "EDGE-BACKEND-022"
    assert session.fed == []


def test_an_empty_row_is_answered_at_the_files_own_sizes() -> None:
    adapter = Adapter(Fixed([io(4), io(8)]), _holding("mask"))
    for length in (4, 8):
        given = feed(3, length)
        given["mask"][1] = 0
        assert adapter.takes(given)
        right = formula(given["ids"], given["mask"])
        np.testing.assert_array_equal(adapter.run(given)["states"], right["states"])


def test_rows_with_one_token_are_filled_up_and_inputs_not_named_may_be_empty() -> None:
    given = feed(3, 6)
    given["mask"][:, 1:] = 0
    given["ids"][0] = 0
    got = Adapter(Fixed([io(4), io(8)]), _holding("mask")).run(given)
    np.testing.assert_array_equal(got["states"], formula(given["ids"], given["mask"])["states"])
