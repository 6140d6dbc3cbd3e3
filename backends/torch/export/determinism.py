"""Whether a module answers the same when it is called twice; checked before anything else runs it.

A file answers each call as if it were the first. A module that remembers its calls, or draws
random numbers, has no such answer. The very first answers are kept: whatever running it has
changed since, the exported program is held against those. A program whose constants are the
example inputs themselves, kept by forward and then traced, is rejected for the same reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.export import ExportedProgram

from edgeserve.backends.torch.export.check_program import describe_difference
from edgeserve.backends.torch.export.flat_module import FlatModule
from edgeserve.backends.torch.module_state.assignment_lines import assignment_line
from edgeserve.backends.torch.module_state.rng import RngRecorder, preserve_rng, rng_used, seed_all
from edgeserve.backends.torch.module_state.snapshot import BufferSnapshot, ModuleSnapshot
from edgeserve.errors import ConvertError, EdgeError
from edgeserve.user_lines import line_of_error, one_line

__all__ = ["FirstRun", "check_deterministic", "reject_captured_inputs", "stateful_module_error"]


#: Most names of one message.
_NAMES = 4

_OUTSIDE = (
    "nothing that the module holds has changed: a global, a closure, a generator of its own, the"
    " clock or memory that was never written"
)


@dataclass(frozen=True)
class FirstRun:
    """What a module said when it was first asked.

    Attributes:
        names: Of its outputs.
        tensors: Its answers to the examples.
        state: What it held before that.
        notes: What calls change in it without changing the answers.
    """

    names: tuple[str, ...]
    tensors: tuple[torch.Tensor, ...]
    state: ModuleSnapshot
    notes: tuple[str, ...]


def check_deterministic(flat: FlatModule, folder: Path) -> FirstRun:
    """Call a module twice on its examples, with the same random numbers; buffers are put back.

    A third call, with other random numbers, is made only where some were drawn; two or three more
    where buffers or attributes have changed.

    Raises:
        ConvertError: EDGE-CONVERT-012 the first call fails, -016 it returns no tensors, -017 the
        answers hang on random numbers, -030 on the calls before.
    """
    state, buffers = ModuleSnapshot(flat.module), BufferSnapshot(flat.module)
    with preserve_rng():
        start = seed_all(0)
        names, first = _first_run(flat, folder)
        drawn = rng_used(start)
        attributes = state.changed()
        seed_all(0)
        differs = _rerun_difference(flat, first)
        if differs and not (changed := _changed_names(attributes, buffers, state)):
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
            flat, kept, "what one call leaves there enters the next answer", folder
        )
    return FirstRun(names, first, state, tuple(_notes(flat, restored, filled, untold, folder)))


def _first_run(flat: FlatModule, folder: Path) -> tuple[tuple[str, ...], tuple[torch.Tensor, ...]]:
    try:
        return flat.run(flat.examples)
    except EdgeError:
        raise
    except Exception as error:  # the user's own code
        raise ConvertError(
            "EDGE-CONVERT-012",
            "forward",
            wanted="an answer to its own example inputs",
            got=one_line(error),
            hint="make module(*example_inputs) work in eval mode on the CPU",
            source_line=line_of_error(error, folder),
        ) from error


def _rerun_difference(flat: FlatModule, first: Sequence[torch.Tensor]) -> str:
    """How another call on the examples differs from the first, in words; empty if it does not."""
    try:
        answers = flat.run(flat.examples)[1]
    except Exception as error:  # it worked once
        return one_line(error)
    if len(answers) != len(first):
        return f"{len(answers)} outputs, not {len(first)}"
    return describe_difference(first, answers)


def _is_lazy_fill(
    flat: FlatModule,
    first: Sequence[torch.Tensor],
    buffers: BufferSnapshot,
    left: dict[str, torch.Tensor],
) -> bool:
    """Fill buffers again where an attribute tells forward that they were filled already."""
    seed_all(0)
    empty = bool(left) and bool(_rerun_difference(flat, first))
    buffers.restore()
    if not empty or not buffers.fits(left):
        return False
    buffers.fill(left)
    return True


def _changed_names(
    attributes: Sequence[str], buffers: BufferSnapshot, state: ModuleSnapshot
) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*buffers.changed(), *attributes, *state.changed()]))


def _reject_random(
    flat: FlatModule, first: Sequence[torch.Tensor], drawn: Sequence[str], folder: Path
) -> None:
    """Refuse if other random numbers give another answer; says which op drew them, and where."""
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
        wanted="the same answer to the same inputs",
        got=f"{what}: {differs}",
        hint="make the random numbers an input of forward, or leave them out in eval mode"
        " (F.dropout takes training=self.training)",
        source_line=draws.line,
    )


def stateful_module_error(
    flat: FlatModule, names: Sequence[str], why: str, folder: Path
) -> ConvertError:
    """The refusal of a module that keeps state from call to call, in these attributes."""
    lines = [assignment_line(flat.module, name, folder) for name in names[:_NAMES]]
    told = [
        f"{name!r} ({line})" if line else repr(name)
        for name, line in zip(names[:_NAMES], lines, strict=True)
    ]
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    kept = f"state in {', '.join(told)}{more}" if told else _OUTSIDE
    return ConvertError(
        "EDGE-CONVERT-030",
        "forward keeps state",
        wanted="answers that do not depend on the calls before",
        got=f"{kept}; {why}",
        hint="pass the state in as an input of forward and return it as an output; what is set up"
        " once: call the module in the factory before it is returned",
        source_line=next(filter(None, lines), None),
    )


def _is_tensor(module: torch.nn.Module, name: str) -> bool:
    owner, _, attribute = name.rpartition(".")
    value = getattr(module.get_submodule(owner), attribute, None)
    if not isinstance(value, torch.Tensor) or value.is_inference():
        return False
    return not isinstance(value, torch.nn.Parameter)


def _carried_state(
    flat: FlatModule, first: Sequence[torch.Tensor], names: Sequence[str]
) -> tuple[str, ...]:
    """Those of the changed tensors that take something of one call's inputs into the next answer.

    The same inputs twice do not show it: a cache gets the same line written again. So the tensors
    are given other content, which must change the answer, and the inputs other values, which must
    change what is left behind. A statistic fails the first, a table made on demand the second.
    """
    if not names:
        return ()
    kept = BufferSnapshot(flat.module, names)
    try:
        kept.fill({name: _perturbed(tensor) for name, tensor in kept.copies(names).items()})
        harmless = not _rerun_difference(flat, first)
        kept.restore()
        if harmless:
            return ()
        flat.run(flat.examples)
        left = kept.copies(names)
        kept.restore()
        flat.run([_perturbed(tensor) for tensor in flat.examples])
        now = kept.copies(names)
    except Exception as error:  # forward may not take such inputs
        print(f"whether calls depend on each other was not found: {one_line(error)}", flush=True)
        return ()
    finally:
        kept.restore()
    return tuple(name for name in names if describe_difference([left[name]], [now[name]]))


def _input_dependent_setup(
    flat: FlatModule,
    first: Sequence[torch.Tensor],
    state: ModuleSnapshot,
    attributes: Sequence[str],
) -> tuple[Sequence[str], Sequence[str]]:
    """Attributes that the first call sets by its inputs, and those of which that is not known.

    The first call is made once more, with other inputs, and then the examples are asked for.
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
        print(f"what its first call sets up was not found: {one_line(error)}", flush=True)
        return (), attributes
    finally:
        buffers.restore()
        ours.restore(ours.changed())
    return (theirs if differs else ()), unknown


