"""Text models: what is refused when the processor is made, and what it does with a text."""

from __future__ import annotations

import contextlib
import json
import random
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers

from edgeserve.errors import InputError, ProcessingError
from edgeserve.files import describe, sha256_bytes
from edgeserve.installation import install_command
from edgeserve.processing import Processor
from edgeserve.processing.steps.cast import Cast
from edgeserve.processing.steps.decode import Decode
from edgeserve.processing.steps.l2_normalize import L2Normalize
from edgeserve.processing.steps.pool import Pool
from edgeserve.processing.steps.softmax import Softmax
from edgeserve.processing.steps.tokenize import Tokenize
from edgeserve.processing.steps.top_k import TopK
from edgeserve.tasks.classification import Classification
from edgeserve.tasks.embedding import Embedding
from edgeserve.types.artifact import FileEntry
from edgeserve.types.processing import InputProcessing, Processing
from edgeserve.types.records import Tensors
from edgeserve.types.steps import InputStep, OutputStep
from edgeserve.types.tensors import Shape, Signature, TensorSpec
from edgeserve.types.vocabulary import Task

FOLDER = Path(__file__).parents[3] / "spec" / "conformance" / "processing"
ASSET = describe(FOLDER, "text/wordpiece.json")
OTHER = describe(FOLDER, "text/bpe.json")
ROWS: Shape = ("batch", "tokens")
MEAN: tuple[OutputStep, ...] = (Pool(output="y", mask="mask"), L2Normalize(output="y"))


def read(path: str) -> bytes:
    return (FOLDER / path).read_bytes()


def step(part: Any = "ids", **more: Any) -> Tokenize:
    return Tokenize(**({"tokenizer": ASSET, "part": part, "max_length": 16} | more))


def spec(name: str, shape: Shape = ROWS, dtype: Any = "int64") -> TensorSpec:
    return TensorSpec(name=name, dtype=dtype, shape=shape)


TOKENS = spec("y", ("batch", "tokens", 4), "float32")
ROW = spec("y", ("batch", 4), "float32")
STEPS: dict[str, tuple[InputStep, ...]] = {"ids": (step(),), "mask": (step("attention_mask"),)}


def make(
    steps: dict[str, tuple[InputStep, ...]] | None = None,
    outputs: tuple[OutputStep, ...] = MEAN,
    inputs: tuple[TensorSpec, ...] = (spec("ids"), spec("mask")),
    gives: tuple[TensorSpec, ...] = (TOKENS,),
    task: Task = "feature-extraction",
    labels: tuple[str, ...] = (),
    assets: Callable[[str], bytes] | None = read,
    tokens: tuple[int, int] = (1, 64),
) -> Processor:
    made = STEPS if steps is None else steps
    processing = Processing(
        inputs=tuple(InputProcessing(name=n, steps=s) for n, s in made.items()), outputs=outputs
    )
    dims = {"batch": (1, 8), "tokens": tokens, "others": (1, 64)}
    signature = Signature(inputs=inputs, outputs=gives, dims=dims)
    return Processor(processing, signature, task, labels, assets)


@pytest.fixture(scope="module")
def library() -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer.from_str(read("text/wordpiece.json").decode())
    tokenizer.enable_truncation(16)
    return tokenizer


def test_text_to_embedding(library: tokenizers.Tokenizer) -> None:
    processor = make()
    assert processor.medium == "text"
    assert set(processor.padding) == {"ids", "mask"}
    texts = ["The small cat sat.", "", "Birds over the harbour, birds over the sea."]
    samples = [processor.prepare(text) for text in texts]
    for text, sample in zip(texts, samples, strict=True):
        assert sample["ids"].tolist() == library.encode(text).ids
        assert sample["mask"].tolist() == [1] * len(library.encode(text).ids)
        assert {row.dtype for row in sample.values()} == {np.dtype(np.int64)}
    feed = processor.batch(samples)
    assert processor.check_feed(feed)["ids"] is feed["ids"]
    tokens = np.random.default_rng(0).normal(size=(*feed["ids"].shape, 4)).astype(np.float32)
    records = processor.finish({"y": tokens}, feed)
    for record, rows, sample in zip(records, tokens, samples, strict=True):
        assert isinstance(record, Embedding)
        mean = rows[: sample["ids"].size].astype(np.float64).mean(axis=0)
        np.testing.assert_allclose(record.vector, mean / np.linalg.norm(mean), atol=1e-6)


