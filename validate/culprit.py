"""The op at which a wrong float32 file leaves the reference: the first whose result differs.

The inner tensors of the file are run beside those of the exported program on the input that the
file answers worst. Converters reorder axes and fuse ops, so a tensor counts as right where its
numbers are those of its source op, or of an op that may be fused into it, with the channels first
or last.
No conversion is repeated: two loads and two runs, also of a large model.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np

from edgeserve.backends import Backend
from edgeserve.backends.batching import BatchRunner
from edgeserve.backends.graph import Graph, Op
from edgeserve.backends.reference import reference
from edgeserve.backends.session import Session
from edgeserve.data import Feed
from edgeserve.tasks.base import comparable_floats
from edgeserve.types.source import Exported
from edgeserve.user_lines import line_of_text
from edgeserve.validate.checks.activations import Tap, match_taps
from edgeserve.validate.requests import JudgeRequest

#: Seconds after which no further tensors are compared.
MAX_SECONDS = 15.0
#: Tensors compared in one run: their values lie in memory together.
_TAPS_PER_RUN = 256
#: Ops that may be fused into the one before them.
_MAX_FUSED = 4
#: Largest difference of a right tensor, as a share of its largest number, and the least of those.
_MAX_RELATIVE, _FLOOR = 1e-3, 1e-6
#: How many ops that the file does not show are named beside the first that differs.
_MAX_HIDDEN = 3


@dataclass(frozen=True)
class _Program:
    """The ops of the exported program.

    Attributes:
        ops: By name, in order.
        users: Names of the ops that read each op.
        folder: The user's folder.
    """

    ops: Mapping[str, Op]
    users: Mapping[str, Sequence[str]]
    folder: Path

    @classmethod
    def of(cls, graph: Graph, folder: Path) -> _Program:
        ops = {op.name: op for op in graph.ops}
        users: dict[str, list[str]] = {name: [] for name in ops}
        for op in graph.ops:
            for name in dict.fromkeys(op.inputs):
                users.get(name, []).append(op.name)
        return cls(ops, users, folder)

    def fused(self, name: str) -> Iterator[str]:
        """The op, and those after it that one tensor of a file may stand for."""
        for _ in range(_MAX_FUSED + 1):
            yield name
            if len(self.users[name]) != 1:
                return
            (name,) = self.users[name]

    def hidden(self, name: str, shown: Mapping[str, Tap]) -> list[str]:
        """What the op reads, as far back as the file shows no tensor of it; nearest first."""
        found: dict[str, None] = {}
        queue = [name]
        while queue and len(found) < _MAX_HIDDEN:
            for read in self.ops[queue.pop(0)].inputs:
                if read in self.ops and read not in shown and read not in found:
                    found[read] = None
                    queue.append(read)
        return list(found)[:_MAX_HIDDEN]

    def describe(self, name: str) -> str:
        """``aten.div.Tensor in clock (model.py:12)``, as far as that is known."""
        op = self.ops[name]
        line = line_of_text(op.trace, self.folder)
        return f"{op.type}{f' in {op.module}' if op.module else ''}{f' ({line})' if line else ''}"


def find_culprit(
    backend: Backend, request: JudgeRequest, exported: Exported, output: str, feed: Feed
) -> str:
    """The first op that differs, in words; empty where the file does not name its source ops.

    Args:
        backend: The artifact's.
        request: What was judged.
        exported: The source.
        output: An output that is wrong.
        feed: The input that it is wrong on.

    Raises:
        BackendError: the file or the program could not be run with inner tensors.
    """
    end = time.monotonic() + MAX_SECONDS
    sides = _Sides.of(backend, request, exported)
    for names in sides.portions():
        if time.monotonic() > end:
            return ""
        wanted, (got, outputs) = sides.wanted(names, feed), sides.got(names, feed)
        for name in names:
            tensor = got.get(sides.shown[name].tensor)
            if tensor is not None and _wrong(tensor, name, wanted, sides.program):
                return _words(sides.program, name, sides.shown)
        if _alike(wanted[output], outputs[output]):
            return "read op by op it is right: the runtime fuses its ops wrongly"
    last = _giver(sides.graph, exported, output)
    return _words(sides.program, last, sides.shown) if last in sides.program.ops else ""


@dataclass(frozen=True)
class _Sides:
    """The exported program and the file, which are run beside each other.

    Attributes:
        backend: The file's.
        request: What was judged.
        exported: The source.
        program: The ops of the program.
        graph: The file's.
        shown: The tensor of the file for each op that it shows.
    """

    backend: Backend
    request: JudgeRequest
    exported: Exported
    program: _Program
    graph: Graph
    shown: Mapping[str, Tap]

    @classmethod
    def of(cls, backend: Backend, request: JudgeRequest, exported: Exported) -> _Sides:
        engine, held = reference(exported)
        ops = engine.inspect(held, Path(request.source_folder))
        program = _Program.of(ops, Path(exported.source.folder))
        graph = backend.inspect(request.artifact, Path(request.root))
        shown = {tap.source: tap for tap in match_taps(graph, program.ops)}
        return cls(backend, request, exported, program, graph, shown)

    def portions(self) -> Iterator[list[str]]:
        """The ops that the file shows, in the program's order, as many as one run compares."""
        order = [name for name in self.program.ops if name in self.shown]
        for start in range(0, len(order), _TAPS_PER_RUN):
            yield order[start : start + _TAPS_PER_RUN]

    def wanted(self, names: Sequence[str], feed: Feed) -> Feed:
        """What the program gives for these ops and those that may be fused into them."""
        engine, held = reference(self.exported)
        taps = list(dict.fromkeys(f for name in names for f in self.program.fused(name)))
        folder = Path(self.request.source_folder)
        with engine.load(held, folder, taps=taps, threads=1, verified=True) as session:
            return session.run(feed)

    def got(self, names: Sequence[str], feed: Feed) -> tuple[Feed, Feed]:
        """The tensors of the file for these ops, and its outputs."""
        request, exported = self.request, self.exported
        taps = [self.shown[name].tensor for name in names]
        with self.backend.load(
            request.artifact,
            Path(request.root),
            delegate=request.delegate,
            threads=1,
            taps=taps,
            verified=True,
        ) as session:
            tapped = _Tapped(session, taps)
            runner = BatchRunner(
                cast(Session, tapped), exported.signature, exported.processing.padding
            )
            (outputs,) = runner.run([feed])
        return tapped.found, outputs


