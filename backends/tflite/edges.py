"""What a file itself takes and gives, read from its signatures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from edgeserve.backends.sizes import Sizes
from edgeserve.backends.tflite.names import SINGLE
from edgeserve.backends.tflite.schema import tensor_dtype
from edgeserve.errors import BackendError, ConvertError
from edgeserve.types.tensors import DTYPES, IO, DType, Signature, TensorSpec

__all__ = ["check_edges", "definition_of", "edges"]

#: What the source's dtypes become: the format has 64 bits, but few of its kernels do.
_NARROWED = {"int64": "int32", "float64": "float32"}


def edges(model: Any) -> dict[str, IO]:
    """The `IO` of each signature, by its key; `IO.signature` is None where it is the only one."""
    several = len(model.signatureDefs) > 1
    found = {}
    for definition in model.signatureDefs:
        key, graph = definition.signatureKey.decode(), model.subgraphs[definition.subgraphIndex]
        found[key] = IO(
            inputs=tuple(_spec(each, graph) for each in definition.inputs),
            outputs=tuple(_spec(each, graph) for each in definition.outputs),
            signature=key if several else None,
        )
    return found


def definition_of(model: Any, signature: str | None) -> Any:
    """The definition of a signature, by `IO.signature`."""
    return next(
        each
        for each in model.signatureDefs
        if signature is None or each.signatureKey.decode() == signature
    )


def _spec(each: Any, graph: Any) -> TensorSpec:
    tensor = graph.tensors[each.tensorIndex]
    shape = () if tensor.shape is None else tuple(int(size) for size in tensor.shape)
    return TensorSpec(name=each.name.decode(), dtype=_dtype(each, tensor), shape=shape)


def _dtype(each: Any, tensor: Any) -> DType:
    word = tensor_dtype(tensor)
    if word not in DTYPES:
        raise BackendError(
            "EDGE-BACKEND-017",
            f"tensor {each.name.decode()!r}",
            wanted=f"a dtype among {DTYPES}",
            got=word,
            hint="keep the file's inputs and outputs in float32 or an integer dtype",
        )
    return cast("DType", word)


def check_edges(
    found: dict[str, IO], signature: Signature, sizes: Sequence[Sizes]
) -> tuple[IO, ...]:
    """Hold a file's signatures against what was asked for.

    Returns:
        The signatures, smallest first.

    Raises:
        ConvertError: EDGE-CONVERT-041.
    """
    made = tuple(found[each.name or SINGLE] for each in sizes if (each.name or SINGLE) in found)
    right = len(found) == len(made) == len(sizes) and all(
        _inputs_fit(io, signature, each) and _outputs_fit(io, signature)
        for io, each in zip(made, sizes, strict=True)
    )
    if not right:
        raise ConvertError(
            "EDGE-CONVERT-041",
            "model.tflite",
            got=f"{list(found.values())}",
            wanted=f"{[*signature.inputs, *signature.outputs]} at {[dict(s.dims) for s in sizes]}",
            hint="report it with `edgeserve doctor --json`: the fault is not in your model",
        )
    return made


def _inputs_fit(io: IO, signature: Signature, sizes: Sizes) -> bool:
    wanted = [(s.name, _narrow(s.dtype), sizes.of(s.shape)) for s in signature.inputs]
    return wanted == [(s.name, s.dtype, s.shape) for s in io.inputs]


def _outputs_fit(io: IO, signature: Signature) -> bool:
    wanted = [(s.name, _narrow(s.dtype), len(s.shape)) for s in signature.outputs]
    return wanted == [(s.name, s.dtype, len(s.shape)) for s in io.outputs]


def _narrow(dtype: str) -> str:
    return _NARROWED.get(dtype, dtype)
