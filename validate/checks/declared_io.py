"""Whether a file is what it says: names, types and sizes, and the precision it is called by."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from edgeserve.backends.graph import Graph, WeightInfo
from edgeserve.types.artifact import Artifact
from edgeserve.types.source import Weight
from edgeserve.types.tensors import IO, Shape, Signature, TensorSpec
from edgeserve.types.vocabulary import Precision
from edgeserve.validate.checks.invariants import CheckLog

_ANY_SIZE = (0, 1 << 62)

#: Share of a file that has to be stored in vain before it is said.
_WASTE = 0.01

#: An 8-bit file with a smaller share of its weights in 8 bits is not the size that it was made for.
MIN_8BIT_SHARE = 0.5

#: Tensors with fewer numbers are biases and constants, of which any two may be of one size.
_MIN_WEIGHT_SIZE = 512

#: Dtypes, one of which a file of a precision has to hold.
_HALF = ("float16", "bfloat16")
_EIGHT = ("int8", "uint8", "int4", "uint4", "int2", "uint2")
_STORED: dict[Precision, tuple[str, ...]] = {
    "fp16": _HALF,
    "w8": _EIGHT,
    "w8a8": _EIGHT,
    "w8a16": _EIGHT,
    "w4": _EIGHT[2:],
}

#: Dtype of the source, and that of a file which has none like it.
_SUBSTITUTES = {("int64", "int32"), ("bool", "int32")}


def check_declared_io(artifact: Artifact, signature: Signature, findings: CheckLog) -> bool:
    """Inputs and outputs as the source has them: as many, with the same kinds and shapes.

    What a format cannot hold may be another: int32 for int64 and for bool, a fixed batch for a free
    one, and for another free dimension one size or several (buckets) within its range. Anything
    else is a broken promise.
    """
    ios = artifact.buckets or (artifact.io,)
    wrong = list(dict.fromkeys(fault for io in ios for fault in _io_mismatches(io, signature)))
    wrong += [] if wrong else _bucket_errors(ios)
    detail = "; ".join(wrong) or "names, dtypes and shapes as the source has them"
    if kinds := _needed_dtypes(ios, signature):
        detail += f" (give {kinds} examples and cast inside forward: the format has no other here)"
    if not wrong:
        findings.notes += _fixed_dims_notes(ios, signature)
    return findings.check("declared", not wrong, detail)


def _needed_dtypes(ios: tuple[IO, ...], signature: Signature) -> str:
    """The dtypes that a file has where the source's are others of the same kind."""
    found = {
        b.dtype
        for io in ios
        for ours, theirs in ((signature.inputs, io.inputs), (signature.outputs, io.outputs))
        for a, b in zip(ours, theirs, strict=False)
        if _same_kind(a.dtype, b.dtype)
    }
    return " and ".join(sorted(found))


def _same_kind(ours: str, theirs: str) -> bool:
    """Whether a file has the usual width of a dtype, which may not stand for the source's own."""
    kinds = [dtype.rstrip("0123456789").lstrip("u") for dtype in (ours, theirs)]
    other = ours != theirs and (ours, theirs) not in _SUBSTITUTES and kinds[0] == kinds[1]
    return other and theirs in ("float32", "int32")


def _io_mismatches(io: IO, signature: Signature) -> list[str]:
    wrong = []
    for kind, ours, theirs in (
        ("input", signature.inputs, io.inputs),
        ("output", signature.outputs, io.outputs),
    ):
        if len(ours) != len(theirs):
            wrong.append(f"{len(theirs)} {kind}s instead of {len(ours)}")
            continue
        pairs = zip(ours, theirs, strict=True)
        wrong += [f"{kind} {a.name!r}: {w}" for a, b in pairs if (w := _mismatch(a, b, signature))]
    return wrong


def _mismatch(ours: TensorSpec, theirs: TensorSpec, signature: Signature) -> str:
    """What sets a file's tensor apart from the source's; empty when it may stand for it."""
    if ours.dtype != theirs.dtype and (ours.dtype, theirs.dtype) not in _SUBSTITUTES:
        return f"{theirs.dtype} instead of {ours.dtype}"
    if not ours.shape and theirs.shape == (1,):  # Core ML has no scalars
        return ""
    if len(ours.shape) != len(theirs.shape):
        return f"shape {list(theirs.shape)} instead of {list(ours.shape)}"
    for size, got in zip(ours.shape, theirs.shape, strict=True):
        ends = (size, size) if isinstance(size, int) else signature.dims.get(size, _ANY_SIZE)
        if isinstance(got, int) and not ends[0] <= got <= ends[1]:
            return f"shape {list(theirs.shape)} instead of {list(ours.shape)}"
    return ""


def _bucket_errors(ios: tuple[IO, ...]) -> list[str]:
    """Buckets that are no ladder: one that does not grow, or that changes more than sizes."""
    names = [io.signature for io in ios]
    if len(set(names)) != len(names):
        return [f"signatures are called {names}"]
    for small, large in pairwise(ios):
        pairs = list(zip(small.inputs, large.inputs, strict=True))
        if any(a.shape[:1] != b.shape[:1] or a.dtype != b.dtype for a, b in pairs):
            return [f"bucket {large.signature!r} has another batch or dtype than the others"]
        if not _grows([(a.shape, b.shape) for a, b in pairs]):
            return [f"bucket {large.signature!r} does not follow {small.signature!r} in size"]
    return []


