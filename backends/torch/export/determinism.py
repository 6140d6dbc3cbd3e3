"""Check that a module is deterministic, before anything else runs it.

An artifact answers each call as if it were the first. A module with state between calls, or with
random numbers, cannot be exported that way. The outputs of the very first call are kept: the
exported program is compared with them, whatever later calls changed. A program whose constants
are the example inputs themselves, kept by forward and then traced, is rejected for the same reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.export import ExportedProgram

from edgeserve.backends.torch.export.check_program import describe_difference
from edgeserve.backends.torch.export.flat_module import FlatModule, ModuleOutputs, Tensors
from edgeserve.backends.torch.module_state.assignment_lines import assignment_line
from edgeserve.backends.torch.module_state.rng import RngRecorder, preserve_rng, rng_used, seed_all
from edgeserve.backends.torch.module_state.snapshot import BufferSnapshot, ModuleSnapshot
from edgeserve.errors import ConvertError, EdgeError
from edgeserve.user_lines import line_of_error, one_line

#: Dotted names of attributes.
_Names = Sequence[str]

#: Most names of one message.
_NAMES = 4

_OUTSIDE = (
    "no attribute of the module has changed: check globals, closures, its own generators, the"
    " clock and uninitialized memory"
)


@dataclass(frozen=True)
class FirstRun:
    """The first call of a module on its examples.

    Attributes:
        names: Names of the outputs.
        tensors: The outputs.
        state: The module's state before the call.
        notes: Changes of the module's state that do not change its outputs.
    """

    names: tuple[str, ...]
    tensors: tuple[torch.Tensor, ...]
    state: ModuleSnapshot
    notes: tuple[str, ...]


def check_deterministic(flat: FlatModule, folder: Path) -> FirstRun:
    """Call a module twice on its examples, with the same random numbers; buffers are restored.

    A third call, with another seed, is made only if random numbers were used; two or three more if
    buffers or attributes have changed.

    Raises:
        ConvertError: EDGE-CONVERT-012 the first call fails, -016 it returns no tensors, -017 the
        outputs depend on random numbers, -030 on earlier calls.
    """
    state, buffers = ModuleSnapshot(flat.module), BufferSnapshot(flat.module)
    with preserve_rng():
        start = seed_all(0)
        outputs = _first_run(flat, folder)
        first = outputs.tensors
        drawn = rng_used(start)
        attributes = state.changed()
        seed_all(0)
        differs = _rerun_difference(flat, first)
        changed = tuple(dict.fromkeys([*buffers.changed(), *attributes, *state.changed()]))
        if differs and not changed:
            _reject_random(flat, first, drawn, folder)
        left = buffers.copies(buffers.changed())
        restored = buffers.restore()
        if differs:
            raise stateful_module_error(
                flat, changed, f"a second call on the same inputs: {differs}", folder
            )
        if drawn:
            _reject_random(flat, first, drawn, folder)
            buffers.restore()
        filled = restored if attributes and _is_lazy_fill(flat, first, buffers, left) else ()
    inplace = [n for n in attributes if n not in restored and _is_tensor(flat.module, n)]
    carried = _carried_state(flat, first, [*restored, *inplace])
    set_up, untold = _input_dependent_setup(flat, first, state, attributes)
    if carried or set_up:
        kept = [*carried, *set_up]
        raise stateful_module_error(
            flat, kept, "state left by one call changes the next output", folder
        )
    return FirstRun(
        outputs.names, first, state, tuple(_notes(flat, restored, filled, untold, folder))
    )


def _first_run(flat: FlatModule, folder: Path) -> ModuleOutputs:
    try:
        return flat.run(flat.examples)
    except EdgeError:
        raise
    except Exception as error:  # the user's own code
        raise ConvertError(
            "EDGE-CONVERT-012",
            "forward",
            wanted="outputs for the example inputs",
            got=one_line(error),
            hint="make module(*example_inputs) work in eval mode on the CPU",
            source_line=line_of_error(error, folder),
        ) from error


def _rerun_difference(flat: FlatModule, first: Tensors) -> str:
    """The difference of another call on the examples from the first, in words; empty if none."""
    try:
        answers = flat.run(flat.examples).tensors
    except Exception as error:  # it worked once
        return one_line(error)
    if len(answers) != len(first):
        return f"{len(answers)} outputs, not {len(first)}"
    return describe_difference(first, answers)


def _is_lazy_fill(
    flat: FlatModule, first: Tensors, buffers: BufferSnapshot, left: dict[str, torch.Tensor]
) -> bool:
    """Restore lazily filled buffers if an attribute marks them as filled already."""
    seed_all(0)
    empty = bool(left) and bool(_rerun_difference(flat, first))
    buffers.restore()
    if not empty or not buffers.fits(left):
        return False
    buffers.fill(left)
    return True


def _reject_random(flat: FlatModule, first: Tensors, drawn: _Names, folder: Path) -> None:
    """Reject a module whose outputs depend on the seed; the error names the op and its line."""
    seed_all(1)
    with RngRecorder(flat.module, folder) as draws:
        differs = _rerun_difference(flat, first)
    if not differs or not (drawn or draws.op):
        return
    where = f" in module {draws.module!r}" if draws.module else ""
    at = f" at {draws.line}" if draws.line else ""
    what = f"op {draws.op}{where}{at}" if draws.op else " and ".join(drawn)
    raise ConvertError(
        "EDGE-CONVERT-017",
        "forward draws random numbers",
        wanted="the same outputs for the same inputs",
        got=f"{what}: {differs}",
        hint="make the random numbers an input of forward, or leave them out in eval mode"
        " (F.dropout takes training=self.training)",
        source_line=draws.line,
    )


def stateful_module_error(flat: FlatModule, names: _Names, why: str, folder: Path) -> ConvertError:
    """The error for a module that keeps state between calls, in these attributes."""
    lines = [assignment_line(flat.module, name, folder) for name in names[:_NAMES]]
    described = [
        f"{name!r} ({line})" if line else repr(name)
        for name, line in zip(names[:_NAMES], lines, strict=True)
    ]
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    kept = f"state in {', '.join(described)}{more}" if described else _OUTSIDE
    return ConvertError(
        "EDGE-CONVERT-030",
        "forward keeps state",
        wanted="outputs that do not depend on earlier calls",
        got=f"{kept}; {why}",
        hint="pass the state as an input of forward and return it as an output; for one-time setup,"
        " call the module once in the factory",
        source_line=next(filter(None, lines), None),
    )


def _is_tensor(module: torch.nn.Module, name: str) -> bool:
    owner, _, attribute = name.rpartition(".")
    value = getattr(module.get_submodule(owner), attribute, None)
    if not isinstance(value, torch.Tensor) or value.is_inference():
        return False
    return not isinstance(value, torch.nn.Parameter)


def _carried_state(flat: FlatModule, first: Tensors, names: _Names) -> tuple[str, ...]:
    """The changed tensors through which one call's inputs influence the next call's outputs.

    Two calls with the same inputs do not show it: a cache gets the same entry written again. So the
    tensors get other content, which must change the outputs, and the inputs other values, which
    must change the state left behind. A statistic fails the first, a lazily made table the second.
    """
    if not names:
        return ()
    kept = BufferSnapshot(flat.module, names)
    try:
        kept.fill({name: _perturbed(tensor) for name, tensor in kept.copies(names).items()})
        ignored = not _rerun_difference(flat, first)
        kept.restore()
        if ignored:
            return ()
        flat.run(flat.examples)
        left = kept.copies(names)
        kept.restore()
        flat.run([_perturbed(tensor) for tensor in flat.examples])
        now = kept.copies(names)
    except Exception as error:  # forward may not take such inputs
        print(f"check for state between calls failed: {one_line(error)}", flush=True)
        return ()
    finally:
        kept.restore()
    return tuple(name for name in names if describe_difference([left[name]], [now[name]]))


def _input_dependent_setup(
    flat: FlatModule, first: Tensors, state: ModuleSnapshot, attributes: _Names
) -> tuple[_Names, _Names]:
    """Attributes that the first call sets from its inputs, and those for which it is unknown.

    The first call is repeated with other inputs, followed by a call with the examples.
    """
    if not attributes:
        return (), ()
    ours, buffers = ModuleSnapshot(flat.module), BufferSnapshot(flat.module)
    unknown = state.restore(attributes)
    try:
        flat.run([_perturbed(tensor) for tensor in flat.examples])
        theirs = [name for name in ours.changed() if name in attributes]
        differs = bool(theirs) and bool(_rerun_difference(flat, first))
    except Exception as error:  # forward may not take such inputs
        print(f"check for input-dependent setup failed: {one_line(error)}", flush=True)
        return (), attributes
    finally:
        buffers.restore()
        ours.restore(ours.changed())
    return (theirs if differs else ()), unknown


def _perturbed(tensor: torch.Tensor) -> torch.Tensor:
    """Other values of the same kind; integers are reordered where that changes them."""
    if tensor.is_floating_point() or tensor.is_complex():
        return tensor * 0.75 + 0.125
    turned = tensor.flip(list(range(tensor.dim())))
    if not torch.equal(turned, tensor):
        return turned
    if tensor.dtype is torch.bool:
        return ~tensor
    return tensor - 1 if tensor.numel() and int(tensor.min()) > 0 else tensor + 1


def _notes(
    flat: FlatModule, buffers: _Names, filled: _Names, attributes: _Names, folder: Path
) -> list[str]:
    notes = []
    if filled:
        notes.append(
            f"buffers {list(filled)} keep the values that the first call of forward gave them"
        )
    elif buffers:
        notes.append(
            f"forward changes its buffers {list(buffers)}: changes are not kept between runs"
        )
    others = [name for name in attributes if name not in buffers]
    if others:
        line = assignment_line(flat.module, others[0], folder)
        where = f" ({line})" if line else ""
        notes.append(
            f"forward sets {others[:_NAMES]}{where}: values from its first call on the examples"
            " may be part of the program"
        )
    return notes


def reject_captured_inputs(
    program: ExportedProgram,
    flat: FlatModule,
    first: FirstRun,
    inputs: Sequence[Tensors],
    folder: Path,
) -> None:
    """Reject a program with a constant that equals an input of its trace or of the first call.

    Args:
        program: As traced.
        flat: Its module.
        first: The module's first call; its earlier state may equal an input.
        inputs: The inputs that the module was called with.
        folder: The user's folder, so that an error can name the user's own line.

    Raises:
        ConvertError: EDGE-CONVERT-030.
    """
    own = [*first.state.tensors(), *flat.module.buffers()]
    for name, held in program.constants.items():
        if not isinstance(held, torch.Tensor) or not _is_distinctive(held):
            continue
        if any(_equal(held, tensor) for tensor in own):
            continue
        if any(_equal(held, tensor) for given in inputs for tensor in given):
            changed = first.state.changed()
            why = f"the program's constant {name!r} is an example input"
            raise stateful_module_error(flat, changed, why, folder)


def _is_distinctive(tensor: torch.Tensor) -> bool:
    """Whether equality with it means something: several numbers, not all the same."""
    return tensor.numel() > 1 and bool((tensor != tensor.flatten()[0]).any())


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and torch.equal(one, other)
