"""Writes the text cases, or checks that what is committed is what would be written.

    python spec/conformance/processing/generate_text.py --write | --check

Expected tokens are those of transformers on the same tokenizer.json, and each is also held against
a tokenizer in plain Python: transformers' old one for WordPiece, ``bpe.py`` for BPE. Expected
vectors are PyTorch's. Nothing of edgeserve is imported. The two tokenizers were trained once, on
``text/corpus.txt``, and are taken as they are.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import torch  # noqa: E402
from bpe import Bpe  # noqa: E402
from textlisting import BATCHES, TEXTS, VECTORS  # noqa: E402
from transformers import PreTrainedTokenizerFast  # noqa: E402

__all__ = ["generated", "main"]

Json = dict[str, Any]
PARTS = {"ids": "input_ids", "attention_mask": "attention_mask", "type_ids": "token_type_ids"}
NAMES = ("wordpiece", "bpe")
_READ, _READ_PER_TOKEN = 65_536, 64
#: Where the library and the old tokenizer differ, as they are known to: Python takes private and
#: unassigned characters for control characters and drops them, the library keeps some.
_APART = ("wordpiece", "private use and no character")


def main() -> int:
    """Write or check; the exit code says whether what is committed is right."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--write", action="store_true")
    mode.add_argument("--check", action="store_true")
    write = parser.parse_args().write
    if write:
        _train()
    files = generated()
    if write:
        for name, data in files.items():
            (HERE / name).write_bytes(data)
    wrong = [name for name, data in files.items() if (HERE / name).read_bytes() != data]
    print(f"{len(files) - len(wrong)} of {len(files)} files are as generated", *wrong)
    return 1 if wrong else 0


def generated() -> dict[str, bytes]:
    """Content of ``text.json`` and ``vectors.json``."""
    oracles = {name: Oracle(HERE / "text" / f"{name}.json") for name in NAMES}
    cases = [_text_case(case, oracles[case["tokenizer"]]) for case in TEXTS]
    batches = [_batch_case(case, oracles[case["tokenizer"]]) for case in BATCHES]
    text = {
        "version": 1,
        "tokenizers": {name: oracle.entry for name, oracle in oracles.items()},
        "batches": _Lines(batches),
        "cases": _Lines(cases),
    }
    vectors = {"version": 1, "cases": _Lines([_vector_case(case) for case in VECTORS])}
    return {"text.json": _json(text), "vectors.json": _json(vectors)}


class _Lines(list[Json]):
    """Cases, of which each stands on its line."""


def _json(value: Json) -> bytes:
    def told(item: Any) -> str:
        if isinstance(item, _Lines):
            return "[\n" + ",\n".join(json.dumps(case) for case in item) + "\n]"
        return json.dumps(item)

    fields = ",\n".join(f"{json.dumps(key)}: {told(item)}" for key, item in value.items())
    return f"{{\n{fields}\n}}\n".encode()


class Oracle:
    """One tokenizer in transformers, beside one in plain Python."""

    def __init__(self, path: Path) -> None:
        data = path.read_bytes()
        sha256 = hashlib.sha256(data).hexdigest()
        self.entry = {"path": f"text/{path.name}", "size": len(data), "sha256": sha256}
        self.described: Json = json.loads(data)
        first, last = ("[CLS]", "[SEP]") if path.stem == "wordpiece" else ("<s>", "</s>")
        pad = "[PAD]" if path.stem == "wordpiece" else "<pad>"
        self._fast = PreTrainedTokenizerFast(tokenizer_file=str(path), pad_token=pad)
        self.pad = self._fast.pad_token_id
        vocabulary = self._fast.get_vocab()
        self._ends = (vocabulary[first], vocabulary[last])
        self._plain = Bpe(self.described).ids if path.stem == "bpe" else _wordpiece(vocabulary)

    def rows(self, text: str, step: Json, apart: bool = False) -> dict[str, list[int]]:
        """The three parts of a text, not padded; ``apart``: the two are known to differ."""
        limit = max(_READ, _READ_PER_TOKEN * step["max_length"])
        text = text[:limit] if step["truncation"] == "right" else text[-limit:]
        self._fast.truncation_side = step["truncation"]
        found = self._fast(
            text, truncation=True, max_length=step["max_length"], return_token_type_ids=True
        )
        rows = {part: list(found[name]) for part, name in PARTS.items()}
        assert (rows["ids"] == self._by_hand(text, step)) != apart, (text[:80], rows["ids"])
        return rows

    def _by_hand(self, text: str, step: Json) -> list[int]:
        ids, room = self._plain(text), step["max_length"] - 2
        kept = ids[:room] if step["truncation"] == "right" else ids[len(ids) - room :]
        return [self._ends[0], *(kept if len(ids) > room else ids), self._ends[1]]


