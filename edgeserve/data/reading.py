"""Reading one sample: its bytes, its text, or its row as the model's named inputs."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from edgeserve.data.arrays import Rows
from edgeserve.data.media import medium_of
from edgeserve.data.npz import BROKEN, fits, input_names
from edgeserve.errors import DataError
from edgeserve.types.samples import Sample
from edgeserve.types.tensors import Signature, TensorSpec

__all__ = ["Feed", "RawInput", "Reader", "fingerprint"]

#: Named model inputs, batch axis included.
Feed = dict[str, np.ndarray[Any, Any]]
RawInput = bytes | str | Feed


def fingerprint(raw: RawInput) -> str:
    """sha256 of a raw input: its bytes, its text in UTF-8, or its arrays' bytes in order."""
    digest = hashlib.sha256()
    if isinstance(raw, dict):
        for array in raw.values():
            digest.update(np.ascontiguousarray(array).tobytes())
    else:
        digest.update(raw.encode() if isinstance(raw, str) else raw)
    return digest.hexdigest()


class Reader:
    """Reads samples in order; keeps the last ``.npz`` open. A context manager.

    Args:
        signature: The model's inputs; needed for samples that are rows.
    """

    def __init__(self, signature: Signature | None = None) -> None:
        self._signature = signature
        self._rows: tuple[str, Rows] | None = None

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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
    sample: Sample, row: np.ndarray[Any, Any], spec: TensorSpec, signature: Signature
) -> np.ndarray[Any, Any]:
    """A row with its batch axis, in the input's dtype; integers must survive the cast."""
    whole = row if fits(row.shape, spec, signature) else row[None]
    with np.errstate(over="ignore"):
        cast = whole.astype(spec.dtype)
    lost = not np.isfinite(cast).all() if cast.dtype.kind == "f" else bool((cast != whole).any())
    if lost:
        raise DataError(
            "EDGE-DATA-018",
            f"{sample.id} input {spec.name!r}",
            wanted=f"numbers that {spec.dtype} holds",
            got=f"{whole.dtype} from {whole.min()} to {whole.max()}",
            hint="store the array in the model's own dtype",
        )
    return cast
