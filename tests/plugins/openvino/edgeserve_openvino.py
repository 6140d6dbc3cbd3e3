"""OpenVINO as a format: its intermediate representation, made of the ONNX artifact.

A package of its own that edgeserve finds by its entry point. An artifact is ``model.xml`` with its
weights in ``model.bin``. Importing this module does not import OpenVINO.
"""

from __future__ import annotations

import importlib.util
import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np

from edgeserve import backends
from edgeserve.backends import Backend, Graph, LoadOptions, Op, Session, WeightInfo
from edgeserve.backends.versions import versions
from edgeserve.environment import usable_cores
from edgeserve.errors import BackendError
from edgeserve.files import describe
from edgeserve.types.artifact import Artifact, Provenance
from edgeserve.types.records import Runtime
from edgeserve.types.source import Exported
from edgeserve.types.tensors import IO, DType

__all__ = ["OpenvinoBackend", "OpenvinoSession"]

#: Device of OpenVINO by delegate, best first.
_DEVICES = {"npu": "NPU", "gpu": "GPU", "cpu": "CPU"}
_DTYPES: dict[str, DType] = {
    "f16": "float16",
    "f32": "float32",
    "f64": "float64",
    "boolean": "bool",
    "i32": "int32",
    "i64": "int64",
    "u8": "uint8",
    "i8": "int8",
}
#: Nodes that compute nothing.
_NO_OPS = ("Parameter", "Result", "Constant")
#: Where the source op of each tensor stands in the file.
_SOURCES = ["edgeserve", "sources"]


class OpenvinoBackend(Backend):
    """Format "openvino": ``model.xml`` and ``model.bin``; fp16 stores its weights in 16 bits."""

    format: ClassVar[str] = "openvino"
    title: ClassVar[str] = "OpenVINO"
    spellings: ClassVar[tuple[str, ...]] = ("ov", "openvino-ir")
    suffixes: ClassVar[tuple[str, ...]] = (".xml",)
    packages: ClassVar[tuple[str, ...]] = ("openvino",)
    targets: ClassVar[tuple[Any, ...]] = ("linux",)
    all_delegates: ClassVar[tuple[str, ...]] = tuple(_DEVICES)
    precisions: ClassVar[tuple[str, ...]] = ("fp32", "fp16")
    native: ClassVar[tuple[str, ...]] = ("fp32", "fp16")
    takes: ClassVar[tuple[str, ...]] = ("torch", "onnx")

    def missing(self) -> str | None:
        return None if importlib.util.find_spec("openvino") else "pip install openvino"

    def missing_tools(self) -> str | None:
        return self.missing() or backends.get("onnx").missing_tools()

    def tools(self) -> dict[str, str]:
        return backends.get("onnx").tools() | versions("openvino")

    def delegates(self) -> tuple[str, ...]:
        there = {device.partition(".")[0] for device in _core().available_devices}
        return tuple(name for name, device in _DEVICES.items() if device in there)

    def routes(self) -> tuple[str, ...]:
        return backends.get("onnx").routes()

    def _export(self, exported: Exported, root: Path, out: Path, route: str) -> Artifact:
        return self._export_native(exported, root, out, route, "fp32", {})

    def _export_native(
        self,
        exported: Exported,
        root: Path,
        out: Path,
        route: str,
        precision: str,
        options: Mapping[str, str],
    ) -> Artifact:
        import openvino

        onnx = backends.get("onnx")
        with tempfile.TemporaryDirectory(prefix=".tmp-onnx-", dir=out) as folder:
            made = onnx.export(exported, root, Path(folder), route)
            ops = onnx.inspect(made, Path(folder)).ops
            model = _core().read_model(Path(folder) / made.entry)
            sources = {name: [op.source, op.module] for op in ops for name in op.outputs}
            model.set_rt_info(json.dumps(sources), _SOURCES)
            openvino.save_model(model, out / "model.xml", compress_to_fp16=precision == "fp16")
        return Artifact(
            format=self.format,
            precision=precision,
            entry="model.xml",
            files=(describe(out, "model.bin"), describe(out, "model.xml")),
            io=_io(model, made.io),
            provenance=Provenance(
                route=route, rewrites=made.provenance.rewrites, tools=self.tools()
            ),
        )

    def _load(self, artifact: Artifact, root: Path, how: LoadOptions) -> Session:
        return OpenvinoSession(artifact, root, how.delegate, how.threads, how.taps)

    def _inspect(self, artifact: Artifact, root: Path) -> Graph:
        model = _read(artifact, root)
        sources = _sources(model)
        ops = []
        for node in model.get_ordered_ops():
            if node.get_type_name() in _NO_OPS:
                continue
            outputs = tuple(_name(port) for port in node.outputs())
            known = (sources[name] for name in outputs if name in sources)
            source, module = next(known, [None, None])
            inputs = tuple(_name(port.get_source_output()) for port in node.inputs())
            ops.append(
                Op(
                    name=node.get_friendly_name(),
                    type=node.get_type_name(),
                    inputs=inputs,
                    outputs=outputs,
                    source=source,
                    module=module,
                )
            )
        return Graph(
            inputs=artifact.io.inputs,
            outputs=artifact.io.outputs,
            ops=tuple(ops),
            weights=tuple(_weights(model)),
        )