def _grows(pairs: list[tuple[Shape, Shape]]) -> bool:
    """Whether no size shrinks and one grows; sizes that are free cannot be in a ladder."""
    grown = False
    for small, large in pairs:
        for before, after in zip(small, large, strict=True):
            if not isinstance(before, int) or not isinstance(after, int) or before > after:
                return False
            grown = grown or before < after
    return grown


def _fixed_dims_notes(ios: tuple[IO, ...], signature: Signature) -> list[str]:
    """Which dimensions the file fixes, the batch left out: every format can be fed one by one."""
    fixed: dict[str, list[int]] = {}
    for io in ios:
        for ours, theirs in zip(signature.inputs, io.inputs, strict=True):
            for dim, size in zip(ours.shape, theirs.shape, strict=False):  # () may be (1,)
                known = isinstance(dim, str) and isinstance(size, int)
                if known and dim != signature.batch_dim and size not in fixed.get(str(dim), ()):
                    fixed.setdefault(str(dim), []).append(int(size))
    notes = []
    for dim, sizes in fixed.items():
        low, high = signature.dims[dim]
        listed = ", ".join(str(size) for size in sorted(sizes))
        notes.append(f"dimension {dim!r} ({low} to {high}) is fixed to {listed} in this file")
    return notes


def check_outputs(artifact: Artifact, outputs: dict[str, np.ndarray], signature: Signature) -> str:
    """What real outputs break of their declaration; empty when they keep it.

    Sizes that are free in the source follow the input; `edgeserve.validate.run_artifact` compares
    those with the reference's.
    """
    for ours, theirs in zip(signature.outputs, artifact.io.outputs, strict=True):
        array = outputs[ours.name]
        pairs = enumerate(zip(ours.shape, theirs.shape, strict=False))
        fixed = [(a, d) for a, (dim, d) in pairs if isinstance(d, int) and isinstance(dim, int)]
        if array.ndim not in (len(ours.shape), len(theirs.shape)) or any(
            array.shape[a] != d for a, d in fixed
        ):
            return f"output {ours.name!r} has shape {list(array.shape)}, not {list(theirs.shape)}"
        if theirs.dtype not in ("string", "bfloat16") and array.dtype != np.dtype(theirs.dtype):
            return f"output {ours.name!r} is {array.dtype}, not {theirs.dtype}"
    return ""


def check_weights(artifact: Artifact, findings: CheckLog) -> None:
    """Whether the file holds the weights that its precision promises.

    None of them breaks the promise. A small share of 8-bit weights is no harm to any answer: it is
    shown, and said where it is below `MIN_8BIT_SHARE`.
    """
    weights, wanted = artifact.provenance.weights, _STORED.get(artifact.precision)
    total = sum(weights.values())
    if wanted is None or not total:
        return
    held = sum(count for dtype, count in weights.items() if dtype in wanted)
    kinds = ", ".join(f"{count} {dtype}" for dtype, count in sorted(weights.items()))
    share = artifact.provenance.eight_bit_share if wanted is _EIGHT else held / total
    detail = f"{100 * (share or 0):.3g} % of the weights are stored so ({kinds})"
    name = "weights-8bit" if wanted is _EIGHT else "weights"
    findings.check(name, held > 0, detail, share or 0.0)
    if wanted is _EIGHT and held and (share or 0) < MIN_8BIT_SHARE:
        findings.remark("EDGE-CHECK-052", f"only {detail}")


def check_size(graph: Graph, source: Sequence[Weight], findings: CheckLog) -> None:
    """Whether weights that the source holds once are stored several times.

    Tied weights (an embedding and the output layer) are one tensor in the source; converters and
    quantizers may store one for each reader.
    """
    once = Counter(numel for numel, _ in {(math.prod(w.shape), w.sha256) for w in source})
    stored = Counter(math.prod(weight.shape) for weight in graph.weights if _is_weight(weight))
    twice = [n for n in once if n >= _MIN_WEIGHT_SIZE and stored[n] > once[n]]
    held = f"{graph.weight_bytes} bytes of weights"
    findings.check("weights-size", True, held, float(graph.weight_bytes))
    for numel in sorted(twice, reverse=True):
        extra = sum(w.bytes for w in graph.weights if math.prod(w.shape) == numel)
        if extra * (1 - once[numel] / stored[numel]) < _WASTE * graph.weight_bytes:
            continue  # a few vectors of one length: nobody would notice
        copies = f"{stored[numel]} times {numel} weights ({extra} bytes)"
        detail = f"{copies}, {once[numel]} in the source"
        findings.remark("EDGE-CHECK-068", f"weights are stored more than once: {detail}")


def _is_weight(weight: WeightInfo) -> bool:
    return weight.dtype.startswith(("float", "bfloat")) or weight.dtype in _EIGHT
