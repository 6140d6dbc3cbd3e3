"""Ways of computing attention: tried in their order, and the log says which one won."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
import transformers
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from edgeserve.convert.huggingface import model
from edgeserve.errors import ConvertError

SIZES: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 40,
    "initializer_range": 0.3,
    "pad_token_id": 0,
}
WORDS: dict[str, Any] = {
    "unk_token": "[UNK]",
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "model_input_names": ["input_ids", "attention_mask"],
}

#: As sdpa, but for a choice by values that no trace can follow.
FUSSY = "fussy"


def fussy(module: Any, query: Any, key: Any, value: Any, mask: Any, **more: Any) -> Any:
    """Real attention, which looks at its numbers first."""
    if query.abs().max() > 1e6:
        raise ValueError("these numbers are too large")
    return ALL_ATTENTION_FUNCTIONS["sdpa"](module, query, key, value, mask, **more)


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Set another order, with an attention in it that transformers is taught."""
    masks = transformers.masking_utils.ALL_MASK_ATTENTION_FUNCTIONS
    transformers.AttentionInterface.register(FUSSY, fussy)
    transformers.AttentionMaskInterface.register(FUSSY, masks["sdpa"])

    def order(*names: str) -> None:
        monkeypatch.setattr(model, "ATTENTIONS", names)

    yield order
    ALL_ATTENTION_FUNCTIONS._global_mapping.pop(FUSSY, None)
    masks._global_mapping.pop(FUSSY, None)


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    said = capsys.readouterr().out.splitlines()
    return [line for line in said if line.startswith("attention ")]


def answers_as_the_network(result: Any, network: Any) -> None:
    feed, got = result.run(["The quick brown fox", "many words"])
    with torch.no_grad():
        wanted = network(**{name: torch.from_numpy(x) for name, x in feed.items()})
    kept = feed["attention_mask"].astype(bool)
    np.testing.assert_allclose(
        got["last_hidden_state"][kept], wanted.last_hidden_state.numpy()[kept], atol=1e-4
    )


def test_the_order_is_declared_once() -> None:
    assert model.ATTENTIONS == ("sdpa", "eager")


def test_the_first_one_wins_where_it_can(
    bert: Path, export: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    exported = export(bert).exported
    assert lines(capsys) == ["attention 'sdpa' with dynamic sizes worked"]
    assert not any("attention" in note for note in exported.notes)


def test_a_network_without_the_first_one_takes_the_second(
    save: Any, export: Any, word_pieces: tokenizers.Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of DeBERTa transformers has no sdpa, and says so when it is built."""
    torch.manual_seed(2)
    config = transformers.DebertaV2Config(
        vocab_size=word_pieces.get_vocab_size(), relative_attention=True, **SIZES
    )
    network = transformers.DebertaV2Model(config).eval()
    result = export(save(network, word_pieces, **WORDS))
    said = lines(capsys)
    assert said[0].startswith("attention 'sdpa' failed: ValueError: DebertaV2Model does not")
    assert said[1:] == ["attention 'eager' with dynamic sizes worked"]
    assert any("computed by 'eager'" in note for note in result.exported.notes)
    answers_as_the_network(result, network)


def test_one_that_cannot_be_exported_is_followed_by_the_next(
    save: Any,
    export: Any,
    word_pieces: tokenizers.Tokenizer,
    order: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:
    order(FUSSY, "eager")
    torch.manual_seed(3)
    config = transformers.BertConfig(vocab_size=word_pieces.get_vocab_size(), **SIZES)
    network = transformers.BertModel(config, add_pooling_layer=False).eval()
    result = export(save(network, word_pieces, **WORDS))
    said = lines(capsys)
    assert said[0].startswith("attention 'fussy' with dynamic sizes failed: EDGE-CONVERT-014")
    assert said[1:] == ["attention 'eager' with dynamic sizes worked"]
    assert any("EDGE-CONVERT-014" in note for note in result.exported.notes)
    assert set(result.exported.signature.dims) == {"batch", "sequence"}
    answers_as_the_network(result, network)


def test_where_none_works_the_first_one_speaks(
    bert: Path, export: Any, order: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    order(FUSSY)
    with pytest.raises(ConvertError) as error:
        export(bert)
    assert error.value.code == "EDGE-CONVERT-014"
    assert len(lines(capsys)) == 2  # with sizes left open, then with sizes fixed
