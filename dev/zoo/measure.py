"""One model of the zoo: exported once, converted to each format, run, compared with PyTorch.

Each format's file is run in float32, and in fp16 where that is asked for.

As a program it reads lines (``module:factory``, formats) and answers each with a line of JSON.
"""

from __future__ import annotations

import gc
import json
import os
import re
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgeserve import backends
from edgeserve.backends.adapter import Adapter
from edgeserve.backends.torch.export.pytree import name_outputs
from edgeserve.backends.torch.export.relax_dynamic_dims import DYNAMIC_HINT
from edgeserve.convert.request import ExportRequest
from edgeserve.convert.source import export_source
from edgeserve.convert.target import try_routes
from edgeserve.convert.torch_source import SourceModule, call_factory
from edgeserve.errors import EdgeError
from edgeserve.types.artifact import Artifact, Recipe
from edgeserve.types.source import Exported, Source

HERE = Path(__file__).parent
FORMATS = ("onnx", "tflite", "coreml")

#: Largest difference from PyTorch that counts as the same, as a share of the output's scale.
LIMIT = 1e-3

#: Least scale of an output: what is smaller is compared with this.
FLOOR = 1e-3

#: An output has to move by this share of its scale from one input to the next.
_MOVES = 1e-2

_SETS = 3

#: Of the refusal that a note tells of.
_CODE = re.compile(r"EDGE-CONVERT-\d+")


def measure(location: str, formats: Sequence[str] = FORMATS, half: bool = False) -> dict[str, Any]:
    """One row: what became of the export and of each format, in fp16 as well if asked for."""
    row: dict[str, Any] = {"name": location}
    source = Source(kind="factory", location=f"dev.zoo.{location}", folder=str(HERE.parents[1]))
    with tempfile.TemporaryDirectory(prefix="zoo-") as folder:
        root = Path(folder)
        try:
            made = call_factory(source)
            exported, row["export"] = _export(source, root)
            feeds = _feeds(made, exported)
            wanted = _answers(made, feeds)
        except EdgeError as error:
            row["export"] = {"ok": False, "code": error.code, "said": str(error)[:400]}
            return row
        row["export"]["moves"] = moves(wanted)
        row["outputs"] = [spec.name for spec in exported.signature.outputs]
        row["still"] = [
            n
            for n, *each in zip(row["outputs"], *wanted[:_SETS], strict=True)
            if not moves([[one] for one in each])
        ]
        for format in formats:
            row[format] = _format(format, exported, root, feeds, wanted, half)
    gc.collect()  # folders that a converter left to the collector go now, not in a later test
    return row


def _feeds(made: SourceModule, exported: Exported) -> list[tuple[Tensor, ...]]:
    """The input sets: the example, others like it, and two samples at once where that may be."""
    from dev.zoo.inputs import perturbed_inputs

    examples: tuple[Tensor, ...] = tuple(made.examples)  # type: ignore[arg-type]
    sets = [examples, *(perturbed_inputs(examples, seed) for seed in range(_SETS - 1))]
    if exported.signature.batch_dim is not None:
        sets.append(tuple(map(torch.cat, zip(*sets[:2], strict=True))))
    return sets


def _answers(made: SourceModule, sets: Sequence[tuple[Tensor, ...]]) -> list[list[np.ndarray]]:
    """What the module itself says to each input set."""
    wanted = []
    with torch.no_grad():
        for tensors in sets:
            _, found = name_outputs(made.module(*[tensor.clone() for tensor in tensors]))
            wanted.append([tensor.numpy().copy() for tensor in found])
    return wanted


def _export(source: Source, root: Path) -> tuple[Exported, dict[str, Any]]:
    """Exported as `convert` does it: what cannot vary is fixed, and said."""
    start = time.perf_counter()
    exported = export_source(ExportRequest(source=source, out=str(root)))
    seconds = round(time.perf_counter() - start, 2)
    fixed = [note for note in exported.notes if DYNAMIC_HINT in note]
    said = {"code": _CODE.findall(fixed[0])[0], "said": fixed[0][:300]} if fixed else {}
    return exported, {
        "ok": True,
        "seconds": seconds,
        "dynamic": bool(exported.signature.dims),
        **said,
    }


def moves(wanted: Sequence[Sequence[np.ndarray]]) -> bool:
    """Whether the answers differ from input to input: else a comparison proves nothing."""
    first, *others = wanted[:_SETS]
    return any(
        a.shape != b.shape or difference(a, b) > _MOVES
        for other in others
        for a, b in zip(first, other, strict=True)
    )


