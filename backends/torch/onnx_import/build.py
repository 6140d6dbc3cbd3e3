"""Build a module from a file: fix sizes, fold constants, translate node by node."""

from __future__ import annotations

import copy
import dataclasses
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from edgeserve.backends.torch.onnx_import.table import OnnxNode, OpEntry, UnimportableOp, entry_of

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto


#: Above this many bytes a model is too large for one protobuf message.
_ONE_MESSAGE = 1 << 30
#: ``TensorProto.DataType`` of the two.
_FLOAT, _DOUBLE = 1, 11
#: Log severity "fatal".
_QUIET = 4


def import_file(path: Path, shapes: Mapping[str, Sequence[int]]) -> OnnxModule:
    """Make a module of a file, for inputs of these sizes.

    What its operators compute of sizes and weights alone is computed by ONNX Runtime first, and
    functions are put in the place of their calls.

    Args:
        path: An ``.onnx`` file that has been checked; weights may lie beside it.
        shapes: One for each input, by name.

    Raises:
        Unimportable: a node has no form in PyTorch.
    """
    import onnx

    model = onnx.load(path)
    _fix_sizes(model, shapes)
    return build(_inlined(_folded(model)))


def _fix_sizes(model: ModelProto, shapes: Mapping[str, Sequence[int]]) -> None:
    """Set the sizes of a model's inputs and clear all other shapes."""
    for value in model.graph.input:
        if value.name in shapes:
            shape = value.type.tensor_type.shape
            del shape.dim[:]
            for size in shapes[value.name]:
                shape.dim.add(dim_value=int(size))
    del model.graph.value_info[:]
    for value in model.graph.output:
        for dim in value.type.tensor_type.shape.dim:
            dim.Clear()


def _folded(model: ModelProto) -> ModelProto:
    """The model with everything folded that does not depend on its inputs' values."""
    import onnx
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = _QUIET
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "model.onnx"), Path(folder, "folded.onnx")
        large = model.ByteSize() > _ONE_MESSAGE
        onnx.save(
            model, source, save_as_external_data=large, location="weights.bin" if large else None
        )
        options.optimized_model_filepath = str(target)
        if large:
            key = "session.optimized_model_external_initializers_file_name"
            options.add_session_config_entry(key, "folded.bin")
        onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        return onnx.load(target)


def _inlined(model: ModelProto) -> ModelProto:
    """Inline functions, and those operators of ONNX that the table lacks and that are functions."""
    import onnx
    from onnx import inliner

    known = {
        node.op_type for node in model.graph.node if not node.domain and entry_of(node.op_type)
    }
    if all(node.op_type in known for node in model.graph.node) or model.ByteSize() > _ONE_MESSAGE:
        return model
    try:
        keep = [("", name) for name in sorted(known)]
        return inliner.inline_selected_functions(
            model, keep, exclude=True, inline_schema_functions=True
        )
    except (RuntimeError, onnx.checker.ValidationError):  # then the node itself is named
        return model


def build(model: ModelProto) -> OnnxModule:
    """Make a module of a model whose sizes are fixed.

    Raises:
        Unimportable: a node has no form in PyTorch.
    """
    versions = [each.version for each in model.opset_import if each.domain in ("", "ai.onnx")]
    return OnnxModule(model.graph, max(versions, default=1))


class _NodeModule(nn.Module):
    """One node; a module of its own, so that traces name it."""

    def __init__(self, node: OnnxNode, entry: OpEntry) -> None:
        super().__init__()
        self.node, self.entry = node, entry

    def forward(self, *inputs: Tensor | None) -> tuple[Tensor | None, ...]:
        found = self.entry.run(self.node, *inputs)
        return found if isinstance(found, tuple) else (found,)


