"""From raw inputs to feeds, and feeds through a session in batches that it allows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from edgeserve.backends.base import Session
from edgeserve.data import Feed
from edgeserve.data.reading import RawInput
from edgeserve.errors import DataError, InputError
from edgeserve.processing import Processor
from edgeserve.types.tensors import Signature, TensorSpec

__all__ = ["BATCH", "Runner", "feed_of", "in_batches"]

#: Most inputs held and run at once.
BATCH = 16


def in_batches(count: int, size: int = BATCH) -> Iterator[range]:
    """The numbers 0 to ``count - 1`` in runs of at most ``size``."""
    for start in range(0, count, size):
        yield range(start, min(start + size, count))


def feed_of(processor: Processor, raw: RawInput, thing: str) -> Feed:
    """One raw input as named model inputs, batch axis included.

    Raises:
        DataError: EDGE-DATA-020, the input cannot be used with this model.
    """
    takes_rows = processor.medium == "tensors"
    try:
        if isinstance(raw, dict):
            if takes_rows:
                return processor.check_feed(raw)
        elif not takes_rows and isinstance(raw, bytes):
            return processor.batch([processor.prepare(raw)])
    except InputError as error:
        raise DataError(
            "EDGE-DATA-020", thing, wanted="an input that the model's processing takes",
            got=error.message, hint=error.hint,
        ) from error  # fmt: skip
    kind = {"dict": "named tensors", "str": "a text"}.get(type(raw).__name__, "a file")
    wanted = "named tensors" if takes_rows else f"an {processor.medium} file"
    raise DataError(
        "EDGE-DATA-020", thing, wanted=wanted, got=kind,
        hint="give an .npz of tensors" if takes_rows else "give a folder of files or a data.jsonl",
    )  # fmt: skip


class Runner:
    """A session under the signature's names: joins feeds into batches and takes answers apart.

    A file may call its tensors otherwise and take other integer types than the signature; order
    is what the two share. Where a file's batch is fixed above 1, an input is repeated to fill it.
    """

    def __init__(self, session: Session, signature: Signature) -> None:
        self._session = session
        self._inputs = tuple(zip(signature.inputs, session.io.inputs, strict=True))
        self._outputs = tuple(zip(signature.outputs, session.io.outputs, strict=True))
        self._low, self._high = self._range(signature)

    @property
    def most(self) -> int:
        """How many inputs one run may take."""
        return self._high

    @property
    def fixed(self) -> bool:
        """The batch cannot be chosen."""
        return self._low == self._high

    def _range(self, signature: Signature) -> tuple[int, int]:
        """Smallest and largest batch of one run, as both the file and the signature have it."""
        specs = (*self._session.io.inputs, *self._session.io.outputs)
        first = {spec.shape[0] if spec.shape else None for spec in specs}
        only = first.pop() if len(first) == 1 else None
        if isinstance(only, int):
            return only, only
        if only is None or signature.batch_dim is None:
            return 1, 1
        low, high = signature.dims[signature.batch_dim]
        return max(low, 1), max(1, min(high, BATCH))

    def takes(self, feed: Feed) -> bool:
        """Whether a feed's shapes are ones that the file takes, alone or repeated to its batch."""
        for outer, inner in self._inputs:
            shape = feed[outer.name].shape
            batched = self._low > 1 and shape[:1] == (1,)
            pairs = zip(shape, inner.shape, strict=True)
            for axis, (size, wanted) in enumerate(pairs):
                if isinstance(wanted, int) and size != wanted and not (batched and axis == 0):
                    return False
        return True

    def run(self, feeds: Sequence[Feed]) -> list[Feed]:
        """Run feeds and return their outputs, both with batch axis and by the signature's names.

        Raises:
            BackendError: the runtime failed.
        """
        outputs: list[Feed] = []
        for group in self._groups(feeds):
            outputs += self._run([feeds[i] for i in group])
        return outputs

    def _groups(self, feeds: Sequence[Feed]) -> Iterator[list[int]]:
        """Runs of neighbours that fit into one batch."""
        group: list[int] = []
        for i, feed in enumerate(feeds):
            fits = group and self._same(feeds[group[0]], feed) and len(group) < self._high
            if group and not fits:
                yield group
                group = []
            group.append(i)
        if group:
            yield group

    def _same(self, first: Feed, second: Feed) -> bool:
        """Whether both are one input each, of the same shapes."""
        return all(
            array.shape == second[name].shape and array.shape[:1] == (1,)
            for name, array in first.items()
        )

    def _run(self, feeds: list[Feed]) -> list[Feed]:
        count = len(feeds)
        sizes = {array.shape[0] if array.ndim else 0 for array in feeds[0].values()}
        single = count > 1 or sizes == {1}
        padded = feeds + feeds[-1:] * (self._low - count) if single else feeds
        joined = {name: np.concatenate([f[name] for f in padded]) for name in padded[0]}
        outputs = self.run_once(joined if len(padded) > 1 else feeds[0])
        if len(padded) == 1:
            return [outputs]
        return [{name: array[i : i + 1] for name, array in outputs.items()} for i in range(count)]

    def run_once(self, feed: Mapping[str, np.ndarray]) -> Feed:
        """Run one feed as it is."""
        given = {inner.name: _cast(feed[outer.name], inner) for outer, inner in self._inputs}
        outputs = self._session.run(given)
        return {outer.name: outputs[inner.name] for outer, inner in self._outputs}


def _cast(array: np.ndarray, spec: TensorSpec) -> np.ndarray:
    """Between integer types as the file has them; anything else is for the session to refuse."""
    if array.dtype.kind in "iu" and spec.dtype.startswith(("int", "uint")):
        return array.astype(spec.dtype, copy=False)
    return array
