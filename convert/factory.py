"""The user's factory: imported, called, its answer checked; faults bear the user's own line."""

from __future__ import annotations

import difflib
import importlib
import inspect
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from edgeserve.backends.torch.blame import line_of_error, one_line
from edgeserve.convert.options import Options, read_options
from edgeserve.errors import ConvertError, EdgeError
from edgeserve.types.source import Source

if TYPE_CHECKING:
    import torch

__all__ = ["Made", "make"]

_CONTRACT = "(module, example_inputs) or (module, example_inputs, options)"


@dataclass(frozen=True)
class Made:
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
    options: Options
    notes: tuple[str, ...] = ()
    probes: tuple[Sequence[torch.Tensor], ...] = ()


def make(source: Source) -> Made:
    """Import and call the factory that ``source.location`` names.

    The user's folder is appended to ``sys.path``, so it can never stand before an installed
    package. Random numbers are seeded first: a factory without weights gives the same model every
    time.

    Raises:
        ConvertError: EDGE-CONVERT-004 to -010.
    """
    folder = Path(source.folder)
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    importlib.invalidate_caches()
    module_name, _, path = source.location.partition(":")
    module = _import(module_name, folder)
    factory = _look_up(module, path, source.location)
    _seed()
    return _check(_call(factory, source.location, folder), source.location)


def _seed() -> None:
    import torch

    torch.manual_seed(0)
    random.seed(0)


def _import(name: str, folder: Path) -> ModuleType:
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:  # the user's own code
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing and (name == missing or name.startswith(missing + ".")):
            raise _no_module(name, folder) from error
        raise ConvertError(
            "EDGE-CONVERT-005",
            f"module {name!r}",
            wanted="a module that imports",
            got=_said(error),
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
    return ConvertError(
        "EDGE-CONVERT-004",
        f"module {name!r}",
        wanted=f"a module in {folder} or an installed one",
        got="none of that name",
        hint=f"did you mean {close[0]!r}?" if close else "run from the folder that holds it",
    )


def _look_up(module: ModuleType, path: str, location: str) -> Callable[[], Any]:
    import torch

    found: Any = module
    for name in path.split("."):
        if not hasattr(found, name):
            close = difflib.get_close_matches(name, dir(found), 1)
            raise ConvertError(
                "EDGE-CONVERT-006",
                f"factory {location!r}",
                wanted=f"a function {name!r}",
                got=f"none in {getattr(found, '__file__', found)}",
                hint=f"did you mean {close[0]!r}?" if close else "check the name after the colon",
            )
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


def _call(factory: Callable[[], Any], location: str, folder: Path) -> Any:
    try:
        inspect.signature(factory).bind()
    except ValueError:
        pass  # a builtin without a signature
    except TypeError as error:
        raise ConvertError(
            "EDGE-CONVERT-008",
            f"factory {location!r}",
            wanted="a function without arguments",
            got=str(error),
            hint="give its arguments defaults, or wrap it in one that has none",
        ) from error
    try:
        return factory()
    except EdgeError:
        raise
    except (Exception, SystemExit) as error:  # the user's own code
        raise ConvertError(
            "EDGE-CONVERT-007",
            f"factory {location!r}",
            wanted=_CONTRACT,
            got=_said(error),
            hint=_hint(error),
            source_line=line_of_error(error, folder),
        ) from error


def _said(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"a call of sys.exit({error.code!r})"
    return one_line(error)


def _hint(error: BaseException) -> str:
    if isinstance(error, FileNotFoundError):
        return "a factory runs in another folder: open files relative to Path(__file__).parent"
    return "correct that line; the job's log holds the whole trace"


def _check(made: Any, location: str) -> Made:
    import torch

    if not isinstance(made, tuple | list) or len(made) not in (2, 3):
        got = f"{type(made).__name__} of {len(made)}" if isinstance(made, tuple | list) else ""
        raise _wrong(location, got or type(made).__name__)
    module, examples, *rest = made
    if not isinstance(module, torch.nn.Module):
        raise _wrong(location, f"a {type(module).__name__} in the module's place")
    if rest and not isinstance(rest[0], dict):
        raise _wrong(location, f"a {type(rest[0]).__name__} in the options' place")
    return Made(module, examples, read_options(rest[0] if rest else {}))


def _wrong(location: str, got: str) -> ConvertError:
    return ConvertError(
        "EDGE-CONVERT-009",
        f"factory {location!r}",
        wanted=_CONTRACT,
        got=got,
        hint="return a torch.nn.Module, then a tuple or dict of tensors, then (optionally) a dict",
    )
