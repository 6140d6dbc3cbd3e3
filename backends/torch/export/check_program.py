"""Compare an exported program with its module before it is converted.

A trace follows one path. Where a module branches by size or by value, the program is right for the
traced example and wrong for others; here it runs on the user's own examples, on those it was
traced with, on the smallest that its declared ranges allow, and on the constants that it compares
its inputs with.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram

from edgeserve.backends.edge_values import edge_values
from edgeserve.backends.torch.export.flat_module import FlatModule, Tensors
from edgeserve.backends.torch.module_state.snapshot import BufferSnapshot
from edgeserve.backends.torch.program.edges import find_edges
from edgeserve.errors import ConvertError, EdgeError
from edgeserve.user_lines import line_of_error, one_line

#: Largest difference allowed, relative to each output's largest value: the same kernels run on both
#: sides, so anything above rounding is another path.
TOLERANCE = 1e-4


def check_program(
    program: ExportedProgram,
    flat: FlatModule,
    first: Tensors,
    probes: Sequence[Tensors],
    folder: Path,
) -> None:
    """Compare a program with its module on each probe.

    Args:
        program: As traced.
        flat: The module with its examples.
        first: The module's outputs for its examples, from the very first call.
        probes: Further inputs; the module runs on them here.
        folder: The user's folder, so that an error can name the user's own line.

    Raises:
        ConvertError: EDGE-CONVERT-012 the module itself fails on a probe, -017 the answers differ.
    """
    runner = program.module()
    buffers = BufferSnapshot(runner)
    examples = flat.examples
    for probe in [examples, *probes]:
        try:
            wanted = first if probe is examples else flat.call(probe).tensors
        except EdgeError:
            raise
        except Exception as error:  # the user's own code
            raise ConvertError(
                "EDGE-CONVERT-012",
                f"forward at {_sizes(probe)}",
                wanted="outputs for every size that dynamic_shapes allows",
                got=one_line(error),
                hint="raise the smallest size in dynamic_shapes to one that forward takes",
                source_line=line_of_error(error, folder),
            ) from error
        try:
            with torch.no_grad():
                got = [t.clone() for t in runner(*(tensor.clone() for tensor in probe))]
            buffers.restore()
        except Exception as error:  # an assertion of the trace
            raise _mismatch_error(_sizes(probe), one_line(error), _BRANCH) from error
        worst = describe_difference(wanted, got)
        if worst:
            again = describe_difference(wanted, flat.call(probe).tensors)
            hint = _NONDETERMINISTIC if again else _branch_hint(flat.module)
            raise _mismatch_error(_sizes(probe), worst, hint)


def check_edges(
    program: ExportedProgram, flat: FlatModule, names: Sequence[str], folder: Path
) -> None:
    """Compare a program with its module at the constants that its inputs meet.

    A value that either of them refuses, such as an id beyond its table, says nothing.

    Args:
        program: As traced.
        flat: The module with its examples.
        names: Of the inputs.
        folder: As in `check_program`.

    Raises:
        ConvertError: EDGE-CONVERT-017 the answers differ.
    """
    module: Any = program.module()
    buffers, end = BufferSnapshot(module), time.monotonic() + _EDGE_SECONDS
    for place, value, probe in _edge_probes(module, flat.examples):
        if time.monotonic() > end:
            return
        try:
            wanted = flat.call(probe).tensors
            with torch.no_grad():
                got = [t.clone() for t in module(*(tensor.clone() for tensor in probe))]
        except Exception as error:  # of the user's code, or an assertion of the trace
            print(f"{names[place]} = {value} was not compared: {one_line(error)}", flush=True)
            continue
        finally:
            buffers.restore()
        worst = describe_difference(wanted, got)
        if worst and not describe_difference(wanted, flat.call(probe).tensors):
            at = f"{_sizes(probe)}, {names[place]} = {value}"
            raise _mismatch_error(at, worst, _branch_hint(flat.module))


#: Values of one input, and seconds for all of them: a module of some seconds is tried at a few.
_EDGE_VALUES, _EDGE_SECONDS = 24, 2.0


def _edge_probes(
    module: fx.GraphModule, examples: Tensors
) -> Iterator[tuple[int, float, list[torch.Tensor]]]:
    """The examples with one input filled with a value, which stands beside the input's place."""
    for place, edges in find_edges(module).items():
        values = edge_values(edges, examples[place].numpy().dtype)
        for value in values[:_EDGE_VALUES].tolist():
            filled = torch.full_like(examples[place], value)
            yield place, value, [*examples[:place], filled, *examples[place + 1 :]]


_BRANCH = (
    "forward branches differently at this size or value: remove that branch, or narrow"
    " dynamic_shapes"
)
_NESTED = (
    "nn.TransformerEncoder skips masked positions in eager mode, which an export does not:"
    " make it with enable_nested_tensor=False"
)
_NONDETERMINISTIC = (
    "the module is not deterministic at this size or value: make its"
    " random numbers or its state an input"
)


def _branch_hint(module: torch.nn.Module) -> str:
    """The hint for a module that takes another branch than its program."""
    nested = any(
        isinstance(part, torch.nn.TransformerEncoder) and part.use_nested_tensor
        for part in module.modules()
    )
    return _NESTED if nested else _BRANCH


def describe_difference(wanted: Tensors, got: Tensors, tolerance: float = TOLERANCE) -> str:
    """The first difference beyond a tolerance, in words; empty if there is none.

    Args:
        wanted: The expected outputs.
        got: The outputs to compare with them.
        tolerance: Largest difference allowed, relative to each output's largest value.
    """
    for i, (ours, theirs) in enumerate(zip(wanted, got, strict=True)):
        if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
            return f"output {i} is {_tensor_type(theirs)}, not {_tensor_type(ours)}"
        if not ours.numel() or torch.equal(ours, theirs):
            continue
        if not ours.is_floating_point():
            return f"output {i} has different {ours.dtype} values"
        finite = ours.double().nan_to_num(0.0, 0.0, 0.0)
        scale = max(float(finite.abs().max()), 1e-6)
        if not torch.allclose(
            theirs.double(), ours.double(), rtol=0.0, atol=tolerance * scale, equal_nan=True
        ):
            off = (theirs.double() - ours.double()).nan_to_num(0.0, 0.0, 0.0).abs().max()
            return f"output {i} off by {float(off):.3g} at a scale of {scale:.3g}"
    return ""


def _tensor_type(tensor: torch.Tensor) -> str:
    return f"{tensor.dtype} {list(tensor.shape)}"


def _mismatch_error(at: str, got: str, hint: str) -> ConvertError:
    thing = f"exported program at {at}"
    wanted = "the module's own outputs"
    return ConvertError("EDGE-CONVERT-017", thing, wanted=wanted, got=got, hint=hint)


def _sizes(probe: Tensors) -> str:
    return " ".join(str(list(tensor.shape)) for tensor in probe)