def _wordpiece(vocabulary: dict[str, int]) -> Any:
    """Transformers' tokenizer from before there was a library in another language."""
    from transformers.models.bert.tokenization_bert_legacy import BertTokenizerLegacy

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vocab.txt"
        words = sorted(vocabulary, key=lambda word: vocabulary[word])
        path.write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
        slow = BertTokenizerLegacy(str(path))
    return lambda text: slow.convert_tokens_to_ids(slow.tokenize(text))


def _text_case(case: Json, oracle: Oracle) -> Json:
    if "error" in case:
        return case
    apart = case["tokenizer"] == _APART[0] and case["id"].endswith(_APART[1])
    return {**case, "expected": oracle.rows(text_of(case), case["step"], apart)}


def text_of(case: Json) -> str:
    """The raw input of a case that is a text."""
    if "utf8" in case:
        return bytes.fromhex(case["utf8"]).decode()
    if "pieces" in case:
        return "".join(piece * times for piece, times in case["pieces"])
    return str(case["text"])


def _batch_case(case: Json, oracle: Oracle) -> Json:
    rows = [oracle.rows(text, case["step"]) for text in case["texts"]]
    least = case["length"] if isinstance(case["length"], int) else case["length"][0]
    longest = max(least, *(len(row["ids"]) for row in rows))
    pads = {"ids": oracle.pad, "attention_mask": 0, "type_ids": 0}
    expected = {
        part: [_padded(row[part], longest, pads[part], case["step"]["padding"]) for row in rows]
        for part in PARTS
    }
    return {**case, "pad_id": oracle.pad, "expected": expected}


def _padded(row: list[int], length: int, pad: int, side: str) -> list[int]:
    more = [pad] * (length - len(row))
    return [*more, *row] if side == "left" else [*row, *more]


def _vector_case(case: Json) -> Json:
    if "error" in case:
        return case
    output = case["output"]
    dtype = getattr(torch, output["dtype"])
    y = torch.tensor(output["values"], dtype=dtype).reshape(output["shape"]).float()
    mask = None if case["mask"] is None else torch.tensor(case["mask"])
    for step in case["steps"]:
        if step["step"] == "l2_normalize/1":
            y = _unit(y)
        else:
            assert mask is not None
            y = _pooled(y, mask, step["mode"])
    expected = {"shape": list(y.shape), "values": y.flatten().tolist()}
    return {**case, "expected": expected, "tolerance": 1e-6}


def _unit(y: torch.Tensor) -> torch.Tensor:
    """In float64, where no square of a float32 overflows or vanishes."""
    return torch.nn.functional.normalize(y.double(), dim=-1, eps=1e-12).float()


def _pooled(y: torch.Tensor, mask: torch.Tensor, mode: str) -> torch.Tensor:
    """One sample after the other, its tokens alone: nothing here knows of padding."""
    rows = [row[kept.bool()] for row, kept in zip(y, mask, strict=True)]
    made: dict[str, Any] = {
        "mean": lambda tokens: tokens.double().mean(dim=0).float(),
        "cls": lambda tokens: tokens[0],
        "max": lambda tokens: tokens.amax(dim=0),
        "last": lambda tokens: tokens[-1],
    }
    zeros = torch.zeros(y.shape[-1])
    return torch.stack([made[mode](tokens) if len(tokens) else zeros for tokens in rows])


def _train() -> None:
    """Make the tokenizers that are not there yet."""
    import tokenizers as t

    corpus: Sequence[str] = [str(HERE / "text" / "dev.corpus.txt")]
    if not (HERE / "text" / "wordpiece.json").exists():
        words = t.Tokenizer(t.models.WordPiece(unk_token="[UNK]"))
        words.normalizer = t.normalizers.BertNormalizer()
        words.pre_tokenizer = t.pre_tokenizers.BertPreTokenizer()
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        words.train(corpus, t.trainers.WordPieceTrainer(vocab_size=620, special_tokens=special))
        ends = [(name, words.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
        words.post_processor = t.processors.TemplateProcessing(
            "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", ends
        )
        words.save(str(HERE / "text" / "wordpiece.json"), pretty=False)
    if not (HERE / "text" / "bpe.json").exists():
        pairs = t.Tokenizer(t.models.BPE())
        pairs.pre_tokenizer = t.pre_tokenizers.ByteLevel(add_prefix_space=False)
        alphabet = t.pre_tokenizers.ByteLevel.alphabet()
        special = ["<s>", "<pad>", "</s>"]
        trainer = t.trainers.BpeTrainer(
            vocab_size=420, special_tokens=special, initial_alphabet=alphabet
        )
        pairs.train(corpus, trainer)
        ends = [(name, pairs.token_to_id(name)) for name in ("<s>", "</s>")]
        pairs.post_processor = t.processors.TemplateProcessing(
            "<s> $A </s>", "<s> $A </s> $B </s>", ends
        )
        # Truncation and padding that a file brings along are not ours: the steps say what is.
        pairs.enable_truncation(5)
        pairs.enable_padding(length=7, pad_id=1, pad_token="<pad>")
        pairs.save(str(HERE / "text" / "bpe.json"), pretty=False)


if __name__ == "__main__":
    raise SystemExit(main())
