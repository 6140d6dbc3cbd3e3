"""ONNX, run by ONNX Runtime. Importing this package imports neither."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from edgeserve.backends.base import Backend, PlainConversion
from edgeserve.backends.graph import Graph
from edgeserve.backends.session import Session
from edgeserve.backends.versions import too_old, versions
from edgeserve.installation import install_command
from edgeserve.types.artifact import Artifact, Recipe
from edgeserve.types.source import Exported
from edgeserve.types.vocabulary import Target

__all__ = ["OPSET", "PROVIDERS", "OnnxBackend"]

#: Our names for ONNX Runtime's execution providers, best first.
PROVIDERS: dict[str, str] = {
    "tensorrt": "TensorrtExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "migraphx": "MIGraphXExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
    "directml": "DmlExecutionProvider",
    "coreml": "CoreMLExecutionProvider",
    "qnn": "QNNExecutionProvider",
    "nnapi": "NnapiExecutionProvider",
    "webgpu": "WebGpuExecutionProvider",
    "xnnpack": "XnnpackExecutionProvider",
    "cpu": "CPUExecutionProvider",
}

#: Operator set of the files: ONNX Runtime 1.20, the oldest we accept, runs it.
OPSET = 20


class OnnxBackend(Backend):
    """Format "onnx": one ``model.onnx``; above 500 MB its weights lie beside it."""

    format: ClassVar[str] = "onnx"
    title: ClassVar[str] = "ONNX"
    spellings: ClassVar[tuple[str, ...]] = ("ort", "onnxruntime")
    suffixes: ClassVar[tuple[str, ...]] = (".onnx",)
    extra: ClassVar[str] = "onnx"
    packages: ClassVar[tuple[str, ...]] = ("onnxruntime", "onnxruntime-gpu")
    slow_imports: ClassVar[tuple[str, ...]] = (
        "torch.onnx._internal.exporter._core",
        "onnxscript.function_libs.torch_lib.ops",
        "onnxscript.rewriter",
    )
    targets: ClassVar[tuple[Target, ...]] = ("android", "ios", "linux", "web")
    thread_safe: ClassVar[bool] = True
    all_delegates: ClassVar[tuple[str, ...]] = tuple(PROVIDERS)
    plain: ClassVar[PlainConversion | None] = PlainConversion(
        "import onnxruntime\nimport torch",
        """\
made = torch.onnx.export(torch.export.export(model, inputs), dynamo=True)
session = onnxruntime.InferenceSession(made.model_proto.SerializeToString())
feed = {i.name: x.numpy() for i, x in zip(session.get_inputs(), inputs)}
got = session.run(None, feed)""",
    )
    #: In a browser the processor's kernels are WebAssembly.
    delegate_aliases: ClassVar[Mapping[str, str]] = MappingProxyType(
        {provider.lower(): name for name, provider in PROVIDERS.items()}
        | {"dml": "directml", "trt": "tensorrt", "wasm": "cpu"}
    )
    cpu_delegates: ClassVar[tuple[str, ...]] = ("cpu", "xnnpack")
    precisions: ClassVar[tuple[str, ...]] = ("fp32", "fp16", "w8", "w8a8")
    takes: ClassVar[tuple[str, ...]] = ("torch", "onnx")
    asked_routes: ClassVar[tuple[str, ...]] = ("optimum",)

    def missing(self) -> str | None:
        if importlib.util.find_spec("onnxruntime") is None:
            return f"{install_command('onnx')} (or with [gpu] for CUDA)"
        return None

    def missing_tools(self) -> str | None:
        tools = ("torch", "onnx", "onnx_ir", "onnxscript")
        if not all(importlib.util.find_spec(name) for name in tools):
            return install_command("convert")
        return too_old("torch", "onnx", "onnx-ir", "onnxscript")

    def tools(self) -> dict[str, str]:
        made_by = versions("torch", "onnx", "onnx-ir", "onnxscript", "onnxruntime")
        return made_by | {"onnx-opset": str(OPSET)}

    def delegates(self) -> tuple[str, ...]:
        from edgeserve.backends.onnx.run import usable_delegates

        return usable_delegates()

    def routes(self) -> tuple[str, ...]:
        return ("dynamo",)

    def _export(self, exported: Exported, root: Path, out: Path, route: str) -> Artifact:
        if route == "optimum":
            from edgeserve.backends.onnx.optimum import export_by_optimum

            return export_by_optimum(exported, out)
        if exported.format == "onnx":
            from edgeserve.backends.onnx.model_file import import_onnx

            return import_onnx(exported, root, out)
        from edgeserve.backends.onnx.export import export_onnx

        return export_onnx(exported, root, out, route, self.tools())

    def _quantize(
        self,
        artifact: Artifact,
        root: Path,
        recipe: Recipe,
        samples: Iterable[Mapping[str, np.ndarray]],
        out: Path,
    ) -> Artifact:
        from edgeserve.backends.onnx.quantize import quantize_onnx

        return quantize_onnx(artifact, root, recipe, samples, out)

    def _load(
        self,
        artifact: Artifact,
        root: Path,
        delegate: str,
        threads: int | None,
        taps: tuple[str, ...],
        optimize: bool,
    ) -> Session:
        from edgeserve.backends.onnx.run import OnnxSession

        return OnnxSession(artifact, root, delegate, threads, taps, optimize)

    def _inspect(self, artifact: Artifact, root: Path) -> Graph:
        from edgeserve.backends.onnx.inspect import inspect_onnx

        return inspect_onnx(artifact, root)

    def saturating(self, artifact: Artifact, root: Path) -> tuple[str, ...]:
        from edgeserve.backends.onnx.cpu_int8 import saturating_layers

        return saturating_layers(root / artifact.entry) if artifact.precision == "w8a8" else ()