class OpenvinoSession(Session):
    """A compiled model; each run has an inference request of its own."""

    def __init__(
        self,
        artifact: Artifact,
        root: Path,
        delegate: str,
        threads: int | None,
        taps: tuple[str, ...],
    ) -> None:
        import openvino

        count = threads or usable_cores()
        version = openvino.__version__.partition("-")[0]
        runtime = Runtime(name="openvino", version=version, delegate=delegate)
        super().__init__(artifact.io, runtime, count)
        model = _read(artifact, root)
        self._ports = _add_taps(model, taps)
        # Without the hint some processors compute in bfloat16 and say nothing.
        hints = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
        if delegate == "cpu":
            hints["INFERENCE_NUM_THREADS"] = str(count)
        try:
            self._engine: Any = _core().compile_model(model, _DEVICES[delegate], hints)
        except RuntimeError as error:
            raise _error(f"model on {delegate}", "one that OpenVINO runs", error) from error
        devices = list(self._engine.get_property("EXECUTION_DEVICES"))
        if devices != [_DEVICES[delegate]]:
            raise BackendError(
                "EDGE-BACKEND-005",
                f"delegate {delegate!r}",
                wanted="the delegate that was asked for",
                got=", ".join(devices),
                hint="install the driver of this device, or use cpu",
            )
        self._names = [*(spec.name for spec in artifact.io.outputs), *taps]

    def _run(self, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        request = self._engine.create_infer_request()
        request.infer({name: np.ascontiguousarray(x) for name, x in feed.items()})
        found = {
            name: request.get_output_tensor(port).data.copy() for name, port in self._ports.items()
        }
        return {name: found[name] for name in self._names}

    def _close(self) -> None:
        self._engine = None


def _core() -> Any:
    import openvino

    return openvino.Core()


def _read(artifact: Artifact, root: Path) -> Any:
    """The model of checked files; its weights are the listed file or none."""
    entry = root / artifact.entry
    weights = entry.with_suffix(".bin")
    listed = any(root / file.path == weights for file in artifact.files)
    try:
        return _core().read_model(entry, weights if listed else "")
    except RuntimeError as error:
        raise _error(f"file {artifact.entry!r}", "an OpenVINO model", error) from error


def _error(thing: str, wanted: str, error: Exception) -> BackendError:
    said = str(error).strip().splitlines()
    return BackendError(
        "EDGE-BACKEND-012",
        thing,
        wanted=wanted,
        got=said[-1] if said else type(error).__name__,
        hint="make the artifact again from its source",
    )


def _io(model: Any, onnx: IO) -> IO:
    """What the model takes and gives, in the source's order; dynamic sizes keep their names."""

    def specs(ports: Any, wanted: tuple[Any, ...]) -> tuple[Any, ...]:
        there = {name: port for port in ports for name in port.get_names()}
        return tuple(
            msgspec.structs.replace(
                spec, dtype=_DTYPES[there[spec.name].get_element_type().get_type_name()]
            )
            for spec in wanted
        )

    return IO(inputs=specs(model.inputs, onnx.inputs), outputs=specs(model.outputs, onnx.outputs))


def _name(port: Any) -> str:
    """One name for an output of a node: the one that the source's tensor has."""
    names = sorted(port.get_names())
    if names:
        return names[0]
    node = port.get_node()
    several = len(node.outputs()) > 1
    return f"{node.get_friendly_name()}{f'.{port.get_index()}' if several else ''}"


def _sources(model: Any) -> dict[str, list[str | None]]:
    if not model.has_rt_info(_SOURCES):
        return {}
    held: dict[str, list[str | None]] = json.loads(model.get_rt_info(_SOURCES).astype(str))
    return held


def _weights(model: Any) -> Iterator[WeightInfo]:
    for node in model.get_ordered_ops():
        if node.get_type_name() == "Constant":
            kind = node.get_element_type().get_type_name()
            yield WeightInfo(
                name=node.get_friendly_name(),
                dtype=_DTYPES.get(kind, kind),
                shape=tuple(node.get_output_shape(0)),
                bytes=node.get_byte_size(),
            )


def _add_taps(model: Any, taps: tuple[str, ...]) -> dict[str, int]:
    """Make taps outputs of the model; the place of each output by its name.

    Raises:
        BackendError: EDGE-BACKEND-014, there is no such tensor.
    """
    places = {name: i for i, port in enumerate(model.outputs) for name in port.get_names()}
    made = {
        _name(port): port
        for node in model.get_ordered_ops()
        if node.get_type_name() not in _NO_OPS
        for port in node.outputs()
    }
    if unknown := sorted(set(taps) - made.keys()):
        raise BackendError(
            "EDGE-BACKEND-014",
            "taps",
            wanted="names that `inspect` shows",
            got=f"{unknown}",
            hint="take names from the outputs of the graph's ops",
        )
    for tap in taps:
        if tap not in places:
            places[tap] = len(model.outputs)
            model.add_outputs([made[tap]])
    return places
