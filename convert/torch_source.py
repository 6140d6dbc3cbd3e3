"""A PyTorch module as a source: from the user's factory, or from a foreign ``.pt2``.

A factory is imported and called and its result checked; errors name the user's own line. A
foreign ``.pt2`` is checked before it is loaded, and then exported again like any other module.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import random
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from edgeserve.convert.options import FactoryOptions, read_options
from edgeserve.errors import ConvertError, EdgeError
from edgeserve.types.source import Source
from edgeserve.user_lines import line_of_error, one_line

if TYPE_CHECKING:
    import torch
    from torch import fx
    from torch.export import ExportedProgram


_CONTRACT = "(module, example_inputs) or (module, example_inputs, options)"


@dataclass(frozen=True)
class SourceModule:
    """What a source gives.

    Attributes:
        module: The module.
        examples: Its example inputs, nested as forward takes them.
        options: Names, shapes, task and processing.
        notes: What was decided on the way, for the report.
        probes: Further inputs to compare the exported program on, each in the examples' order.
    """

    module: torch.nn.Module
    examples: object
    options: FactoryOptions
    notes: tuple[str, ...] = ()
    probes: tuple[Sequence[torch.Tensor], ...] = ()


def call_factory(source: Source) -> SourceModule:
    """Import and call the factory that ``source.location`` names.

    The user's folder is appended to ``sys.path``, so it can never stand before an installed
    package. Random numbers are seeded first: a factory without weights gives the same model every
    time.

    Raises:
        ConvertError: EDGE-CONVERT-004 to -010.
    """
    import torch

    folder = Path(source.folder)
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    importlib.invalidate_caches()
    name, _, path = source.location.partition(":")
    factory = _look_up(_import(name, folder), path, source.location)
    torch.manual_seed(0)
    random.seed(0)
    made = run_factory(factory, source.location, folder)
    module, examples, options = check_result(made, source.location)
    return SourceModule(module, examples, read_options(options))


def _import(name: str, folder: Path) -> ModuleType:
    try:
        return importlib.import_module(name)
    except BaseException as error:  # the user's own code
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing and (name == missing or name.startswith(missing + ".")):
            raise _no_module(name, folder) from error
        raise ConvertError(
            "EDGE-CONVERT-005",
            f"module {name!r}",
            wanted="a module that imports",
            got=_error_text(error),
            hint=_import_hint(name, folder, error),
            source_line=line_of_error(error, folder),
        ) from error


def _import_hint(name: str, folder: Path, error: BaseException) -> str:
    """What to do about a module that does not import; one of a package needs the package's name."""
    if isinstance(error, ImportError) and "no known parent package" in str(error):
        return (
            f"call edgeserve from {folder.parent}, with {folder.name}.{name} before the colon: "
            "relative imports need the package's name"
        )
    return f"make `python -c 'import {name}'` work in your folder, with this interpreter"


def _no_module(name: str, folder: Path) -> ConvertError:
    there = sorted(path.stem for path in folder.glob("*.py"))
    close = difflib.get_close_matches(name, there, 1)
    wanted = f"a module in {folder} or an installed one"
    got = "none of that name"
    hint = f"did you mean {close[0]!r}?" if close else "run from the folder that holds it"
    return ConvertError("EDGE-CONVERT-004", f"module {name!r}", wanted=wanted, got=got, hint=hint)


def _look_up(module: ModuleType, path: str, location: str) -> Callable[[], Any]:
    import torch

    found: Any = module
    for name in path.split("."):
        if not hasattr(found, name):
            close = difflib.get_close_matches(name, dir(found), 1)
            where = f"factory {location!r}"
            wanted = f"a function {name!r}"
            got = f"none in {getattr(found, '__file__', found)}"
            hint = f"did you mean {close[0]!r}?" if close else "check the name after the colon"
            raise ConvertError("EDGE-CONVERT-006", where, wanted=wanted, got=got, hint=hint)
        found = getattr(found, name)
    if not callable(found) or isinstance(found, torch.nn.Module):
        raise ConvertError(
            "EDGE-CONVERT-006",
            f"factory {location!r}",
            wanted="a function",
            got=type(found).__name__,
            hint=f"write a function that returns {_CONTRACT}",
        )
    return found  # type: ignore[no-any-return]


