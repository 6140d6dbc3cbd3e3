"""Check with the standard library that a foreign ``.pt2`` is data only, before torch reads it.

Three things in such a file can run code of its author: pickles (for weights, constants and example
inputs), native code and custom objects, and text that torch evaluates or resolves to Python objects
(symbolic sizes through sympy's eval, guards through exec, operator names through getattr). Here
every member must be known, every pickle may only rebuild tensors, every such text must fit a strict
pattern; guards are dropped. torch then loads a new archive with only the
checked members.
"""

from __future__ import annotations

import io
import json
import pickletools
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from edgeserve.errors import ConvertError

_MEMBER = re.compile(
    r"[^/]+/(archive_format|archive_version|byteorder|\.data/(version|serialization_id)"
    r"|\.format_version|\.storage_alignment|models/model\.json|data/sample_inputs/model\.pt"
    r"|data/weights/(weight_\d+|model_weights_config\.json)"
    r"|data/constants/(tensor_\d+|model_constants_config\.json))"
)

#: Members of an archive of tensors inside it; anything else could make it a script of torch.jit.
_INNER = re.compile(
    r"[^/]+/(data\.pkl|byteorder|version|\.data/serialization_id|\.format_version"
    r"|\.storage_alignment|data/\d+)"
)

#: What a pickle of tensors in the usual containers names, and nothing else.
_GLOBALS = {
    "collections OrderedDict",
    "torch._utils _rebuild_parameter",
    "torch._utils _rebuild_tensor_v2",
    *(
        f"torch {kind}Storage"
        for kind in "BFloat16 Bool Byte Char Double Float Half Int Long Short".split()
    ),
}

#: Opcodes that build data; the ones that call (REDUCE, NEWOBJ) can only call what GLOBAL named.
_BAD_OPCODES = set("STACK_GLOBAL INST OBJ NEWOBJ NEWOBJ_EX EXT1 EXT2 EXT4 BUILD PERSID".split())

_TARGET = re.compile(
    r"torch\.ops\.(aten|prim|prims|higher_order|quantized_decomposed)\.[A-Za-z_]\w*(\.\w+)?"
    r"|_operator\.(add|sub|mul|floordiv|truediv|mod|neg|pow|eq|ne|lt|le|gt|ge|and_|or_|not_|getitem)"
    r"|math\.(ceil|floor|trunc|sqrt)"
    r"|torch\.(sym_\w+|_sym_\w+)"
)
#: Operators of ATen that reach outside the program.
_UNSAFE_OPERATOR = re.compile(
    r"\.(from_file|_?save\w*|_?load\w*|__(?!and__|or__|xor__|[lr]shift__|i\w+__)\w*)\b"
)

_EXPRESSION = re.compile(r"[\w\s'+\-*/(),=<>.%]*")
_WORD = re.compile(r"[A-Za-z_]\w*")
_SYMBOL = re.compile(r"(s|u|zuf|zf|zs)\d+")
_SYMPY = set(
    "Symbol Integer Rational Float positive nonnegative integer True False Add Mul Pow Max "
    "Min Mod PythonMod FloorDiv CleanDiv CeilDiv ModularIndexing Where CeilToInt FloorToInt "
    "TruncToInt IntTrueDiv FloatTrueDiv ToFloat RoundToInt Identity PowByNatural LShift "
    "RShift Eq Ne Lt Le Gt Ge And Or Not floor ceiling oo int_oo".split()
)

_TREE_TYPES = {None, "builtins.tuple", "builtins.list", "builtins.dict", "collections.OrderedDict"}


def sanitized_copy(path: Path, copy: Path) -> Path:
    """Write to ``copy`` what of ``path`` is data only, and return ``copy``.

    Raises:
        ConvertError: EDGE-CONVERT-018 something in it could run code, -019 not such an archive.
    """
    try:
        with zipfile.ZipFile(path) as archive, zipfile.ZipFile(copy, "w") as fresh:
            for name in _names(archive):
                fresh.writestr(name, _member(name, archive.read(name)))
    except (zipfile.BadZipFile, OSError, EOFError, NotImplementedError, RuntimeError) as error:
        raise _unreadable(str(error)) from error
    return copy


