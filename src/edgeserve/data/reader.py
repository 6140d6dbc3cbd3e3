"""Reading samples: the rows of an ``.npz`` listed, and one sample of any form read.

Arrays of an ``.npz`` are named after the model's inputs (or ``x0``, ``x1``, ...), a row a
sample. `Reader` gives a sample's bytes, its text, or its row as the model's named inputs.
"""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from pathlib import Path

import numpy as np

from edgeserve.data.media import medium_of
from edgeserve.data.npz_io import ArrayHeader, Rows
from edgeserve.errors import DataError
from edgeserve.files import Closing
from edgeserve.types.samples import Sample
from edgeserve.types.tensors import Signature, TensorSpec

#: What reading a file that is not an ``.npz`` raises.
BROKEN = (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError)

_GROUP = "group"


def read_npz(path: Path, signature: Signature | None = None) -> tuple[Sample, ...]:
    """The rows of an ``.npz`` as samples; each row is its own group unless the file says ``group``.

    Without a signature the names and shapes of the arrays are not checked.

    Raises:
        DataError: EDGE-DATA-010 no ``.npz``, -011 pickled objects, -012 names that are not the
            model's inputs, -013 wrong shape or dtype, -014 arrays of unequal length, -015 NaN or
            infinity (by row), -006 no row, -016 an unusable ``group``.
    """
    try:
        with Rows(path) as rows:
            return _samples(path, rows, signature)
    except BROKEN as error:
        hint = "write it again with numpy.savez"
        raise DataError(
            "EDGE-DATA-010", str(path), wanted="an .npz of arrays", got=str(error), hint=hint
        ) from error


def _samples(path: Path, rows: Rows, signature: Signature | None) -> tuple[Sample, ...]:
    given_names = {spec.name for spec in signature.inputs} if signature else set()
    keys = [name for name in rows.headers if name != _GROUP or name in given_names]
    for name, header in rows.headers.items():
        if header.dtype.hasobject:
            where, got = f"{path.name} array {name!r}", "Python objects"
            hint = "objects lie in pickles, which can run code: store plain arrays"
            raise DataError("EDGE-DATA-011", where, wanted="numbers", got=got, hint=hint)
    count = _count(path, rows, keys)
    if signature is not None:
        for name, key in input_names(path, keys, signature).items():
            _check_spec(path, key, rows.headers[key], signature.input(name), signature)
    for key in keys:
        _check_finite(path, key, rows)
    groups = _groups(path, rows, count) if _GROUP in set(rows.headers) - set(keys) else None
    return tuple(
        Sample(id=f"row {i}", group=groups[i] if groups else f"row {i}", path=str(path), row=i)
        for i in range(count)
    )


def _count(path: Path, rows: Rows, keys: list[str]) -> int:
    """How many rows all arrays share."""
    lengths = {key: rows.headers[key].shape[:1] for key in keys}
    if scalar := [key for key, length in lengths.items() if not length]:
        where = f"{path.name} array {scalar[0]!r}"
        wanted = "a first axis of samples"
        hint = "stack the samples along a new first axis"
        raise DataError("EDGE-DATA-013", where, wanted=wanted, got="a single number", hint=hint)
    if not keys or (0,) in lengths.values():
        wanted = "arrays with one sample a row"
        hint = "store at least two samples along the first axis"
        raise DataError("EDGE-DATA-006", str(path), wanted=wanted, got="no row", hint=hint)
    if len(set(lengths.values())) > 1:
        got = ", ".join(f"{key}: {length[0]}" for key, length in lengths.items())
        wanted = "as many rows in each array"
        hint = "row i of every array must belong to the same sample"
        raise DataError("EDGE-DATA-014", str(path), wanted=wanted, got=got, hint=hint)
    return lengths[keys[0]][0]


def input_names(path: Path, keys: list[str], signature: Signature) -> dict[str, str]:
    """Which array feeds which input: by name, or ``x0``, ``x1``, ... by position.

    Raises:
        DataError: EDGE-DATA-012.
    """
    names = [spec.name for spec in signature.inputs]
    positions = [f"x{i}" for i in range(len(names))]
    for wanted in (names, positions):
        if sorted(wanted) == sorted(keys):
            return dict(zip(names, wanted, strict=True))
    raise DataError(
        "EDGE-DATA-012",
        str(path),
        wanted=f"arrays {', '.join(names)} (or {', '.join(positions)})",
        got=", ".join(keys) or "none",
        hint="rename the arrays; only `group` may stand beside them",
    )


def _check_spec(
    path: Path, key: str, header: ArrayHeader, spec: TensorSpec, signature: Signature
) -> None:
    shape = header.shape[1:]
    if not (fits(shape, spec, signature) or fits((1, *shape), spec, signature)):
        raise DataError(
            "EDGE-DATA-013",
            f"{path.name} array {key!r}",
            wanted=f"samples of shape {_shape_text(spec.shape)}",
            got=f"samples of shape {_shape_text(shape)}",
            hint="the first axis counts samples; a row is one input, with or without batch axis",
        )
    wanted = np.dtype(spec.dtype) if spec.dtype not in ("string", "bfloat16") else None
    # Of one kind, or a wider one; between integers any, since each row's range is checked.
    if wanted is None or not (
        (header.dtype.kind in "iu" and wanted.kind in "iu")
        or np.can_cast(header.dtype, wanted, "same_kind")
    ):
        where = f"{path.name} array {key!r}"
        got = f"dtype {header.dtype}"
        hint = "convert the array before storing it"
        raise DataError("EDGE-DATA-013", where, wanted=f"dtype {spec.dtype}", got=got, hint=hint)


