"""Inner tensors: what a file's ops range over beside the reference's, on a few natural inputs.

Nothing found here is harm by itself, which outputs and decisions show: these are remarks that name
the op behind it. Ranges of the reference are noted when it is asked (`note_inner`), so that judging
a file starts no framework; a file's are read through `taps` of its backend.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np

from edgeserve.backends.graph import Graph, Op
from edgeserve.backends.inner import Inner, channel_axis
from edgeserve.backends.session import Session
from edgeserve.data import Feed, read_arrays, write_arrays
from edgeserve.errors import BackendError
from edgeserve.files import LOCAL
from edgeserve.validate.feeds import Runner

__all__ = ["INPUTS", "FileInner", "Tap", "file_inner", "note_inner", "read_inner", "taps_of"]

#: On how many natural inputs inner tensors are looked at.
INPUTS = 4

#: Seconds after which no further input is run: a large model is looked at on one.
_SECONDS = 4.0

#: Tensors tapped in one run: their values lie in memory together.
_TAPS = 256

_FILE = "inner.npz"

#: Ops that hand a tensor on in another form: they belong to what made it.
_PASS = (
    "QuantizeLinear",
    "DequantizeLinear",
    "Cast",
    "QUANTIZE",
    "DEQUANTIZE",
    "CAST",
    "quantize",
    "dequantize",
    "cast",
)


def note_inner(folder: Path, session: Session, feeds: Iterable[Feed]) -> None:
    """Store what the reference's inner tensors range over; nothing where its engine hides them.

    Args:
        folder: The samples folder.
        session: The reference, open.
        feeds: Natural inputs; the first `INPUTS` are run.
    """
    found: dict[str, Inner] = {}
    started = time.monotonic()
    for number, feed in enumerate(feeds):
        if number >= INPUTS or (number and time.monotonic() - started > _SECONDS):
            break
        try:
            given = {spec.name: feed[spec.name] for spec in session.io.inputs}
            _join(found, session.inner(given))
        except BackendError:  # the data has its own way to say so
            return
    if found:
        LOCAL.write(folder / _FILE, write_arrays({n: _packed(each) for n, each in found.items()}))


def _join(found: dict[str, Inner], more: Mapping[str, Inner]) -> None:
    for name, each in more.items():
        found[name] = found[name].joined(each) if name in found else each


def _packed(inner: Inner) -> np.ndarray:
    """As float64 [1 + channels, 2]: first how many numbers and whether finite, then the ranges."""
    head = [[float(inner.numel), float(inner.finite)]]
    return np.concatenate([np.array(head), np.stack([inner.low, inner.high], axis=1)])


def read_inner(folder: Path) -> dict[str, Inner]:
    """Give back what `note_inner` stored, by source op; empty where it stored nothing."""
    try:
        arrays = read_arrays(folder / _FILE)
    except OSError:
        return {}
    return {
        name: Inner(int(array[0, 0]), array[1:, 0], array[1:, 1], bool(array[0, 1]))
        for name, array in arrays.items()
    }


@dataclass(frozen=True)
class Tap:
    """An inner tensor of a file that has a counterpart in the reference.

    Attributes:
        tensor: Its name in the file.
        source: The op of the exported program that it comes from.
        module: The module that held that op, where known.
        type: The file's op that makes it.
    """

    tensor: str
    source: str
    module: str | None
    type: str

    @property
    def called(self) -> str:
        """In words, for a reader of the source."""
        return f"{self.source} (module {self.module})" if self.module else self.source


def taps_of(graph: Graph, reference: Mapping[str, Inner]) -> list[Tap]:
    """The tensor of each source op: what the last of the file's ops that came from it gives."""
    origin: dict[str, Op] = {}
    found: dict[str, Tap] = {}
    edges = {spec.name for spec in (*graph.inputs, *graph.outputs)}
    for op in graph.ops:
        first = op.inputs[0] if op.inputs else ""
        root = origin.get(first, op) if op.type in _PASS else op
        origin |= dict.fromkeys(op.outputs, root)
        if root.source in reference and op.outputs and op.outputs[0] not in edges:
            assert root.source is not None
            found[root.source] = Tap(op.outputs[0], root.source, root.module, root.type)
    return list(found.values())


class _Recorder:
    """A session with taps that gives its outputs only, and notes what the taps range over."""

    def __init__(
        self, session: Session, taps: Sequence[Tap], reference: Mapping[str, Inner]
    ) -> None:
        self._session, self._taps, self._reference = session, taps, reference
        self.io, self.buckets = session.io, session.buckets
        self.seen: dict[str, Inner] = {}
        self.dtypes: dict[str, str] = {}

    def run(self, feed: Mapping[str, np.ndarray]) -> Feed:
        found = self._session.run(feed)
        for tap in self._taps:
            array = found.pop(tap.tensor, None)
            if array is None:  # another size of the file is another program, and lacks it
                continue
            self.dtypes[tap.source] = str(array.dtype)
            if array.dtype.kind in "fiu" and array.size:
                size = self._reference[tap.source].low.size
                _join(self.seen, {tap.source: Inner.of(array, _axis(array.shape, size))})
        return found


def _axis(shape: tuple[int, ...], channels: int) -> int | None:
    """Where a file has so many channels; None where that cannot be told."""
    if not shape:
        return None
    first = channel_axis(shape)
    places = [axis for axis in (first, len(shape) - 1) if axis is not None]
    return next((axis for axis in places if channels > 1 and shape[axis] == channels), None)


@dataclass(frozen=True)
class FileInner:
    """What a file's inner tensors range over and are stored in, by source op."""

    ranges: Mapping[str, Inner]
    dtypes: Mapping[str, str]


def file_inner(
    load: Callable[[Sequence[str]], Session],
    runner: Callable[[Session], Runner],
    taps: Sequence[Tap],
    reference: Mapping[str, Inner],
    feeds: Sequence[Feed],
) -> FileInner:
    """Run a file with taps.

    Args:
        load: Opens it with these tensors tapped.
        runner: Runs a session with feeds of the source.
        taps: What to look at.
        reference: The reference's inner tensors.
        feeds: Natural inputs; fewer are run where time runs out.

    Raises:
        BackendError: the backend cannot tap one of them, or a run failed.
    """
    ranges: dict[str, Inner] = {}
    dtypes: dict[str, str] = {}
    started = time.monotonic()
    for start in range(0, len(taps), _TAPS):
        some = taps[start : start + _TAPS]
        with load([tap.tensor for tap in some]) as session:
            recorder = _Recorder(session, some, reference)
            run = runner(cast(Session, recorder))
            for number, feed in enumerate(feeds[:INPUTS]):
                if number and time.monotonic() - started > _SECONDS:
                    break
                run.run([feed])
        ranges |= recorder.seen
        dtypes |= recorder.dtypes
    return FileInner(ranges, dtypes)
