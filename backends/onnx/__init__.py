"""ONNX, run by ONNX Runtime. Importing this package imports neither."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import MappingProxyType

from edgeserve.backends.base import Backend, PlainConversion, Samples
from edgeserve.backends.graph import Graph
from edgeserve.backends.session import LoadOptions, Session
from edgeserve.backends.versions import too_old, versions
from edgeserve.installation import install_command
from edgeserve.types.artifact import Artifact, Recipe
from edgeserve.types.source import Exported

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

    format = "onnx"
    title = "ONNX"
    spellings = ("ort", "onnxruntime")
    suffixes = (".onnx",)
    extra = "onnx"
    packages = ("onnxruntime", "onnxruntime-gpu")
    slow_imports = (
        "torch.onnx._internal.exporter._core",
        "onnxscript.function_libs.torch_lib.ops",
        "onnxscript.rewriter",
    )
    targets = ("android", "ios", "linux", "web")
    thread_safe = True
    all_delegates = tuple(PROVIDERS)
    plain = PlainConversion(
        "import onnxruntime\nimport torch",
        """\
made = torch.onnx.export(torch.export.export(model, inputs), dynamo=True)
session = onnxruntime.InferenceSession(made.model_proto.SerializeToString())
feed = {i.name: x.numpy() for i, x in zip(session.get_inputs(), inputs)}
got = session.run(None, feed)""",
    )
    #: In a browser the processor's kernels are WebAssembly.
    delegate_aliases = MappingProxyType(
        {provider.lower(): name for name, provider in PROVIDERS.items()}
        | {"dml": "directml", "trt": "tensorrt", "wasm": "cpu"}
    )
    cpu_delegates = ("cpu", "xnnpack")
    precisions = ("fp32", "fp16", "w8", "w8a8")
    takes = ("torch", "onnx")
    asked_routes = ("optimum",)

    def missing(self) -> str | None:
        found = importlib.util.find_spec("onnxruntime")
        return None if found else f"{install_command('onnx')} (or with [gpu] for CUDA)"

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
        self, artifact: Artifact, root: Path, recipe: Recipe, samples: Samples, out: Path
    ) -> Artifact:
        from edgeserve.backends.onnx.quantize import quantize_onnx

        return quantize_onnx(artifact, root, recipe, samples, out)

    def _load(self, artifact: Artifact, root: Path, how: LoadOptions) -> Session:
        from edgeserve.backends.onnx.run import OnnxSession

        return OnnxSession(artifact, root, how)

    def _inspect(self, artifact: Artifact, root: Path) -> Graph:
        from edgeserve.backends.onnx.inspect import inspect_onnx

        return inspect_onnx(artifact, root)

    def saturating(self, artifact: Artifact, root: Path) -> tuple[str, ...]:
        from edgeserve.backends.onnx.cpu_int8 import saturating_layers

        return saturating_layers(root / artifact.entry) if artifact.precision == "w8a8" else ()