def fits(shape: tuple[int, ...], spec: TensorSpec, signature: Signature) -> bool:
    """Whether a concrete shape is one that ``spec`` allows, batch axis included."""
    ranges = (signature.dims[dim] if isinstance(dim, str) else (dim, dim) for dim in spec.shape)
    return len(shape) == len(spec.shape) and all(
        low <= size <= high for size, (low, high) in zip(shape, ranges, strict=True)
    )


def _check_finite(path: Path, key: str, rows: Rows) -> None:
    if rows.headers[key].dtype.kind not in "fc":
        return
    for start, chunk in rows.chunks(key):
        finite = np.isfinite(chunk).reshape(len(chunk), -1).all(axis=1)
        if not finite.all():
            row = start + int(np.argmin(finite))
            where = f"{path.name} array {key!r} row {row}"
            got = "NaN or infinity"
            hint = "repair or remove that row (counted from 0)"
            raise DataError("EDGE-DATA-015", where, wanted="finite numbers", got=got, hint=hint)


def _groups(path: Path, rows: Rows, count: int) -> list[str]:
    header = rows.headers[_GROUP]
    if header.shape != (count,) or header.dtype.kind not in "iuUS":
        where = f"{path.name} array 'group'"
        wanted = f"{count} integers or strings"
        got = f"dtype {header.dtype}, shape {_shape_text(header.shape)}"
        hint = "give one group (photo, speaker, ...) a row"
        raise DataError("EDGE-DATA-016", where, wanted=wanted, got=got, hint=hint)
    values = rows.rows(_GROUP, 0, count)
    return [v.decode("latin-1") if isinstance(v, bytes) else str(v) for v in values.tolist()]


def _shape_text(shape: tuple[int | str, ...]) -> str:
    return f"[{', '.join(map(str, shape))}]"


#: Named model inputs, batch axis included.
Feed = dict[str, np.ndarray]
RawInput = bytes | str | Feed


def input_sha256(raw: RawInput) -> str:
    """sha256 of a raw input: its bytes, its text in UTF-8, or its arrays' bytes in order."""
    digest = hashlib.sha256()
    if isinstance(raw, dict):
        for array in raw.values():
            digest.update(np.ascontiguousarray(array).tobytes())
    else:
        digest.update(raw.encode() if isinstance(raw, str) else raw)
    return digest.hexdigest()


class Reader(Closing):
    """Reads samples in order; keeps the last ``.npz`` open. A context manager.

    Args:
        signature: The model's inputs; needed for samples that are rows.
    """

    def __init__(self, signature: Signature | None = None) -> None:
        self._signature = signature
        self._rows: tuple[str, Rows] | None = None

    def close(self) -> None:
        """Close the file that is open."""
        if self._rows is not None:
            self._rows[1].close()
            self._rows = None

    def read(self, sample: Sample) -> RawInput:
        """A file's bytes (``.txt``: its text), a text, or a row as named inputs in declared dtypes.

        Raises:
            DataError: EDGE-DATA-017 it cannot be read any more, -018 a number that the input's
                dtype cannot hold.
        """
        if sample.text is not None:
            return sample.text
        try:
            if sample.row is not None:
                return self._row(sample)
            data = Path(sample.path or "").read_bytes()
            return data.decode("utf-8-sig") if medium_of(sample.path or "") == "text" else data
        except BROKEN as error:  # UnicodeDecodeError is a ValueError
            raise DataError(
                "EDGE-DATA-017",
                sample.id,
                wanted="the input that was listed",
                got=str(error),
                hint="see that the file is still there and whole",
            ) from error

    def _row(self, sample: Sample) -> Feed:
        if self._signature is None or sample.path is None or sample.row is None:
            raise ValueError("a row is read with the model's signature")
        rows = self._opened(sample.path)
        inputs = {spec.name for spec in self._signature.inputs}
        keys = [name for name in rows.headers if name != "group" or name in inputs]
        names = input_names(Path(sample.path), keys, self._signature)
        return {
            spec.name: _as_input(
                sample, rows.rows(names[spec.name], sample.row, 1)[0], spec, self._signature
            )
            for spec in self._signature.inputs
        }

    def _opened(self, path: str) -> Rows:
        if self._rows is None or self._rows[0] != path:
            self.close()
            self._rows = (path, Rows(Path(path)))
        return self._rows[1]


def _as_input(
    sample: Sample, row: np.ndarray, spec: TensorSpec, signature: Signature
) -> np.ndarray:
    """A row with its batch axis, in the input's dtype; integers must survive the cast."""
    whole = row if fits(row.shape, spec, signature) else row[None]
    with np.errstate(over="ignore"):
        cast = whole.astype(spec.dtype)
    lost = not np.isfinite(cast).all() if cast.dtype.kind == "f" else bool((cast != whole).any())
    if lost:
        where = f"{sample.id} input {spec.name!r}"
        wanted = f"numbers that {spec.dtype} holds"
        got = f"{whole.dtype} from {whole.min()} to {whole.max()}"
        hint = "store the array in the model's own dtype"
        raise DataError("EDGE-DATA-018", where, wanted=wanted, got=got, hint=hint)
    return cast
