"""Export a module: trace it, compare the program with the module, assign names.

The program is flat (tensors in by position, a tuple out) and has the user's names and ranges.
Every format is converted from it. Compiled modules are unwrapped first; scripted and quantized
modules are rejected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from torch import nn
from torch.export import ExportedProgram

from edgeserve.backends.torch.diagnose.export_errors import full_stack_traces, module_label
from edgeserve.backends.torch.export.check_program import check_edges, check_program
from edgeserve.backends.torch.export.custom_ops import inline_custom_ops, use_batched_experts
from edgeserve.backends.torch.export.determinism import (
    FirstRun,
    check_deterministic,
    reject_captured_inputs,
)
from edgeserve.backends.torch.export.dynamic_shapes import (
    Axes,
    DimNames,
    expand_unit_dims,
    min_size_examples,
    parse_dynamic_shapes,
)
from edgeserve.backends.torch.export.flat_module import FlatModule, Tensors, flatten_module
from edgeserve.backends.torch.export.pytree import replace_tensors, tree_leaves, unique_names
from edgeserve.backends.torch.export.relax_dynamic_dims import (
    DeclaredDims,
    has_fixed_sizes,
    relax_dynamic_dims,
)
from edgeserve.backends.torch.export.trace_strategies import Traced, trace
from edgeserve.backends.torch.program.inspect import dtype_word
from edgeserve.backends.torch.program.io import Program, log_warnings
from edgeserve.errors import ConvertError
from edgeserve.types.tensors import Signature, TensorSpec

#: Parts of torch's quantized packages that compute with floats as long as nothing is converted.
_FLOAT = ("FloatFunctional", "FXFloatFunctional")


def unwrap_compiled(module: nn.Module) -> nn.Module:
    """The module without ``torch.compile``, submodules included; its outputs are the same."""
    module = _original(module)
    for part in list(module.modules()):
        if getattr(part, "_compiled_call_impl", None) is not None:
            part._compiled_call_impl = None  # of module.compile()
        if isinstance(part, torch.jit.ScriptModule):
            continue
        for name, child in list(part._modules.items()):
            if child is not None and _original(child) is not child:
                part._modules[name] = unwrap_compiled(child)
    return module


def _original(module: nn.Module) -> nn.Module:
    inner = getattr(module, "_orig_mod", None)
    compiled = type(module).__name__ == "OptimizedModule" and isinstance(inner, nn.Module)
    return inner if compiled and inner is not None else module


def reject_unsupported_modules(module: nn.Module) -> None:
    """Reject modules that cannot be traced.

    Raises:
        ConvertError: EDGE-CONVERT-028 a TorchScript module, -029 a quantized one.
    """
    for path, part in module.named_modules():
        if isinstance(part, torch.jit.ScriptModule):
            raise ConvertError(
                "EDGE-CONVERT-028",
                f"module {_scripted_label(path, part)}",
                wanted="an eager torch.nn.Module",
                got="a TorchScript module (torch.jit)",
                hint="return the eager module that it was made from, without torch.jit.script, "
                "torch.jit.trace or torch.jit.load",
            )
        if _is_quantized(part):
            raise ConvertError(
                "EDGE-CONVERT-029",
                f"module {module_label(path, part)}",
                wanted="a float module",
                got=f"a quantized one ({type(part).__module__.split('.modules')[0]})",
                hint="return the float module that it was made from: edgeserve quantizes by "
                "itself (--precision w8)",
            )


def _scripted_label(path: str, part: torch.jit.ScriptModule) -> str:
    """`module_label` with the class before scripting: all scripted modules share one class."""
    kind = getattr(part, "original_name", type(part).__name__)
    return f"{path} ({kind})" if path else str(kind)


def _is_quantized(part: nn.Module) -> bool:
    """Whether a module belongs to a quantized package of torch and computes on packed integers.

    Reference modules of these packages compute with floats.
    """
    words = type(part).__module__.split(".")
    inside = words[0] == "torch" and "quantized" in words and "reference" not in words
    return inside and type(part).__name__ not in _FLOAT


@dataclass(frozen=True)
class ExportOptions:
    """Options of an export that a factory may set.

    Attributes:
        dynamic_shapes: See `edgeserve.backends.torch.export.dynamic_shapes.parse_dynamic_shapes`.
        input_names: Names for the inputs, in order; empty: from forward's arguments.
        output_names: Names for the outputs, in order; empty: from what forward returns.
        probes: Further inputs to compare the program on: tensors in the order of the inputs.
        shapes: For dimensions that cannot vary as ``dynamic_shapes`` declares: "dynamic" fails,
            "auto" fixes them at the example's size, with a note.
    """

    dynamic_shapes: object = None
    input_names: tuple[str, ...] = ()
    output_names: tuple[str, ...] = ()
    probes: tuple[Tensors, ...] = ()
    shapes: Literal["auto", "dynamic"] = "dynamic"


def export_module(
    module: torch.nn.Module, examples: object, options: ExportOptions, folder: Path
) -> Program:
    """Export a module and compare the program with it on the example inputs.

    Args:
        module: Moved to the CPU, to eval mode and, from half precision, to float32.
        examples: A tuple or dict of tensors, nested as forward takes them.
        options: Names and dynamic dimensions.
        folder: The user's folder, so that errors can name the user's own lines.

    Raises:
        ConvertError: EDGE-CONVERT-011 to -017, -022, -025 to -030; ``edgeserve explain`` tells
        more.
        UnsupportedOp: EDGE-OP-040 a custom operator without a body that can be traced.
    """
    module = unwrap_compiled(module)
    reject_unsupported_modules(module)
    notes = _prepare(module)
    flat = flatten_module(
        module, _prepare_examples(examples, half=any("half precision" in note for note in notes))
    )
    notes += [f"input {leaf.name!r} is fixed at {leaf.value!r}" for leaf in flat.constants]
    names = _chosen_names("input", options.input_names, flat.names)
    _check_dtypes(names, flat)
    first = check_deterministic(flat, folder)
    notes += [*first.notes, *use_batched_experts(module)]
    output_names = _output_names(first, names, options)
    axes = parse_dynamic_shapes(options.dynamic_shapes, flat.inputs, names)
    traced, axes, fixed = _traced(DeclaredDims(flat, names, axes, folder), first, options)
    notes += [*fixed, *filter(None, [traced.strategy.note])]
    arrays = {name: leaf.value.numpy() for name, leaf in zip(names, flat.inputs, strict=True)}
    signature = _signature(traced.program, names, output_names, axes)
    return Program(traced.program, signature, arrays, tuple(notes))


def _traced(
    declared: DeclaredDims, first: FirstRun, options: ExportOptions
) -> tuple[Traced, tuple[Axes, ...], list[str]]:
    """The program, its dynamic axes, and notes on the axes that had to be fixed."""

    def attempt(axes: tuple[Axes, ...]) -> Traced:
        with log_warnings(), full_stack_traces():
            return _checked(declared, first, axes, options.probes)

    try:
        return attempt(declared.axes), declared.axes, []
    except ConvertError as refused:
        if options.shapes == "dynamic":
            raise
        made, axes, notes = relax_dynamic_dims(attempt, declared, refused)
    for note in notes:
        print(note, flush=True)
    return made, axes, notes


def _checked(
    declared: DeclaredDims, first: FirstRun, axes: tuple[Axes, ...], probes: Sequence[Tensors]
) -> Traced:
    """Traced with these axes dynamic, and compared with the module on all inputs that fit."""
    flat, folder = declared.flat, declared.folder
    widened = expand_unit_dims(flat.examples, axes)
    with flat.flat_forward(declared.names) as module:
        shapes = [per or None for per in axes]
        traced = trace(module, widened, shapes, folder)
    traced = replace(traced, program=inline_custom_ops(traced.program, folder))
    reject_captured_inputs(traced.program, flat, first, [flat.examples, widened], folder)
    traced.program._example_inputs = (
        None  # they would be saved as a pickle; ours are saved separately
    )
    fitting = [probe for probe in probes if has_fixed_sizes(probe, flat.examples, axes)]
    asked = [*_probes(flat, axes, widened), *fitting]
    check_program(traced.program, flat, first.tensors, asked, folder)
    check_edges(traced.program, flat, declared.names, folder)
    return traced


def _prepare(module: torch.nn.Module) -> list[str]:
    """Put a module in eval mode, on the CPU, in float32; notes on the changes."""
    notes = []
    tensors = [*module.parameters(), *module.buffers()]
    if any(tensor.is_meta for tensor in tensors):
        raise ConvertError(
            "EDGE-CONVERT-026",
            type(module).__name__,
            wanted="a module with its weights loaded",
            got="weights on the meta device",
            hint="load the weights in the factory before returning",
        )
    if any(part.training for part in module.modules()):
        notes.append("the module was in training mode: exported in eval mode")
        module.eval()
    if any(tensor.dtype in (torch.float16, torch.bfloat16) for tensor in tensors):
        notes.append("half precision weights: exported in float32")
        module.float()
    module.cpu().requires_grad_(False)
    return notes


def _prepare_examples(examples: object, half: bool) -> object:
    """The examples detached, on the CPU, and in float32 where the module was in half precision."""

    def plain(tensor: torch.Tensor) -> torch.Tensor:
        low = half and tensor.dtype in (torch.float16, torch.bfloat16)
        return (tensor.float() if low else tensor).detach().cpu()

    tensors = [leaf.value for leaf in tree_leaves(examples) if isinstance(leaf.value, torch.Tensor)]
    return replace_tensors(examples, iter([plain(tensor) for tensor in tensors]))


def _check_dtypes(names: list[str], flat: FlatModule) -> None:
    """Reject dtypes that numpy does not have: examples and feeds are numpy arrays."""
    for name, tensor in zip(names, flat.examples, strict=True):
        if dtype_word(tensor.dtype, name) == "bfloat16":
            thing = f"input {name!r}"
            wanted = "a dtype that numpy has"
            hint = "take float32 and convert it inside forward"
            raise ConvertError("EDGE-CONVERT-027", thing, wanted=wanted, got="bfloat16", hint=hint)


def _chosen_names(kind: str, wanted: Sequence[str], found: list[str]) -> list[str]:
    """The given names, if any: one for each tensor, all different."""
    if wanted and (len(wanted) != len(found) or len(set(wanted)) != len(wanted) or not all(wanted)):
        raise _bad_names(kind, f"{len(found)} different names", str(list(wanted)))
    return list(wanted) or found


def _bad_names(kind: str, wanted: str, got: str) -> ConvertError:
    hint = f"give one name for each {kind} tensor, or leave {kind}_names out"
    return ConvertError("EDGE-CONVERT-022", f"{kind}_names", wanted=wanted, got=got, hint=hint)


def _output_names(first: FirstRun, inputs: list[str], options: ExportOptions) -> list[str]:
    """Name what the module returned."""
    names = _chosen_names("output", options.output_names, list(first.names))
    if both := set(inputs) & set(names):
        if options.output_names:
            raise _bad_names("output", "names that no input has", f"{sorted(both)}")
        names = [f"{name}_out" if name in both else name for name in names]
    return unique_names(names, frozenset(inputs))


def _probes(
    flat: FlatModule, axes: tuple[Axes, ...], widened: list[torch.Tensor]
) -> list[list[torch.Tensor]]:
    """Further inputs for the comparison: the widened examples, the smallest sizes allowed."""
    probes = []
    if any(a.shape != b.shape for a, b in zip(widened, flat.examples, strict=True)):
        probes.append(widened)
    smallest = min_size_examples(flat.examples, axes)
    return probes + ([smallest] if smallest else [])


def _signature(
    program: ExportedProgram, inputs: list[str], outputs: list[str], axes: tuple[Axes, ...]
) -> Signature:
    nodes = {node.name: node for node in program.graph.nodes}
    naming = DimNames(program.range_constraints)

    def spec(name: str, node: str, per: Axes | None) -> TensorSpec:
        value = nodes[node].meta["val"]
        shape = naming.shape(value, name, per)
        return TensorSpec(name=name, dtype=dtype_word(value.dtype, name), shape=shape)

    ins = [str(name) for name in program.graph_signature.user_inputs]
    outs = [str(name) for name in program.graph_signature.user_outputs]
    return Signature(
        inputs=tuple(spec(n, node, per) for n, node, per in zip(inputs, ins, axes, strict=True)),
        outputs=tuple(spec(n, node, None) for n, node in zip(outputs, outs, strict=True)),
        dims=naming.dims,
    )
