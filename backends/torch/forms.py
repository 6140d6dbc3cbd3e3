"""Forms of a module that cannot be traced as they are: compiled, scripted, quantized."""

from __future__ import annotations

import torch
from torch import nn

from edgeserve.backends.torch.places import named
from edgeserve.errors import ConvertError

__all__ = ["eager", "refuse_forms"]

#: Parts of torch's quantized packages that compute with floats as long as nothing is converted.
_FLOAT = ("FloatFunctional", "FXFloatFunctional")


def eager(module: nn.Module) -> nn.Module:
    """The module as it was before ``torch.compile``, also inside: that changes no answer."""
    module = _original(module)
    for part in list(module.modules()):
        if getattr(part, "_compiled_call_impl", None) is not None:
            part._compiled_call_impl = None  # of module.compile()
        if isinstance(part, torch.jit.ScriptModule):
            continue
        for name, child in list(part._modules.items()):
            if child is not None and _original(child) is not child:
                part._modules[name] = eager(child)
    return module


def _original(module: nn.Module) -> nn.Module:
    inner = getattr(module, "_orig_mod", None)
    compiled = type(module).__name__ == "OptimizedModule" and isinstance(inner, nn.Module)
    return inner if compiled and inner is not None else module


def refuse_forms(module: nn.Module) -> None:
    """Refuse what holds code or numbers that no trace can follow.

    Raises:
        ConvertError: EDGE-CONVERT-028 a TorchScript module, -029 a quantized one.
    """
    for path, part in module.named_modules():
        if isinstance(part, torch.jit.ScriptModule):
            raise ConvertError(
                "EDGE-CONVERT-028",
                f"module {_scripted(path, part)}",
                wanted="an eager torch.nn.Module",
                got="a TorchScript module (torch.jit)",
                hint="return the eager module that it was made from, without torch.jit.script, "
                "torch.jit.trace or torch.jit.load",
            )
        if _is_quantized(part):
            raise ConvertError(
                "EDGE-CONVERT-029",
                f"module {named(path, part)}",
                wanted="a float module",
                got=f"a quantized one ({type(part).__module__.split('.modules')[0]})",
                hint="return the float module that it was made from: edgeserve quantizes by "
                "itself (--precision w8)",
            )


def _scripted(path: str, part: torch.jit.ScriptModule) -> str:
    """As `named`, with the class that was scripted: all scripted ones are of the same class."""
    kind = getattr(part, "original_name", type(part).__name__)
    return f"{path} ({kind})" if path else str(kind)


def _is_quantized(part: nn.Module) -> bool:
    """Whether a module is of a quantized package of torch: it computes on packed integers.

    The packages' reference modules compute with floats.
    """
    words = type(part).__module__.split(".")
    inside = words[0] == "torch" and "quantized" in words and "reference" not in words
    return inside and type(part).__name__ not in _FLOAT
