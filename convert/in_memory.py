"""A source given in Python: a module with its example, or a function that returns them.

The module is exported in the caller's process, because no worker could build it again. It is
copied first, so that the export (eval mode, the CPU, float32, no gradients) changes nothing of
the caller's; and torch is put into the state of a fresh process while it runs.
"""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgeserve.convert.options import OPTION_KEYS, read_options
from edgeserve.convert.request import ExportRequest
from edgeserve.convert.source import complete_export, export_module_source
from edgeserve.convert.torch_source import SourceModule, check_result, run_factory
from edgeserve.errors import ConvertError
from edgeserve.types.source import Exported, Source

if TYPE_CHECKING:
    import torch


_IMPORT_PATH = (
    "write a function that returns (module, example_inputs) into a file, and give its import "
    'path: convert("my_module:build", out="out")'
)


@dataclass(frozen=True)
class GivenSource:
    """A source that lives in this process.

    Attributes:
        source: How the workspace records it: the module's class.
        made: The caller's module, its example inputs and options.
        reference: The function that a factory named as its server; None: it named none.
    """

    source: Source
    made: SourceModule
    reference: Callable[[Any], object] | None = None


def read_given(source: object, example: object, options: Mapping[str, Any]) -> GivenSource:
    """Read what was given in the place of a SOURCE.

    Args:
        source: A `torch.nn.Module`, or a function without arguments that returns what a factory
            returns, which is called here.
        example: Example inputs of a module: a tensor, or a tuple or dict of them.
        options: What a factory's third value may hold; goes before what a function returns.

    Raises:
        ConvertError: EDGE-CONVERT-085 it is something else; -007 to -010 of factories.
    """
    import torch

    folder = Path.cwd()
    if isinstance(source, torch.nn.Module):
        if example is None:
            raise _given_error("a module without an example of its inputs")
        module, given = source, dict[str, Any]()
        if isinstance(example, torch.Tensor):
            example = (example,)
    elif callable(source) and not isinstance(source, type):
        if example is not None:
            raise _given_error("a function, which returns its example itself, and an example")
        called = f"{getattr(source, '__module__', '')}:{getattr(source, '__qualname__', source)}"
        with _fresh_torch():
            made = run_factory(source, called, folder)
        module, example, given = check_result(made, called)
    else:
        raise _given_error(f"a {type(source).__name__}")
    kind = type(getattr(module, "_orig_mod", module))  # what torch.compile wraps
    merged = {**given, **options}
    reference = merged.pop("reference") if callable(merged.get("reference")) else None
    return GivenSource(
        Source(
            kind="module", location=f"{kind.__module__}:{kind.__qualname__}", folder=str(folder)
        ),
        SourceModule(module, example, read_options(merged)),
        reference,
    )


def export_given(request: ExportRequest, given: GivenSource) -> Exported:
    """Export it in this process, as `edgeserve.convert.source.export_source` does in a worker.

    Raises:
        ConvertError: EDGE-CONVERT-085, the module cannot be copied; and those of an export.
    """
    with _fresh_torch():
        made = SourceModule(_copy(given.made.module), given.made.examples, given.made.options)
        return complete_export(request, export_module_source(request, made, request.shapes))


@contextlib.contextmanager
def _fresh_torch() -> Iterator[None]:
    """Modes of the caller switched off; random numbers seeded as in a worker, and put back."""
    import torch

    state = random.getstate()
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(torch.random.fork_rng(devices=[]))
        if torch.is_autocast_enabled("cpu"):
            stack.enter_context(torch.autocast("cpu", enabled=False))
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        torch.default_generator.manual_seed(0)  # of the CPU: a GPU's would not be put back
        random.seed(0)
        try:
            yield
        finally:
            random.setstate(state)


def _copy(module: torch.nn.Module) -> torch.nn.Module:
    """A deep copy on the CPU; each tensor once, as the module shares them."""
    import torch

    module = getattr(module, "_orig_mod", module)
    if isinstance(module, torch.jit.ScriptModule):
        return module  # the export refuses it, untouched
    memo: dict[int, Any] = {}
    try:
        for part in module.modules():
            for held in (part._parameters, part._buffers, part.__dict__):
                for tensor in held.values():
                    if isinstance(tensor, torch.Tensor) and not tensor.is_meta:
                        memo.setdefault(id(tensor), _copy_tensor(tensor))
        return copy.deepcopy(module, memo)
    except Exception as error:  # whatever a part of the module refuses to be copied with
        got = f"{type(module).__name__}, which cannot be copied: {type(error).__name__}: {error}"
        raise _given_error(got) from error


def _copy_tensor(tensor: torch.Tensor) -> torch.Tensor:
    import torch

    twin = tensor.detach().to("cpu", copy=True)
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(twin, requires_grad=False)
    return twin


def _given_error(got: str) -> ConvertError:
    return ConvertError(
        "EDGE-CONVERT-085",
        "source",
        wanted="a SOURCE as text, a torch.nn.Module with an example, or a function that returns "
        f"(module, example_inputs) or (module, example_inputs, options: {', '.join(OPTION_KEYS)})",
        got=got,
        hint=_IMPORT_PATH,
    )
