"""One program in one format: exported, converted, run by the raw runtime, compared with PyTorch.

As a program it reads lines of JSON and answers each with one: ``{"format": "onnx", "seed": 3}``, or
``"program"`` in the seed's place.
"""

from __future__ import annotations

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

from dev.fuzz.generate import generate
from dev.fuzz.program import Program, evaluate, inputs_of, module_of
from edgeserve import backends
from edgeserve.backends.adapter import Adapter
from edgeserve.convert.options import FactoryOptions
from edgeserve.convert.request import ExportRequest
from edgeserve.convert.source import export_module_source
from edgeserve.convert.target import try_routes
from edgeserve.convert.torch_source import SourceModule
from edgeserve.errors import EdgeError
from edgeserve.types.base import decode
from edgeserve.types.source import Source

#: What two correct float32 implementations may differ by: a share of the output's range, and
#: multiples of the errors seen in PyTorch itself, in float32 and with random rounding.
_RANGE, _FLOAT32, _ROUNDING = 2e-5, 16.0, 16.0
#: And what float32 rounds at 1: log(sigmoid(x)) passes there on its way to -7e-7.
_AT_ONE = float(np.finfo(np.float32).eps)

#: An operator as a refusal names it.
_NAMED = re.compile(r"\baten\.(\w+)")


def judge(program: Program, format: str) -> dict[str, Any]:
    """The row of a program in a format.

    ``status`` is ``right``, ``wrong``, ``refused`` (an error with a code) or ``uncoded``.
    """
    start = time.perf_counter()
    row: dict[str, Any] = {"format": format, "ops": [step.operator for step in program.steps]}
    sets = inputs_of(program)
    try:
        answers = _converted(program, format, sets)
    except EdgeError as error:
        row |= {
            "status": "refused",
            "code": error.code,
            "op": named(str(error)),
            "said": str(error),
        }
    except Exception as error:
        traceback.print_exc()
        row |= {"status": "uncoded", "code": type(error).__name__, "said": str(error)}
    else:
        worst, said = _compared(program, sets, answers)
        row |= {"status": "wrong" if worst > 1 else "right", "worst": worst, "said": said}
    row["said"] = row["said"][:600]
    return row | {"seconds": round(time.perf_counter() - start, 2)}


def named(message: str) -> str:
    """The operator that a refusal names, else ""."""
    found = _NAMED.search(message)
    return found[1] if found else ""


def _converted(
    program: Program, format: str, sets: Sequence[tuple[Tensor, ...]]
) -> list[list[np.ndarray]]:
    """What the format's file says to each input set."""
    options = FactoryOptions(output_names=program.outputs)
    made = SourceModule(module_of(program), sets[0], options)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        root, out = Path(folder), Path(folder, format)
        source = Source(kind="factory", location="fuzz:program", folder=folder)
        exported = export_module_source(ExportRequest(source=source, out=folder), made, "auto")
        backend = backends.get(format)
        artifact = try_routes(backend, exported, root, out)
        with backend.load(artifact, out, threads=1) as session:
            adapter = Adapter(session, exported.signature)
            names = [spec.name for spec in exported.signature.inputs]
            outputs = [spec.name for spec in exported.signature.outputs]
            feeds = [{n: t.numpy() for n, t in zip(names, each, strict=True)} for each in sets]
            return [[answer[name] for name in outputs] for answer in map(adapter.run, feeds)]


def _compared(
    program: Program, sets: Sequence[tuple[Tensor, ...]], answers: Sequence[Sequence[np.ndarray]]
) -> tuple[float, str]:
    """The largest error as a multiple of its tolerance, and which output it is of."""
    found = [(0.0, "")]
    for number, (inputs, answer) in enumerate(zip(sets, answers, strict=True)):
        wanted = evaluate(program, inputs)
        exact, *noisy = [evaluate(program, inputs, noise) for noise in range(4)]
        for place, (name, got) in enumerate(zip(program.outputs, answer, strict=True)):
            rough = [each[place] for each in noisy]
            error = excess(wanted[place], exact[place], rough, torch.from_numpy(np.array(got)))
            said = f"wanted {_few(wanted[place].numpy())}, got {_few(np.array(got))}"
            found.append((error, f"set {number}, {name}: {said}"))
    return max(found, key=lambda each: each[0])


def _few(values: np.ndarray) -> str:
    return f"{values.dtype}{list(values.shape)} {values.flatten()[:6].tolist()}"


def excess(wanted: Tensor, exact: Tensor, rough: Sequence[Tensor], got: Tensor) -> float:
    """The largest error as a multiple of the tolerance; 1e9 where shapes or whole numbers differ.

    TFLite and Core ML have no int64 and Core ML answers no truth values: numbers count.

    Args:
        wanted: PyTorch's answer in float32, or whole numbers or truth values.
        exact: Its answer in float64.
        rough: Its answers in float64 with rounding noise.
        got: What was answered.
    """
    if wanted.shape != got.shape or wanted.is_floating_point() != got.is_floating_point():
        return 1e9
    if not wanted.numel():
        return 0.0
    if not wanted.is_floating_point():
        return 0.0 if torch.equal(wanted.long(), got.long()) else 1e9
    wide = wanted.double()
    spread = max(float((each - exact).abs().max()) for each in rough)
    single = float((wide - exact).abs().max())
    tolerance = _RANGE * float(wide.abs().max()) + _ROUNDING * spread + _FLOAT32 * single + _AT_ONE
    error = float((wide - got.double()).abs().max()) / tolerance
    return error if error < 1e9 else 1e9  # not a number is no agreement


def main() -> None:
    """Answer lines of stdin on what was stdout; the converters' own printing goes to stderr."""
    torch.set_num_threads(1)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for line in sys.stdin:
        asked = json.loads(line)
        given = asked.get("program")
        program = decode(json.dumps(given), Program) if given else generate(asked["seed"])
        print(f"seed {program.seed}, {asked['format']}", file=sys.stderr, flush=True)
        answers.write(json.dumps(judge(program, asked["format"])) + "\n")


if __name__ == "__main__":
    main()
