"""The verb behind ``convert --bisect``: the smallest part of a model that a format fails on.

Where an op was blamed it is tried alone. Else the search goes down the module tree, into the first
submodule that fails alone in the same way, and there halves what is left of the ops, from the end
and from the start. Every trial is a conversion as `convert` would do it, on what really reaches
that part; the answer is a script without edgeserve in it, which is run to see whether it fails too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgeserve import backends
from edgeserve.backends import Backend
from edgeserve.convert.bisect_failure import (
    Failure,
    conversion_failure,
    factory_script,
    part_failure,
    part_script,
    run_script,
)
from edgeserve.convert.source import read_export
from edgeserve.files import write_atomic
from edgeserve.jobs import progress
from edgeserve.types.base import Value
from edgeserve.types.source import Exported
from edgeserve.types.vocabulary import Format

if TYPE_CHECKING:
    from edgeserve.backends.torch.diagnose.graph_slicing import GraphSlice, GraphSlicer, OpGroup


class BisectRequest(Value, frozen=True):
    """Find what a format fails on.

    Attributes:
        source_folder: Absolute folder that holds ``source.json`` and the files it names.
        format: Which fails.
        script: Absolute path of the script to write.
        seconds: Time after which what was found so far is written.
    """

    source_folder: str
    format: Format
    script: str
    seconds: float = 600.0


class BisectResult(Value, frozen=True, kw_only=True):
    """What was found.

    Attributes:
        module: Path of the smallest submodule that fails; None: the model itself.
        operators: The ops of the smallest part that fails; empty where the model fails as a whole
            only.
        summary: How it fails, in a line.
        trials: How many conversions that took.
        script: Whether a script was written.
        confirmed: Whether the script failed in the same way when it was run.
        words: The finding, in a line.
    """

    module: str | None = None
    operators: tuple[str, ...] = ()
    summary: str = ""
    trials: int = 0
    script: bool = False
    confirmed: bool = False
    words: str


def bisect(request: BisectRequest) -> BisectResult:
    """Find the smallest part that fails and write the script.

    Raises:
        ConvertError: EDGE-CONVERT-024, the export is missing or changed.
        BackendError: the format is unknown, or its packages are missing.
    """
    root = Path(request.source_folder)
    exported = read_export(root)
    if exported.format != "torch":
        return BisectResult(words="a finished ONNX file is not taken apart: its ops have no source")
    backend = backends.get(request.format)
    progress(f"convert the whole to {request.format}")
    whole = conversion_failure(backend, exported, root)
    if whole is None:
        return BisectResult(trials=1, words="converted alone it answers as PyTorch does")
    search = _Search(whole, lambda part: part_failure(backend, part), request.seconds)
    found = search.run(_graph_slicer(exported, root))
    if backend.plain is None:
        words = f"{_describe_part(found)}; {backend.format} has no plain converter for a script"
        return BisectResult(trials=search.trials, words=words)
    return _write_script(request, backend, exported, search, found)


def _graph_slicer(exported: Exported, root: Path) -> GraphSlicer:
    import torch

    from edgeserve.backends.torch import load_examples, reference_artifact
    from edgeserve.backends.torch.diagnose.graph_slicing import GraphSlicer
    from edgeserve.backends.torch.program.io import load_program

    program = load_program(reference_artifact(exported), root)
    held = load_examples(exported, root)
    inputs = [torch.from_numpy(held[spec.name]) for spec in exported.signature.inputs]
    return GraphSlicer(program, inputs)


@dataclass(frozen=True)
class _FailingPart:
    """The smallest part that is known to fail, and the submodule that it lies in."""

    part: GraphSlice
    units: tuple[OpGroup, ...]
    module: str | None


class _Search:
    """Looks for the smallest part that fails as the whole does.

    Args:
        whole: How the whole fails.
        trial: Converts a part.
        seconds: When to stop.
    """

    def __init__(
        self, whole: Failure, trial: Callable[[GraphSlice], Failure | None], seconds: float
    ) -> None:
        self.failure = whole
        self.trials = 1
        self._trial = trial
        self._end = time.monotonic() + seconds
        self._best: _FailingPart | None = None

    def run(self, cut: GraphSlicer) -> _FailingPart | None:
        """The smallest part; None where no part fails, not even all ops at fixed sizes."""
        self._cut = cut
        blamed = [u for u in cut.units if u.operator == self.failure.operator]
        if any(self._fails([unit], unit.module) for unit in blamed):
            return self._best
        if self._fails(cut.units, None):
            self._descend()
            self._shrink()
        return self._best

    @property
    def late(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() > self._end

    def _fails(self, units: Sequence[OpGroup], module: str | None) -> bool:
        """Whether these units alone fail as the whole does; then they are the best so far."""
        from edgeserve.backends.torch.diagnose.graph_slicing import CannotSlice

        if self.late or not units:
            return False
        self.trials += 1
        progress(f"trial {self.trials}: {len(units)} ops{f' of {module}' if module else ''}")
        try:
            part = self._cut.part(units)
            failure = self._trial(part)
        except CannotSlice:
            return False
        if failure != self.failure:
            return False
        self._best = _FailingPart(part, tuple(units), module)
        return True

    def _descend(self) -> None:
        """Into the first submodule that fails alone, as deep as that goes."""
        while self._best is not None and not self.late:
            inside = self._children(self._best)
            if not any(self._fails(units, path) for path, units in inside):
                return

    def _children(self, found: _FailingPart) -> list[tuple[str, list[OpGroup]]]:
        """The submodules of the best so far, in the order in which they are run."""
        children: dict[str, list[OpGroup]] = {}
        for unit in found.units:
            below = unit.path.index(found.module) + 1 if found.module in unit.path else 0
            if len(unit.path) > below:
                children.setdefault(unit.path[below], []).append(unit)
        blamed = self.failure.operator
        return sorted(children.items(), key=lambda c: all(u.operator != blamed for u in c[1]))

    def _shrink(self) -> None:
        """Fewer ops: none behind the shortest beginning that fails, none before its last end."""
        if self._best is None:
            return
        module = self._best.module
        self._halve(lambda units, count: units[:count], module)
        self._halve(lambda units, count: units[len(units) - count :], module)

    def _halve(
        self, cut: Callable[[Sequence[OpGroup], int], Sequence[OpGroup]], module: str | None
    ) -> None:
        assert self._best is not None
        units = self._best.units
        low, high = 0, len(units)  # `high` of them fail, `low` of them do not
        while high - low > 1:
            middle = (low + high) // 2
            if self._fails(cut(units, middle), module):
                high = middle
            else:
                low = middle


def _write_script(
    request: BisectRequest,
    backend: Backend,
    exported: Exported,
    search: _Search,
    found: _FailingPart | None,
) -> BisectResult:
    """Write the script, run it, and put the finding into words."""
    progress("write the script and run it")
    path, failure = Path(request.script), search.failure
    made = part_script(backend, found.part, failure, found.module) if found else None
    text = made or factory_script(backend, exported, Path(request.source_folder), failure)
    write_atomic(path, text.encode())
    confirmed, outcome = run_script(path, failure)
    operators = found.part.operators if found else ()
    return BisectResult(
        module=found.module if found else None,
        operators=operators,
        summary=failure.summary,
        trials=search.trials,
        script=True,
        confirmed=confirmed,
        words=_describe_part(found)
        + (", as far as the time went" if search.late else "")
        + f"; {outcome}",
    )


def _describe_part(found: _FailingPart | None) -> str:
    if found is None:
        return "no part of it fails alone"
    shown = ", ".join(found.part.operators[:4])
    more = len(found.part.operators) - 4
    rest = f" and {more} more" if more > 0 else ""
    return f"the smallest part that fails is {shown}{rest} in {found.module or 'the model itself'}"