def test_a_text_is_tokenized_once_for_all_inputs_that_tokenize_alike(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from edgeserve.processing.steps.tokenize import Encoder

    calls: list[str] = []
    encode = Encoder.__call__
    monkeypatch.setattr(Encoder, "__call__", lambda s, text: calls.append(text) or encode(s, text))
    types = {"types": (step("type_ids"),)}
    three = make(STEPS | types, inputs=(spec("ids"), spec("mask"), spec("types")))
    assert sorted(three.prepare("the cat")) == ["ids", "mask", "types"]
    assert calls == ["the cat"]
    calls.clear()
    apart = {"ids": (step(),), "mask": (step("attention_mask", tokenizer=OTHER),)}
    two = make(apart, inputs=(spec("ids"), spec("mask", ("batch", "others"))))
    assert two.prepare("the cat")["ids"].size != two.prepare("the cat")["mask"].size
    assert calls == ["the cat"] * 4


def test_the_step_is_told_with_its_time() -> None:
    told: list[tuple[str, float]] = []
    make().prepare("the cat", lambda name, seconds: told.append((name, seconds)))
    assert [name for name, _ in told] == ["tokenize"]
    assert told[0][1] >= 0


def test_one_processor_serves_many_threads(library: tokenizers.Tokenizer) -> None:
    processor = make()
    texts = [f"the cat sat {'on the wall ' * (n % 9)}{n}" for n in range(200)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda text: processor.prepare(text)["ids"].tolist(), texts))
    assert found == [library.encode(text).ids for text in texts]


def test_bytes_are_text_in_utf_8() -> None:
    processor = make()
    text = "Grüße 🙂 小猫"
    assert np.array_equal(processor.prepare(text.encode())["ids"], processor.prepare(text)["ids"])


@pytest.mark.parametrize("raw", [None, 5, 1.5, ["a"], {"a": 1}, Path("a.txt"), bytearray(b"a")])
def test_what_is_no_text(raw: Any) -> None:
    with pytest.raises(InputError) as refused:
        make().prepare(raw)
    assert refused.value.code == "EDGE-INPUT-020"
    assert type(raw).__qualname__ in refused.value.got


def test_only_so_much_of_a_text_is_read(library: tokenizers.Tokenizer) -> None:
    """Ten million characters: what is kept is the library's own, and it never sees the rest."""
    seen: list[int] = []

    class Counting(str):
        def encode(self, *args: Any, **kwargs: Any) -> bytes:
            return super().encode(*args, **kwargs)

        def __getitem__(self, key: Any) -> Any:
            part = super().__getitem__(key)
            seen.append(len(part))
            return part

    text = Counting("the cat sat on the wall. " * 400_000)
    assert make().prepare(text)["ids"].tolist() == library.encode(text[:2000]).ids
    assert seen[0] == 65_536


def test_classification_of_texts() -> None:
    outputs = (Softmax(output="y"), TopK(output="y", k=2))
    processor = make(
        outputs=outputs, gives=(ROW,), task="text-classification", labels=("a", "b", "c", "d")
    )
    [record] = processor.finish({"y": np.float32([[0, 3, 1, 2]])})  # needs no feed
    assert isinstance(record, Classification)
    assert [label for label, _ in record.top] == ["b", "d"]


def test_plain_tensors_of_texts() -> None:
    processor = make(task="tensors")
    feed = processor.batch([processor.prepare("the cat")])
    tokens = np.ones((*feed["ids"].shape, 4), np.float32)
    [result] = processor.finish({"y": tokens}, feed)
    assert isinstance(result, Tensors)
    np.testing.assert_allclose(result["y"], [0.5] * 4)


