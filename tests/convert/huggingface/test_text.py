"""Networks of one text: the export answers as transformers and sentence-transformers do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
import transformers

from edgeserve.convert.huggingface import load_folder
from edgeserve.convert.huggingface.folder import ModelFolder
from edgeserve.convert.huggingface.model import plan_network
from edgeserve.convert.huggingface.text import read_sentence_pooling
from edgeserve.convert.huggingface.tokenizer import load_tokenizer, read_tokenizer, tokenizer_steps
from edgeserve.processing.steps.l2_normalize import L2Normalize
from edgeserve.processing.steps.pool import Pool
from edgeserve.processing.steps.softmax import Softmax
from edgeserve.processing.steps.top_k import TopK

Change = Callable[[Path, dict[str, Any]], None]

SPECIAL = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
PAIRS = {"unk_token": "<unk>", "pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}


def right(folder: Path, texts: list[str], longest: int, network: Any) -> tuple[Any, np.ndarray]:
    """What transformers itself answers to a batch, and the batch's mask."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    batch = tokenizer(texts, padding=True, truncation=True, max_length=longest, return_tensors="pt")
    with torch.no_grad():
        return network.from_pretrained(folder).eval()(**batch), batch["attention_mask"].numpy()


# sentence-transformers


@pytest.mark.filterwarnings("default")
def test_a_sentence_model_embeds_as_sentence_transformers_does(
    sentences: Callable[..., Path], export: Any, texts: list[str]
) -> None:
    """Pooling, normalisation, a shorter longest row, and lower-casing of a cased tokenizer."""
    from sentence_transformers import SentenceTransformer

    folder = sentences()
    found = export(folder)
    exported = found.exported
    assert exported.task == "feature-extraction"
    assert [s.name for s in exported.signature.inputs] == [
        "input_ids",
        "attention_mask",
        "token_type_ids",
    ]
    assert exported.signature.inputs[0].shape == ("batch", "sequence")
    assert exported.signature.dims["sequence"] == (2, 24)
    assert [s.name for s in exported.signature.outputs] == ["last_hidden_state"]
    output = "last_hidden_state"
    assert exported.processing.outputs == (
        Pool(output=output, mask="attention_mask"),
        L2Normalize(output=output),
    )
    assert [entry.path for entry in exported.assets] == ["assets/tokenizer.json"]
    assert any("tokenizer.json" in note for note in exported.notes)  # lower-casing was added
    wanted = SentenceTransformer(str(folder), device="cpu").encode(texts)
    vectors = np.stack([record.vector for record in found.answers(texts)])
    np.testing.assert_allclose(vectors, wanted, rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    ("pooling", "mode"),
    [
        ({"pooling_mode_cls_token": True}, "cls"),
        ({"pooling_mode_max_tokens": True, "pooling_mode_mean_tokens": False}, "max"),
        ({"pooling_mode": "lasttoken", "embedding_dimension": 16}, "last"),
        ({"pooling_mode": ["mean"]}, "mean"),
        ({"word_embedding_dimension": 16}, "mean"),
    ],
)
def test_poolings_of_all_its_versions_are_read(
    sentences: Callable[..., Path], pooling: dict[str, Any], mode: str
) -> None:
    folder = sentences(**{"1_Pooling/config": pooling, "sentence_bert_config": {}})
    found = read_sentence_pooling(ModelFolder(folder))
    assert (found.pool, found.normalize, found.max_length, found.lower) == (mode, True, None, False)


def test_named_prompts_are_left_to_the_caller(sentences: Callable[..., Path]) -> None:
    prompts = {"prompts": {"query": "query: ", "document": ""}, "default_prompt_name": None}
    notes = read_sentence_pooling(
        ModelFolder(sentences(config_sentence_transformers=prompts))
    ).notes
    assert notes == ("prompts are the caller's to put before a text: query 'query: '",)


def test_the_network_may_lie_in_a_folder_of_its_own(
    sentences: Callable[..., Path], tmp_path: Path
) -> None:
    """As the first versions of sentence-transformers wrote it."""
    folder = sentences()
    steps = json.loads((folder / "modules.json").read_text())
    steps[0]["path"] = "0_Transformer"
    (folder / "modules.json").write_text(json.dumps(steps))
    inner = folder / "0_Transformer"
    inner.mkdir()
    for path in list(folder.iterdir()):
        if path.is_file() and path.name != "modules.json":
            path.rename(inner / path.name)
    assert load_folder(folder).options.dynamic_shapes["input_ids"][1] == ("sequence", 2, 24)


# other networks


