"""The text demo's server: how sentences are embedded today, before any device does.

It is the reference that converted models are judged against, so it shares no code with edgeserve:
tokenizer and network are those of transformers, the mean over the tokens is written out as the
model's card has it.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from transformers import AutoModel, AutoTokenizer

from dev.demo.sentences import model_folder

_LONGEST = 256  # max_seq_length in the model's sentence_bert_config.json


def embed(raw: bytes | str) -> list[float]:
    """Embed one text: 384 numbers, of length 1."""
    tokenizer, module = _loaded()
    text = raw.decode() if isinstance(raw, bytes) else raw
    tokens = tokenizer(text, truncation=True, max_length=_LONGEST, return_tensors="pt")
    with torch.inference_mode():
        states = module(**tokens).last_hidden_state
    kept = tokens["attention_mask"].unsqueeze(-1).float()
    mean = (states * kept).sum(1) / kept.sum(1).clamp(min=1e-9)
    vector: list[float] = torch.nn.functional.normalize(mean)[0].tolist()
    return vector


@functools.cache
def _loaded() -> tuple[Any, Any]:
    folder = model_folder()
    module = AutoModel.from_pretrained(folder, local_files_only=True).eval()
    return AutoTokenizer.from_pretrained(folder, local_files_only=True), module