def test_an_embedding_of_the_model_itself_needs_no_step() -> None:
    processor = make(outputs=(), gives=(ROW,))
    [record] = processor.finish({"y": np.float32([[1, 2, 3, 4]])})
    assert isinstance(record, Embedding)
    assert record.vector.tolist() == [1, 2, 3, 4]


def test_samples_that_are_no_batch_of_texts() -> None:
    processor = make()
    sample = processor.prepare("the cat")
    for samples in ([], [sample, {"ids": sample["ids"]}], [processor.batch([sample])]):
        with pytest.raises(InputError) as refused:
            processor.batch(samples)
        assert refused.value.code == "EDGE-INPUT-016"


def test_padding_steps_of_each_input_may_differ_in_what_they_fill_in() -> None:
    steps = {"ids": (step(pad_id=7),), "mask": (step("attention_mask"),)}
    processor = make(steps)
    batch = processor.batch([processor.prepare("the cat sat"), processor.prepare("")])
    assert batch["ids"][1].tolist() == [2, 3, 7, 7, 7]
    assert batch["mask"][1].tolist() == [1, 1, 0, 0, 0]


LEFT: dict[str, tuple[InputStep, ...]] = {
    "ids": (step(),),
    "mask": (step("attention_mask", padding="left"),),
}
WIDE = (spec("ids", ("batch", "tokens", 2)), spec("mask"))
REFUSED: dict[str, tuple[str, dict[str, Any]]] = {
    "two steps": ("001", {"steps": {**STEPS, "ids": (step(), Cast(dtype="int32"))}}),
    "twice": ("001", {"steps": {**STEPS, "ids": (step(), step())}}),
    "no steps for an input": ("002", {"inputs": (spec("ids"), spec("mask"), spec("types"))}),
    "floats": ("003", {"inputs": (spec("ids", dtype="float32"), spec("mask"))}),
    "bytes": ("003", {"inputs": (spec("ids", dtype="uint8"), spec("mask"))}),
    "rank": ("003", {"inputs": WIDE}),
    "no batch": ("003", {"inputs": (spec("ids", ("tokens",)), spec("mask"))}),
    "pictures from text": ("005", {"task": "image-classification", "outputs": (), "gives": (ROW,)}),
    "task without its step": ("030", {"task": "token-classification"}),
    "no assets": ("021", {"assets": None}),
    "too long": ("023", {"tokens": (1, 15)}),
    "too long, fixed": ("023", {"inputs": (spec("ids", ("batch", 15)), spec("mask"))}),
    "other lengths": ("023", {"steps": {**STEPS, "mask": (step("attention_mask", max_length=8),)}}),
    "other sides": ("023", {"steps": LEFT}),
    "other tokenizers": (
        "023",
        {
            "steps": {**STEPS, "mask": (step("ids", tokenizer=OTHER),)},
            "outputs": (),
            "gives": (ROW,),
        },
    ),
    "no room": (
        "023",
        {"steps": {"ids": (step(max_length=2),), "mask": (step("attention_mask", max_length=2),)}},
    ),
    "a picture beside it": ("024", {"steps": {**STEPS, "mask": (Decode(),)}}),
    "nothing beside it": ("024", {"steps": {**STEPS, "mask": ()}}),
    "not pooled": ("006", {"outputs": ()}),
    "pooled and ranked": ("006", {"outputs": (*MEAN, TopK(output="y"))}),
    "integers": ("006", {"outputs": (), "gives": (spec("y", ("batch", 4)),)}),
    "two outputs": ("006", {"outputs": (), "gives": (ROW, spec("z", ("batch", 2), "float32"))}),
    "pooled by ids": ("025", {"outputs": (Pool(output="y", mask="ids"),)}),
    "pooled by nothing": ("025", {"outputs": (Pool(output="y", mask="types"),)}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_before_the_first_text(name: str) -> None:
    code, changes = REFUSED[name]
    with pytest.raises(ProcessingError) as refused:
        make(**changes)
    assert refused.value.code == f"EDGE-PROCESS-{code}"


def test_one_of_several_outputs_is_named_by_its_steps() -> None:
    other = spec("pooler", ("batch", 4), "float32")
    processor = make(gives=(TOKENS, other))
    feed = processor.batch([processor.prepare("the cat")])
    tokens, pooler = np.ones((*feed["ids"].shape, 4), np.float32), np.zeros((1, 4), np.float32)
    [record] = processor.finish({"y": tokens, "pooler": pooler}, feed)
    assert isinstance(record, Embedding)
    np.testing.assert_allclose(record.vector, [0.5] * 4)


def entry(data: bytes) -> FileEntry:
    return FileEntry(path="assets/tokenizer.json", size=len(data), sha256=sha256_bytes(data))


def broken(data: bytes) -> ProcessingError:
    """The refusal of a tokenizer.json of these bytes."""
    steps: dict[str, tuple[InputStep, ...]] = {
        "ids": (step(tokenizer=entry(data)),),
        "mask": (step("attention_mask", tokenizer=entry(data)),),
    }
    with pytest.raises(ProcessingError) as refused:
        make(steps, assets=lambda _: data).prepare("the cat")
    return refused.value


def test_an_asset_with_other_bytes_is_refused() -> None:
    data = read("text/wordpiece.json")
    swapped = data.replace(b'"the"', b'"teh"')
    for held in (swapped, data[:-1], data + b"\n", b""):
        with pytest.raises(ProcessingError) as refused:
            make(assets=lambda _, held=held: held)
        assert refused.value.code == "EDGE-PROCESS-021"


def test_an_asset_that_is_not_there() -> None:
    for fault in (FileNotFoundError("gone"), KeyError("assets/tokenizer.json")):

        def missing(path: str, fault: Exception = fault) -> bytes:
            raise fault

        with pytest.raises(ProcessingError) as refused:
            make(assets=missing)
        assert refused.value.code == "EDGE-PROCESS-021"


WORDPIECE = read("text/wordpiece.json")
WORDLEVEL: dict[str, Any] = json.loads(WORDPIECE) | {
    "post_processor": None,
    "added_tokens": [],
    "model": {"type": "WordLevel", "vocab": {"the": 0}, "unk_token": "[UNK]"},
}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"version":"1.0","model":{"type":"Quantum"}}',
        WORDPIECE[:-3],
        WORDPIECE.replace(b"WordPiece", b"Word"),
    ],
    ids=["empty", "object", "array", "null", "no UTF-8", "unknown model", "cut", "no such model"],
)
def test_a_file_that_is_no_tokenizer(data: bytes) -> None:
    assert broken(data).code == "EDGE-PROCESS-022"


