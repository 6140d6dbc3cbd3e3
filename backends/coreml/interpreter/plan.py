"""From a PyMIL function to a plan: a flat list of steps over numbered slots.

Everything that does not depend on a run's inputs is done here, once: kernels are looked up,
constants become tensors, steps whose inputs are all constant are computed, and for every value it
is known after which step nobody needs it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from edgeserve.backends.coreml.interpreter.plan_nodes import (
    MAX_LIVE,
    Block,
    CompiledFunction,
    Constant,
    Step,
    StepOutput,
    check_shape,
    malformed,
    mark_last_uses,
    peak_elements,
)
from edgeserve.backends.coreml.interpreter.registry import Kernel, find
from edgeserve.backends.coreml.interpreter.values import dtype_name, held_as, tensor_of
from edgeserve.errors import MilError

#: Ops whose results hold only values that their inputs hold, so that they need no rounding.
_EXACT_OPS = frozenset(
    "abs band_part batch_to_space ceil clip concat cond const coreml_update_state crop "
    "depth_to_space expand_dims fill_like floor gather gather_along_axis gather_nd "
    "identity list_gather list_read list_scatter list_write max_pool maximum minimum "
    "non_maximum_suppression pad pixel_shuffle pixel_unshuffle read_state reduce_max "
    "reduce_min relu relu6 reshape reshape_like reverse reverse_sequence round select "
    "sign slice_by_index slice_by_size slice_update sliding_windows space_to_batch "
    "space_to_depth split squeeze stack tile topk transpose upsample_nearest_neighbor "
    "while_loop".split()
)

#: Ops that must run each time, whatever they are given.
_UNFOLDABLE_OPS = frozenset(
    "cond coreml_update_state make_list list_gather list_length list_read list_scatter "
    "list_write random_bernoulli random_categorical random_normal random_uniform "
    "read_state while_loop".split()
)

#: The most elements of a folded result that is no weight.
_FOLDED = 1 << 16


def make_plan(
    function: Any, opset: int, package: str, *, rounding: bool, taps: Iterable[str] = ()
) -> CompiledFunction:
    """Compile a PyMIL function.

    Args:
        function: A `coremltools` MIL ``Function``.
        opset: Its opset, as a specification version.
        package: Name of the package, for errors.
        rounding: Whether float16 outputs are rounded.
        taps: Names of inner values that are kept until the end.

    Raises:
        MilError: EDGE-MIL-001 an op has no kernel, -004 a tensor is too large, -008 unknown tap.
    """
    return _Planner(function, opset, package, rounding).plan(tuple(taps))


class _Planner:
    def __init__(self, function: Any, opset: int, package: str, rounding: bool) -> None:
        self._function, self._opset, self._package = function, opset, package
        self._rounding = rounding
        self._slots: dict[Any, int] = {}
        self._constants: dict[Any, Constant] = {}

    def plan(self, taps: tuple[str, ...]) -> CompiledFunction:
        inputs = {name: self._output(var, "") for name, var in self._function.inputs.items()}
        block = self._block(self._function, self._function.inputs.values())
        results = {var.name: self._where(var) for var in self._function.outputs}
        names = {
            var.name: self._where(var)
            for op in self._function.operations
            for var in op.outputs
            if var in self._slots or var in self._constants
        }
        self._check_taps(taps, names)
        keep = {names[tap] for tap in taps}
        mark_last_uses(
            block, {slot for slot in (*results.values(), *keep) if isinstance(slot, int)}
        )
        self._check_peak(peak_elements(block))
        return CompiledFunction(len(self._slots), inputs, block, results, names)

    def _check_peak(self, elements: int) -> None:
        if elements > MAX_LIVE:
            thing = f"package {self._package!r}"
            wanted = f"at most {MAX_LIVE} elements alive at a time"
            hint = "make the package again; no phone could hold these tensors"
            raise MilError("EDGE-MIL-004", thing, wanted=wanted, got=str(elements), hint=hint)

    def _check_taps(self, taps: tuple[str, ...], names: dict[str, int | Constant]) -> None:
        if unknown := [tap for tap in taps if tap not in names]:
            wanted = "names of values in the program's outer block"
            hint = "run `edgeserve inspect` for the names"
            raise MilError("EDGE-MIL-008", "taps", wanted=wanted, got=str(unknown), hint=hint)

    def _block(self, block: Any, inputs: Iterable[Any]) -> Block:
        slots = tuple(self._output(var, "").slot for var in inputs)
        steps = [step for op in block.operations if (step := self._step(op))]
        return Block(slots, steps, tuple(self._where(var) for var in block.outputs))

    def _step(self, op: Any) -> Step | None:
        """The step of an op; None for a constant and for what could be computed here."""
        if op.op_type == "const":
            self._constants[op.outputs[0]] = _constant(op.outputs[0])
            return None
        step = self._plain(op, find(op.op_type, self._opset, self._package))
        if self._foldable(op, step):
            self._fold(op, step)
            return None
        return step

    def _plain(self, op: Any, kernel: Kernel) -> Step:
        constants: dict[str, Any] = {"op": op} if "op" in kernel.wants else {}
        arguments: list[tuple[str, int]] = []
        lists: list[tuple[str, tuple[int | Constant, ...]]] = []
        for name, var in op.inputs.items():
            if isinstance(var, (list, tuple)):
                lists.append((name, tuple(self._where(each) for each in var)))
            elif isinstance(where := self._where(var), Constant):
                constants[name] = where.value
            else:
                arguments.append((name, where))
        if op.op_type == "conv" and "weight" in constants:
            constants["weight"] = _channels_last(constants["weight"])
        blocks = tuple(self._block(block, block.inputs) for block in op.blocks)
        outputs = tuple(self._output(var, op.op_type) for var in op.outputs)
        return Step(
            op,
            op.op_type,
            op.name,
            kernel.function,
            constants,
            tuple(arguments),
            tuple(lists),
            outputs,
            blocks,
            "run_block" in kernel.wants,
        )

    def _foldable(self, op: Any, step: Step) -> bool:
        if step.arguments or step.op_type in _UNFOLDABLE_OPS:
            return False
        if any(isinstance(item, int) for _, items in step.lists for item in items):
            return False
        weight = op.op_type.startswith("constexpr_")
        return weight or all(
            out.shape is not None and math.prod(out.shape) <= _FOLDED for out in step.outputs
        )

    def _fold(self, op: Any, step: Step) -> None:
        from edgeserve.backends.coreml.interpreter.executor import run_step

        frame: list[Any] = [None] * len(self._slots)
        run_step(step, frame)
        for var, out in zip(op.outputs, step.outputs, strict=True):
            self._constants[var] = Constant(frame[out.slot])

    def _where(self, var: Any) -> int | Constant:
        if (constant := self._constants.get(var)) is not None:
            return constant
        if var not in self._slots:
            if var.op is not None and var.op.op_type == "const":
                return self._constants.setdefault(var, _constant(var))
            got = f"{var.name!r}, read before any op makes it"
            raise malformed(self._package, "values made before their use", got)
        return self._slots[var]

    def _output(self, var: Any, op_type: str) -> StepOutput:
        slot = self._slots.setdefault(var, len(self._slots))
        if _is_list(var):
            return StepOutput(slot, var.name, None, False, None)
        half = dtype_name(var.dtype) == "fp16"
        shape = self._shape(var)
        rounded = half and self._rounding and op_type not in _EXACT_OPS
        return StepOutput(slot, var.name, held_as(var.dtype), rounded, shape, half)

    def _shape(self, var: Any) -> tuple[int, ...] | None:
        """The fixed shape of a variable, checked; None where it is dynamic."""
        known = [int(size) for size in var.shape if _is_fixed(size) and int(size) >= 0]
        check_shape(known, f"value {var.name!r} of package {self._package!r}")
        return tuple(known) if len(known) == len(var.shape) else None


def _channels_last(weight: Any) -> Any:
    """A 2-D kernel with its channels last in memory: torch then computes in that layout, faster."""
    import torch

    return weight.contiguous(memory_format=torch.channels_last) if weight.ndim == 4 else weight


def _is_list(var: Any) -> bool:
    from coremltools.converters.mil.mil import types

    return bool(types.is_list(var.sym_type) or types.is_dict(var.sym_type))


def _is_fixed(size: Any) -> bool:
    from coremltools.converters.mil.mil.types.symbolic import is_symbolic

    return not is_symbolic(size)


def _constant(var: Any) -> Constant:
    value = var.val
    if _is_list(var) or isinstance(value, (str, list)):
        return Constant(getattr(value, "ls", value))
    if dtype_name(var.dtype) == "string":
        return Constant([str(each) for each in value.reshape(-1)])
    return Constant(tensor_of(value, var.dtype))
