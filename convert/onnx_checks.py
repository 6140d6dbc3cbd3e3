"""Is an ONNX file one that can be carried over? Asked of the file before any engine runs it."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from edgeserve.convert.source import resolve_named_file
from edgeserve.errors import ConvertError
from edgeserve.user_lines import one_line

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto


#: Oldest operator set that ONNX Runtime promises to run.
_MIN_OPSET = 7
#: Domains whose operators every build of ONNX Runtime has.
_DOMAINS = ("", "ai.onnx", "ai.onnx.ml", "com.microsoft")
#: Operators of models that are below float32 already.
_QUANTIZED = ("Quantize", "Dequantize", "QLinear", "QGemm", "QAttention", "QMoE", "DynamicQuantize")
_INTEGER = ("ConvInteger", "MatMulInteger", "MatMulNBits", "MatMulBnb4", "GatherBlockQuantized")
#: What inputs and outputs may hold; floats below float32 mean that the whole model is.
_TYPES = tuple("FLOAT DOUBLE BOOL INT8 INT16 INT32 INT64 UINT8 UINT16 UINT32 UINT64".split())
_HALF = ("FLOAT16", "BFLOAT16")
_FLOAT_HINT = "give the float32 model: --precision makes the others from it"


def read_proto(path: Path) -> ModelProto:
    """Read a file without its external data.

    Raises:
        ConvertError: EDGE-CONVERT-072.
    """
    import onnx

    try:
        model = onnx.load(path, load_external_data=False)
    except Exception as error:  # protobuf raises many kinds
        raise _invalid(path.name, "an ONNX model", one_line(error)) from error
    if not model.HasField("graph") or not model.opset_import:
        raise _invalid(path.name, "an ONNX model", "a file without a graph and an operator set")
    return model


def data_files(model: ModelProto, folder: Path) -> list[str]:
    """Names of the files that hold weights outside the model, each inside ``folder``.

    Raises:
        ConvertError: EDGE-CONVERT-064 missing or too short, -065 one that leads out of the folder.
    """
    needed: dict[str, int] = {}
    for tensor in _tensors(model.graph, [f.node for f in model.functions]):
        if tensor.data_location == tensor.EXTERNAL:
            location = {entry.key: entry.value for entry in tensor.external_data}
            name = location.get("location", "")
            end = _number(location.get("offset")) + _number(location.get("length"))
            needed[name] = max(needed.get(name, 0), end)
    for name, end in needed.items():
        size = resolve_named_file(folder, name, "external data", alone=True).stat().st_size
        if size < end:
            where = f"external data {name!r}"
            wanted = f"at least {end} bytes"
            hint = "download or copy the file again, as long as it was"
            raise ConvertError("EDGE-CONVERT-064", where, wanted=wanted, got=str(size), hint=hint)
    return sorted(needed)


def _number(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 0


def _tensors(graph: GraphProto, bodies: Sequence[Sequence[NodeProto]]) -> Iterator[TensorProto]:
    """Every tensor of a graph, of graphs inside it, and of functions' bodies."""
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    for node in (node for nodes in (graph.node, *bodies) for node in nodes):
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            for inner in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
                yield from _tensors(inner, ())


