"""From a Core ML package on disk to one PyMIL function, trusting nothing that the package says.

A ``.mlpackage`` is a folder: ``Manifest.json`` names the model file below ``Data/``, a protobuf
message, beside which lie files of weights. A bare ``.mlmodel`` is that message alone. Paths are
followed only inside the package and never through links.

The function is built by coremltools' own reader. It keeps its state in module globals, so that
only one may run at a time. While it builds the program, it computes with numpy whatever has
constant inputs; that is kept to small results, so that a program of ten lines cannot make it
fill the memory.
"""

from __future__ import annotations

import json
import math
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from coremltools.converters.mil.frontend.milproto.load import load
from coremltools.converters.mil.mil import block as mil_block
from coremltools.converters.mil.mil import types
from coremltools.converters.mil.mil.operation import Operation
from coremltools.converters.mil.mil.types.symbolic import is_symbolic

from edgeserve.backends.coreml.interpreter.checks import check_function
from edgeserve.backends.coreml.interpreter.weight_files import EntryReader, WeightFiles
from edgeserve.backends.session import first_line
from edgeserve.errors import MilError

#: The largest model file; protobuf itself ends at 2 GiB, and weights lie elsewhere.
_MAX_MODEL = (1 << 31) - 1
#: The largest text file (manifest, debug handles).
_MAX_TEXT = 64 << 20


@dataclass(frozen=True)
class Package:
    """A package as read, its program not yet checked.

    Attributes:
        name: The file's or folder's name, for errors.
        spec: The protobuf ``Model``.
        weights: Folder of the weight files; need not exist.
        handles: Numbers of the exporter's nodes by the name of the value they made, where the
            package has them (``executorch_debug_handle_mapping.json``).
    """

    name: str
    spec: Any
    weights: Path
    handles: dict[str, tuple[int, ...]]


def read_package(path: Path) -> Package:
    """Read a ``.mlpackage`` folder or a ``.mlmodel`` file.

    Raises:
        MilError: EDGE-MIL-002, it is none, is damaged or holds no ML program.
    """
    model = _model_file(path) if path.is_dir() else path
    data = _bytes_of(model, _MAX_MODEL, path.name)
    return Package(path.name, _parse(data, path.name), model.parent / "weights", _handles(path))