def _names(archive: zipfile.ZipFile) -> list[str]:
    names = archive.namelist()
    if len(set(names)) != len(names) or len({name.split("/")[0] for name in names}) != 1:
        raise _refused("members", "one folder, each name once")
    for info in archive.infolist():
        if not _MEMBER.fullmatch(info.filename):
            raise _refused(f"member {info.filename!r}", "a kind of member that holds data only")
        if info.compress_type != zipfile.ZIP_STORED:
            raise _refused(f"member {info.filename!r}", "stored bytes", "compressed ones")
    if not any(name.endswith("/models/model.json") for name in names):
        raise _unreadable("no models/model.json")
    return names


def _member(name: str, data: bytes) -> bytes:
    """The member's bytes once checked; the program's without its guards."""
    if name.endswith(".pt"):
        _check_pickles(name, data)
        return data
    if not name.endswith(".json"):
        return data
    try:
        held = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _unreadable(f"{name}: {error}") from error
    if name.endswith("_config.json"):
        _check_config(name, held)
        return data
    if isinstance(held, dict):
        held["guards_code"] = []  # assertions as Python source, which torch would exec
    _check_program(held)
    return json.dumps(held).encode()


def _check_config(name: str, held: Any) -> None:
    """Weights and constants lie as raw bytes, in members of the allowed names."""
    for key, value in _pairs(held):
        if key == "use_pickle" and value is not False:
            raise _refused(f"member {name!r}", "weights as raw bytes, not as pickles")


def _check_pickles(name: str, data: bytes) -> None:
    """An empty member, or an archive whose pickle names nothing but what rebuilds tensors."""
    if not data:
        return
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as inner:
            if not all(_INNER.fullmatch(n) for n in inner.namelist()):
                raise _refused(f"archive {name!r}", "tensors only", f"{inner.namelist()[:9]}")
            pickles = [inner.read(n) for n in inner.namelist() if n.endswith(".pkl")]
            for opcode, argument, _ in (op for p in pickles for op in pickletools.genops(p)):
                named = opcode.name == "GLOBAL" and argument not in _GLOBALS
                if named or opcode.name in _BAD_OPCODES:
                    got = str(argument or opcode.name)
                    raise _refused(f"pickle in {name!r}", "tensors only", got)
    except (zipfile.BadZipFile, ValueError) as error:
        raise _refused(f"pickle in {name!r}", "tensors only", str(error)) from error


def _check_program(held: Any) -> None:
    for key, value in _pairs(held):
        if key in ("target", "as_operator") and isinstance(value, str):
            if not _TARGET.fullmatch(value) or _UNSAFE_OPERATOR.search(value):
                raise _refused("operator", "an operator of ATen", value)
        elif key in ("expr_str", "as_expr") and isinstance(value, str):
            _check_expression(value)
        elif key in ("in_spec", "out_spec") and isinstance(value, str):
            _check_tree(value)


def _check_expression(text: str) -> None:
    words = _WORD.findall(
        re.sub(r"\d+\.?\d*(e[+-]?\d+)?", lambda m: " " if _is_standalone(text, m) else m[0], text)
    )
    known = all(word in _SYMPY or _SYMBOL.fullmatch(word) for word in words)
    if not _EXPRESSION.fullmatch(text) or not known or len(text) > 10_000:
        raise _refused("size", "an expression of symbols", text[:80])


def _is_standalone(text: str, match: re.Match[str]) -> bool:
    """Whether a number stands by itself, not at the end of a name."""
    before = text[match.start() - 1 : match.start()]
    return not (before.isalnum() or before == "_")


def _check_tree(text: str) -> None:
    try:
        held = json.loads(text)
    except ValueError as error:
        raise _unreadable(f"tree spec: {error}") from error
    for key, value in _pairs(held):
        if key == "__enum__" or (key == "type" and value not in _TREE_TYPES):
            raise _refused("inputs or outputs", "tuples, lists and dicts", str(value))


def _pairs(held: Any) -> Iterator[tuple[str, Any]]:
    """Every key and value anywhere in a JSON value."""
    stack = [held]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            yield from value.items()
            stack.extend(value.values())
        elif isinstance(value, list):
            stack.extend(value)


def _refused(thing: str, wanted: str, got: str = "something else") -> ConvertError:
    hint = "export it again from plain tensors; --trust-pickle lets its author run code here"
    return ConvertError("EDGE-CONVERT-018", f".pt2: {thing}", wanted=wanted, got=got, hint=hint)


def _unreadable(got: str) -> ConvertError:
    wanted = "an archive that torch.export.save wrote"
    hint = "export it again with torch.export.save and this version of torch"
    return ConvertError("EDGE-CONVERT-019", "program", wanted=wanted, got=got, hint=hint)
