"""The samples folder: the reference's answers as JSON, its tensors in pieces of bounded size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np

from edgeserve import tasks
from edgeserve.data import Feed, read_arrays, write_arrays
from edgeserve.errors import ValidateError
from edgeserve.files import LOCAL, describe, sha256_bytes, sha256_file, write_atomic
from edgeserve.processing.arrays import ORIGIN, origins_to_arrays, with_origins
from edgeserve.tasks.embedding import Embedding
from edgeserve.tasks.embedding.device import nearest_neighbours
from edgeserve.types.artifact import FileEntry
from edgeserve.types.base import decode, encode, number
from edgeserve.types.records import Record
from edgeserve.types.samples import StoredAnswer
from edgeserve.types.source import Exported
from edgeserve.types.tensors import Signature
from edgeserve.validate.requests import Answers, Chunk

_FILE = "answers.json"
_ARRAYS = "vectors.npz"
_CHUNK_BYTES = 32 << 20


def load_exported(folder: Path) -> Exported:
    """What ``source/source.json`` says was exported.

    Raises:
        ValidateError: EDGE-VALIDATE-008, it is missing or broken.
    """
    try:
        return decode((folder / "source.json").read_bytes(), Exported)
    except (OSError, msgspec.MsgspecError) as error:
        raise ValidateError(
            "EDGE-VALIDATE-008",
            str(folder / "source.json"),
            wanted="what convert wrote",
            got=str(error),
            hint="run convert again",
        ) from error


def program_key(exported: Exported) -> str:
    """Hash over the exported program and what is declared around it."""
    declared = (exported.signature, exported.processing, exported.task, exported.labels)
    files = (exported.program, *exported.program_data, exported.examples)
    return sha256_bytes(encode([*(file.sha256 for file in files), *declared]))


def read_answers(folder: Path) -> Answers | None:
    """The stored answers; None where there are none or an older version wrote them."""
    try:
        return decode((folder / _FILE).read_bytes(), Answers)
    except (OSError, msgspec.MsgspecError):
        return None


def write_answers(folder: Path, answers: Answers) -> None:
    """Store the answers beside their tensors."""
    write_atomic(folder / _FILE, encode(answers))


def split_arrays(
    folder: Path, answers: Sequence[StoredAnswer]
) -> tuple[tuple[StoredAnswer, ...], FileEntry | None]:
    """Large arrays into a file of their own; of embeddings how sure each is of its neighbour.

    Both are known when all inputs have been seen. Answers without such arrays stay as they are.

    Returns:
        The answers without them, and the file: ``vectors``, float32 [samples, d], of embeddings;
        ``{sample}.{field}`` of masks, depths and frames.
    """
    arrays = {
        f"{i}.{name}": _smallest_dtype(array)
        for i, answer in enumerate(answers)
        for name, array in tasks.sidecar_arrays(answer.record).items()
    }
    if arrays:
        LOCAL.write(folder / _ARRAYS, write_arrays(arrays))
        return tuple(map(_without_arrays, answers)), describe(folder, _ARRAYS)
    vectors = [a.record.vector for a in answers if isinstance(a.record, Embedding)]
    if not vectors or len(vectors) < len(answers):
        return tuple(answers), None
    matrix = np.stack(vectors)
    _, margins = nearest_neighbours(matrix)
    LOCAL.write(folder / _ARRAYS, write_arrays({"vectors": matrix}))
    bare = tuple(
        msgspec.structs.replace(answer, record=None, margin=number(float(margin)))
        for answer, margin in zip(answers, margins, strict=True)
    )
    return bare, describe(folder, _ARRAYS)


def _smallest_dtype(array: np.ndarray) -> np.ndarray:
    """Classes of pixels in as few bytes as they need; records give them their dtype back."""
    if array.dtype.kind != "i" or not array.size or array.min() < 0:
        return array
    return array.astype(np.min_scalar_type(int(array.max())))


def _without_arrays(answer: StoredAnswer) -> StoredAnswer:
    if answer.record is None:
        return answer
    return msgspec.structs.replace(answer, record=tasks.detach_arrays(answer.record))


def stored_answers(folder: Path, answers: Answers) -> tuple[StoredAnswer, ...]:
    """What the reference answered to each sample, its arrays put back into the records.

    Raises:
        ValidateError: EDGE-VALIDATE-008, the file of the arrays is not the one written.
    """
    if answers.vectors is None:
        return answers.answers
    arrays = read_verified(folder, answers.vectors)
    records: list[Record | None] = [answer.record for answer in answers.answers]
    if "vectors" in arrays:
        records = [Embedding(vector=vector) for vector in arrays["vectors"]]
    else:
        records = [with_stored_arrays(record, i, arrays) for i, record in enumerate(records)]
    return tuple(
        msgspec.structs.replace(answer, record=record)
        for answer, record in zip(answers.answers, records, strict=True)
    )


def with_stored_arrays(record: Record | None, place: int, arrays: Feed) -> Record | None:
    """A record with its arrays put back, which lie as ``{place}.{field}``."""
    if record is None:
        return None
    held = tasks.sidecar_arrays(record)
    return tasks.attach_arrays(record, {name: arrays[f"{place}.{name}"] for name in held})


class TensorWriter:
    """Writes output tensors of samples one after the other, until ``limit`` bytes are reached."""

    def __init__(self, folder: Path, signature: Signature, limit: int) -> None:
        self._folder = folder
        self._names = [spec.name for spec in signature.outputs]
        self._left = limit
        self._held: dict[str, np.ndarray] = {}
        self._bytes = self._count = 0
        self.chunks: list[Chunk] = []

    @property
    def stored(self) -> int:
        """How many samples have their tensors stored or held."""
        return sum(chunk.count for chunk in self.chunks) + self._count

    def add(self, outputs: Feed) -> None:
        """Take the next sample's outputs; nothing once the limit is reached."""
        if self._left <= 0:
            return
        for place, name in enumerate(self._names):
            array = outputs[name]
            self._held[f"{self._count}.{place}"] = array
            self._bytes += array.nbytes
            self._left -= array.nbytes
        self._count += 1
        if self._bytes >= _CHUNK_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what is held as one chunk."""
        if not self._count:
            return
        start = sum(chunk.count for chunk in self.chunks)
        name = f"tensors-{len(self.chunks):04d}.npz"
        LOCAL.write(self._folder / name, write_arrays(self._held))
        file = describe(self._folder, name)
        self.chunks.append(Chunk(file=file, start=start, count=self._count))
        self._held, self._bytes, self._count = {}, 0, 0


class TensorReader:
    """Gives back what `TensorWriter` wrote, sample by sample in order, one chunk in memory."""

    def __init__(self, folder: Path, chunks: Sequence[Chunk], signature: Signature) -> None:
        self._folder = folder
        self._names = [spec.name for spec in signature.outputs]
        self._next = self._read(chunks)

    def next(self) -> Feed | None:
        """The next sample's outputs; None for those that were not stored."""
        return next(self._next, None)

    def _read(self, chunks: Sequence[Chunk]) -> Iterator[Feed]:
        for chunk in chunks:
            arrays = read_verified(self._folder, chunk.file)
            for i in range(chunk.count):
                yield {name: arrays[f"{i}.{j}"] for j, name in enumerate(self._names)}