def test_a_plain_encoder_pools_the_mean_and_says_so(bert: Path) -> None:
    made = load_folder(bert)
    assert made.options.task == "feature-extraction"
    assert [type(step).__name__ for step in made.options.processing.outputs] == ["Pool"]
    assert "no pooling declared" in made.notes[0]


def networks(words: int, pairs: int, small: dict[str, Any]) -> dict[str, Any]:
    """Networks that differ in masks and positions: cut tables, look-ahead, windows, no limits."""
    big = small | {"max_position_embeddings": 42}
    return {
        "roberta": transformers.RobertaConfig(vocab_size=pairs, **big),
        "distilbert": transformers.DistilBertConfig(
            vocab_size=words,
            dim=16,
            n_layers=2,
            n_heads=2,
            hidden_dim=24,
            max_position_embeddings=40,
            initializer_range=0.3,
        ),
        "gpt2": transformers.GPT2Config(
            vocab_size=pairs,
            n_embd=16,
            n_layer=2,
            n_head=2,
            n_positions=40,
            bos_token_id=0,
            eos_token_id=2,
            initializer_range=0.3,
        ),
        "modernbert": transformers.ModernBertConfig(
            vocab_size=words,
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=24,
            max_position_embeddings=40,
            local_attention=8,
            global_attn_every_n_layers=2,
            pad_token_id=0,
            cls_token_id=2,
            sep_token_id=3,
            bos_token_id=2,
            eos_token_id=3,
            initializer_range=0.3,
        ),
    }


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("kind", ["roberta", "distilbert", "gpt2", "modernbert"])
def test_token_vectors_are_those_of_transformers(
    kind: str,
    save: Any,
    export: Any,
    texts: list[str],
    word_pieces: tokenizers.Tokenizer,
    byte_pairs: tokenizers.Tokenizer,
    roberta_pairs: tokenizers.Tokenizer,
    small: dict[str, Any],
) -> None:
    """At lengths of 1 or 2 to 40 tokens, padded to one batch."""
    torch.manual_seed(2)
    sizes = word_pieces.get_vocab_size(), byte_pairs.get_vocab_size()
    network = transformers.AutoModel.from_config(networks(*sizes, small)[kind])
    pairs = roberta_pairs if kind == "roberta" else byte_pairs
    of_pairs = kind in ("roberta", "gpt2")
    folder = save(network, pairs if of_pairs else word_pieces, **(PAIRS if of_pairs else SPECIAL))
    found = export(folder)
    low, high = found.exported.signature.dims["sequence"]
    assert (low, high) == (1 if kind == "gpt2" else 2, 40)
    given = texts[1:] if kind == "gpt2" else texts  # without special tokens "" is no token at all
    _, outputs = found.run(given)
    answer, mask = right(folder, given, high, transformers.AutoModel)
    wanted = answer.last_hidden_state.numpy()
    worst = np.abs(outputs["last_hidden_state"] - wanted)[mask == 1].max()
    assert worst <= 1e-6
    assert found.exported.signature.outputs[0].shape == ("batch", "sequence", 16)


def test_a_classifier_decides_as_transformers_does(
    save: Any,
    export: Any,
    texts: list[str],
    word_pieces: tokenizers.Tokenizer,
    small: dict[str, Any],
) -> None:
    torch.manual_seed(3)
    labels = {0: "sad", 1: "so-so", 2: "glad"}
    config = transformers.BertConfig(
        vocab_size=word_pieces.get_vocab_size(), id2label=labels, num_labels=3, **small
    )
    network = transformers.BertForSequenceClassification(config)
    folder = save(network, word_pieces, **SPECIAL)
    scored, _ = right(folder, texts, 40, transformers.BertForSequenceClassification)
    network.classifier.bias.data -= scored.logits.mean(0)  # so that no class wins every text
    network.save_pretrained(folder)
    found = export(folder)
    assert found.exported.task == "text-classification"
    assert found.exported.labels == ("sad", "so-so", "glad")
    assert found.exported.processing.outputs == (Softmax(output="logits"), TopK(output="logits"))
    wanted, _ = right(folder, texts, 40, transformers.BertForSequenceClassification)
    scores = wanted.logits.softmax(1).numpy()
    assert len({int(best) for best in scores.argmax(1)}) > 1
    for record, row in zip(found.answers(texts), scores, strict=True):
        assert record.label == labels[int(row.argmax())]
        assert record.score == pytest.approx(row.max(), abs=1e-6)