class OnnxModule(nn.Module):
    """A graph: takes its inputs by position and gives a tuple of its outputs.

    Each node is a submodule under its own name, each weight a buffer under its own.
    """

    def __init__(self, graph: GraphProto, opset: int) -> None:
        super().__init__()
        from onnx import numpy_helper

        constants = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
        self.input_names = [v.name for v in graph.input if v.name not in constants]
        self.output_names = [value.name for value in graph.output]
        self._taken: set[str] = set()
        self._weights: dict[str, str] = {}
        self._calls: list[tuple[str, OnnxNode]] = []
        for number, proto in enumerate(graph.node):
            if proto.op_type == "Constant":
                constants[proto.output[0]] = _constant(proto)
                continue
            node = _read_node(proto, number, opset, constants)
            entry = _entry(proto, node)
            for position, name in enumerate(node.inputs):
                if name in constants and position not in entry.host:
                    self._keep(name, constants[name])
            word = self._word(node.name)
            self.add_module(word, _NodeModule(node, entry))
            self._calls.append((word, node))
        for name in self.output_names:
            if name in constants:
                self._keep(name, constants[name])

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Run the graph."""
        values: dict[str, Tensor] = dict(zip(self.input_names, inputs, strict=True))
        for word, node in self._calls:
            call: Any = getattr(self, word)
            host = call.entry.host
            given = [
                None if not name or i in host else self._value(name, values)
                for i, name in enumerate(node.inputs)
            ]
            found = call(*given)
            values.update(pair for pair in zip(node.outputs, found, strict=False) if pair[0])
        return tuple(self._value(name, values) for name in self.output_names)

    def widened(self) -> OnnxModule:
        """A copy that computes in float64: what it shows beside this one is rounding."""
        wide = copy.deepcopy(self).double()
        for part in wide.children():
            if isinstance(part, _NodeModule) and part.node.attributes.get("to") == _FLOAT:
                attributes = {**part.node.attributes, "to": _DOUBLE}
                part.node = dataclasses.replace(part.node, attributes=attributes)
        return wide

    def _value(self, name: str, values: Mapping[str, Tensor]) -> Tensor:
        return values[name] if name in values else getattr(self, self._weights[name])

    def _keep(self, name: str, array: np.ndarray) -> None:
        if name not in self._weights:
            word = self._word(name)
            self._weights[name] = word
            self.register_buffer(word, torch.from_numpy(np.array(array)))

    def _word(self, name: str) -> str:
        """A name that a module may have, used once."""
        word = base = re.sub(r"\W+", "_", name).strip("_") or "value"
        word = base = f"n_{base}" if base[0].isdigit() or hasattr(nn.Module, base) else base
        count = 1
        while word in self._taken or hasattr(self, word):
            count += 1
            word = f"{base}_{count}"
        self._taken.add(word)
        return word


def _entry(proto: NodeProto, node: OnnxNode) -> OpEntry:
    entry = entry_of(node.op) if proto.domain in ("", "ai.onnx") else None
    if entry is None:
        name = f"{proto.domain}::{node.op}" if proto.domain else node.op
        inner = any(a.HasField("g") or a.graphs for a in proto.attribute)
        why = "it chooses or repeats by values" if inner else "it has no form in PyTorch here"
        raise UnimportableOp(name, node.name, why)
    return entry


def _read_node(
    proto: NodeProto, number: int, opset: int, constants: Mapping[str, np.ndarray]
) -> OnnxNode:
    inputs = tuple(proto.input)
    return OnnxNode(
        op=proto.op_type,
        name=proto.name or f"{proto.op_type}_{number}",
        opset=opset,
        attributes={a.name: _attribute(a) for a in proto.attribute},
        inputs=inputs,
        outputs=tuple(proto.output),
        constants={i: constants[name] for i, name in enumerate(inputs) if name in constants},
    )


def _attribute(attribute: Any) -> Any:
    from onnx import helper, numpy_helper

    if attribute.HasField("t"):
        return numpy_helper.to_array(attribute.t)
    value = helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, list) and value and isinstance(value[0], bytes):
        return [each.decode() for each in value]
    return value


def _constant(proto: NodeProto) -> np.ndarray:
    attribute = proto.attribute[0]
    kinds = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64}
    value = _attribute(attribute)
    return np.asarray(value, kinds.get(attribute.name) or getattr(value, "dtype", np.int64))
