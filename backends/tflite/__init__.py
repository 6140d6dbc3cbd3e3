"""TFLite, run by LiteRT. Importing this package imports neither LiteRT nor a converter."""

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

__all__ = ["TfliteBackend"]


class TfliteBackend(Backend):
    """Format "tflite": one ``model.tflite`` of fixed sizes, with a signature for each of them."""

    format = "tflite"
    title = "LiteRT"
    spellings = ("litert", "ai-edge-torch", "litert-torch", "tensorflow-lite")
    suffixes = (".tflite",)
    extra = "tflite"
    packages = ("ai-edge-litert",)
    slow_imports = ("litert_torch",)
    targets = ("android", "linux", "web")
    plain = PlainConversion(
        "import litert_torch\nimport torch",
        """\
made = litert_torch.convert(model, inputs)
got = made(*inputs)
got = got if isinstance(got, (tuple, list)) else (got,)""",
    )
    all_delegates = ("npu", "gpu", "coreml", "cpu")
    #: LiteRT's processor kernels are XNNPACK's, and in a browser WebAssembly.
    delegate_aliases = MappingProxyType({"xnnpack": "cpu", "wasm": "cpu", "webgpu": "gpu"})
    precisions = ("fp32", "fp16", "w8", "w8a8")

    def missing(self) -> str | None:
        return None if importlib.util.find_spec("ai_edge_litert") else install_command("tflite")

    def missing_tools(self) -> str | None:
        tools = ("ai_edge_litert", "ai_edge_quantizer", "litert_torch", "torch")
        if not all(importlib.util.find_spec(name) for name in tools):
            return install_command("convert")
        return too_old("torch", "litert-torch", "ai-edge-litert", "ai-edge-quantizer")

    def tools(self) -> dict[str, str]:
        return versions(
            "torch", "litert-torch", "litert-converter", "ai-edge-litert", "ai-edge-quantizer"
        )

    def delegates(self) -> tuple[str, ...]:
        from edgeserve.backends.tflite.gpu import has_gpu_library

        return ("gpu", "cpu") if has_gpu_library() else ("cpu",)

    def routes(self) -> tuple[str, ...]:
        return ("litert-torch",)

    def _export(self, exported: Exported, root: Path, out: Path, route: str) -> Artifact:
        from edgeserve.backends.tflite.export import export_tflite

        return export_tflite(exported, root, out, route, self.tools())

    def _quantize(
        self, artifact: Artifact, root: Path, recipe: Recipe, samples: Samples, out: Path
    ) -> Artifact:
        from edgeserve.backends.tflite.quantize import quantize_tflite

        return quantize_tflite(artifact, root, recipe, samples, out, self.tools())

    def _load(self, artifact: Artifact, root: Path, how: LoadOptions) -> Session:
        from edgeserve.backends.tflite.run import open_session

        return open_session(artifact, root, how)

    def _inspect(self, artifact: Artifact, root: Path) -> Graph:
        from edgeserve.backends.tflite.inspect import inspect_tflite

        return inspect_tflite(artifact, root)
