"""One conversion tried, as `convert` would do it: taken and right, refused, or wrong in silence.

The script that ``convert --bisect`` leaves holds PyTorch and one converter, in at most thirty
lines. It makes the smallest failing part anew out of plain operators, with random numbers of the
same shapes and ranges, converts it and compares the answers. A part too long to be written down is
taken from the user's factory, or from the exported program.
"""

from __future__ import annotations

import math
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgeserve.backends import Backend
from edgeserve.backends.adapter import Adapter
from edgeserve.backends.base import PlainConversion
from edgeserve.backends.torch.diagnose.unsupported_op import base_name
from edgeserve.convert.target import try_routes
from edgeserve.errors import EdgeError
from edgeserve.files import scratch_folder
from edgeserve.types.source import Exported, Source
from edgeserve.user_lines import exception_chain, one_line

if TYPE_CHECKING:
    import torch

    from edgeserve.backends.torch.diagnose.graph_slicing import GraphSlice


#: Largest difference that counts as the same, as a share of an output's scale; and least scale.
MAX_RELATIVE, MIN_SCALE = 1e-3, 1e-3


@dataclass(frozen=True)
class Failure:
    """How a conversion fails.

    Attributes:
        code: Of the refusal; empty where the file answers wrongly.
        operator: Of the op that was blamed; empty where none was.
        kinds: Names of the exceptions that led to it, outermost first, without our own.
        summary: In a line.
        root: What the innermost of those exceptions says, its first line.
    """

    code: str
    operator: str
    kinds: tuple[str, ...] = field(compare=False)
    summary: str = field(compare=False)
    root: str = field(default="", compare=False)

    @property
    def wrong(self) -> bool:
        """Whether it was converted, and answers wrongly."""
        return not self.code


def conversion_failure(backend: Backend, exported: Exported, root: Path) -> Failure | None:
    """Convert an export and run it on its own examples; None where it answers as PyTorch does."""
    from edgeserve import backends
    from edgeserve.backends.torch import load_examples, reference_artifact

    feed = load_examples(exported, root)
    with scratch_folder(Path(tempfile.gettempdir())) as out:
        try:
            artifact = try_routes(backend, exported, root, out)
            with backend.load(artifact, out, threads=1) as session:
                got = Adapter(session, exported.signature, exported.processing.padding).run(feed)
        except EdgeError as error:
            return _refusal(error)
        reference = reference_artifact(exported)
        with backends.get("torch").load(reference, root, threads=1) as session:
            wanted = session.run(feed)
    return _mismatch(wanted, got)


def part_failure(backend: Backend, part: GraphSlice) -> Failure | None:
    """The same for a part of a program.

    Its export is what `convert` makes of a module.
    """
    from edgeserve.backends.torch.export.export import ExportOptions, export_module
    from edgeserve.backends.torch.program.inspect import graph_sha256, weights_of
    from edgeserve.backends.torch.program.io import write_program

    with scratch_folder(Path(tempfile.gettempdir())) as root:
        try:
            program = export_module(part.module, part.examples, ExportOptions(), root)
            entry, examples = write_program(program, root)
        except EdgeError as error:
            return _refusal(error)
        exported = Exported(
            source=Source(kind="pt2", location=str(root / entry.path), folder=str(root)),
            program=entry,
            examples=examples,
            signature=program.signature,
            weights=weights_of(program.program),
            graph_sha256=graph_sha256(program.program),
        )
        return conversion_failure(backend, exported, root)


def _refusal(error: EdgeError) -> Failure:
    words = error.thing.split()
    operator = words[1] if words[0] == "op" and len(words) > 1 else ""
    chain = list(exception_chain(error.__cause__))
    kinds = tuple(type(each).__name__ for each in chain)
    root = one_line(chain[-1]).partition(": ")[2] if chain else ""
    return Failure(error.code, operator, kinds, error.message, root)


def _mismatch(wanted: Mapping[str, np.ndarray], got: Mapping[str, np.ndarray]) -> Failure | None:
    worst = max((_relative_difference(wanted[name], got[name]) for name in wanted), default=0.0)
    return Failure("", "", (), f"off by {worst:.1e} of the scale") if worst > MAX_RELATIVE else None


def _relative_difference(wanted: np.ndarray, got: np.ndarray) -> float:
    """Largest difference as a share of an output's scale; inf where they cannot be compared."""
    if wanted.shape != got.shape:
        return np.inf
    wide, other = wanted.astype(np.float64), got.astype(np.float64)
    odd = ~np.isfinite(wide)
    if not np.array_equal(wide[odd], other[odd], equal_nan=True):
        return np.inf
    wide, other = wide[~odd], other[~odd]
    scale = max(float(np.abs(wide).max(initial=0)), MIN_SCALE)
    off = float(np.abs(wide - other).max(initial=0)) / scale
    return off if np.isfinite(off) else np.inf


