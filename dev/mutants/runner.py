"""Runs mutants: exports a program, converts it as it is and with the wrong lowering, and judges."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import msgspec
import torch
from torch import fx

from dev.mutants.table import MUTANTS, Mutant, Program
from edgeserve import backends
from edgeserve.backends.torch.passes import Pass, canonicalize
from edgeserve.backends.torch.passes.fx_utils import inline, replace_each
from edgeserve.convert.request import ExportRequest
from edgeserve.convert.source import export_source
from edgeserve.errors import EdgeError
from edgeserve.types.source import Exported, Source
from edgeserve.validate.collect import collect_answers
from edgeserve.validate.judge import judge
from edgeserve.validate.requests import AnswersRequest, JudgeRequest


class Outcome(msgspec.Struct, frozen=True):
    """What became of a mutant in one format.

    Attributes:
        name: ``format/mutant``.
        honest: Verdict on the right file.
        verdict: Verdict on the wrong one, or the code of the refusal to make it.
        named: The message names the operator.
        message: The first reason.
        seconds: Time of both.
    """

    name: str
    honest: str
    verdict: str
    named: bool
    message: str
    seconds: float


def factory(name: str) -> Any:
    """The factory of a program, as `edgeserve convert` calls one."""
    whole = MUTANTS[name].whole
    torch.manual_seed(1)
    example = torch.randint(0, 99, (1, 6, 6)) if whole else torch.randn(1, 6, 6)
    made = Program(MUTANTS[name].function).eval()
    return lambda: (made, (example,), {"input_names": ("x",), "output_names": ("y",)})


def run_program(name: str, formats: tuple[str, ...]) -> list[Outcome]:
    """The outcomes of one mutant in some formats; the program is exported and asked once."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        root = Path(folder)
        source = Source(
            kind="factory",
            location=f"dev.mutants.factories:{name}",
            folder=str(Path(__file__).parent),
        )
        exported = export_source(ExportRequest(source=source, out=str(root / "source")))
        asked = AnswersRequest(
            source_folder=str(root / "source"), out=str(root / "samples"), golden=0
        )
        collect_answers(asked)
        return [_outcome(name, exported, root, format) for format in formats]


def _outcome(name: str, exported: Exported, root: Path, format: str) -> Outcome:
    started, mutant = time.monotonic(), MUTANTS[name]
    honest, _ = _judged(exported, root, format, f"{format}-right")
    with broken(mutant, format):
        verdict, message = _judged(exported, root, format, f"{format}-wrong")
    return Outcome(
        name=f"{format}/{name}",
        honest=honest,
        verdict=verdict,
        named=f"aten.{mutant.operator}" in message,
        message=message,
        seconds=round(time.monotonic() - started, 1),
    )


def _judged(exported: Exported, root: Path, format: str, out: str) -> tuple[str, str]:
    """The verdict and its first reason; of a file that is not made the code and the message."""
    try:
        artifact = backends.get(format).export(exported, root / "source", root / out)
    except EdgeError as error:
        return error.code, error.message
    report = judge(
        JudgeRequest(
            artifact=artifact,
            root=str(root / out),
            source_folder=str(root / "source"),
            samples=str(root / "samples"),
        )
    )
    reasons = report.judgement.reasons
    return report.judgement.verdict, reasons[0].message if reasons else ""


@contextlib.contextmanager
def broken(mutant: Mutant, format: str) -> Iterator[None]:
    """Make the lowering wrong for a while."""
    if mutant.rule:
        with mock.patch.dict(_table(format), {mutant.rule[1]: mutant.wrong}):
            yield
        return
    module, name = _passes(format)
    passes = list(getattr(module, name))
    passes.insert(passes.index(canonicalize.canonicalize_ops) + 1, _wrong_pass(mutant))
    with mock.patch.object(module, name, tuple(passes)):
        yield


def _table(format: str) -> dict[Any, Any]:
    """The decompositions of edgeserve's own that a format uses."""
    from edgeserve.backends.tflite import lowerings
    from edgeserve.backends.torch.decompositions import table

    return lowerings.CORRECTIONS if format == "tflite" else table.RULES


def _passes(format: str) -> tuple[ModuleType, str]:
    """Where a format has its passes."""
    from edgeserve.backends.coreml import program
    from edgeserve.backends.onnx import export as onnx_export
    from edgeserve.backends.tflite import export as tflite_export

    modules = {"onnx": (onnx_export, "_PASSES"), "tflite": (tflite_export, "_REWRITES")}
    return modules.get(format, (program, "_ANY_SIZES"))


def _wrong_pass(mutant: Mutant) -> Pass:
    """A pass that puts the wrong rule in the operator's place."""

    def lower(module: fx.GraphModule) -> bool:
        def put(node: fx.Node) -> Any:
            return inline(
                module,
                node,
                lambda args, named: mutant.wrong(*args, **named),
                (node.args, dict(node.kwargs)),
            )

        packet = getattr(torch.ops.aten, mutant.operator)
        calls = {getattr(packet, name) for name in packet.overloads()}
        return replace_each(module, calls, put)

    return lower
