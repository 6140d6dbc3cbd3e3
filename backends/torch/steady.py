"""Whether a module answers the same when it is asked twice; told before anything else runs it.

A file answers each call as if it were the first. A module that remembers its calls, or draws random
numbers, has no such answer. The very first answers are kept: whatever running it has changed since,
the exported program is held against those.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from edgeserve.backends.torch.assigned import line_that_changes
from edgeserve.backends.torch.blame import line_of_error, one_line
from edgeserve.backends.torch.buffers import Buffers
from edgeserve.backends.torch.check import difference
from edgeserve.backends.torch.flat import FlatModule
from edgeserve.backends.torch.randomness import Draws, drawn_since, seed, seeds_kept
from edgeserve.backends.torch.state import State
from edgeserve.errors import ConvertError, EdgeError

__all__ = ["First", "ask_twice", "remembers"]

#: Most names of one message.
_NAMES = 4

_OUTSIDE = (
    "nothing that the module holds has changed: a global, a closure, a generator of its own, the"
    " clock or memory that was never written"
)


@dataclass(frozen=True)
class First:
    """What a module said when it was first asked.

    Attributes:
        names: Of its outputs.
        tensors: Its answers to the examples.
        state: What it held before that.
        notes: What calls change in it without changing the answers.
    """

    names: tuple[str, ...]
    tensors: tuple[torch.Tensor, ...]
    state: State
    notes: tuple[str, ...]


def ask_twice(flat: FlatModule, folder: Path) -> First:
    """Call a module twice on its examples, with the same random numbers; buffers are put back.

    A third call, with other random numbers, is made only where some were drawn; two or three more
    where buffers or attributes have changed.

    Raises:
        ConvertError: EDGE-CONVERT-012 the first call fails, -016 it returns no tensors, -017 the
        answers hang on random numbers, -030 on the calls before.
    """
    state, buffers = State(flat.module), Buffers(flat.module)
    with seeds_kept():
        start = seed(0)
        names, first = _first(flat, folder)
        drawn = drawn_since(start)
        attributes = state.changed()
        seed(0)
        differs = _again(flat, first)
        if differs and not (changed := _names(attributes, buffers, state)):
            _refuse_random(flat, first, drawn, folder)
        left = buffers.copies(buffers.changed())
        restored = buffers.restore()
        if differs:
            raise remembers(flat, changed, f"a second call on the same inputs: {differs}", folder)
        if drawn:
            _refuse_random(flat, first, drawn, folder)
            buffers.restore()
        filled = restored if attributes and _only_filled(flat, first, buffers, left) else ()
    inplace = [n for n in attributes if n not in restored and _is_tensor(flat.module, n)]
    carried = _carried(flat, first, [*restored, *inplace])
    set_up, untold = _set_up(flat, first, state, attributes)
    if carried or set_up:
        kept = [*carried, *set_up]
        raise remembers(flat, kept, "what one call leaves there enters the next answer", folder)
    return First(names, first, state, tuple(_notes(flat, restored, filled, untold, folder)))


def _first(flat: FlatModule, folder: Path) -> tuple[tuple[str, ...], tuple[torch.Tensor, ...]]:
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


def _again(flat: FlatModule, first: Sequence[torch.Tensor]) -> str:
    """How another call on the examples differs from the first, in words; empty if it does not."""
    try:
        answers = flat.run(flat.examples)[1]
    except Exception as error:  # it worked once
        return one_line(error)
    if len(answers) != len(first):
        return f"{len(answers)} outputs, not {len(first)}"
    return difference(first, answers)


def _only_filled(
    flat: FlatModule, first: Sequence[torch.Tensor], buffers: Buffers, left: dict[str, torch.Tensor]
) -> bool:
    """Fill buffers again where an attribute tells forward that they were filled already."""
    seed(0)
    empty = bool(left) and bool(_again(flat, first))
    buffers.restore()
    if not empty or not buffers.fits(left):
        return False
    buffers.fill(left)
    return True


def _names(attributes: Sequence[str], buffers: Buffers, state: State) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*buffers.changed(), *attributes, *state.changed()]))


def _refuse_random(
    flat: FlatModule, first: Sequence[torch.Tensor], drawn: Sequence[str], folder: Path
) -> None:
    """Refuse if other random numbers give another answer; says which op drew them, and where."""
    seed(1)
    with Draws(flat.module, folder) as draws:
        differs = _again(flat, first)
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


def remembers(flat: FlatModule, names: Sequence[str], why: str, folder: Path) -> ConvertError:
    """The refusal of a module that keeps state from call to call, in these attributes."""
    lines = [line_that_changes(flat.module, name, folder) for name in names[:_NAMES]]
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


def _carried(
    flat: FlatModule, first: Sequence[torch.Tensor], names: Sequence[str]
) -> tuple[str, ...]:
    """Those of the changed tensors that take something of one call's inputs into the next answer.

    The same inputs twice do not show it: a cache gets the same line written again. So the tensors
    are given other content, which must change the answer, and the inputs other values, which must
    change what is left behind. A statistic fails the first, a table made on demand the second.
    """
    if not names:
        return ()
    kept = Buffers(flat.module, names)
    try:
        kept.fill({name: _other(tensor) for name, tensor in kept.copies(names).items()})
        harmless = not _again(flat, first)
        kept.restore()
        if harmless:
            return ()
        flat.run(flat.examples)
        left = kept.copies(names)
        kept.restore()
        flat.run([_other(tensor) for tensor in flat.examples])
        now = kept.copies(names)
    except Exception as error:  # forward may not take such inputs
        print(f"whether calls depend on each other was not found: {one_line(error)}", flush=True)
        return ()
    finally:
        kept.restore()
    return tuple(name for name in names if difference([left[name]], [now[name]]))


def _set_up(
    flat: FlatModule, first: Sequence[torch.Tensor], state: State, attributes: Sequence[str]
) -> tuple[Sequence[str], Sequence[str]]:
    """Attributes that the first call sets by its inputs, and those of which that is not known.

    The first call is made once more, with other inputs, and then the examples are asked for.
    """
    if not attributes:
        return (), ()
    ours, buffers = State(flat.module), Buffers(flat.module)
    unknown = state.put_back(attributes)
    try:
        flat.run([_other(tensor) for tensor in flat.examples])
        theirs = [name for name in ours.changed() if name in attributes]
        differs = bool(theirs) and bool(_again(flat, first))
    except Exception as error:  # forward may not take such inputs
        print(f"what its first call sets up was not found: {one_line(error)}", flush=True)
        return (), attributes
    finally:
        buffers.restore()
        ours.put_back(ours.changed())
    return (theirs if differs else ()), unknown


def _other(tensor: torch.Tensor) -> torch.Tensor:
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
        line = line_that_changes(flat.module, others[0], folder)
        where = f" ({line})" if line else ""
        notes.append(
            f"forward sets {others[:_NAMES]}{where}: what its first call on the examples left"
            " there may have entered the program"
        )
    return notes