def test_a_network_for_another_task_gives_tensors(
    save: Any,
    export: Any,
    texts: list[str],
    word_pieces: tokenizers.Tokenizer,
    small: dict[str, Any],
) -> None:
    torch.manual_seed(4)
    config = transformers.BertConfig(vocab_size=word_pieces.get_vocab_size(), num_labels=5, **small)
    folder = save(transformers.BertForTokenClassification(config), word_pieces, **SPECIAL)
    found = export(folder)
    assert found.exported.task == "tensors"
    _, outputs = found.run(texts)
    wanted, mask = right(folder, texts, 40, transformers.BertForTokenClassification)
    assert found.exported.signature.outputs[0].shape == ("batch", "sequence", 5)
    difference = np.abs(outputs["logits"] - wanted.logits.numpy())
    assert difference[mask == 1].max() <= 1e-6


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"problem_type": "multi_label_classification"}, "multi_label"),
        ({"id2label": {"0": "x"}}, "1 label"),
    ],
)
def test_scores_that_are_no_single_choice_are_tensors(
    bert: Path, change: Change, changes: dict[str, Any], why: str
) -> None:
    change(bert / "config.json", {"architectures": ["BertForSequenceClassification"]} | changes)
    planned = plan_network(ModelFolder(bert), None)
    assert planned.task == "tensors"
    assert why in planned.notes[0]


def test_a_head_is_left_off_where_embeddings_are_asked_for(
    save: Any, word_pieces: tokenizers.Tokenizer, small: dict[str, Any]
) -> None:
    config = transformers.BertConfig(vocab_size=word_pieces.get_vocab_size(), **small)
    folder = save(transformers.BertForMaskedLM(config), word_pieces, **SPECIAL)
    assert load_folder(folder).options.task == "tensors"
    made = load_folder(folder, "feature-extraction")
    assert type(made.module).__name__ == "BertModel"
    assert any("not used: cls.predictions" in note for note in made.notes)


# masks


def test_a_simple_mask_is_used_where_it_means_the_same(bert: Path) -> None:
    """Without gathers over index grids, which would end up in every format."""
    from edgeserve.backends.torch.export.export import ExportOptions, export_module
    from edgeserve.backends.torch.program.inspect import graph_text

    made = load_folder(bert)
    wishes = ExportOptions(made.options.dynamic_shapes, made.options.input_names)
    program = export_module(made.module, made.examples, wishes, bert)
    text = graph_text(program.program)
    assert "aten.index.Tensor" not in text
    assert "aten.arange" not in text
    assert "scaled_dot_product_attention" in text


# tokenizers


def test_the_folders_own_file_is_the_asset(bert: Path) -> None:
    folder = ModelFolder(bert)
    asset = read_tokenizer(folder, load_tokenizer(folder, lower=False))
    assert (asset.data, asset.note) == ((bert / "tokenizer.json").read_bytes(), "")


def test_a_vocabulary_alone_becomes_a_file(bert: Path, change: Change) -> None:
    """As old folders have it: vocab.txt and settings."""
    words = json.loads((bert / "tokenizer.json").read_text())["model"]["vocab"]
    (bert / "vocab.txt").write_text("\n".join(sorted(words, key=words.__getitem__)) + "\n")
    (bert / "tokenizer.json").unlink()
    (bert / "tokenizer_config.json").unlink()
    settings = {"do_lower_case": True, "model_max_length": 30, "tokenizer_class": "BertTokenizer"}
    change(bert / "tokenizer_config.json", settings)
    made = load_folder(bert)
    assert made.options.dynamic_shapes["input_ids"][1] == ("sequence", 2, 30)
    assert any("tokenizer.json is not there" in note for note in made.notes)
    assert any("spells [MASK] is an error" in note for note in made.notes)  # added, without vector
    (data,) = made.options.assets.values()
    read = tokenizers.Tokenizer.from_str(bytes(data).decode())
    oracle = transformers.BertTokenizer.from_pretrained(bert)
    for text in ("The QUICK fox", "Café naïve", ""):
        assert read.encode(text).ids == oracle(text)["input_ids"]


def test_sides_and_paddings_are_those_of_the_tokenizer(bert: Path, change: Change) -> None:
    change(
        bert / "tokenizer_config.json",
        {"padding_side": "left", "truncation_side": "left", "pad_token": "[SEP]"},
    )
    folder = ModelFolder(bert)
    tokenizer = load_tokenizer(folder, lower=False)
    inputs = tokenizer_steps(
        read_tokenizer(folder, tokenizer), tokenizer, ("input_ids", "attention_mask"), 9
    )
    ids, mask = (each.steps[0] for each in inputs)
    assert (ids.padding, ids.truncation, ids.pad_id, ids.max_length) == ("left", "left", 3, 9)
    assert (mask.part, mask.pad_id) == ("attention_mask", 0)