def _nodes(graph: GraphProto) -> Iterator[NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
                yield from _nodes(inner)


def check_model(model: ModelProto) -> None:
    """Hold what a model says of itself against what can be carried over.

    Raises:
        ConvertError: EDGE-CONVERT-073 an operator set or domain that is not known, -074 inputs,
            outputs, operators or weights that cannot be carried over.
    """
    _check_operators(model)
    _check_values(model)
    _check_weights(model)


def check_valid(path: Path, model: ModelProto, name: str) -> bool:
    """Hold a file and the data beside it against ONNX's own rules.

    Args:
        path: A copy of the file, the data beside it.
        model: What it holds.
        name: The user's own name of the file, for the error.

    Returns:
        Whether the shapes that it declares follow from its operators. Where not, those of outputs
        and inner values are to be found anew: nothing that runs rests on them.

    Raises:
        ConvertError: EDGE-CONVERT-072.
    """
    import onnx

    try:
        with _with_output_shapes(path, model) as whole:
            onnx.checker.check_model(str(whole))
        if any(node.domain not in ("", "ai.onnx") for node in _nodes(model.graph)):
            return True
        try:
            onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
        except Exception:
            bare = _without_shapes(model)
            onnx.shape_inference.infer_shapes(bare, check_type=True, strict_mode=True)
            return False
    except Exception as error:  # ValidationError, InferenceError
        raise _invalid(name, "a file that onnx.checker accepts", one_line(error)) from error
    return True


@contextmanager
def _with_output_shapes(path: Path, model: ModelProto) -> Iterator[Path]:
    """The file, or for as long as it is checked one beside it whose outputs all have some shape."""
    bare = [v.name for v in model.graph.output if not v.type.tensor_type.HasField("shape")]
    if not bare:
        yield path
        return
    made = copy.deepcopy(model)
    for value in made.graph.output:
        value.type.tensor_type.shape.SetInParent()
    beside = path.parent / ".checked.onnx"
    try:
        beside.write_bytes(made.SerializeToString())
        yield beside
    finally:
        beside.unlink(missing_ok=True)


def _without_shapes(model: ModelProto) -> ModelProto:
    """The same model without a word on the shapes of outputs and inner values."""
    bare = copy.deepcopy(model)
    del bare.graph.value_info[:]
    for value in bare.graph.output:
        value.type.tensor_type.ClearField("shape")
    return bare


def _check_operators(model: ModelProto) -> None:
    import onnx

    newest = onnx.defs.onnx_opset_version()
    versions = [each.version for each in model.opset_import if each.domain in ("", "ai.onnx")]
    if not versions or not _MIN_OPSET <= versions[0] <= newest:
        wanted = f"{_MIN_OPSET} to {newest}"
        got = str(versions[0]) if versions else "none"
        hint = "convert it: onnx.version_converter.convert_version(model, 20)"
        raise ConvertError("EDGE-CONVERT-073", "operator set", wanted=wanted, got=got, hint=hint)
    allowed = {*_DOMAINS, *(function.domain for function in model.functions)}
    for node in _nodes(model.graph):
        if node.domain not in allowed:
            raise ConvertError(
                "EDGE-CONVERT-073",
                f"operator {node.domain}::{node.op_type}",
                wanted=f"operators of {', '.join(d for d in _DOMAINS if d)}",
                got=f"the domain {node.domain!r}, whose library no target has",
                hint="export the model without that operator",
            )
        if node.op_type.startswith(_QUANTIZED) or node.op_type in _INTEGER:
            got = "one that is quantized already"
            raise _unfit(f"operator {node.op_type}", "a float32 model", got, _FLOAT_HINT)


def _check_values(model: ModelProto) -> None:
    """Inputs and outputs are tensors of known types and ranks."""
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in weights]
    if not inputs:
        raise _unfit("inputs", "at least one", "none", "a model without inputs answers nothing")
    for value in inputs:
        _check_value(value)
        _check_shape(value)
    for value in model.graph.output:
        _check_value(value)


def _check_value(value: ValueInfoProto) -> None:
    import onnx

    thing = f"tensor {value.name!r}"
    if not value.type.HasField("tensor_type"):
        kind = value.type.WhichOneof("value") or "nothing declared"
        hint = "remove what makes it: a ZipMap, a sequence, an optional"
        raise _unfit(thing, "a tensor", kind, hint)
    tensor = value.type.tensor_type
    word = onnx.TensorProto.DataType.Name(tensor.elem_type)
    if word in _HALF:
        raise _unfit(thing, "float32 or integers", word.lower(), _FLOAT_HINT)
    if word not in _TYPES:
        wanted = ", ".join(_TYPES).lower()
        raise _unfit(thing, wanted, word.lower(), "convert it outside the model")


def _check_shape(value: ValueInfoProto) -> None:
    thing, tensor = f"tensor {value.name!r}", value.type.tensor_type
    if not tensor.HasField("shape"):
        hint = "write the shapes of its inputs into the file: onnx.tools.update_model_dims"
        raise _unfit(thing, "a shape", "none", hint)
    if any(dim.HasField("dim_value") and dim.dim_value == 0 for dim in tensor.shape.dim):
        raise _unfit(thing, "sizes of at least 1", "a size of 0", "give that axis its real size")


def _check_weights(model: ModelProto) -> None:
    import onnx

    for tensor in model.graph.initializer:
        word = onnx.TensorProto.DataType.Name(tensor.data_type)
        if word in _HALF and tensor.dims:
            raise _unfit(f"weight {tensor.name!r}", "float32", word.lower(), _FLOAT_HINT)


def _invalid(thing: str, wanted: str, got: str) -> ConvertError:
    hint = "download the file again, or export it again with a current exporter"
    return ConvertError("EDGE-CONVERT-072", thing, wanted=wanted, got=got, hint=hint)


def _unfit(thing: str, wanted: str, got: str, hint: str) -> ConvertError:
    return ConvertError("EDGE-CONVERT-074", thing, wanted=wanted, got=got, hint=hint)
