"""Which samples calibrate, how they are prepared, and every way in which they are refused."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from edgeserve.convert.calibration import (
    MIN_SAMPLES,
    Calibration,
    calibration,
    calibration_key,
    choose_samples,
)
from edgeserve.convert.calibration_checks import SampleDiversity, check_feed
from edgeserve.data import split
from edgeserve.errors import QuantizeError
from edgeserve.types.artifact import FileEntry
from edgeserve.types.processing import Processing
from edgeserve.types.samples import Sample
from edgeserve.types.source import Exported, Source
from edgeserve.types.tensors import Signature, TensorSpec

ENTRY = FileEntry(path="model.pt2", size=1, sha256="0" * 64)
IMAGE = TensorSpec(name="image", dtype="float32", shape=("batch", 3, 4, 4))
LOGITS = TensorSpec(name="logits", dtype="float32", shape=("batch", 5))
SIGNATURE = Signature(inputs=(IMAGE,), outputs=(LOGITS,), dims={"batch": (1, 8)})
PICTURES = {
    "inputs": [
        {
            "name": "image",
            "steps": [
                {"step": "decode/1"},
                {"step": "resize/1", "height": 4, "width": 4, "fit": "exact", "filter": "bilinear"},
                {"step": "normalize/1", "scale": [1 / 255] * 3, "bias": [0, 0, 0]},
                {"step": "layout/1", "order": "CHW"},
            ],
        }
    ]
}


def exported(signature: Signature = SIGNATURE, processing: Any = None) -> Exported:
    import msgspec

    return Exported(
        source=Source(kind="factory", location="a:b"),
        program=ENTRY,
        examples=ENTRY,
        signature=signature,
        weights=(),
        graph_sha256="0" * 64,
        processing=msgspec.convert(processing or {"inputs": []}, Processing),
    )


def rows(path: Path, images: np.ndarray, **more: Any) -> str:
    np.savez(path / "data.npz", image=images, **more)
    return str(path / "data.npz")


def noise(count: int = 40, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, 3, 4, 4)).astype(np.float32)


def refused(code: str, data: str | None, **more: Any) -> QuantizeError:
    with pytest.raises(QuantizeError) as error:
        calibration(exported(), Path(), data, **more)
    assert error.value.code == f"EDGE-QUANTIZE-{code}"
    return error.value


# The choice


def samples(*groups: int) -> list[Sample]:
    """Samples by the size of each group."""
    return [
        Sample(id=f"{g}/{i}", group=f"g{g}", text=f"{g} {i}")
        for g, size in enumerate(groups)
        for i in range(size)
    ]


GROUPS = st.lists(st.integers(1, 9), min_size=2, max_size=12)


@given(GROUPS, st.integers(1, 40), st.integers(0, 99))
def test_the_choice_is_spread_over_the_groups(sizes: list[int], count: int, seed: int) -> None:
    everything = samples(*sizes)
    chosen = choose_samples(everything, count, seed)
    assert len(chosen) == min(count, len(everything)) == len({s.id for s in chosen})
    assert [s for s in everything if s in chosen] == list(chosen)  # in the data's own order
    taken = Counter(s.group for s in chosen)
    for group, size in enumerate(sizes):  # no group has more than one above another, unless all
        got = taken[f"g{group}"]
        assert got == size or got >= max(taken.values()) - 1


@given(GROUPS, st.integers(1, 20), st.integers(0, 99), st.randoms())
def test_the_choice_rests_on_names_alone(
    sizes: list[int], count: int, seed: int, random: Any
) -> None:
    everything = samples(*sizes)
    shuffled = random.sample(everything, len(everything))
    wanted = {s.id for s in choose_samples(everything, count, seed)}
    assert {s.id for s in choose_samples(shuffled, count, seed)} == wanted
    assert wanted <= {s.id for s in choose_samples(everything, count + 1, seed)}


@given(GROUPS, st.integers(0, 99))
def test_no_group_stands_on_both_sides(sizes: list[int], seed: int) -> None:
    everything = samples(*sizes)
    halves = split(everything, seed)
    sides = [{s.group for s in halves[half]} for half in ("calibration", "evaluation")]
    assert not sides[0] & sides[1]
    assert sides[0] | sides[1] == {s.group for s in everything}
    assert not {s.group for s in choose_samples(halves["calibration"], 8, seed)} & sides[1]


def test_another_seed_is_another_choice() -> None:
    everything = samples(*[1] * 200)
    assert choose_samples(everything, 8, 0) != choose_samples(everything, 8, 1)


# The feeds


def test_rows_become_feeds_of_one_sample(tmp_path: Path) -> None:
    images = noise()
    data = rows(tmp_path, images)
    found = calibration(exported(), Path(), data, count=16)
    assert len(found) == len(found.samples) == 16
    judged = {s.row for s in split(load(data))["evaluation"]}
    for sample, feed in zip(found.samples, found, strict=True):
        assert sample.row is not None
        assert sample.row not in judged
        np.testing.assert_array_equal(feed["image"], images[sample.row : sample.row + 1])
        assert feed["image"].dtype == np.float32


def load(data: str) -> tuple[Sample, ...]:
    from edgeserve.data import load_data

    return load_data(Path(data), SIGNATURE)


def test_feeds_can_be_gone_over_again_with_and_without_memory(tmp_path: Path) -> None:
    data = rows(tmp_path, noise())
    held = calibration(exported(), Path(), data)
    again = Calibration(exported(), Path(), held.samples, keep=0)
    for other in (held, again, again):
        assert len(other) == 20
        for one, two in zip(held, other, strict=True):
            np.testing.assert_array_equal(one["image"], two["image"])


def test_rows_with_a_batch_axis_are_taken_apart(tmp_path: Path) -> None:
    images = noise(80).reshape(20, 4, 3, 4, 4)
    found = calibration(exported(), Path(), rows(tmp_path, images))
    assert (len(found.samples), len(found)) == (10, 40)
    wanted = np.concatenate([images[s.row] for s in found.samples])
    np.testing.assert_array_equal(np.concatenate([f["image"] for f in found]), wanted)


@pytest.fixture
def photos(tmp_path: Path) -> str:
    pixels = np.random.default_rng(0).integers(0, 256, (24, 9, 7, 3), np.uint8)
    lines = []
    for i, array in enumerate(pixels):
        Image.fromarray(array).save(tmp_path / f"{i}.png")
        lines.append(json.dumps({"input": f"{i}.png", "group": f"photo {i // 2}"}))
    (tmp_path / "data.jsonl").write_text("\n".join(lines))
    return str(tmp_path)


def test_pictures_are_prepared_as_the_app_prepares_them(photos: str) -> None:
    found = calibration(exported(processing=PICTURES), Path(), photos)
    assert len(found) == 12
    for sample, feed in zip(found.samples, found, strict=True):
        small = Image.open(sample.path or "").resize((4, 4), Image.Resampling.BILINEAR)
        wanted = np.asarray(small, np.float32).transpose(2, 0, 1)[None] / 255
        np.testing.assert_allclose(feed["image"], wanted, atol=1e-6)


def test_a_fixed_batch_is_filled_with_the_sample(photos: str) -> None:
    fixed = Signature(
        inputs=(TensorSpec(name="image", dtype="float32", shape=(3, 3, 4, 4)),),
        outputs=(TensorSpec(name="logits", dtype="float32", shape=(3, 5)),),
    )
    feed = next(iter(calibration(exported(fixed, PICTURES), Path(), photos)))["image"]
    assert feed.shape == (3, 3, 4, 4)
    np.testing.assert_array_equal(feed[0], feed[2])


def test_the_key_follows_what_is_chosen(tmp_path: Path) -> None:
    images = noise()
    path = Path(rows(tmp_path, images))
    key = calibration_key(path, SIGNATURE)
    assert calibration_key(path, SIGNATURE) == key
    assert calibration_key(path, SIGNATURE, seed=1) != key
    assert calibration_key(path, SIGNATURE, count=8) != key
    chosen = calibration(exported(), Path(), str(path)).samples[0].row
    assert chosen is not None
    images[chosen, 0, 0, 0] += 1
    rows(tmp_path, images)
    assert calibration_key(path, SIGNATURE) != key


# What is refused


def test_no_data_is_refused_with_a_way_out() -> None:
    assert "--data" in refused("001", None).hint


def test_too_few_samples_or_groups(tmp_path: Path) -> None:
    refused("002", rows(tmp_path, noise(2 * MIN_SAMPLES - 2)))
    assert (
        len(calibration(exported(), Path(), rows(tmp_path, noise(2 * MIN_SAMPLES)))) == MIN_SAMPLES
    )
    one_photo = np.repeat([0, 1], 20)  # a half is then one group
    assert "1 groups" in refused("002", rows(tmp_path, noise(), group=one_photo)).message
    refused("002", rows(tmp_path, noise()), count=MIN_SAMPLES - 1)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_number_that_is_none_is_named_by_sample(bad: float) -> None:
    feed = {"image": noise(1)}
    feed["image"][0, 1, 2, 3] = bad
    with pytest.raises(QuantizeError) as error:
        check_feed(7, "row 31", feed, SIGNATURE)
    assert error.value.code == "EDGE-QUANTIZE-003"
    assert "sample 7 (row 31) input 'image'" in error.value.message


@pytest.mark.parametrize(
    "feed",
    [
        {"image": noise(1).astype(np.float64)},
        {"image": noise(1)[..., :3]},
        {"image": noise(9)},  # beyond the range of the batch
        {"picture": noise(1)},
        {"image": noise(1), "more": noise(1)},
    ],
)
def test_another_dtype_shape_or_name_is_named_by_sample(feed: dict[str, np.ndarray]) -> None:
    with pytest.raises(QuantizeError) as error:
        check_feed(3, "cat.jpg", feed, SIGNATURE)
    assert error.value.code == "EDGE-QUANTIZE-004"
    assert "sample 3 (cat.jpg)" in error.value.message


def test_a_picture_that_is_none_is_named_by_sample(photos: str) -> None:
    found = calibration(exported(processing=PICTURES), Path(), photos).samples
    Path(found[4].path or "").write_bytes(b"no picture at all")
    with pytest.raises(QuantizeError) as error:
        calibration(exported(processing=PICTURES), Path(), photos)
    assert error.value.code == "EDGE-QUANTIZE-004"
    assert f"sample 4 ({found[4].id})" in error.value.message


def test_a_text_where_a_picture_is_wanted(tmp_path: Path) -> None:
    lines = [json.dumps({"input": f"text number {i}"}) for i in range(20)]
    (tmp_path / "data.jsonl").write_text("\n".join(lines))
    with pytest.raises(QuantizeError) as error:
        calibration(exported(processing=PICTURES), Path(), str(tmp_path))
    assert error.value.code == "EDGE-QUANTIZE-004"


def test_samples_that_show_nothing(tmp_path: Path) -> None:
    steady = np.full((40, 3, 4, 4), 0.5, np.float32)
    groups = np.arange(40)
    spread = SampleDiversity(SIGNATURE)
    for _ in range(9):
        spread.add({"image": noise(1)})
    with pytest.raises(QuantizeError, match="9 times the same one"):
        spread.check()
    spread = SampleDiversity(
        Signature(inputs=(IMAGE, LOGITS), outputs=(LOGITS,), dims={"batch": (1, 8)})
    )
    for count in range(1, 9):
        spread.add({"image": steady[:count], "logits": np.full((1, 5), 0.5, np.float32)})
    with pytest.raises(QuantizeError, match=r"nothing but the number 0\.5"):
        spread.check()
    images = noise(40)
    for sample in split(load(rows(tmp_path, images)))["calibration"]:
        assert sample.row is not None
        images[sample.row] = 0.25
    assert "20 times the same" in refused("005", rows(tmp_path, images)).message
    # Through the front door copies are left out first, because they are judged with too.
    refused("002", rows(tmp_path, steady))
    refused("006", rows(tmp_path, steady, group=groups))


def test_one_input_under_two_groups_is_a_contradiction(tmp_path: Path) -> None:
    images, groups = noise(40), np.arange(40) // 2
    halves = split(load(rows(tmp_path, images, group=groups)))
    here, there = halves["calibration"][0].row, halves["evaluation"][-1].row
    assert here is not None
    assert there is not None
    images[there] = images[here]
    error = refused("006", rows(tmp_path, images, group=groups))
    assert f"row {here} and row {there}" in error.message


def test_a_copy_without_groups_is_left_out_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images = noise(40)
    halves = split(load(rows(tmp_path, images)))
    here, there = halves["calibration"][0].row, halves["evaluation"][-1].row
    images[there] = images[here]
    found = calibration(exported(), Path(), rows(tmp_path, images))
    assert len(found) == 19
    assert here not in {s.row for s in found.samples}
    assert f"row {here} is left out" in capsys.readouterr().out


def test_a_copied_file_under_two_groups(photos: str) -> None:
    table = Path(photos) / "data.jsonl"
    halves = split(load(photos))
    here, there = halves["calibration"][1], halves["evaluation"][0]
    Path(there.path or "").write_bytes(Path(here.path or "").read_bytes())
    assert table.exists()
    with pytest.raises(QuantizeError) as error:
        calibration(exported(processing=PICTURES), Path(), photos)
    assert error.value.code == "EDGE-QUANTIZE-006"
    assert here.id in error.value.message
    assert there.id in error.value.message
