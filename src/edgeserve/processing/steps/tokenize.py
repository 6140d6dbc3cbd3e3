"""tokenize/1: the `tokenizers` library on a tokenizer.json, with our own truncation around it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from edgeserve.errors import InputError, ProcessingError
from edgeserve.files import sha256_bytes
from edgeserve.installation import install_command
from edgeserve.types.artifact import FileEntry
from edgeserve.types.steps import InputStep

if TYPE_CHECKING:
    import tokenizers


TokenizePart = Literal["ids", "attention_mask", "type_ids"]

#: Gives the bytes of an asset by its name (``assets/tokenizer.json``).
Assets = Callable[[str], bytes]

#: How many characters (code points) of a text are read at most, counted from the kept side: so many
#: for each token that is kept, but never fewer than that. Tokenizing takes time and memory by the
#: length of the text: so there is an end to what is read, far beyond what the tokens can spell.
_READ_PER_TOKEN, _LEAST_READ = 64, 1 << 16


def as_text(raw: object) -> str:
    """A raw input as text: a str, or bytes that are UTF-8.

    Raises:
        InputError: EDGE-INPUT-020 it is neither, -021 it holds what is no character.
    """
    try:
        if isinstance(raw, bytes):
            return raw.decode("utf-8")
        if isinstance(raw, str):
            if not raw.isascii():
                raw.encode("utf-8")  # refuses lone surrogates
            return raw
    except UnicodeError as error:
        raise _no_characters(raw, error) from error
    wanted = "a text: a str, or bytes in UTF-8"
    got = f"{type(raw).__module__}.{type(raw).__qualname__}"
    hint = "give the text itself, e.g. path.read_text(encoding='utf-8'); a list is a batch"
    raise InputError("EDGE-INPUT-020", "raw input", wanted=wanted, got=got, hint=hint)


def _no_characters(raw: object, error: UnicodeError) -> InputError:
    place = getattr(error, "start", 0)
    bytes_given = isinstance(raw, bytes)
    wanted = "bytes in UTF-8" if bytes_given else "characters of Unicode"
    got = f"another byte at {place}" if bytes_given else f"half a surrogate pair at {place}"
    hint = "decode it with the encoding that it is in, and drop what cannot be decoded"
    return InputError("EDGE-INPUT-021", "text", wanted=wanted, got=got, hint=hint)


class Tokenize(InputStep, frozen=True, tag_field="step", tag="tokenize/1"):
    """Text to one row of integers, with the tokenizer's own library as truth.

    The only step of an input. A sample has as many numbers as the text has tokens;
    stacking samples pads them to the longest, or to the size that the signature fixes.

    Attributes:
        tokenizer: The ``tokenizer.json``, an asset (``assets/...``); its bytes are part of the
            model's identity.
        part: Which row: token ids, the attention mask (1 for tokens, 0 for padding) or type ids.
        max_length: Longest row, special tokens included; what is longer is truncated.
        pad_id: What the row is padded with: the pad token's id, 0 for a mask.
        padding: Side that is padded.
        truncation: Side that is cut off.
    """

    medium: ClassVar = "text"

    tokenizer: FileEntry
    part: TokenizePart
    max_length: int
    pad_id: int = 0
    padding: Literal["right", "left"] = "right"
    truncation: Literal["right", "left"] = "right"

    def __post_init__(self) -> None:
        if not 0 < self.max_length < 1 << 31:
            raise ValueError(f"max_length {self.max_length} is outside 1..2**31 - 1")
        if not 0 <= self.pad_id < 1 << 31:  # fits whatever integers a file takes
            raise ValueError(f"pad_id {self.pad_id} is outside 0..2**31 - 1")


class Encoder:
    """One tokenizer with one truncation. Immutable after it is made, so threads may share it."""

    __slots__ = ("_keep_end", "_limit", "_tokenizer")

    def __init__(self, step: Tokenize, assets: Assets | None) -> None:
        """Load.

        Raises:
            ProcessingError: EDGE-PROCESS-020 `tokenizers` is missing, -021 the asset is missing or
                has other bytes, -022 it is no tokenizer that the library reads, -023 ``max_length``
                leaves no room for a token of the text.
        """
        self._tokenizer = _loaded(step.tokenizer, _asset(step.tokenizer, assets))
        special = self._tokenizer.num_special_tokens_to_add(False)
        if step.max_length <= special:
            where = "step 'tokenize/1'"
            wanted = f"max_length above {special}, the special tokens of each text"
            got = str(step.max_length)
            hint = "give the length that the model was trained for, special tokens included"
            raise ProcessingError("EDGE-PROCESS-023", where, wanted=wanted, got=got, hint=hint)
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(step.max_length, direction=step.truncation)
        self._limit = max(_LEAST_READ, _READ_PER_TOKEN * step.max_length)
        self._keep_end = step.truncation == "left"

    def __call__(self, text: str) -> tokenizers.Encoding:
        """Encode one text with its special tokens.

        Raises:
            ProcessingError: EDGE-PROCESS-027, the tokenizer cannot.
        """
        if len(text) > self._limit:
            text = text[-self._limit :] if self._keep_end else text[: self._limit]
        try:
            return self._tokenizer.encode(text)
        except BaseException as error:
            if not _is_fault(error):
                raise
            raise ProcessingError(
                "EDGE-PROCESS-027",
                "step 'tokenize/1'",
                wanted="the tokens of this text",
                got=str(error),
                hint="give the tokenizer.json that the model was trained with, unknown token and"
                " all, and convert again",
            ) from error

    def offsets(self, text: str, encoding: tokenizers.Encoding) -> np.ndarray:
        """Where each token lies in the text, int64 [tokens, 2]; -1 for special tokens."""
        found = np.array(encoding.offsets, np.int64).reshape(-1, 2)
        found += max(0, len(text) - self._limit) if self._keep_end else 0
        found[np.array(encoding.special_tokens_mask, bool)] = -1
        return found


def detokenizer(file: FileEntry, assets: Assets | None) -> Callable[[Sequence[int]], str]:
    """Makes text of token ids, special tokens left out.

    Raises:
        ProcessingError: EDGE-PROCESS-020 to -022: `tokenizers` or the asset is missing, or broken.
    """
    tokenizer = _loaded(file, _asset(file, assets))
    return lambda ids: str(tokenizer.decode(list(ids)))


def _is_fault(error: BaseException) -> bool:
    """Whether an error is the library's own; its panics are no `Exception`."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def _asset(wanted: FileEntry, assets: Assets | None) -> bytes:
    """The bytes of the tokenizer, their hash checked."""
    if assets is None:
        raise _missing(wanted, "nothing to read it from")
    try:
        data = assets(wanted.path)
    except (OSError, LookupError) as error:
        raise _missing(wanted, str(error)) from error
    if (len(data), sha256_bytes(data)) != (wanted.size, wanted.sha256):
        raise _missing(wanted, f"{len(data)} bytes with another hash")
    return data


def _missing(wanted: FileEntry, got: str) -> ProcessingError:
    return ProcessingError(
        "EDGE-PROCESS-021",
        f"asset {wanted.path}",
        wanted=f"{wanted.size} bytes with sha256 {wanted.sha256}",
        got=got,
        hint="convert the model again: the asset belongs to it and must not be changed",
    )


def _loaded(file: FileEntry, data: bytes) -> tokenizers.Tokenizer:
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise ProcessingError(
            "EDGE-PROCESS-020",
            f"asset {file.path}",
            wanted="tokenizers",
            got="no module named tokenizers",
            hint=install_command("text"),
        ) from error
    try:
        return Tokenizer.from_str(data.decode("utf-8"))
    except BaseException as error:
        if not _is_fault(error):
            raise
        raise ProcessingError(
            "EDGE-PROCESS-022",
            f"asset {file.path}",
            wanted="a tokenizer.json that the library tokenizers reads",
            got=str(error),
            hint="pip install -U tokenizers; else write the file again with its save()",
        ) from error
