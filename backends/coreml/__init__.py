"""Core ML: ML programs in an ``.mlpackage``, made by coremltools, run by an interpreter elsewhere.

Importing this package imports neither coremltools nor torch.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from edgeserve.backends.base import Backend, PlainConversion, Samples
from edgeserve.backends.graph import Graph
from edgeserve.backends.session import LoadOptions, Session
from edgeserve.backends.versions import too_old, versions
from edgeserve.installation import install_command
from edgeserve.types.artifact import Artifact, Recipe
from edgeserve.types.source import Exported

__all__ = ["CoremlBackend"]


class CoremlBackend(Backend):
    """Format "coreml": a folder ``model.mlpackage``; on macOS the system runs it as well.

    Options of `export`: ``image`` names an input that is to be a picture, ``target`` the oldest
    system ("iOS16", "iOS17", "iOS18"), ``name``, ``author`` and ``license`` stand in the package's
    metadata.
    """

    format = "coreml"
    title = "Core ML"
    spellings = ("core-ml", "mlpackage")
    suffixes = (".mlpackage",)
    extra = "coreml"
    packages = ("coremltools", "torch")
    slow_imports = (
        "edgeserve.backends.coreml.coremltools_import:coremltools",
        "coremltools.converters.mil.frontend.torch",
    )
    targets = ("ios",)
    plain = PlainConversion(
        "import sys\nimport coremltools\nimport torch",
        """\
program = torch.export.export(model, inputs).run_decompositions({})
made = coremltools.convert(program, minimum_deployment_target=coremltools.target.iOS18)
if sys.platform != "darwin":
    sys.exit("taken; only a Mac runs it")
got = made.predict({i.name: x.numpy() for i, x in zip(made.get_spec().description.input, inputs)})
got = [got[output.name] for output in made.get_spec().description.output]""",
    )
    #: "coreml" leaves the choice of units to the system, the next three narrow it.
    all_delegates = ("coreml", "cpu_and_ne", "cpu_and_gpu", "cpu_only", "interpreter")
    delegate_aliases = MappingProxyType({"all": "coreml", "cpu": "cpu_only"})
    cpu_delegates = ("cpu_only", "interpreter")
    simulated = ("interpreter",)
    precisions = ("fp32", "fp16", "w8", "w8a8")
    native = ("fp32", "fp16")
    options = ("author", "image", "license", "name", "target")

    def missing(self) -> str | None:
        found = all(importlib.util.find_spec(name) for name in ("torch", "coremltools"))
        return None if found else install_command("coreml")

    def missing_tools(self) -> str | None:
        return self.missing() or too_old("torch", "coremltools")

    def tools(self) -> dict[str, str]:
        return versions("torch", "coremltools")

    def delegates(self) -> tuple[str, ...]:
        return ("coreml", "interpreter") if sys.platform == "darwin" else ("interpreter",)

    def routes(self) -> tuple[str, ...]:
        return ("whole", "core-aten")

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
        from edgeserve.backends.coreml.export import export_coreml
        from edgeserve.backends.coreml.export_request import CoremlExportRequest

        order = CoremlExportRequest(exported, route, precision, dict(options))
        return export_coreml(order, root, out, self.tools())

    def _quantize(
        self, artifact: Artifact, root: Path, recipe: Recipe, samples: Samples, out: Path
    ) -> Artifact:
        from edgeserve.backends.coreml.quantize import quantize_coreml

        return quantize_coreml(artifact, root, recipe, samples, out, self.tools())

    def _load(self, artifact: Artifact, root: Path, how: LoadOptions) -> Session:
        from edgeserve.backends.coreml.run import open_session

        return open_session(artifact, root, how)

    def _inspect(self, artifact: Artifact, root: Path) -> Graph:
        from edgeserve.backends.coreml.inspect import inspect_coreml

        return inspect_coreml(artifact, root)
