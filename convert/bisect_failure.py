"""One conversion tried, as `convert` would do it: taken and right, refused, or wrong in silence."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edgeserve.backends import Backend
from edgeserve.backends.adapter import Adapter
from edgeserve.convert.target import try_routes
from edgeserve.errors import EdgeError
from edgeserve.types.source import Exported, Source
from edgeserve.user_lines import exception_chain, one_line

if TYPE_CHECKING:
    from edgeserve.backends.torch.diagnose.graph_slicing import GraphSlice


#: Largest difference that counts as the same, as a share of an output's scale; and least scale.
MAX_RELATIVE, MIN_SCALE = 1e-3, 1e-3


@dataclass(frozen=True)
class Failure:
    """How a conversion fails.

    Attributes:
        code: Of the refusal; empty where the file answers wrongly.
        operator: Of the op that was blamed; empty where none was.
        kinds: Names of the exceptions that led to it, outermost first, without our own.
        summary: In a line.
        root: What the innermost of those exceptions says, its first line.
    """

    code: str
    operator: str
    kinds: tuple[str, ...] = field(compare=False)
    summary: str = field(compare=False)
    root: str = field(default="", compare=False)

    @property
    def wrong(self) -> bool:
        """Whether it was converted, and answers wrongly."""
        return not self.code


def conversion_failure(backend: Backend, exported: Exported, root: Path) -> Failure | None:
    """Convert an export and run it on its own examples; None where it answers as PyTorch does."""
    from edgeserve import backends
    from edgeserve.backends.torch import load_examples, reference_artifact

    feed = load_examples(exported, root)
    with tempfile.TemporaryDirectory(prefix=".tmp-bisect-") as folder:
        out = Path(folder)
        try:
            artifact = try_routes(backend, exported, root, out)
            with backend.load(artifact, out, threads=1) as session:
                got = Adapter(session, exported.signature, exported.processing.padding).run(feed)
        except EdgeError as error:
            return _refusal(error)
        reference = reference_artifact(exported)
        with backends.get("torch").load(reference, root, threads=1) as session:
            wanted = session.run(feed)
    return _mismatch(wanted, got)


def part_failure(backend: Backend, part: GraphSlice) -> Failure | None:
    """The same for a part of a program.

    Its export is what `convert` makes of a module.
    """
    from edgeserve.backends.torch.export.export import ExportOptions, export_module
    from edgeserve.backends.torch.program.inspect import graph_sha256, weights_of
    from edgeserve.backends.torch.program.io import write_program

    with tempfile.TemporaryDirectory(prefix=".tmp-bisect-") as folder:
        root = Path(folder)
        try:
            program = export_module(part.module, part.examples, ExportOptions(), root)
            entry, examples = write_program(program, root)
        except EdgeError as error:
            return _refusal(error)
        exported = Exported(
            source=Source(kind="pt2", location=str(root / entry.path), folder=str(root)),
            program=entry,
            examples=examples,
            signature=program.signature,
            weights=weights_of(program.program),
            graph_sha256=graph_sha256(program.program),
        )
        return conversion_failure(backend, exported, root)


def _refusal(error: EdgeError) -> Failure:
    words = error.thing.split()
    operator = words[1] if words[0] == "op" and len(words) > 1 else ""
    chain = list(exception_chain(error.__cause__))
    kinds = tuple(type(each).__name__ for each in chain)
    root = one_line(chain[-1]).partition(": ")[2] if chain else ""
    return Failure(error.code, operator, kinds, error.message, root)


def _mismatch(wanted: Mapping[str, np.ndarray], got: Mapping[str, np.ndarray]) -> Failure | None:
    worst = max((_relative_difference(wanted[name], got[name]) for name in wanted), default=0.0)
    return Failure("", "", (), f"off by {worst:.1e} of the scale") if worst > MAX_RELATIVE else None


def _relative_difference(wanted: np.ndarray, got: np.ndarray) -> float:
    """Largest difference as a share of an output's scale; inf where they cannot be compared."""
    if wanted.shape != got.shape:
        return np.inf
    wide, other = wanted.astype(np.float64), got.astype(np.float64)
    odd = ~np.isfinite(wide)
    if not np.array_equal(wide[odd], other[odd], equal_nan=True):
        return np.inf
    wide, other = wide[~odd], other[~odd]
    scale = max(float(np.abs(wide).max(initial=0)), MIN_SCALE)
    off = float(np.abs(wide - other).max(initial=0)) / scale
    return off if np.isfinite(off) else np.inf
