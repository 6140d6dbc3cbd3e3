"""One tiny module for each common operator and its variants; the first axis is the batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from dev.zoo import ops_axes, ops_dims, ops_layers, ops_ranks, ops_spectra, ops_values
from dev.zoo.model_helpers import Function, Made, pack_of, randomize_weights
from dev.zoo.ops_inputs import ABOVE, WITHIN, X, Y


def _of(module: Any, *examples: Tensor) -> Callable[[], Made]:
    def factory() -> Made:
        made = module if isinstance(module, nn.Module) else Function(module)
        randomize_weights(made, examples)
        return made, examples, {"input_names": [f"in{i}" for i in range(len(examples))]}

    return factory


def _table() -> dict[str, Callable[[], Made]]:
    made: dict[str, Callable[[], Made]] = {}
    groups: list[tuple[dict[str, Any], tuple[Tensor, ...]]] = [
        (ops_values.UNARY, (X,)),
        (ops_values.POSITIVE, (ABOVE,)),
        (ops_values.BOUNDED, (WITHIN,)),
        (ops_values.ACTIVATIONS, (X,)),
        (ops_values.BINARY, (X, Y)),
        (ops_axes.REDUCTIONS, (X,)),
        (ops_axes.SHAPES, (X,)),
        (ops_axes.INDEXING, (X,)),
    ]
    for group, examples in groups:
        made |= {
            name: _of(function, *examples) for name, function in group.items() if name not in made
        }
    made |= {name: _of(function, a, b) for name, (function, a, b) in ops_values.WHOLE.items()}
    made |= {name: _of(function, x) for name, (function, x) in ops_dims.DIMS.items()}
    made |= {name: _of(function, *xs) for name, (function, *xs) in ops_ranks.RANKS.items()}
    layers = {
        (f"{name}_layer" if name in made else name): pair
        for name, pair in (ops_layers.LAYERS | ops_spectra.SPECTRA).items()
    }
    return made | {name: _of(module, x) for name, (module, x) in layers.items()}


FACTORIES = _table()


def pack(names: list[str]) -> Made:
    """Several operators as one module, each with inputs and outputs of its own."""
    return pack_of({name: FACTORIES[name]() for name in names})


def __getattr__(name: str) -> Callable[[], Made]:
    """Each factory under its own name, as ``ops:roll`` looks it up; ``ops:add+roll`` is a pack."""
    names = name.split("+")
    if all(each in FACTORIES for each in names):
        return FACTORIES[name] if len(names) == 1 else lambda: pack(names)
    raise AttributeError(name)
