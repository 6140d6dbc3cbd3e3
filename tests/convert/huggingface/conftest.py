"""Tiny random networks with tokenizers trained here, saved as Hugging Face folders."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
import transformers
from tokenizers import models, normalizers, pre_tokenizers, processors, trainers

from edgeserve.backends.reference import reference
from edgeserve.convert import ExportRequest, parse_source
from edgeserve.convert.source import export_source
from edgeserve.processing import Processor
from edgeserve.types.options import ExportSettings
from edgeserve.types.source import Exported

CORPUS = [
    "The quick brown fox jumps over the lazy dog, and over 12 others.",
    "Many words make a text that is longer than the network takes.",
    "A short Example; another one, which is a little longer: café naïve",
]
SMALL: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 40,
    "initializer_range": 0.3,
}
SPECIAL = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
ROBERTA = {
    "unk_token": "<unk>",
    "pad_token": "<pad>",
    "cls_token": "<s>",
    "sep_token": "</s>",
    "bos_token": "<s>",
    "eos_token": "</s>",
}

#: Of each length there is something to tell apart: nothing, one token, some, more than are taken.
TEXTS = ["", "fox", "The quick brown fox", "Another Café, naïve and lazy!", "many words " * 40]

Save = Callable[..., Path]
Export = Callable[..., "Result"]


class Result:
    """An export, and what it answers to texts or pictures."""

    def __init__(self, exported: Exported, root: Path) -> None:
        self.exported, self.root = exported, root
        self.processor = Processor(
            exported.processing,
            exported.signature,
            exported.task,
            exported.labels,
            lambda name: (root / name).read_bytes(),
        )

    def run(self, raws: list[Any]) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """One batch's feed and outputs."""
        feed = self.processor.batch([self.processor.prepare(raw) for raw in raws])
        backend, artifact = reference(self.exported)
        with backend.load(artifact, self.root, threads=1) as session:
            return feed, session.run(feed)

    def answers(self, raws: list[Any]) -> list[Any]:
        """The records of one batch."""
        feed, outputs = self.run(raws)
        return self.processor.finish(outputs, feed)


@pytest.fixture
def export(tmp_path: Path) -> Export:
    """Export a folder in this process."""

    def export(folder: Path, task: Any = None) -> Result:
        out = tmp_path / "out"
        source = parse_source(str(folder), tmp_path)
        assert source.kind == "huggingface"
        return Result(
            export_source(
                ExportRequest(source=source, out=str(out), settings=ExportSettings(task=task))
            ),
            out,
        )

    return export


@pytest.fixture(scope="session")
def word_pieces() -> tokenizers.Tokenizer:
    """A cased WordPiece tokenizer with [CLS] and [SEP]."""
    made = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=False)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    words = [*CORPUS, *(line.lower() for line in CORPUS)]
    made.train_from_iterator(words, trainers.WordPieceTrainer(vocab_size=180, special_tokens=names))
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return made


@pytest.fixture(scope="session")
def byte_pairs() -> tokenizers.Tokenizer:
    """A byte-level BPE tokenizer without special tokens around a text."""
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    names = ["<s>", "<pad>", "</s>", "<unk>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=names, initial_alphabet=alphabet)
    made.train_from_iterator(CORPUS, trainer)
    return made


@pytest.fixture(scope="session")
def roberta_pairs(byte_pairs: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """The same with <s> and </s> around a text."""
    made = tokenizers.Tokenizer.from_str(byte_pairs.to_str())
    made.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return made


@pytest.fixture
def save(tmp_path: Path) -> Save:
    """Save a network and a tokenizer; ``settings`` go to the tokenizer."""

    def save(network: Any, tokenizer: tokenizers.Tokenizer | None = None, **settings: Any) -> Path:
        folder = tmp_path / "model"
        network.eval().save_pretrained(folder)
        if tokenizer is not None:
            transformers.PreTrainedTokenizerFast(
                tokenizer_object=tokenizer, **{"model_max_length": 40} | settings
            ).save_pretrained(folder)
        return folder

    return save


@pytest.fixture(scope="session")
def saved_bert(tmp_path_factory: pytest.TempPathFactory, word_pieces: tokenizers.Tokenizer) -> Path:
    """A small BERT without a head."""
    torch.manual_seed(1)
    folder = tmp_path_factory.mktemp("bert")
    config = transformers.BertConfig(vocab_size=word_pieces.get_vocab_size(), **SMALL)
    transformers.BertModel(config).eval().save_pretrained(folder)
    names = ["input_ids", "token_type_ids", "attention_mask"]
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=word_pieces, model_max_length=40, model_input_names=names, **SPECIAL
    ).save_pretrained(folder)
    return folder


@pytest.fixture
def bert(saved_bert: Path, tmp_path: Path) -> Path:
    """A copy of it to change."""
    return Path(shutil.copytree(saved_bert, tmp_path / "bert"))


def write(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


@pytest.fixture
def sentences(bert: Path) -> Callable[..., Path]:
    """The same as sentence-transformers writes it, with any of its files replaced."""

    def sentences(**files: object) -> Path:
        steps = ("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")
        kind = "sentence_transformers.models."
        default = {
            "modules": [
                {"idx": i, "name": str(i), "path": path, "type": kind + step}
                for i, (path, step) in enumerate(steps)
            ],
            "1_Pooling/config": {"word_embedding_dimension": 16, "pooling_mode_mean_tokens": True},
            "sentence_bert_config": {"max_seq_length": 24, "do_lower_case": True},
        }
        (bert / "2_Normalize").mkdir(exist_ok=True)
        for name, value in (default | files).items():
            write(bert / f"{name}.json", value)
        return bert

    return sentences


@pytest.fixture
def change() -> Callable[[Path, dict[str, Any]], None]:
    """Change keys of a JSON file; None removes one."""

    def change(path: Path, changes: dict[str, Any]) -> None:
        held = json.loads(path.read_text()) if path.exists() else {}
        kept = {k: v for k, v in (held | changes).items() if v is not None}
        write(path, kept)

    return change


@pytest.fixture(scope="session")
def texts() -> list[str]:
    """Texts of five lengths."""
    return TEXTS


@pytest.fixture(scope="session")
def small() -> dict[str, Any]:
    """Sizes of a small encoder."""
    return SMALL
