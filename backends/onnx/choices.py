"""What is chosen for a processor: the type of 8-bit activations, and whether weights lose a bit.

ONNX Runtime's integer kernels on x86 take unsigned activations in half the time of signed ones;
elsewhere signed ones are native. Without VNNI (x86) or dot product (ARM) instructions, two products
are added in 16 bits, which saturate: answers then differ from those of other processors unless the
weights keep to 7 bits.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from edgeserve.environment import environment
from edgeserve.errors import QuantizeError
from edgeserve.types.artifact import Recipe

__all__ = ["activation_for", "reduce_range_for", "resolved"]

_X86 = ("x86_64", "amd64", "i386", "i686", "x86")

#: Instruction sets whose 8-bit products are added in 32 bits at once.
_EXACT = frozenset({"avx512_vnni", "avx_vnni", "amx_int8", "vnni", "dotprod", "i8mm"})

_WORDS = {"activation": ("u8", "s8"), "reduce_range": ("false", "true")}


def activation_for(machine: str) -> str:
    """The activations that a kind of processor multiplies faster: "u8" or "s8".

    Args:
        machine: As `platform.machine` says it ("x86_64", "aarch64").
    """
    return "u8" if machine.lower() in _X86 else "s8"


def reduce_range_for(features: Sequence[str]) -> str:
    """Whether weights must keep to 7 bits, "true" or "false".

    Args:
        features: Instruction sets in the words of `edgeserve.environment.FEATURES`.
    """
    return "false" if _EXACT & set(features) else "true"


def resolved(recipe: Recipe) -> Recipe:
    """The recipe with what it leaves open chosen for this machine.

    Raises:
        QuantizeError: EDGE-QUANTIZE-008, an option has a value that it cannot have.
    """
    options = dict(recipe.options)
    for name, words in _WORDS.items():
        if name in options and options[name] not in words:
            raise QuantizeError(
                "EDGE-QUANTIZE-008",
                f"option {name!r}",
                wanted=" or ".join(words),
                got=repr(options[name]),
                hint="leave it out to have it chosen for this machine",
            )
    if recipe.precision == "w8a8":
        here = environment()
        options.setdefault("activation", activation_for(here.machine))
        options.setdefault("reduce_range", reduce_range_for(here.features))
    return msgspec.structs.replace(recipe, options=dict(sorted(options.items())))
