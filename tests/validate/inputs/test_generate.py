"""What is generated: pictures and tensors, and the scales that differences are measured on."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image

from edgeserve.types.tensors import Signature, TensorSpec
from edgeserve.validate.compare.tensors import (
    TensorComparison,
    absolute_difference,
    relative_difference,
)
from edgeserve.validate.inputs.generate import RANDOM_INPUTS, TensorInputs
from edgeserve.validate.inputs.media import image_pixels, synthetic_image
from edgeserve.validate.inputs.ranges import InputStatistics

SIGNATURE = Signature(
    inputs=(
        TensorSpec(name="image", dtype="float32", shape=("batch", 3, 8, 8)),
        TensorSpec(name="ids", dtype="int64", shape=("batch", "length")),
        TensorSpec(name="mask", dtype="bool", shape=("batch", "length")),
    ),
    outputs=(TensorSpec(name="y", dtype="float32", shape=("batch", 2)),),
    dims={"batch": (1, 8), "length": (2, 64)},
)
EXAMPLE = {
    "image": np.zeros((4, 3, 8, 8), np.float32),
    "ids": np.zeros((4, 7), np.int64),
    "mask": np.ones((4, 7), bool),
}


def seen() -> dict[str, InputStatistics]:
    statistics = {name: InputStatistics() for name in EXAMPLE}
    statistics["image"].add(np.array([-2.0, 0.5, 3.0, np.nan, np.inf], np.float32))
    statistics["ids"].add(np.array([5, 900, 30]))
    statistics["mask"].add(np.array([True, False]))
    return statistics


def test_feeds_fit_the_signature_and_the_range_seen() -> None:
    made = dict(TensorInputs(SIGNATURE, EXAMPLE, seen(), 0).edges())
    assert len(made) == 6 + RANDOM_INPUTS
    for name, feed in made.items():
        assert feed["image"].shape == (1, 3, 8, 8), name
        assert feed["ids"].shape == feed["mask"].shape == (1, 7)
        assert [a.dtype for a in feed.values()] == [np.float32, np.int64, np.bool_]
        assert feed["image"].min() >= -2
        assert feed["image"].max() <= 3
        assert feed["ids"].min() >= 5, "an id that was never seen may not exist"
        assert feed["ids"].max() <= 900
    assert set(np.unique(made["extremes"]["image"])) == {-2.0, 3.0}
    assert (made["zeros"]["image"] == 0).all()
    assert (made["highest"]["ids"] == 900).all()
    assert (made["one-hot"]["image"] == 3).sum() == 1
    rows = made["repeated-rows"]["image"]
    assert (rows == rows[:, :, :1]).all()
    assert len(np.unique(rows)) > 1


def test_masks_are_never_empty() -> None:
    for name, feed in TensorInputs(SIGNATURE, EXAMPLE, seen(), 0, {"mask"}).edges():
        assert feed["mask"].any(), name
        assert feed["mask"].dtype == np.bool_
    plain = dict(TensorInputs(SIGNATURE, EXAMPLE, seen(), 0).edges())
    assert not plain["zeros"]["mask"].any(), "only what is said to be a mask is treated as one"


def test_lengths_at_their_ends_and_at_a_prime() -> None:
    made = dict(TensorInputs(SIGNATURE, EXAMPLE, seen(), 0, {"mask"}).lengths())
    assert list(made) == ["smallest (length 2)", "prime (length 31)", "largest (length 64)"]
    assert [feed["ids"].shape for feed in made.values()] == [(1, 2), (1, 31), (1, 64)]
    assert all(feed["mask"].shape == feed["ids"].shape for feed in made.values())
    assert all(feed["image"].shape == (1, 3, 8, 8) for feed in made.values())
    assert all(5 <= feed["ids"].min() <= feed["ids"].max() <= 900 for feed in made.values())


def test_lengths_stay_bearable() -> None:
    """A picture of any size is not tried at its largest; one that is all fixed has no lengths."""
    wide = Signature(
        inputs=(TensorSpec(name="x", dtype="float32", shape=("batch", 3, "high", "wide")),),
        outputs=(TensorSpec(name="y", dtype="float32", shape=("batch", 2)),),
        dims={"batch": (1, 8), "high": (32, 4096), "wide": (32, 4096)},
    )
    statistics = {"x": InputStatistics()}
    made = dict(TensorInputs(wide, {"x": np.zeros((1, 3, 64, 64))}, statistics, 0).lengths())
    shapes = [feed["x"].shape for feed in made.values()]
    assert shapes[0] == (1, 3, 32, 32)
    assert 1 << 17 < np.prod(shapes[2]) <= 1 << 18
    fixed = Signature(
        inputs=SIGNATURE.inputs[:1], outputs=SIGNATURE.outputs, dims={"batch": (1, 8)}
    )
    assert list(TensorInputs(fixed, EXAMPLE, seen(), 0).lengths()) == []


def test_the_seed_decides() -> None:
    def values(seed: int) -> np.ndarray:
        return dict(TensorInputs(SIGNATURE, EXAMPLE, seen(), seed).edges())["random-0"]["image"]

    np.testing.assert_array_equal(values(1), values(1))
    assert (values(1) != values(2)).any()


@given(hnp.arrays(np.float64, st.integers(1, 40), elements=st.floats(-1e3, 1e3)))
def test_statistics_are_numpys(values: np.ndarray) -> None:
    statistics = InputStatistics()
    for part in np.array_split(values, 3):
        statistics.add(part)
    assert statistics.mean == pytest.approx(values.mean(), abs=1e-9)
    assert statistics.deviation == pytest.approx(values.std(), abs=1e-3)
    assert statistics.range == (values.min(), values.max())


def test_nothing_seen_yet() -> None:
    assert (InputStatistics().mean, InputStatistics().deviation, InputStatistics().range) == (
        0.0,
        1.0,
        (-1.0, 1.0),
    )


def test_pictures_are_pngs_of_their_pixels() -> None:
    for number in range(14):
        image = Image.open(io.BytesIO(synthetic_image(number)))
        assert (image.format, image.mode) == ("PNG", "RGB")
        np.testing.assert_array_equal(np.asarray(image), image_pixels(number))
        assert 128 <= min(image.size) <= max(image.size) < 256
        assert np.asarray(image).std() > 5, "not a blank"


def test_pictures_differ_and_repeat() -> None:
    first = [image_pixels(n).tobytes() for n in range(30)]
    assert len(set(first)) == 30
    assert first == [image_pixels(n).tobytes() for n in range(30)]
    assert image_pixels(0, seed=1).tobytes() != first[0]


def test_pictures_stay_small() -> None:
    """A bundle carries eight of them."""
    sizes = sorted(len(synthetic_image(n)) for n in range(40))
    assert sizes[20] < 40_000
    assert sizes[-1] < 150_000


FLOATS = st.floats(-1e3, 1e3, width=32)


@given(
    hnp.arrays(np.float32, (3, 4), elements=FLOATS), hnp.arrays(np.float32, (3, 4), elements=FLOATS)
)
def test_differences_are_numpys(a: np.ndarray, b: np.ndarray) -> None:
    largest, total, count = absolute_difference(a, b)
    apart = np.abs(a.astype(np.float64) - b)
    assert largest == pytest.approx(apart.max(), rel=1e-6)
    assert total == pytest.approx(apart.sum(), rel=1e-5)
    assert count == 12


def feed(*values: float) -> dict[str, np.ndarray]:
    return {"y": np.array([values], np.float32)}


def test_scales() -> None:
    compared = TensorComparison(1e-3)
    compared.add("a", True, feed(1, -4), feed(1, -4.01))
    compared.add("b", True, feed(2, 0), feed(2.02, 0))
    compared.add("huge", False, feed(4000, 0), feed(4000.1, 0))
    compared.add("small", False, feed(0.001, 0), feed(0.011, 0))
    (natural,) = compared.natural()
    assert (natural.scale, natural.worst) == (4.0, "b")
    assert natural.relative == pytest.approx(0.02 / 4, rel=1e-4)
    assert compared.of(0) == pytest.approx(0.01 / 4, rel=1e-3)
    (generated,) = compared.generated()
    assert generated.worst == "small"
    assert generated.relative == pytest.approx(0.01 / 4, rel=1e-3), "on the natural scale"


def test_a_faint_answer_is_measured_on_the_outputs_scale() -> None:
    faint = feed(0.4, 0), feed(0.46, 0)
    assert relative_difference(*faint, 1e-3) == pytest.approx(0.15, rel=1e-4)
    assert relative_difference(*faint, 1e-3, {"y": 10.0}) == pytest.approx(0.006, rel=1e-4)
    assert relative_difference(*faint, 1e-3, {"y": 0.1}) == pytest.approx(0.15, rel=1e-4)


def test_a_huge_extreme_does_not_hide_ordinary_inputs() -> None:
    compared = TensorComparison(1e-3)
    compared.add("photo", True, feed(1, 0), feed(1.01, 0))
    compared.add("extreme", False, feed(1e6, 0), feed(1e6, 0))
    assert compared.natural()[0].relative == pytest.approx(0.01, rel=1e-3)


def test_the_floor() -> None:
    compared = TensorComparison(1e-3)
    compared.add("a", True, feed(1e-30, 0), feed(5e-30, 0))
    assert compared.natural()[0].scale == 1e-3
    assert compared.below_floor() == {"y": pytest.approx(1e-30)}


@pytest.mark.parametrize("bad", [np.nan, np.inf, -3.4e38])
def test_what_is_not_finite(bad: float) -> None:
    compared = TensorComparison(1e-3)
    compared.add("a", True, feed(1, 2), feed(1, 2))
    compared.add("b", True, feed(1, 2), feed(bad, 2))
    assert compared.not_finite() == {"y": ["b"]}
    assert compared.natural()[0].relative == "inf"
    assert compared.natural()[0].worst == "b"
    assert relative_difference(feed(1, 2), feed(bad, 2), 1e-3) == float("inf")


def test_infinities_of_the_reference_are_its_own() -> None:
    compared = TensorComparison(1e-3)
    compared.add("a", True, feed(-np.inf, 2), feed(-3.4e38, 2))
    compared.add("b", True, feed(np.nan, 1), feed(7, 1))
    assert compared.not_finite() == {}
    assert compared.natural()[0].relative == 0.0


def test_standing_still() -> None:
    compared = TensorComparison(1e-3)
    for i in range(3):
        compared.add(str(i), True, feed(i, 1), feed(3, 1))
    assert compared.still() == ["y"]
    assert not compared.reference_still()
    both = TensorComparison(1e-3)
    for natural in (True, False):
        both.add("x", natural, feed(1, 1), feed(1, 1))
    assert both.reference_still()
    assert both.still() == []


@given(st.lists(st.floats(-50, 50, width=32), min_size=2, max_size=6), st.floats(1e-4, 0.5))
@settings(max_examples=50)
def test_relative_is_of_the_references_scale(values: list[float], off: float) -> None:
    wanted = np.array([values], np.float32)
    scale = max(float(np.abs(wanted).max()), 1e-3)
    got = wanted.copy()
    got[0, 0] += np.float32(off * scale)
    found = relative_difference({"y": wanted}, {"y": got}, 1e-3)
    assert found == pytest.approx(abs(float(got[0, 0]) - float(wanted[0, 0])) / scale, rel=1e-4)
