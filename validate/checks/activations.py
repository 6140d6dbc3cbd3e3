"""Activations: what a file's ops range over beside the reference's, on a few natural inputs.

Nothing found here is harm by itself, which outputs and decisions show: these are remarks that
name the op behind it, the one to keep in float. Ranges of the reference are noted when it is
asked (`record_activations`), so that judging a file starts no framework; a file's are read
through `taps` of its backend. Each rule asks for a gross difference, since a file's op and the
reference's need not mean the same tensor to the last step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import numpy as np

from edgeserve.backends.batching import BatchRunner
from edgeserve.backends.graph import ActivationRange, Graph, Op, channel_axis
from edgeserve.backends.session import Session
from edgeserve.data import Feed, read_arrays, write_arrays
from edgeserve.errors import BackendError
from edgeserve.files import LOCAL
from edgeserve.tasks.base import HUGE
from edgeserve.types.vocabulary import Precision
from edgeserve.validate.checks.invariants import CheckLog

#: On how many natural inputs inner tensors are looked at.
ACTIVATION_INPUTS = 4

#: Seconds after which no further input is run: a large model is looked at on one.
_MAX_SECONDS = 4.0

#: Tensors tapped in one run: their values lie in memory together.
_TAPS_PER_RUN = 256

_FILE = "inner.npz"

#: Ops that hand a tensor on in another form: they belong to what made it.
_PASS_THROUGH = (
    "QuantizeLinear DequantizeLinear Cast QUANTIZE DEQUANTIZE CAST quantize dequantize cast".split()
)


def record_activations(folder: Path, session: Session, feeds: Iterable[Feed]) -> None:
    """Store what the reference's inner tensors range over; nothing where its engine hides them.

    Args:
        folder: The samples folder.
        session: The reference, open.
        feeds: Natural inputs; the first `ACTIVATION_INPUTS` are run.
    """
    found: dict[str, ActivationRange] = {}
    started = time.monotonic()
    for number, feed in enumerate(feeds):
        if number >= ACTIVATION_INPUTS or (number and time.monotonic() - started > _MAX_SECONDS):
            break
        try:
            given = {spec.name: feed[spec.name] for spec in session.io.inputs}
            _merge_ranges(found, session.inner(given))
        except BackendError:  # the data has its own way to say so
            return
    if found:
        LOCAL.write(folder / _FILE, write_arrays({n: _packed(each) for n, each in found.items()}))


def _merge_ranges(found: dict[str, ActivationRange], more: Mapping[str, ActivationRange]) -> None:
    for name, each in more.items():
        found[name] = found[name].joined(each) if name in found else each


def _packed(inner: ActivationRange) -> np.ndarray:
    """As float64 [1 + channels, 2]: first how many numbers and whether finite, then the ranges."""
    head = [[float(inner.numel), float(inner.finite)]]
    return np.concatenate([np.array(head), np.stack([inner.low, inner.high], axis=1)])


def read_activations(folder: Path) -> dict[str, ActivationRange]:
    """Give back what `record_activations` stored, by source op; empty where it stored nothing."""
    try:
        arrays = read_arrays(folder / _FILE)
    except OSError:
        return {}
    return {
        name: ActivationRange(int(array[0, 0]), array[1:, 0], array[1:, 1], bool(array[0, 1]))
        for name, array in arrays.items()
    }


@dataclass(frozen=True)
class Tap:
    """An activation of a file that has a counterpart in the reference.

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


def match_taps(graph: Graph, reference: Container[str]) -> list[Tap]:
    """The tensor of each source op: what the last of the file's ops that came from it gives."""
    origin: dict[str, Op] = {}
    found: dict[str, Tap] = {}
    edges = {spec.name for spec in (*graph.inputs, *graph.outputs)}
    for op in graph.ops:
        first = op.inputs[0] if op.inputs else ""
        root = origin.get(first, op) if op.type in _PASS_THROUGH else op
        origin |= dict.fromkeys(op.outputs, root)
        if root.source in reference and op.outputs and op.outputs[0] not in edges:
            assert root.source is not None
            found[root.source] = Tap(op.outputs[0], root.source, root.module, root.type)
    return list(found.values())


class _TapRecorder:
    """A session with taps that gives its outputs only, and notes what the taps range over."""

    def __init__(
        self,
        session: Session,
        taps: Sequence[Tap],
        reference: Mapping[str, ActivationRange],
        seen: FileActivations,
    ) -> None:
        self._session, self._taps, self._reference, self._seen = session, taps, reference, seen
        self.io, self.buckets = session.io, session.buckets

    def run(self, feed: Mapping[str, np.ndarray]) -> Feed:
        found = self._session.run(feed)
        for tap in self._taps:
            array = found.pop(tap.tensor, None)
            if array is None:  # another size of the file is another program, and lacks it
                continue
            self._seen.dtypes[tap.source] = str(array.dtype)
            if array.dtype.kind in "fiu" and array.size:
                axis = _axis(array.shape, self._reference[tap.source].low.size)
                _merge_ranges(self._seen.ranges, {tap.source: ActivationRange.of(array, axis)})
        return found


def _axis(shape: tuple[int, ...], channels: int) -> int | None:
    """Where a file has so many channels; None where that cannot be told."""
    if not shape:
        return None
    first = channel_axis(shape)
    places = [axis for axis in (first, len(shape) - 1) if axis is not None]
    return next((axis for axis in places if channels > 1 and shape[axis] == channels), None)


@dataclass(frozen=True)
class FileActivations:
    """What a file's inner tensors range over and are stored in, by source op."""

    ranges: dict[str, ActivationRange] = field(default_factory=dict)
    dtypes: dict[str, str] = field(default_factory=dict)