def _perturbed(tensor: torch.Tensor) -> torch.Tensor:
    """Other values of the same kind: integers stay among those that were there, if they differ."""
    if tensor.is_floating_point() or tensor.is_complex():
        return tensor * 0.75 + 0.125
    turned = tensor.flip(list(range(tensor.dim())))
    if not torch.equal(turned, tensor):
        return turned
    if tensor.dtype is torch.bool:
        return ~tensor
    return tensor - 1 if tensor.numel() and int(tensor.min()) > 0 else tensor + 1


def _notes(
    flat: FlatModule,
    buffers: Sequence[str],
    filled: Sequence[str],
    attributes: Sequence[str],
    folder: Path,
) -> list[str]:
    notes = []
    if filled:
        notes.append(f"buffers {list(filled)} are kept as the first call of forward filled them")
    elif buffers:
        notes.append(
            f"forward changes its buffers {list(buffers)}: a change is not kept between runs"
        )
    others = [name for name in attributes if name not in buffers]
    if others:
        line = assignment_line(flat.module, others[0], folder)
        where = f" ({line})" if line else ""
        notes.append(
            f"forward sets {others[:_NAMES]}{where}: what its first call on the examples left"
            " there may have entered the program"
        )
    return notes


def reject_captured_inputs(
    program: ExportedProgram,
    flat: FlatModule,
    first: FirstRun,
    inputs: Sequence[Sequence[torch.Tensor]],
    folder: Path,
) -> None:
    """Refuse a program that holds an input it was traced with, or that the module was first asked.

    Args:
        program: As traced.
        flat: Its module.
        first: What the module held before it was asked at all; that may equal an input.
        inputs: The inputs that the module has been given.
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
