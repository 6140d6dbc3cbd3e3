"""An exported program on disk: ``model.pt2`` without a pickle in it, and its examples beside it."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch.export import ExportedProgram

from edgeserve.backends.torch.program.npz_io import EXAMPLES, npz_bytes
from edgeserve.errors import BackendError
from edgeserve.files import LOCAL, Fs, describe, staged_file, write_atomic
from edgeserve.types.artifact import Artifact, FileEntry
from edgeserve.types.tensors import Signature
from edgeserve.user_lines import one_line

__all__ = ["PROGRAM", "Program", "load_program", "log_warnings", "write_program"]

#: Name of the file with the program.
PROGRAM = "model.pt2"


@dataclass(frozen=True)
class Program:
    """A module, exported.

    Attributes:
        program: Flat: takes the signature's inputs by position, returns a tuple of its outputs.
        signature: Names, dtypes, shapes and ranges.
        examples: The caller's own example inputs, by name.
        notes: What the export had to change or give up.
    """

    program: ExportedProgram
    signature: Signature
    examples: dict[str, np.ndarray]
    notes: tuple[str, ...] = ()


def write_program(program: Program, out: Path, fs: Fs = LOCAL) -> tuple[FileEntry, FileEntry]:
    """Write ``model.pt2`` and ``examples.npz`` into ``out``; their entries, relative to it."""
    with staged_file(out / PROGRAM, fs) as temporary, temporary.open("xb") as saved:
        with log_warnings():  # a tensor at a time: in memory they would all be there twice
            torch.export.save(program.program, saved)
        saved.flush()
        os.fsync(saved.fileno())
    write_atomic(out / EXAMPLES, npz_bytes(program.examples), fs)
    return describe(out, PROGRAM), describe(out, EXAMPLES)


def load_program(artifact: Artifact, root: Path) -> ExportedProgram:
    """Load a ``.pt2`` that edgeserve wrote and whose hash has been checked.

    Raises:
        BackendError: EDGE-BACKEND-012.
    """
    try:
        with log_warnings():
            return torch.export.load(root / artifact.entry)
    except Exception as error:  # torch raises many kinds here
        raise BackendError(
            "EDGE-BACKEND-012",
            f"program {artifact.entry!r}",
            wanted=f"a program torch {torch.__version__} reads",
            got=one_line(error),
            hint="convert the source again with this version of torch",
        ) from error


@contextlib.contextmanager
def log_warnings() -> Iterator[None]:
    """Let warnings of torch and its converters go to the log, whatever the caller makes of them."""
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        yield