def difference(wanted: np.ndarray, got: np.ndarray) -> float:
    """Largest difference as a share of the wanted values' scale; 1 where shapes or integers differ.

    What is not finite has to be so in both.
    """
    if wanted.shape != got.shape:
        return 1.0
    if not np.issubdtype(wanted.dtype, np.floating):
        return float(bool((wanted.astype(np.int64) != got.astype(np.int64)).any()))
    wide, other = wanted.astype(np.float64), got.astype(np.float64)
    odd = ~np.isfinite(wide)
    if not np.array_equal(wide[odd], other[odd], equal_nan=True):
        return 1.0
    wide, other = wide[~odd], other[~odd]
    if not np.isfinite(other).all():
        return 1.0
    scale = max(float(np.abs(wide).max(initial=0)), FLOOR)
    return float(np.abs(wide - other).max(initial=0)) / scale


def _format(
    format: str,
    exported: Exported,
    root: Path,
    sets: Sequence[tuple[Tensor, ...]],
    wanted: Sequence[Sequence[np.ndarray]],
    half: bool,
) -> dict[str, Any]:
    start = time.perf_counter()
    backend = backends.get(format)
    out = root / format
    try:
        artifact = try_routes(backend, exported, root, out)
        seconds = round(time.perf_counter() - start, 2)
        answers = _run(backend, artifact, out, exported, sets)
    except Exception as error:
        return _refusal(error)
    each = [list(map(difference, *pair)) for pair in zip(wanted, answers, strict=True)]
    worst = max(map(max, each))
    cell = {
        "ok": worst <= LIMIT,
        "difference": worst,
        "seconds": seconds,
        "outputs": list(map(max, zip(*each, strict=True))),
        "route": artifact.provenance.route,
        "rewrites": list(artifact.provenance.rewrites),
        **({} if worst <= LIMIT else {"code": "WRONG"}),
    }
    if half:
        cell["fp16"] = _half(backend, artifact, out, exported, root, sets, wanted)
    return cell


def _run(
    backend: Any,
    artifact: Artifact,
    folder: Path,
    exported: Exported,
    sets: Sequence[tuple[Tensor, ...]],
) -> list[list[np.ndarray]]:
    """What a file says to each input set."""
    names = [spec.name for spec in exported.signature.inputs]
    outputs = [spec.name for spec in exported.signature.outputs]
    with backend.load(artifact, folder, threads=1) as session:
        adapter = Adapter(session, exported.signature)
        found = [adapter.run(_feed(names, tensors)) for tensors in sets]
    return [[answer[name] for name in outputs] for answer in found]


def _half(
    backend: Any,
    artifact: Artifact,
    folder: Path,
    exported: Exported,
    root: Path,
    sets: Sequence[tuple[Tensor, ...]],
    wanted: Sequence[Sequence[np.ndarray]],
) -> dict[str, Any]:
    """fp16, derived from the float32 file, or by its route where the format makes it itself."""
    from dev.zoo.fp16 import judged

    start = time.perf_counter()
    out = root / f"{backend.format}-fp16"
    try:
        if "fp16" in backend.native:
            made = try_routes(
                backend, exported, root, out, (str(artifact.provenance.route),), "fp16"
            )
        else:
            made = backend.quantize(artifact, folder, Recipe(precision="fp16"), (), out)
        answers = _run(backend, made, out, exported, sets)
    except Exception as error:
        return _refusal(error)
    names = [spec.name for spec in exported.signature.outputs]
    seconds = round(time.perf_counter() - start, 2)
    return {"seconds": seconds, **judged(names, wanted, answers)}


def _refusal(error: Exception) -> dict[str, Any]:
    """A cell that says why there is no file, or none that runs."""
    if isinstance(error, EdgeError):
        return {"ok": False, "code": error.code, "said": str(error)[:400]}
    traceback.print_exception(error)  # what a format lets through is a fault of ours
    return {"ok": False, "code": type(error).__name__, "said": str(error)[:400]}


def _feed(names: Sequence[str], tensors: Sequence[Tensor]) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in zip(names, tensors, strict=True)}


def main() -> None:
    """Answer lines of stdin on what was stdout; the converters' own printing goes to stderr."""
    torch.set_num_threads(1)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for line in sys.stdin:
        name, *formats = line.split()
        try:
            row = measure(name, formats or FORMATS, half=True)
        except Exception as error:  # a factory's own fault
            traceback.print_exc()
            row = {
                "name": name,
                "export": {"ok": False, "code": type(error).__name__, "said": str(error)[:400]},
            }
        answers.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
