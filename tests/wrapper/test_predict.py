"""`Wrapper.predict`: every kind of input, batches, threads and errors, against the oracle."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from onnx import helper
from PIL import Image

from edgeserve import Wrapper
from edgeserve.errors import EdgeError, InputError, WrapperError
from edgeserve.processing.steps.decode import Decode
from edgeserve.processing.steps.layout import Layout
from edgeserve.processing.steps.normalize import Normalize
from edgeserve.processing.steps.softmax import Softmax
from edgeserve.tasks.classification import Classification
from edgeserve.types.processing import InputProcessing, Processing
from edgeserve.types.records import Tensors
from edgeserve.types.tensors import Signature, TensorSpec


@pytest.fixture
def tagger(make: Any) -> Iterator[Wrapper]:
    with Wrapper(make.workspace(), threads=1) as opened:
        yield opened


def test_each_kind_of_picture_gives_the_oracles_answer(
    make: Any, tagger: Wrapper, tmp_path: Path
) -> None:
    picture = make.pixels(3, 41, 57)
    path = tmp_path / "a.png"
    path.write_bytes(make.png(picture))
    with open(path, "rb") as file:
        given: list[Any] = [str(path), path, path.read_bytes(), file, io.BytesIO(path.read_bytes())]
        given += [bytearray(path.read_bytes()), Image.fromarray(picture), picture]
        for raw in given:
            assert make.agrees(tagger.predict(raw), picture), type(raw)


def test_an_answer_says_what_it_ran_on(make: Any, tagger: Wrapper) -> None:
    import onnxruntime

    answer = tagger.predict(make.pixels(3))
    assert isinstance(answer, Classification)
    ran_on = answer.ran_on
    assert ran_on == tagger.ran_on
    assert ran_on is not None
    assert (ran_on.where, ran_on.format, ran_on.precision) == ("device", "onnx", "fp32")
    assert (ran_on.runtime.version, ran_on.runtime.delegate) == (onnxruntime.__version__, "cpu")
    assert ran_on.sha256 == tagger.manifest.artifacts[0].sha256
    assert ran_on.model_id == tagger.manifest.model_id
    assert (ran_on.proof, ran_on.note) == ("golden", "")


def test_named_tensors_go_to_the_model_as_they_are(make: Any, tagger: Wrapper) -> None:
    pictures = [make.pixels(seed) for seed in range(3)]
    x = np.concatenate([make.oracle_tensor(p) for p in pictures])
    answer = tagger.predict({"image": x})
    assert type(answer) is Tensors
    assert answer.ran_on == tagger.ran_on
    expected = x.reshape(3, -1) @ make.w + make.b
    np.testing.assert_allclose(answer["logits"], expected, rtol=1e-4, atol=1e-4)
    assert list(answer) == ["logits"]


def test_a_list_gives_one_answer_per_item_in_order(make: Any, tagger: Wrapper) -> None:
    pictures = [make.pixels(seed, 20 + seed, 30) for seed in range(19)]
    answers = tagger.predict(pictures)
    assert isinstance(answers, list)
    assert len(answers) == 19
    for answer, picture in zip(answers, pictures, strict=True):
        assert make.agrees(answer, picture)
    assert tagger.predict([]) == []
    assert len(tagger.predict(tuple(pictures[:2]))) == 2


def test_a_list_of_dicts_gives_what_each_alone_gives(make: Any, tagger: Wrapper) -> None:
    rows = [1, 3, 4, 8, 1, 1, 2, 7]
    rng = np.random.default_rng(1)
    feeds = [{"image": rng.normal(size=(n, 3, 8, 8)).astype(np.float32)} for n in rows]
    answers = tagger.predict(feeds)
    for feed, answer in zip(feeds, answers, strict=True):
        assert type(answer) is Tensors
        assert answer.ran_on == tagger.ran_on
        alone = tagger.predict(feed)
        np.testing.assert_allclose(answer["logits"], alone["logits"], rtol=1e-5, atol=1e-5)
        expected = feed["image"].reshape(len(feed["image"]), -1) @ make.w + make.b
        np.testing.assert_allclose(answer["logits"], expected, rtol=1e-4, atol=1e-4)


def test_dicts_of_different_length_are_not_stacked(make: Any) -> None:
    spec = TensorSpec(name="x", dtype="float32", shape=("batch", "length"))
    make.signature = Signature(
        inputs=(spec,),
        outputs=(msgspec.structs.replace(spec, name="y"),),
        dims={"batch": (1, 8), "length": (1, 9)},
    )
    double = make.model([helper.make_node("Add", ["x", "x"], ["y"])], make.signature, {})
    root = make.workspace(
        make.made("onnx-fp32", double),
        golden=False,
        task="tensors",
        processing=Processing(),
        labels=(),
    )
    feeds = [{"x": np.full((1, n), n, np.float32)} for n in (3, 3, 5, 3)]
    with Wrapper(root, threads=1) as plain:
        answers = plain.predict(feeds)
    for feed, answer in zip(feeds, answers, strict=True):
        np.testing.assert_array_equal(answer["y"], feed["x"] * 2)


@pytest.mark.parametrize("batch", [(3, 4), 1, 4], ids=["from-3-to-4", "always-1", "always-4"])
def test_batches_stay_within_what_the_model_takes(make: Any, batch: Any) -> None:
    make.signature = make.batch(batch)
    pictures = [make.pixels(seed) for seed in range(6)]
    with Wrapper(make.workspace(), threads=1) as tagger:
        for count in (1, 2, 6):
            answers = tagger.predict(pictures[:count])
            assert len(answers) == count
            for answer, picture in zip(answers, pictures, strict=False):
                assert make.agrees(answer, picture)
        assert make.agrees(tagger.predict(pictures[5]), pictures[5])


def test_pictures_of_different_size_are_not_stacked(make: Any) -> None:
    """A model that takes any size: the mean colour's class, right by construction."""
    side = {"h": (1, 99), "w": (1, 99)}
    make.signature = Signature(
        inputs=(TensorSpec(name="image", dtype="float32", shape=("batch", 3, "h", "w")),),
        outputs=(TensorSpec(name="logits", dtype="float32", shape=("batch", 3)),),
        dims={"batch": (1, 8), **side},
    )
    mean = make.model(
        [
            helper.make_node("GlobalAveragePool", ["image"], ["pooled"]),
            helper.make_node("Flatten", ["pooled"], ["logits"]),
        ],
        make.signature,
        {},
    )
    steps = (Decode(), Normalize(scale=(1 / 16,) * 3, bias=(0.0,) * 3), Layout(order="CHW"))
    processing = Processing(
        inputs=(InputProcessing(name="image", steps=steps),), outputs=(Softmax(output="logits"),)
    )
    root = make.workspace(
        make.made("onnx-fp32", mean), golden=False, processing=processing, labels=("r", "g", "b")
    )
    pictures = [make.pixels(seed, 9 + seed // 3, 12) for seed in range(7)]
    with Wrapper(root, threads=1) as tagger:
        answers = tagger.predict(pictures)
    expected = ["rgb"[int(p.reshape(-1, 3).mean(0).argmax())] for p in pictures]
    assert [answer.label for answer in answers] == expected


def test_the_session_sees_batches(
    make: Any, tagger: Wrapper, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []
    engine = tagger._engine
    assert engine is not None
    run = engine.run

    def spy(feed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        sizes.append(len(feed["image"]))
        return run(feed)

    monkeypatch.setattr(engine, "run", spy)
    tagger.predict([make.pixels(seed) for seed in range(19)])
    x = np.zeros((3, 3, 8, 8), np.float32)
    tagger.predict([{"image": x}] * 5)
    assert sizes == [8, 8, 3, 6, 6, 3]


def test_eight_threads_get_their_own_answers(make: Any, tagger: Wrapper) -> None:
    pictures = [make.pixels(seed) for seed in range(16)]

    def ask(start: int) -> bool:
        order = [(start + i) % 16 for i in range(48)]
        return all(make.agrees(tagger.predict(pictures[i]), pictures[i]) for i in order)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(8)))


def test_errors_name_the_input_and_the_item(make: Any, tagger: Wrapper) -> None:
    good = make.png(make.pixels(1))
    with pytest.raises(InputError) as error:
        tagger.predict([good, good, b"not a picture"])
    assert error.value.thing.startswith("item 2: ")
    x = np.zeros((1, 3, 8, 8), np.float32)
    with pytest.raises(InputError) as error:
        tagger.predict([{"image": x}, {"photo": x}])
    assert error.value.thing.startswith("item 1: ")
    with pytest.raises(WrapperError) as mixed:
        tagger.predict([good, {"image": x}])
    assert mixed.value.code == "EDGE-WRAPPER-006"
    with pytest.raises(InputError, match="9"):
        tagger.predict({"image": np.zeros((9, 3, 8, 8), np.float32)})
    with pytest.raises(InputError):
        tagger.predict("/nowhere/a.png")
    with pytest.raises(InputError):
        tagger.predict(7)  # type: ignore[call-overload]


def test_raw_inputs_need_processing(make: Any) -> None:
    root = make.workspace(golden=False, processing=Processing(), task="tensors", labels=())
    with Wrapper(root) as plain:
        assert plain.ran_on.proof == "none"
        x = {"image": np.zeros((1, 3, 8, 8), np.float32)}
        assert plain.predict(x)["logits"].shape == (1, 5)
        with pytest.raises(InputError, match="image"):
            plain.predict(make.pixels(1))
        with pytest.raises(InputError, match="item 0"):
            plain.predict([make.pixels(1)])


def test_closed_is_closed(make: Any) -> None:
    with Wrapper(make.workspace(), threads=1) as tagger:
        pass
    tagger.close()
    for call in (lambda: tagger.predict(make.pixels(1)), tagger.verify):
        with pytest.raises(WrapperError) as error:
            call()
        assert error.value.code == "EDGE-WRAPPER-005"


class _Broken(io.BytesIO):
    def read(self, size: int | None = -1, /) -> bytes:
        raise PermissionError(13, "a disk that fails")


def test_whatever_goes_wrong_has_a_code(
    make: Any, tagger: Wrapper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that one ``except EdgeError`` protects an app."""
    picture = make.pixels(3)
    shut, freed = io.BytesIO(make.png(picture)), memoryview(make.png(picture))
    shut.close()
    freed.release()
    masked = np.ma.masked_array(picture, mask=picture > 99)
    odd: list[tuple[Any, str]] = [
        (shut, "EDGE-INPUT-001"),
        (_Broken(), "EDGE-INPUT-001"),
        (masked, "EDGE-INPUT-006"),
        (freed, "EDGE-WRAPPER-008"),
        ({"image": np.ma.masked_array(make.oracle_tensor(picture))}, "EDGE-INPUT-011"),
        ([picture, masked], "EDGE-INPUT-006"),
    ]
    for raw, code in odd:
        with pytest.raises(EdgeError) as error:
            tagger.predict(raw)
        assert error.value.code == code, raw
    assert make.agrees(tagger.predict(picture), picture)

    def no_memory(*_: Any) -> None:
        raise MemoryError

    encoded = make.png(picture)
    for raw, place in ((picture, "Image.Image.resize"), (encoded, "ImageFile.ImageFile.load")):
        monkeypatch.setattr(f"PIL.{place}", no_memory)
        with pytest.raises(WrapperError, match="MemoryError") as caught:
            tagger.predict(raw)
        assert caught.value.code == "EDGE-WRAPPER-008"
        assert isinstance(caught.value.__cause__, MemoryError)


@pytest.mark.parametrize("make_one", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_wrapper_is_not_copied(
    make: Any, tagger: Wrapper, make_one: Callable[[Wrapper], object]
) -> None:
    """A copy that is closed would close the original."""
    with pytest.raises(WrapperError) as error:
        make_one(tagger)
    assert error.value.code == "EDGE-WRAPPER-009"
    assert make.agrees(tagger.predict(make.pixels(3)), make.pixels(3))


def test_answers_are_equal_and_survive_pickle(make: Any, tagger: Wrapper) -> None:
    feed = {"image": make.oracle_tensor(make.pixels(3))}
    for x, other in (
        (make.pixels(3), make.pixels(4)),
        (feed, {"image": make.oracle_tensor(make.pixels(4))}),
    ):
        one, again, another = (tagger.predict(each) for each in (x, x, other))
        for same in (again, pickle.loads(pickle.dumps(one)), copy.deepcopy(one)):
            assert (one == same, one != same) == (True, False)
            assert same.ran_on == one.ran_on
        assert one != another
        assert one != "cat"
    assert len({tagger.predict(make.pixels(3)) for _ in range(2)}) == 1