#: Most lines of a script.
MAX_LINES = 30

_LIMIT_S = 300.0

_COMPARE = """\
for wanted, answer in zip(model(*inputs), got):
    off = (wanted.double() - torch.as_tensor(answer).double()).abs().max()
    assert off <= 1e-3 * max(wanted.abs().max(), 1e-3), f"off by {off:.3g}"
"""

#: What the script says of a package that nothing but Apple's systems run.
_ONLY_ON_MAC = "taken; only a Mac runs it"

#: Letters of two messages that have to be alike; further on they name nodes of their own programs.
_COMPARED_PREFIX = 30

_LAST = re.compile(r"^([\w.]*(?:Error|Exception|Symnode|SymNode)\w*)(?:: (.*))?$", re.MULTILINE)


def part_script(
    backend: Backend, part: GraphSlice, failure: Failure, module: str | None
) -> str | None:
    """The script of a part; None where it cannot be written down in thirty lines.

    Args:
        backend: Converts without edgeserve by its `Backend.plain`.
        part: What fails.
        failure: How.
        module: Path of the submodule that the part lies in.
    """
    plain = _plain(backend)
    try:
        body = [*_constants(part), "", *_forward(part)]
    except ValueError as error:
        print(f"the part is not written down: {error}", flush=True)
        return None
    inputs = ", ".join(map(_random, part.examples))
    lines = [
        f'"""{_title(backend, failure, part.operators)}{f", in {module}" if module else ""}."""',
        *plain.imports.splitlines(),
        "",
        "",
        "class Part(torch.nn.Module):",
        *body,
        "",
        "",
        "torch.manual_seed(0)",
        "model = Part().eval()",
        f"inputs = ({inputs},)",
        *plain.lines.splitlines(),
        *_COMPARE.splitlines(),
    ]
    while len(lines) > MAX_LINES and "" in lines:
        lines.remove("")
    return "\n".join(lines) + "\n" if len(lines) <= MAX_LINES else None


def factory_script(backend: Backend, exported: Exported, root: Path, failure: Failure) -> str:
    """The script of a whole model: from the user's factory, else from the exported program."""
    plain = _plain(backend)
    made_by = exported.source.kind == "factory"
    get = _from_factory(exported) if made_by else _from_program(exported, root)
    imports = {"import sys" if made_by else "import numpy", *plain.imports.splitlines()}
    lines = [
        f'"""{_title(backend, failure)}; only as a whole."""',
        *sorted(imports),
        *get,
        "model = lambda *x: torch.utils._pytree.tree_leaves(module(*x))",
        *plain.lines.replace("(model, inputs)", "(module, inputs)").splitlines(),
        *_COMPARE.splitlines(),
    ]
    return "\n".join(lines) + "\n"


def _from_factory(exported: Exported) -> list[str]:
    name, _, function = exported.source.location.partition(":")
    return [
        f"sys.path.append({exported.source.folder!r})",
        f"from {name} import {function.partition('.')[0]}",
        f"module, inputs = {function}()[:2]",
        "inputs = tuple(inputs.values() if isinstance(inputs, dict) else inputs)",
        "module.eval()",
    ]


def _from_program(exported: Exported, root: Path) -> list[str]:
    names = [spec.name for spec in exported.signature.inputs]
    return [
        f"module = torch.export.load({str(root / exported.program.path)!r}).module()",
        f"held = numpy.load({str(root / exported.examples.path)!r})",
        f"inputs = tuple(torch.from_numpy(held[name]) for name in {names!r})",
    ]


def _plain(backend: Backend) -> PlainConversion:
    assert backend.plain is not None  # the caller writes no script without it
    return backend.plain


def _title(backend: Backend, failure: Failure, operators: Sequence[str] = ()) -> str:
    blamed = failure.operator or (operators[0] if len(operators) == 1 else "")
    about = blamed or "this part"
    name = backend.title or backend.format
    return f"The {name} converter {'gets' if failure.wrong else 'refuses'} {about}" + (
        " wrong" if failure.wrong else ""
    )