class SyntheticTensors(msgspec.Struct, frozen=True):
    """A generated input and what the reference gave for it.

    Attributes:
        feed: The input, prepared.
        outputs: The reference's tensors.
        answer: Its decision, where it was asked.
    """

    feed: Feed
    outputs: Feed
    answer: StoredAnswer | None = None


def write_synthetic(
    folder: Path, fillers: Sequence[SyntheticTensors]
) -> tuple[FileEntry, list[StoredAnswer | None]]:
    """Store generated inputs and outputs by number; returns the answers without large arrays."""
    arrays: Feed = {}
    for i, filler in enumerate(fillers):
        arrays |= {f"{i}.in.{j}": array for j, array in enumerate(filler.feed.values())}
        arrays |= {f"{i}.out.{j}": array for j, array in enumerate(filler.outputs.values())}
        arrays |= {f"{i}.{name}": array for name, array in origins_to_arrays(filler.feed).items()}
        if filler.answer is not None:
            held = tasks.sidecar_arrays(filler.answer.record)
            arrays |= {f"{i}.{name}": array for name, array in held.items()}
    LOCAL.write(folder / "fillers.npz", write_arrays(arrays))
    bare = [None if f.answer is None else _without_arrays(f.answer) for f in fillers]
    return describe(folder, "fillers.npz"), bare


def read_synthetic(folder: Path, answers: Answers, signature: Signature) -> list[SyntheticTensors]:
    """Give back what `write_synthetic` stored, by the signature's names.

    Raises:
        ValidateError: EDGE-VALIDATE-008, the file is not the one that was written.
    """
    arrays = read_verified(folder, answers.fillers_file)
    return [
        _synthetic_tensors(each.answer, i, arrays, signature)
        for i, each in enumerate(answers.fillers)
    ]


def _synthetic_tensors(
    answer: StoredAnswer | None, i: int, arrays: Feed, signature: Signature
) -> SyntheticTensors:
    feed = {spec.name: arrays[f"{i}.in.{j}"] for j, spec in enumerate(signature.inputs)}
    origin = {name: arrays[f"{i}.{name}"] for name in ORIGIN if f"{i}.{name}" in arrays}
    if answer is not None:
        record = with_stored_arrays(answer.record, i, arrays)
        answer = msgspec.structs.replace(answer, record=record)
    return SyntheticTensors(
        feed=with_origins(feed, origin),
        outputs={spec.name: arrays[f"{i}.out.{j}"] for j, spec in enumerate(signature.outputs)},
        answer=answer,
    )


def read_verified(folder: Path, file: FileEntry) -> Feed:
    """The arrays of a stored file whose bytes are what they were.

    Raises:
        ValidateError: EDGE-VALIDATE-008, they are not.
    """
    path = folder / file.path
    try:
        if sha256_file(path) == file.sha256:
            return read_arrays(path)
        got = "other bytes"
    except OSError as error:
        got = error.strerror or str(error)
    raise ValidateError(
        "EDGE-VALIDATE-008",
        str(path),
        wanted="the tensors that were stored",
        got=got,
        hint="run validate again with --data",
    )