def run_factory(factory: Callable[[], Any], location: str, folder: Path) -> Any:
    """Call a factory.

    Raises:
        ConvertError: EDGE-CONVERT-007 it raised an exception, -008 it takes arguments.
    """
    try:
        inspect.signature(factory).bind()
    except ValueError:
        pass  # a builtin without a signature
    except TypeError as error:
        where = f"factory {location!r}"
        wanted = "a function without arguments"
        got = str(error)
        hint = "give its arguments defaults, or wrap it in one that has none"
        raise ConvertError("EDGE-CONVERT-008", where, wanted=wanted, got=got, hint=hint) from error
    try:
        return factory()
    except EdgeError:
        raise
    except BaseException as error:  # the user's own code
        raise ConvertError(
            "EDGE-CONVERT-007",
            f"factory {location!r}",
            wanted=_CONTRACT,
            got=_error_text(error),
            hint=_hint(error),
            source_line=line_of_error(error, folder),
        ) from error


def _error_text(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"a call of sys.exit({error.code!r})"
    return one_line(error)


def _hint(error: BaseException) -> str:
    if isinstance(error, FileNotFoundError):
        return "a factory runs in another folder: open files relative to Path(__file__).parent"
    return "correct that line; the job's log holds the whole trace"


def check_result(made: Any, location: str) -> tuple[torch.nn.Module, object, dict[str, Any]]:
    """What a factory returned, as module, example inputs and options.

    Raises:
        ConvertError: EDGE-CONVERT-009.
    """
    import torch

    if not isinstance(made, tuple | list) or len(made) not in (2, 3):
        got = f"{type(made).__name__} of {len(made)}" if isinstance(made, tuple | list) else ""
        raise _result_error(location, got or type(made).__name__)
    module, examples, *rest = made
    if not isinstance(module, torch.nn.Module):
        raise _result_error(location, f"a {type(module).__name__} in the module's place")
    if rest and not isinstance(rest[0], dict):
        raise _result_error(location, f"a {type(rest[0]).__name__} in the options' place")
    return module, examples, dict(rest[0]) if rest else {}


def _result_error(location: str, got: str) -> ConvertError:
    hint = "return a torch.nn.Module, then a tuple or dict of tensors, then (optionally) a dict"
    return ConvertError(
        "EDGE-CONVERT-009", f"factory {location!r}", wanted=_CONTRACT, got=got, hint=hint
    )


def load_pt2(path: Path, trust_pickle: bool) -> SourceModule:
    """Load a ``.pt2`` as a module with its own examples and dynamic shapes.

    Args:
        path: What `torch.export.save` wrote.
        trust_pickle: Load it as it is, whatever it holds. Without this, a copy is loaded that holds
            only what was checked.

    Raises:
        ConvertError: EDGE-CONVERT-018 refused, -019 not a program that this torch can read.
    """
    from edgeserve.backends.torch.program.pt2_safety import sanitized_copy

    with tempfile.TemporaryDirectory() as folder:
        safe = path if trust_pickle else sanitized_copy(path, Path(folder) / "checked.pt2")
        program = _load_program(safe, path.name)
    args, kwargs, names = _example_inputs(program)
    module = _plain_module(program.module(check_guards=False), names, list(kwargs))
    examples = dict(zip(names, args, strict=True)) | kwargs
    return SourceModule(
        module, examples, FactoryOptions(dynamic_shapes=_dynamic_shapes(program, module, examples))
    )


def _load_program(path: Path, name: str) -> ExportedProgram:
    import torch

    try:
        return torch.export.load(path)
    except Exception as error:  # torch raises many kinds here
        where = f"program {name!r}"
        wanted = f"a program that torch {torch.__version__} reads"
        got = one_line(error)
        hint = "export it again with torch.export.save and this version of torch"
        raise ConvertError("EDGE-CONVERT-019", where, wanted=wanted, got=got, hint=hint) from error


def _example_inputs(program: ExportedProgram) -> tuple[tuple[Any, ...], dict[str, Any], list[str]]:
    """Example inputs by position and by name, and names for the former; made up where missing."""
    from torch.utils import _pytree as pytree

    if program.example_inputs:
        args, kwargs = program.example_inputs
    else:
        flat = [
            _synthetic_tensor(node.meta["val"]) if node is not None else constant
            for node, constant in _user_inputs(program)
        ]
        args, kwargs = pytree.tree_unflatten(flat, program.call_spec.in_spec)
    signature = program.module_call_graph[0].signature
    names = list((signature.forward_arg_names if signature else None) or [])[: len(args)]
    names += [f"input_{i}" for i in range(len(names), len(args))]
    return tuple(args), dict(kwargs), names


def _plain_module(
    inner: torch.nn.Module, positional: list[str], named: list[str]
) -> torch.nn.Module:
    """An ordinary module around an exported one, which `torch.export` would treat in its own way.

    It shares the inner one's parameters, buffers and submodules, so that they keep their names, and
    its forward tells which arguments are taken by name only.
    """
    import torch

    kinds = inspect.Parameter
    parameters = [kinds(name, kinds.POSITIONAL_OR_KEYWORD) for name in positional]
    parameters += [kinds(name, kinds.KEYWORD_ONLY) for name in named]
    original = inner.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs)

    forward.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    shell = torch.nn.Module()
    for held in ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"):
        shell.__dict__[held] = inner.__dict__[held]
    shell.__dict__["forward"] = forward
    for part in shell.modules():
        part.training = False  # an exported module has no eval(); its trace is fixed anyway
    return shell


