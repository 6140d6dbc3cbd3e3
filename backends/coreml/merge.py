"""Packages of one function each as one package of several functions, weights stored once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgeserve.backends.coreml.library import checked_at_the_end, coremltools
from edgeserve.backends.coreml.package import write_package
from edgeserve.backends.coreml.spec import DATA, MODEL, WEIGHTS
from edgeserve.backends.torch.program import log_warnings

__all__ = ["merge", "read_package", "split"]


def merge(parts: Mapping[str, Path], stage: Path) -> tuple[Any, Path]:
    """Make one package of several; the last function is its default.

    Args:
        parts: The packages by the names that their functions are to have.
        stage: An existing folder for what is made on the way.

    Returns:
        The ``Model`` message and the folder of its weights, which lies in ``stage``.
    """
    utils = coremltools().utils
    plan = utils.MultiFunctionDescriptor()
    for name, folder in parts.items():
        plan.add_function(str(folder), src_function_name="main", target_function_name=name)
        plan.default_function_name = name
    merged = stage / "merged.mlpackage"
    with log_warnings(), checked_at_the_end():
        utils.save_multifunction(plan, str(merged))
    return read_package(merged)


def split(spec: Any, weights: Path, stage: Path) -> dict[str, Path]:
    """The opposite of `merge`: a package for each function, its function called "main".

    Args:
        spec: A ``Model`` message with several functions.
        weights: The folder of its weights.
        stage: An existing folder to write into.
    """
    made = {}
    for description in spec.description.functions:
        alone = type(spec)()
        alone.CopyFrom(spec)
        alone.description.Clear()
        alone.description.input.extend(description.input)
        alone.description.output.extend(description.output)
        functions = alone.mlProgram.functions
        kept = type(functions[description.name])()
        kept.CopyFrom(functions[description.name])
        functions.clear()
        functions["main"].CopyFrom(kept)
        folder = stage / description.name
        folder.mkdir()
        write_package(alone, weights, folder)
        made[description.name] = next(folder.iterdir())
    return made


def read_package(folder: Path) -> tuple[Any, Path]:
    """The ``Model`` message of a package that coremltools or edgeserve has just written."""
    spec = coremltools().proto.Model_pb2.Model()
    spec.ParseFromString((folder / DATA / MODEL).read_bytes())
    return spec, folder / DATA / WEIGHTS
