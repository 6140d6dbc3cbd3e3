"""A folder's tokenizer as one ``tokenizer.json``, proven to give what transformers gives.

The asset is the folder's own file where transformers makes that very pipeline of it, else the
pipeline that transformers makes of the folder (a vocabulary, merges, settings), written down. Which
of them it is, its rows are compared with those of ``AutoTokenizer`` on probe texts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

from edgeserve.convert.huggingface.folder import ModelFolder, from_files
from edgeserve.convert.source import resolve_named_file
from edgeserve.errors import ConvertError
from edgeserve.files import sha256_bytes
from edgeserve.processing.steps.tokenize import Encoder, Tokenize, TokenizePart
from edgeserve.types.artifact import FileEntry
from edgeserve.types.processing import InputProcessing

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


#: Name of the tokenizer in exports, workspaces and bundles.
ASSET = "assets/tokenizer.json"

_PARTS: dict[str, TokenizePart] = {
    "input_ids": "ids",
    "attention_mask": "attention_mask",
    "token_type_ids": "type_ids",
}

#: Texts in which tokenizers differ: case, accents, scripts, emoji, spaces, controls, nothing.
_PROBES = (
    "",
    "The quick brown fox jumps over 13 lazy dogs; doesn't it?",
    "ÀÉÎÕÜ naïve cafés, Straße, ΣΊΣΥΦΟΣ, İstanbul",
    "机器学习模型转换 モデル 변환",
    "مرحبا بالعالم, שלום עולם",
    "🙂👩‍👩‍👧 1️⃣ ½ ﬁ",
    "  two  spaces\tand\na line\u00a0here\u200b ",
    "x" * 300,
    "3.14159 1,000,000 foo_bar user@example.com #tag",
)
#: One that is longer than any limit: its end is cut off.
_LONG = "many words make a text that is longer than the network takes, and "


@dataclass(frozen=True)
class TokenizerAsset:
    """The tokenizer's file.

    Attributes:
        data: Its bytes.
        note: Why it is not the folder's own file; empty where it is.
    """

    data: bytes
    note: str = ""

    @property
    def entry(self) -> FileEntry:
        """As processing names it."""
        return FileEntry(path=ASSET, size=len(self.data), sha256=sha256_bytes(self.data))


def load_tokenizer(folder: ModelFolder, lower: bool) -> PreTrainedTokenizerBase:
    """The folder's tokenizer as transformers makes it.

    Args:
        folder: See `ModelFolder`.
        lower: Lower-case texts first, as sentence-transformers does where it is told to.

    Raises:
        ConvertError: EDGE-CONVERT-070.
    """
    from transformers import AutoTokenizer

    _check_settings(folder)
    refuse = partial(_refused, "files of a tokenizer")
    found: PreTrainedTokenizerBase = from_files(AutoTokenizer, folder.network, refuse)
    known = {"tokenizer.json", *map(str, found.vocab_files_names.values())}
    if not any((folder.network / name).exists() for name in known):
        # transformers makes a tokenizer without a word of it, and says nothing.
        raise _refused(f"a vocabulary: one of {', '.join(sorted(known))}", "none in the folder")
    if not getattr(found, "is_fast", False):
        got = f"{type(found).__name__}, which is Python code"
        raise _refused("a tokenizer that the library tokenizers runs", got)
    words = found.backend_tokenizer.get_vocab(with_added_tokens=False)
    if max(words.values(), default=-1) >= (size := _embedding_rows(folder.config)):
        raise _refused(f"ids below the network's {size}", f"ids up to {max(words.values())}")
    if lower:
        _lower(found)
    return found


def _check_settings(folder: ModelFolder) -> None:
    """Words stand in files of the folder: transformers would open a path given in their place."""
    settings = folder.optional("tokenizer_config.json")
    for key in ("vocab", "merges"):
        if isinstance(settings.get(key), str):
            where = f"tokenizer_config.json: {key!r}"
            wanted = "words in a file of the folder"
            got = f"the path {settings[key]!r}"
            hint = "remove that key, and put tokenizer.json or vocab.txt into the folder"
            raise ConvertError("EDGE-CONVERT-065", where, wanted=wanted, got=got, hint=hint)
    for name in settings.get("fast_tokenizer_files") or ():
        resolve_named_file(folder.network, name, "tokenizer_config.json: 'fast_tokenizer_files'")


def out_of_table_note(folder: ModelFolder, tokenizer: Any) -> str:
    """A note on tokens that were added to the tokenizer and never to the network."""
    size = _embedding_rows(folder.config)
    lost = sorted(word for word, number in tokenizer.get_vocab().items() if number >= size)
    return f"a text that spells {', '.join(lost)} is an error: they have no vectors" if lost else ""


def _embedding_rows(config: dict[str, Any]) -> int:
    """How many ids the network has vectors for; anything where its configuration does not say."""
    size = config.get("vocab_size")
    return size if isinstance(size, int) else 1 << 62


def _lower(tokenizer: Any) -> None:
    """Put lower-casing before what the tokenizer does, unless it does it itself."""
    from tokenizers.normalizers import Lowercase, Sequence

    pipeline = tokenizer.backend_tokenizer
    normalizer = json.loads(pipeline.to_str())["normalizer"]
    if '"Lowercase"' in json.dumps(normalizer) or (normalizer or {}).get("lowercase"):
        return
    before = [] if pipeline.normalizer is None else [pipeline.normalizer]
    pipeline.normalizer = Sequence([Lowercase(), *before])


def read_tokenizer(folder: ModelFolder, tokenizer: Any) -> TokenizerAsset:
    """The asset of a tokenizer; see the module."""
    import tokenizers

    pipeline = tokenizers.Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    pipeline.no_padding()
    pipeline.no_truncation()
    made = pipeline.to_str()
    path = folder.network / "tokenizer.json"
    if path.exists() and _pipeline(path.read_text("utf-8")) == _pipeline(made):
        return TokenizerAsset(path.read_bytes())
    why = "differs from what transformers makes of the folder" if path.exists() else "is not there"
    return TokenizerAsset(made.encode(), f"tokenizer.json {why}: written from what it makes")


def _pipeline(text: str) -> Any:
    """What a tokenizer.json says of rows, lengths and padding aside: those are the step's."""
    try:
        held = json.loads(text)
    except ValueError as error:
        raise _refused("tokenizer.json in JSON", str(error)) from error
    leave = ("version", "truncation", "padding")
    return {key: value for key, value in held.items() if key not in leave}