def measure_activations(
    load: Callable[[Sequence[str]], Session],
    runner: Callable[[Session], BatchRunner],
    taps: Sequence[Tap],
    reference: Mapping[str, ActivationRange],
    feeds: Sequence[Feed],
) -> FileActivations:
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
    found = FileActivations()
    started = time.monotonic()
    for start in range(0, len(taps), _TAPS_PER_RUN):
        some = taps[start : start + _TAPS_PER_RUN]
        with load([tap.tensor for tap in some]) as session:
            run = runner(cast(Session, _TapRecorder(session, some, reference, found)))
            for number, feed in enumerate(feeds[:ACTIVATION_INPUTS]):
                if number and time.monotonic() - started > _MAX_SECONDS:
                    break
                run.run([feed])
    return found


#: The largest number that float16 holds.
HALF_MAX = 65504.0
#: Below this float16 has fewer digits; a whole tensor there loses most of them.
_HALF_MIN_NORMAL = 6.1e-5
#: Share of a tensor's channels that stand still before it is said: rounding to 8 bits stills a few.
_MIN_DEAD_SHARE = 0.01
#: Share of a tensor's range that a channel must move to count: a dozen steps of an 8-bit scale.
_MIN_MOVEMENT = 0.05
#: A range cut to less than this share of the reference's is clipped, not rounded.
_CLIPPED_SHARE = 0.7
#: How many ops a remark names.
_MAX_NAMED = 3
_EIGHT: tuple[Precision, ...] = ("w8a8", "w8a16")


def check_activations(
    taps: Sequence[Tap],
    found: FileActivations,
    reference: Mapping[str, ActivationRange],
    precision: Precision,
    findings: CheckLog,
    harmed: bool = False,
) -> None:
    """Note what was looked at and what stands out.

    Args:
        taps: What was looked at.
        found: The file's.
        reference: The reference's.
        precision: The file's.
        findings: Where to note it.
        harmed: The outputs are far off: masks are named as well, which converters put into
            float16's range on purpose and mostly without harm.
    """
    seen = [tap for tap in taps if tap.source in found.ranges]
    every = [(tap, reference[tap.source], found.ranges[tap.source]) for tap in seen]
    pairs = [(tap, wanted, got) for tap, wanted, got in every if wanted.numel == got.numel]
    detail = f"{len(pairs)} activations were compared with the reference's"
    findings.check("inner", True, detail)
    _remark(findings, "EDGE-CHECK-066", "activations are constant", _constant_tensors(pairs))
    half = [pair for pair in pairs if found.dtypes[pair[0].source] == "float16"]
    outside = _outside_float16(half, pairs, harmed)
    _remark(findings, "EDGE-CHECK-067", "float16 does not hold", outside)
    if precision in _EIGHT:
        _remark(findings, "EDGE-CHECK-070", "8-bit ranges cut off", _clipped_ranges(pairs))


_Pairs = Sequence[tuple[Tap, ActivationRange, ActivationRange]]


def _remark(findings: CheckLog, code: str, what: str, faults: Iterator[str]) -> None:
    found = list(faults)
    if found:
        more = f", and {len(found) - _MAX_NAMED} more" if len(found) > _MAX_NAMED else ""
        findings.remark(code, f"{what}: {'; '.join(found[:_MAX_NAMED])}{more}")


def _constant_tensors(pairs: _Pairs) -> Iterator[str]:
    """Tensors and channels with one value throughout, where the reference's take many."""
    for tap, wanted, got in pairs:
        range_of = wanted.whole().spread[0]
        if range_of <= 0 or not got.finite:
            continue
        if got.whole().spread[0] == 0:
            yield f"{tap.called} is {got.low.flat[0]:.3g} throughout"
        elif wanted.low.shape == got.low.shape:
            dead = (got.spread == 0) & (wanted.spread > _MIN_MOVEMENT * range_of)
            if dead.mean() >= _MIN_DEAD_SHARE:
                yield f"{int(dead.sum())} of {dead.size} channels of {tap.called}"


def _outside_float16(half: _Pairs, pairs: _Pairs, harmed: bool) -> Iterator[str]:
    """Values of the reference that float16 has no room for, and what became infinite."""
    for tap, wanted, got in half:
        if wanted.largest > HALF_MAX and (harmed or wanted.largest < HUGE):
            yield f"{tap.called}, which reaches {wanted.largest:.3g}"
        elif 0 < wanted.largest < _HALF_MIN_NORMAL and got.finite:
            yield f"the digits of {tap.called}, at most {wanted.largest:.2g}"
    for tap, wanted, got in pairs:
        if wanted.finite and not got.finite and wanted.largest <= HALF_MAX:
            yield f"{tap.called}, which becomes infinite or NaN"


def _clipped_ranges(pairs: _Pairs) -> Iterator[str]:
    for tap, wanted, got in pairs:
        ends = [_ends(each) for each in (wanted, got)]
        for sign, (theirs, ours) in zip((-1, 1), zip(*ends, strict=True), strict=True):
            cut = theirs > 0 and ours < _CLIPPED_SHARE * theirs
            if cut and theirs > _MIN_MOVEMENT * wanted.largest:
                yield f"{tap.called} at {sign * ours:.3g} (reference {sign * theirs:.3g})"
                break


def _ends(inner: ActivationRange) -> tuple[float, float]:
    """How far values go below zero and above it."""
    low, high = inner.low.min(initial=np.inf), inner.high.max(initial=-np.inf)
    return max(-float(low), 0.0), max(float(high), 0.0)
