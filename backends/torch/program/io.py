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
from torch.export.pt2_archive._package import load_pt2

from edgeserve.backends.checks import unreadable
from edgeserve.backends.torch import EXAMPLES
from edgeserve.data.npz_io import write_arrays
from edgeserve.files import LOCAL, Fs, describe, staged_file, write_atomic
from edgeserve.types.artifact import Artifact, FileEntry
from edgeserve.types.tensors import Signature
from edgeserve.user_lines import one_line

#: Name of the file with the program.
PROGRAM = "model.pt2"


@dataclass(frozen=True)
class Program:
    """A module, exported.

    Attributes:
        program: Flat: takes the signature's inputs by position, returns a tuple of its outputs.
        signature: Names, dtypes, shapes and ranges.
        examples: The caller's own example inputs, by name.
        notes: Changes and limitations of the export.
    """

    program: ExportedProgram
    signature: Signature
    examples: dict[str, np.ndarray]
    notes: tuple[str, ...] = ()


def write_program(program: Program, out: Path, fs: Fs = LOCAL) -> tuple[FileEntry, FileEntry]:
    """Write ``model.pt2`` and ``examples.npz`` into ``out``; their entries, relative to it."""
    with staged_file(out / PROGRAM, fs) as temporary, temporary.open("xb") as saved:
        with log_warnings():  # tensor by tensor: in memory, all would exist twice
            torch.export.save(program.program, saved)
        saved.flush()
        os.fsync(saved.fileno())
    # In C order: an array in another order would give other bytes.
    examples = {name: np.asarray(x, order="C") for name, x in program.examples.items()}
    write_atomic(out / EXAMPLES, write_arrays(examples), fs)
    return describe(out, PROGRAM), describe(out, EXAMPLES)


def load_program(artifact: Artifact, root: Path) -> ExportedProgram:
    """Load a ``.pt2`` that edgeserve wrote and whose hash has been checked.

    Raises:
        BackendError: EDGE-BACKEND-012.
    """
    try:
        with log_warnings():  # `torch.export.load` hides why a file cannot be read
            held = load_pt2(str(root / artifact.entry)).exported_programs
            program: ExportedProgram = held["model"]
            return program
    except Exception as error:  # torch raises many kinds here
        wanted = f"a program torch {torch.__version__} reads"
        hint = "convert the source again with this version of torch"
        raise unreadable(f"program {artifact.entry!r}", wanted, one_line(error), hint) from error


@contextlib.contextmanager
def log_warnings() -> Iterator[None]:
    """Send warnings of torch and its converters to the log, whatever the caller's filter is."""
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        yield