def _user_inputs(program: ExportedProgram) -> list[tuple[fx.Node | None, Any]]:
    """For each input of the program its node, or None and the constant that it is fixed at."""
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    return [(nodes.get(str(name)), name) for name in program.graph_signature.user_inputs]


def _synthetic_tensor(like: torch.Tensor) -> torch.Tensor:
    """A tensor of that kind, of the size traced: random floats, or zeros."""
    import torch

    shape = [size if isinstance(size, int) else int(size.node.hint) for size in like.shape]
    if like.dtype.is_floating_point:
        generator = torch.Generator().manual_seed(0)
        return torch.rand(shape, generator=generator).to(like.dtype)
    return torch.zeros(shape, dtype=like.dtype)


def _dynamic_shapes(
    program: ExportedProgram, module: torch.nn.Module, examples: dict[str, Any]
) -> object:
    """The program's dynamic dimensions in the form that `parse_dynamic_shapes` takes."""
    from torch.export import Dim

    from edgeserve.backends.torch.export.dynamic_shapes import UNBOUNDED
    from edgeserve.backends.torch.export.flat_module import flatten_module

    names = flatten_module(module, examples).names
    tensors = [node.meta["val"] for node, _ in _user_inputs(program) if node is not None]
    dims: dict[str, Any] = {}
    shapes: dict[str, dict[int, Any]] = {}
    for name, tensor in zip(names, tensors, strict=True):
        for axis, size in enumerate(tensor.shape):
            if isinstance(size, int):
                continue
            span = program.range_constraints.get(size.node.expr)
            if span is None:  # made of other dimensions: torch finds the relation again
                shapes.setdefault(name, {})[axis] = Dim.AUTO
                continue
            low = max(1, int(span.lower))
            high = None if span.upper >= UNBOUNDED else int(span.upper)
            dim = dims.setdefault(str(size), Dim(f"{name}_dim{axis}", min=low, max=high))
            shapes.setdefault(name, {})[axis] = dim
    return shapes