def _constants(part: GraphSlice) -> Iterator[str]:
    held = dict(part.module.named_buffers())
    if any(node.op == "get_attr" and node.target not in held for node in part.module.graph.nodes):
        raise ValueError("it holds a graph of its own")
    if held:
        yield "    def __init__(self):"
        yield "        super().__init__()"
    for name, tensor in held.items():
        yield f'        self.register_buffer("{name}", {_random(tensor)})'


def _forward(part: GraphSlice) -> Iterator[str]:
    nodes = list(part.module.graph.nodes)
    inputs = [node.name for node in nodes if node.op == "placeholder"]
    yield f"    def forward({', '.join(['self', *inputs])}):"
    names = {n.name: f"self.{n.target}" if n.op == "get_attr" else n.name for n in nodes}
    for node in nodes:
        if node.op == "call_function":
            yield f"        {node.name} = {_call(node, names)}"
        elif node.op == "output":
            yield f"        return {_python_literal(node.args[0], names)}"


def _call(node: Any, names: dict[str, str]) -> str:
    given = [_python_literal(each, names) for each in node.args]
    if node.target.__name__ == "getitem":
        return f"{given[0]}[{given[1]}]"
    if not str(node.target).startswith("aten."):
        raise ValueError(f"{node.target} is no operator of ATen")
    given += [f"{key}={_python_literal(value, names)}" for key, value in node.kwargs.items()]
    return f"torch.ops.{node.target}({', '.join(given)})"


def _python_literal(value: Any, names: dict[str, str]) -> str:
    """An argument as Python writes it."""
    if hasattr(value, "op") and hasattr(value, "name"):
        return names[value.name]
    if isinstance(value, tuple | list):
        inner = ", ".join(_python_literal(each, names) for each in value)
        if isinstance(value, list):
            return f"[{inner}]"
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if type(value).__name__ == "device":
        return repr(str(value))
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if type(value).__module__ == "torch" and str(value).startswith("torch."):
        return str(value)
    raise ValueError(f"a {type(value).__name__} cannot be written down")


def _random(tensor: torch.Tensor) -> str:
    """Code that makes random numbers of a tensor's shape, dtype and range."""
    import torch

    shape = tuple(tensor.shape)
    dtype = f"dtype={tensor.dtype}"
    if not tensor.numel():
        return f"torch.zeros({shape}, {dtype})"
    if tensor.numel() <= 8 and not tensor.is_floating_point():
        return f"torch.tensor({tensor.tolist()}, {dtype})"
    if tensor.dtype == torch.bool:
        return f"torch.randint(2, {shape}).bool()"
    low, high = tensor.min().item(), tensor.max().item()
    if not tensor.is_floating_point():
        return f"torch.randint({low}, {int(high) + 1}, {shape}, {dtype})"
    more = "" if tensor.dtype == torch.float32 else f".to({tensor.dtype})"
    if not (math.isfinite(low) and math.isfinite(high)) or low < 0 < high:
        return f"torch.randn({shape}){more}"
    return f"(torch.rand({shape}) * {high - low:.4g} + {low:.4g}){more}"


def run_script(path: Path, failure: Failure) -> tuple[bool, str]:
    """Run a script, and say whether it fails as the conversion did.

    Returns:
        Whether, and in words what came of it.
    """
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run(
                [sys.executable, "-P", str(path)],
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=_LIMIT_S,
                errors="replace",
            )
        except subprocess.TimeoutExpired:
            return False, f"{path.name} did not end in {_LIMIT_S:.0f} s"
    if _ONLY_ON_MAC in done.stderr and failure.wrong:
        return False, f"{path.name} converts the part; only a Mac can run it to show the values"
    if done.returncode == 0 or _ONLY_ON_MAC in done.stderr:
        return False, f"{path.name} does not fail: the plain converter takes this part"
    matches = _LAST.findall(done.stderr)
    kind, message = matches[-1] if matches else ("", done.stderr[-200:])
    if _same_failure(kind.rpartition(".")[2], message, done.stderr, failure):
        return True, f"{path.name} fails in the same way without edgeserve"
    shown = " ".join(f"{kind}: {message}".split())[:200]
    return False, f"{path.name} fails in another way without edgeserve: {shown}"


def _same_failure(kind: str, message: str, trace: str, failure: Failure) -> bool:
    if failure.wrong:
        return kind == "AssertionError" and message.startswith("off by")
    named = _alphanumeric(base_name(failure.operator)) if failure.operator else ""
    if named and named in _alphanumeric(message):
        return True
    root = _alphanumeric(failure.root)[:_COMPARED_PREFIX]
    return kind in failure.kinds and bool(root) and root in _alphanumeric(trace)


def _alphanumeric(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())