def test_damaged_tokenizers_are_refused_or_work() -> None:
    """Also where the library panics: nothing but a coded error comes out."""
    rng = random.Random(3)
    for _ in range(200):
        data = bytearray(WORDPIECE)
        place = rng.randrange(900)  # before the vocabulary
        kind = rng.randrange(3)
        if kind == 0:
            data[place] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del data[place : place + rng.randrange(1, 9)]
        else:
            data[place:place] = rng.choice([b"-", b"9", b"4294967296", b"null", b"[", b'"'])
        with contextlib.suppress(ProcessingError):
            steps = {
                name: (step(part, tokenizer=entry(bytes(data))),)
                for name, part in (("ids", "ids"), ("mask", "attention_mask"))
            }
            processor = make(steps, assets=lambda _, data=data: bytes(data))
            assert processor.prepare("the cat")["ids"].ndim == 1


def test_a_tokenizer_that_has_no_token_for_a_text() -> None:
    error = broken(json.dumps(WORDLEVEL).encode())
    assert error.code == "EDGE-PROCESS-027"
    assert "UNK" in error.got


def test_tokenizers_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ProcessingError, match="wanted tokenizers") as refused:
        make()
    assert refused.value.code == "EDGE-PROCESS-020"
    assert refused.value.hint == install_command("text")


def test_pooling_without_the_feed_is_said() -> None:
    processor = make()
    tokens = np.ones((1, 3, 4), np.float32)
    for feed in (None, {"ids": np.ones((1, 3), np.int64)}):
        with pytest.raises(ProcessingError) as refused:
            processor.finish({"y": tokens}, feed)
        assert refused.value.code == "EDGE-PROCESS-026"