def _model_file(folder: Path) -> Path:
    """The model file that the manifest names."""
    text = _bytes_of(folder / "Manifest.json", _MAX_TEXT, folder.name)
    try:
        manifest = json.loads(text)
        item = manifest["itemInfoEntries"][manifest["rootModelIdentifier"]]
        relative = PurePosixPath(item["path"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _unreadable(folder.name, f"a manifest that names no model ({error!r})") from error
    if relative.is_absolute() or ".." in relative.parts:
        raise _unreadable(folder.name, f"a manifest that leads outside: {str(relative)!r}")
    try:
        real = Path(os.path.realpath(folder / "Data" / relative))
        straight = real == Path(os.path.realpath(folder)) / "Data" / relative
    except (ValueError, OSError):  # no name that a file could have
        straight = False
    if not straight:
        raise _unreadable(folder.name, f"a link in the way of {str(relative)!r}, or no name")
    return folder / "Data" / relative


def _bytes_of(path: Path, most: int, package: str) -> bytes:
    try:
        if path.is_symlink() or not path.is_file():
            raise _unreadable(package, f"no regular file {path.name!r}")
        if (size := path.stat().st_size) > most:
            raise _unreadable(package, f"{path.name!r} of {size} bytes")
        return path.read_bytes()
    except OSError as error:
        raise _unreadable(package, f"{path.name!r}: {error.strerror}") from error


def _parse(data: bytes, package: str) -> Any:
    """The protobuf message, which must hold an ML program."""
    from coremltools.proto.Model_pb2 import Model

    spec = Model()
    try:
        spec.ParseFromString(data)
    except Exception as error:  # the parser's own kinds, and what it runs out of
        raise _unreadable(package, f"a damaged model file ({error})") from error
    if (kind := spec.WhichOneof("Type")) != "mlProgram":
        raise _unreadable(package, f"{kind or 'nothing'} in place of an ML program")
    return spec


def _handles(path: Path) -> dict[str, tuple[int, ...]]:
    """Debug handles by value; a package without them, or with a damaged file, has none."""
    mapping = path / "executorch_debug_handle_mapping.json"
    if not path.is_dir() or not mapping.is_file() or mapping.stat().st_size > _MAX_TEXT:
        return {}
    found: dict[str, list[int]] = {}
    try:
        for handle, places in json.loads(mapping.read_bytes())["mapping"].items():
            for *_, operation in places if handle.isdigit() else ():
                found.setdefault(str(operation["Output"]), []).append(int(handle))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}
    return {name: tuple(handles) for name, handles in found.items()}


def _unreadable(package: str, got: str) -> MilError:
    wanted = "a Core ML package with an ML program"
    hint = "make the package again, or copy it again from where it is whole"
    return MilError("EDGE-MIL-002", f"package {package!r}", wanted=wanted, got=got, hint=hint)


_LOCK = threading.Lock()

#: The largest result that the reader may compute itself: shapes, indices, masks of attention.
_INFERRED = 1 << 18


def choose_function(package: Package, function: str | None) -> str:
    """The function to run: the asked one, the package's default, ``main``, or the only one.

    Raises:
        MilError: EDGE-MIL-009, there is no such function.
    """
    names = list(package.spec.mlProgram.functions)
    default = package.spec.description.defaultFunctionName
    wanted = function or default or ("main" if "main" in names or len(names) != 1 else names[0])
    if wanted not in names:
        thing = f"function {wanted!r} of package {package.name!r}"
        got = "no such function"
        hint = "leave the function out to run the package's default"
        raise MilError("EDGE-MIL-009", thing, wanted=f"one of {sorted(names)}", got=got, hint=hint)
    return wanted


def load_function(package: Package, name: str) -> Any:
    """Check and load one function; the package's message is reduced to it.

    Returns:
        A `coremltools` MIL ``Function``.

    Raises:
        MilError: EDGE-MIL-003 or -004, the package's sizes lie; -005, the reader refused it.
    """
    functions = package.spec.mlProgram.functions
    for other in [each for each in functions if each != name]:
        del functions[other]
    check_function(functions[name], WeightFiles(package.weights, package.name), package.name)
    version = package.spec.specificationVersion
    with _LOCK, _bounded_inference(), _read_by_entry():
        before = mil_block.BLOCK_STACK
        try:
            program = load(package.spec, version, str(package.weights))
        except (Exception, RecursionError) as error:  # the reader raises whatever it meets
            raise reader_error(package.name, error) from error
        finally:
            mil_block.BLOCK_STACK = before
    return program.functions[name]


@contextmanager
def _bounded_inference() -> Iterator[None]:
    """Keep the reader from computing large results; only to be used under the lock."""
    original = Operation._auto_val

    def bounded(self: Any, output_types: tuple[Any, ...]) -> Any:
        unknown = tuple(None for _ in output_types)
        if self.op_type == "const":
            return original(self, output_types)
        if any(_large(kind) for kind in output_types):
            return unknown
        try:
            return original(self, output_types)
        except (ArithmeticError, AttributeError, IndexError, TypeError, ValueError):
            return unknown  # its numpy code fails on some inputs that the op itself takes

    Operation._auto_val = bounded
    try:
        yield
    finally:
        Operation._auto_val = original


@contextmanager
def _read_by_entry() -> Iterator[None]:
    """Keep the reader from mapping the whole file of weights; only to be used under the lock."""
    reader: Any = sys.modules[load.__module__]
    original = reader.BlobReader
    reader.BlobReader = lambda path: EntryReader(Path(path), original)
    try:
        yield
    finally:
        reader.BlobReader = original


def _large(kind: Any) -> bool:
    if not types.is_tensor(kind):
        return False
    return math.prod(int(s) for s in kind.get_shape() if not is_symbolic(s)) > _INFERRED


def reader_error(package: str, error: BaseException) -> MilError:
    """What the reader, or a step on its program, threw: as a coded error."""
    wanted = "a program that coremltools reads"
    got = first_line(error)
    hint = "make the package again with this version of coremltools"
    return MilError("EDGE-MIL-005", f"package {package!r}", wanted=wanted, got=got, hint=hint)