def _giver(graph: Graph, exported: Exported, output: str) -> str:
    """The source op of an output."""
    place = [spec.name for spec in exported.signature.outputs].index(output)
    name = graph.outputs[place].name
    return next((op.source or "" for op in reversed(graph.ops) if name in op.outputs), "")


def _words(program: _Program, name: str, shown: Mapping[str, Tap]) -> str:
    hidden = [program.describe(each) for each in program.hidden(name, shown)]
    rest = f"; the file does not show {', '.join(hidden)} before it" if hidden else ""
    return f"the first op that differs is {program.describe(name)}{rest}"


class _Tapped:
    """A session that gives its outputs only, and keeps what the taps gave."""

    def __init__(self, session: Session, taps: Sequence[str]) -> None:
        self._session, self._taps = session, taps
        self.io, self.buckets = session.io, session.buckets
        self.found: Feed = {}

    def run(self, feed: Mapping[str, np.ndarray]) -> Feed:
        outputs = self._session.run(feed)
        self.found |= {tap: outputs.pop(tap) for tap in self._taps if tap in outputs}
        return outputs


def _wrong(got: np.ndarray, name: str, wanted: Feed, program: _Program) -> bool:
    """Whether a tensor is neither that of its op nor of one that may be fused into it."""
    own = wanted.get(name)
    if own is None or own.size != got.size:
        return False
    fused = (wanted[each] for each in program.fused(name) if each in wanted)
    return not any(_alike(each, got) for each in fused if each.size == got.size)


def _alike(wanted: np.ndarray, got: np.ndarray) -> bool:
    """Whether two tensors hold the same numbers; of pictures the channels may come last."""
    ours, theirs = comparable_floats(wanted), comparable_floats(got)
    limit = _limit(wanted)
    if ours.shape != theirs.shape:
        return _close(np.sort(ours, axis=None), np.sort(theirs, axis=None), limit)
    orders = [theirs] + [np.moveaxis(theirs, *a) for a in ((-1, 1), (1, -1)) if theirs.ndim > 3]
    return any(_close(ours, each, limit) for each in orders if each.shape == ours.shape)


def _limit(wanted: np.ndarray) -> float:
    """The largest difference of a right tensor; whole numbers are equal."""
    if wanted.dtype.kind != "f":
        return 0.0
    finite = np.abs(wanted[np.isfinite(wanted)], dtype=np.float64)
    return _MAX_RELATIVE * max(float(finite.max(initial=0.0)), _FLOOR)


def _close(wanted: np.ndarray, got: np.ndarray, limit: float) -> bool:
    return bool(np.allclose(got, wanted, rtol=0.0, atol=limit, equal_nan=True))
