"""An ONNX file onward to formats that are made from PyTorch: a form of it, shown to be equal.

The file is imported at the sizes of its examples. Nothing is supposed of the import: the module is
run beside ONNX Runtime on inputs of several kinds, and what differs is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from edgeserve.backends import Session
from edgeserve.backends.reference import reference
from edgeserve.errors import BackendError, ConvertError, EdgeError, UnsupportedOp
from edgeserve.types.source import Exported

if TYPE_CHECKING:
    import torch

    from edgeserve.backends.torch.onnx_import.build import OnnxModule


#: What an artifact's provenance says of this way.
IMPORTED = "import_onnx"

#: Largest difference, relative to each output's largest value over all inputs tried: on every one
#: of them, and on half of them: other kernels, the same formulas.
_MAX_RELATIVE, _MEDIAN_RELATIVE = 1e-3, 1e-4
#: More than `_WORST` is allowed up to this many times what rounding alone does on that input.
_ROUNDING_FACTOR = 10.0
#: Integers are drawn below each of these, where the model answers such.
_BELOW = (2, 16, 256)
_SEEDS = 3

Feed = dict[str, np.ndarray]


def convert_to_torch(exported: Exported, root: Path, out: Path) -> Exported:
    """Write an ONNX source as a ``.pt2`` of the examples' sizes, compared with ONNX Runtime.

    Args:
        exported: An ONNX source.
        root: The folder of its files.
        out: Folder to write ``model.pt2`` and ``examples.npz`` into.

    Returns:
        The same source with this program: names, signature and identity stay the file's own.

    Raises:
        UnsupportedOp: EDGE-OP-030, an operator that has no PyTorch form.
        ConvertError: EDGE-CONVERT-077, the form fails or answers otherwise.
    """
    from edgeserve.backends.torch import load_examples
    from edgeserve.backends.torch.export.export import ExportOptions, export_module
    from edgeserve.backends.torch.program.io import write_program

    examples = load_examples(exported, root)
    module = _imported(exported, root, examples)
    _compare_with_onnxruntime(module, exported, root, examples)
    signature = exported.signature
    wishes = ExportOptions(
        input_names=tuple(spec.name for spec in signature.inputs),
        output_names=tuple(spec.name for spec in signature.outputs),
    )
    tensors = tuple(_tensor(examples[name]) for name in wishes.input_names)
    try:
        program = export_module(module, tensors, wishes, Path(exported.source.folder))
    except EdgeError as error:
        raise _differs("the PyTorch form", f"{error.code}: {error.got}") from error
    entry, kept = write_program(program, out)
    return msgspec.structs.replace(exported, program=entry, program_data=(), examples=kept)


def _imported(exported: Exported, root: Path, examples: Feed) -> OnnxModule:
    from edgeserve.backends.torch.onnx_import import import_file
    from edgeserve.backends.torch.onnx_import.table import UnimportableOp
    from edgeserve.user_lines import one_line

    try:
        shapes = {name: array.shape for name, array in examples.items()}
        module = import_file(root / exported.program.path, shapes)
        _torch_outputs(module, exported, examples)  # a node may refuse what it meets only now
        return module
    except UnimportableOp as error:
        raise UnsupportedOp(
            "EDGE-OP-030",
            f"operator {error.op} (node {error.node!r})",
            wanted="one with a PyTorch form",
            got=error.why,
            hint="--to onnx takes the file as it is; for the others give the PyTorch module it was"
            " made from",
        ) from error
    except Exception as error:  # onnx, ONNX Runtime and torch raise many kinds
        raise _differs("the PyTorch form", one_line(error)) from error


def _torch_outputs(module: OnnxModule, exported: Exported, feed: Feed) -> Feed:
    import torch

    given = {spec.name: _tensor(feed[spec.name]) for spec in exported.signature.inputs}
    with torch.no_grad():
        found = module(*(given[name] for name in module.input_names))
    return {n: t.numpy() for n, t in zip(module.output_names, found, strict=True)}


def _tensor(array: np.ndarray) -> torch.Tensor:
    import torch

    return torch.from_numpy(np.array(array))


def _compare_with_onnxruntime(
    module: OnnxModule, exported: Exported, root: Path, examples: Feed
) -> None:
    """Run both on the examples and on other inputs of their sizes.

    Raises:
        ConvertError: EDGE-CONVERT-077.
    """
    backend, artifact = reference(exported)
    pairs: list[tuple[str, Feed, Feed, Mapping[str, np.ndarray]]] = []
    with backend.load(artifact, root, threads=1) as session:
        for word, feed in _feeds(examples):
            right = _reference_outputs(session, feed, required=word == "the examples")
            if right is None:
                continue
            try:
                pairs.append((word, feed, _torch_outputs(module, exported, feed), right))
            except Exception as error:  # torch raises many kinds
                raise _differs(f"the PyTorch form on {word}", str(error)) from error
    for name in pairs[0][3]:
        scale = max(1e-6, *(_scale(right[name]) for *_, right in pairs))
        off = []
        for word, feed, got, right in pairs:
            thing = f"output {name!r} on {word}"
            off.append(_max_difference(got[name], right[name], thing) / scale)
            if off[-1] > _MAX_RELATIVE:
                noise = _rounding_error(module, exported, feed, name, got[name]) / scale
                if off[-1] > _ROUNDING_FACTOR * noise:
                    raise _differs(thing, f"off by {off[-1]:.2g} of its scale")
        if sorted(off)[len(off) // 2] > _MEDIAN_RELATIVE:
            usual = f"off by {sorted(off)[len(off) // 2]:.2g} of its scale on half of the inputs"
            raise _differs(f"output {name!r}", usual)


def _rounding_error(
    module: OnnxModule, exported: Exported, feed: Feed, name: str, got: np.ndarray
) -> float:
    """How far float32 rounding alone moves an answer: the same graph in float64 beside it."""
    wide = module.widened()
    try:
        doubled = {n: a.astype(np.float64) if a.dtype.kind == "f" else a for n, a in feed.items()}
        exact = _torch_outputs(wide, exported, doubled)[name]
    except Exception:  # the graph casts somewhere: then nothing is known of its rounding
        return 0.0
    off = np.abs(exact - got.astype(np.float64))
    return float(off[np.isfinite(off)].max(initial=0.0))


def _reference_outputs(
    session: Session, feed: Feed, required: bool
) -> Mapping[str, np.ndarray] | None:
    """What ONNX Runtime answers; None where it does not take such values (ids beyond a table)."""
    try:
        return session.run(feed)
    except BackendError:
        if required:
            raise
        return None


def _feeds(examples: Feed) -> Iterator[tuple[str, Feed]]:
    """The examples; numbers of both signs, positive ones, large ones; integers of several sizes."""
    yield "the examples", examples
    for seed in range(_SEEDS):
        rng = np.random.default_rng(seed)
        for below in _BELOW if any(a.dtype.kind in "iu" for a in examples.values()) else (2,):
            scale = (1.0, 0.1, 10.0)[seed]
            made = {n: _random_like(n, a, rng, below, scale) for n, a in examples.items()}
            yield f"seed {seed}, numbers up to {scale:g}, integers below {below}", made


def _random_like(
    name: str, like: np.ndarray, rng: np.random.Generator, below: int, scale: float
) -> np.ndarray:
    if like.dtype.kind == "f":
        low = 0.0 if scale < 1 else -scale
        return rng.uniform(low, scale, like.shape).astype(like.dtype)
    if like.dtype.kind == "b" or "mask" in name:
        ones = rng.integers(0, 2, like.shape)
        ones.reshape(-1)[:1] = 1  # a mask of nothing is no question
        return ones.astype(like.dtype)
    return rng.integers(0, min(below, np.iinfo(like.dtype).max), like.shape).astype(like.dtype)


def _scale(array: np.ndarray) -> float:
    """Largest finite value."""
    finite = array[np.isfinite(array)] if array.dtype.kind == "f" else array
    return float(np.abs(finite.astype(np.float64)).max(initial=0.0))


def _max_difference(got: np.ndarray, right: np.ndarray, thing: str) -> float:
    """The largest difference of two answers of one kind.

    Raises:
        ConvertError: EDGE-CONVERT-077, their kinds, whole numbers or infinite places differ.
    """
    if (got.shape, got.dtype) != (right.shape, right.dtype):
        mismatch = f"{got.dtype} {list(got.shape)} instead of {right.dtype} {list(right.shape)}"
        raise _differs(thing, mismatch)
    if right.dtype.kind != "f":
        if wrong := int((got != right).sum()):
            raise _differs(thing, f"{wrong} of {right.size} values differ")
        return 0.0
    finite = np.isfinite(right)
    if not np.array_equal(finite, np.isfinite(got)):
        raise _differs(thing, "infinite or undefined values in other places")
    off = np.abs(got[finite].astype(np.float64) - right[finite])
    return float(off.max(initial=0.0))


def _differs(thing: str, got: str) -> ConvertError:
    wanted = "ONNX Runtime's own answers"
    hint = "give the PyTorch module that the file was made from, or use --to onnx"
    return ConvertError("EDGE-CONVERT-077", thing, wanted=wanted, got=got, hint=hint)