def tokenizer_steps(
    asset: TokenizerAsset, tokenizer: Any, names: Sequence[str], max_length: int
) -> tuple[InputProcessing, ...]:
    """The step of each input, proven on the probes.

    Args:
        asset: The tokenizer's file.
        tokenizer: The same as transformers has it.
        names: The network's inputs, in order.
        max_length: Longest row.

    Raises:
        ConvertError: EDGE-CONVERT-070, rows differ.
    """
    pads = {
        "input_ids": tokenizer.pad_token_id or 0,
        "attention_mask": 0,
        "token_type_ids": tokenizer.pad_token_type_id,
    }
    steps = {
        name: Tokenize(
            tokenizer=asset.entry,
            part=_PARTS[name],
            max_length=max_length,
            pad_id=pads[name],
            padding=tokenizer.padding_side,
            truncation=tokenizer.truncation_side,
        )
        for name in names
    }
    assert {step.part for step in steps.values()} <= set(get_args(TokenizePart))
    _compare_with_transformers(steps, lambda _: asset.data, tokenizer, max_length)
    return tuple(InputProcessing(name=name, steps=(step,)) for name, step in steps.items())


def _compare_with_transformers(
    steps: dict[str, Tokenize], assets: Callable[[str], bytes], tokenizer: Any, max_length: int
) -> None:
    encode = Encoder(next(iter(steps.values())), assets)
    for text in (*_PROBES, _LONG * (max_length // 8 + 2)):
        ours = encode(text)
        theirs = tokenizer(text, truncation=True, max_length=max_length)
        for name, step in steps.items():
            if list(theirs[name]) != list(getattr(ours, step.part)):
                shown = text if len(text) < 60 else f"{text[:60]}..."
                raise _refused(
                    f"the same {name} as {type(tokenizer).__name__} gives for {shown!r}",
                    f"{list(getattr(ours, step.part))[:9]} instead of {list(theirs[name])[:9]}",
                )


def _refused(wanted: str, got: str) -> ConvertError:
    return ConvertError(
        "EDGE-CONVERT-070",
        "tokenizer",
        wanted=wanted,
        got=got,
        hint="save the tokenizer again with transformers' save_pretrained(); else write a factory"
        " that takes token ids",
    )
