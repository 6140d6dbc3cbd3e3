"""An alternative route to ONNX: Hugging Face's ``optimum-onnx``, in a separate environment.

It needs an older transformers than edgeserve, so it runs in another Python environment, created
once by ``edgeserve env create optimum``. Nothing is downloaded during a conversion, weights are
read from safetensors only, and the result passes the validation gate like any other artifact.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from edgeserve.backends.onnx.clean import clear_metadata
from edgeserve.backends.onnx.inspect import read
from edgeserve.backends.onnx.model_file import MODEL, write_artifact
from edgeserve.errors import ConvertError
from edgeserve.jobs import progress
from edgeserve.types.artifact import Artifact, Provenance
from edgeserve.types.source import Exported
from edgeserve.types.tensors import Signature, TensorSpec

if TYPE_CHECKING:
    import onnx_ir as ir


#: The environment's name, and the route's.
NAME = "optimum"

#: The pinned packages; their dependencies follow from them.
PINS = tuple(
    "optimum-onnx[onnxruntime]==0.1.0 transformers==4.57.6 torch==2.13.0 optimum==2.1.0 "
    "onnx==1.23.2 onnxruntime==1.32.0 huggingface-hub==0.36.2 safetensors==0.8.0 "
    "tokenizers==0.22.2 numpy==2.4.6 pillow==13.0.0".split()
)

#: The input that separates two texts in one row.
_SEGMENT_IDS = "token_type_ids"

_SCRIPT = Path(__file__).with_name("optimum_script.py")
_MARKER = "edgeserve-env.json"


def environment_folder(name: str) -> Path:
    """The folder of an environment, below the user's own data folder."""
    import platformdirs

    data = Path(platformdirs.user_data_dir("edgeserve", appauthor=False))
    return data / "env" / f"{name}-py{sys.version_info.major}{sys.version_info.minor}"


def ready_marker(folder: Path) -> Path:
    """The file that marks a complete environment: its pins, one per line."""
    return folder / _MARKER


def environment_python(name: str) -> Path:
    """The Python of an environment that has been made.

    Raises:
        ConvertError: EDGE-CONVERT-080, it is missing, or from another version of edgeserve.
    """
    folder = environment_folder(name)
    mark = ready_marker(folder)
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not mark.exists() or mark.read_text().split() != list(PINS) or not python.exists():
        raise ConvertError(
            "EDGE-CONVERT-080",
            f"environment {name!r}",
            wanted=f"an environment in {folder}",
            got="no complete and current environment",
            hint=f"edgeserve env create {name}",
        )
    return python


def check_optimum(kind: str) -> Path:
    """The Python for converting a source of some kind.

    A workspace counts as its original source, which is known later.

    Raises:
        ConvertError: EDGE-CONVERT-080 there is no environment, -083 the source is no Hugging Face
            folder.
    """
    if kind not in ("huggingface", "workspace"):
        wanted = "a Hugging Face folder"
        hint = "omit --via, or give the model's folder as SOURCE"
        raise ConvertError("EDGE-CONVERT-083", f"--via {NAME}", wanted=wanted, got=kind, hint=hint)
    return environment_python(NAME)


def export_by_optimum(exported: Exported, out: Path) -> Artifact:
    """Convert the Hugging Face folder of a source into ``out/model.onnx``.

    Raises:
        ConvertError: EDGE-CONVERT-080 there is no environment, -082 it fails or gives a file of
            other inputs or outputs, -083 the source is no Hugging Face folder.
    """
    python = check_optimum(exported.source.kind)
    with tempfile.TemporaryDirectory(prefix=".tmp-", dir=out) as stage:
        progress("converting the folder with optimum-onnx")
        _run(python, Path(exported.source.location), Path(stage), str(exported.task))
        model = read(Path(stage) / MODEL)
        import onnx_ir

        onnx_ir.external_data.load_to_model(model)
        versions = (Path(stage) / "versions.txt").read_text().split()
    _match_signature(model, exported.signature)
    tools = dict(line.split("==") for line in versions)
    provenance = Provenance(route=NAME, tools=tools)
    return write_artifact(model, out, exported.signature, provenance, "fp32")


def _run(python: Path, folder: Path, out: Path, task: str) -> None:
    """Run the script with the other Python; it ends with this process group."""
    offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "PYTHONNOUSERSITE": "1"}
    done = subprocess.run(
        [str(python), "-I", str(_SCRIPT), str(folder), str(out), task],
        check=False,
        capture_output=True,
        text=True,
        cwd=out,
        env=os.environ | offline,
    )
    print(done.stdout, done.stderr, sep="\n", flush=True)
    if done.returncode or not (out / MODEL).exists():
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise _failed("a model.onnx", lines[-1] if lines else f"exit {done.returncode}")


def _match_signature(model: ir.Model, signature: Signature) -> None:
    """Order inputs and outputs as in the signature, and clear the metadata.

    Raises:
        ConvertError: EDGE-CONVERT-082.
    """
    import onnx_ir as ir
    from onnx_ir.passes.common import RemoveUnusedNodesPass

    graph = model.graph
    _fill_segment_ids(graph, {spec.name for spec in signature.inputs})
    inputs = _match_values("inputs", list(graph.inputs), signature.inputs, whole=True)
    outputs = _match_values("outputs", list(graph.outputs), signature.outputs, whole=False)
    graph.inputs[:] = inputs
    graph.outputs[:] = outputs
    RemoveUnusedNodesPass()(model)
    for value, spec in zip(
        [*inputs, *outputs], [*signature.inputs, *signature.outputs], strict=True
    ):
        value.name, value.shape = spec.name, ir.Shape(list(spec.shape))
    clear_metadata(model, own_sources=True)


def _fill_segment_ids(graph: ir.Graph, wanted: set[str]) -> None:
    """Segment ids that the source does not take are all zero, the network's own default."""
    import onnx_ir as ir

    named = {value.name: value for value in graph.inputs}
    spare, ids = named.get(_SEGMENT_IDS), named.get("input_ids")
    if spare is None or ids is None or _SEGMENT_IDS in wanted:
        return
    zeros = ir.node("Sub", [ids, ids], name="edgeserve_no_segments")
    graph.insert_before(graph[0], zeros)
    zeros.outputs[0].name, zeros.outputs[0].type = "edgeserve_segments", spare.type
    zeros.outputs[0].shape = ids.shape
    ir.convenience.replace_all_uses_with(spare, zeros.outputs[0])
    graph.inputs.remove(spare)


def _match_values(
    word: str, values: list[ir.Value], specs: tuple[TensorSpec, ...], whole: bool
) -> list[ir.Value]:
    """A file's values in the signature's order: by name, or the only one by itself."""
    named = {str(value.name): value for value in values}
    wanted = [spec.name for spec in specs]
    if len(values) == len(specs) == 1 and wanted[0] not in named:
        return values
    if not set(wanted) <= set(named) or (whole and len(named) != len(wanted)):
        raise _failed(f"the {word} {wanted}", f"{list(named)}")
    return [named[name] for name in wanted]


def _failed(wanted: str, got: str) -> ConvertError:
    hint = "omit --via to use edgeserve's own export; the job's log has the details"
    return ConvertError("EDGE-CONVERT-082", "optimum-onnx", wanted=wanted, got=got, hint=hint)
