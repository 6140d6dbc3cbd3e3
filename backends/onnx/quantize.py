"""Other precisions of an ONNX artifact: fp16, w8 and w8a8, derived from its fp32 file.

Nodes that came from the ops or modules in a recipe's ``keep_float`` stay float.
"""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir
from onnx_ir.passes.common import LiftConstantsToInitializersPass, ShapeInferencePass

from edgeserve.backends.base import Samples
from edgeserve.backends.checks import (
    check_precision,
    derived_provenance,
    is_kept,
    nothing_to_quantize,
    unknown_keep_float,
)
from edgeserve.backends.onnx.clean import MODULE, SOURCE, all_nodes
from edgeserve.backends.onnx.cpu_int8 import resolve_options
from edgeserve.backends.onnx.fp16 import to_fp16
from edgeserve.backends.onnx.inspect import read
from edgeserve.backends.onnx.model_file import write_artifact
from edgeserve.backends.onnx.qdq import quantize_static
from edgeserve.backends.onnx.weight_only import quantize_weights
from edgeserve.backends.versions import versions
from edgeserve.types.artifact import Artifact, Recipe


def keep_float_nodes(model: ir.Model, recipe: Recipe) -> set[str]:
    """Names of the nodes that came from the ops or modules in ``recipe.keep_float``.

    A module's path stands for everything inside it. The model's nodes must have unique names.

    Raises:
        QuantizeError: EDGE-QUANTIZE-009, nothing in the file came from one of them.
    """
    kept: set[str] = set()
    for entry in recipe.keep_float:
        nodes = {
            node.name or ""
            for node in all_nodes(model)
            if is_kept(entry, node.metadata_props.get(SOURCE), node.metadata_props.get(MODULE))
        }
        if not nodes:
            raise unknown_keep_float(entry)
        kept |= nodes
    return kept


PRECISIONS = ("fp16", "w8", "w8a8")


def quantize_onnx(
    artifact: Artifact, root: Path, recipe: Recipe, samples: Samples, out: Path
) -> Artifact:
    """Derive another precision of ``artifact`` into ``out/model.onnx``.

    The file keeps its inputs and outputs (names, order, float32), its operator set, and of every
    node the source op and module it came from.

    Args:
        artifact: fp32, its files below ``root``.
        root: See ``artifact``.
        recipe: Precision, what stays float, and options ("activation", "reduce_range").
        samples: Feeds to calibrate with; only w8a8 uses them.
        out: Folder to write into.

    Returns:
        The new artifact; its recipe has the options chosen for this machine.

    Raises:
        BackendError: EDGE-BACKEND-006, another precision.
        QuantizeError: EDGE-QUANTIZE-001 no samples, -008 an option's value, -009 an unknown op to
            keep float, -010 the model overflows on a sample, -011 there is nothing to quantize.
        ConvertError: EDGE-CONVERT-023 the file that was written is not valid.
    """
    check_precision(artifact.format, recipe.precision, PRECISIONS)
    recipe = resolve_options(recipe)
    model = _loaded(root / artifact.entry)
    kept = keep_float_nodes(model, recipe)
    if recipe.precision == "fp16":
        to_fp16(model, kept)
    elif recipe.precision == "w8":
        if not quantize_weights(model, kept):
            raise nothing_to_quantize(
                "a layer with constant float32 weights", "ask for --precision fp16"
            )
    else:
        model = quantize_static(model, artifact, root, recipe, kept, samples)
        quantize_weights(model, kept)
    tools = versions("onnx", "onnx-ir", "onnxruntime")
    provenance = derived_provenance(artifact, recipe, tools)
    return write_artifact(model, out, artifact.io, provenance, recipe.precision)


def _loaded(path: Path) -> ir.Model:
    """A model with weights in memory, constants as initializers, dtypes known, and nodes named."""
    model = read(path)
    ir.external_data.load_to_model(model)
    LiftConstantsToInitializersPass(lift_all_constants=True)(model)
    if any(value.dtype is None for node in model.graph for value in node.outputs if value.name):
        ShapeInferencePass()(model)  # a foreign file need not say them
    taken: set[str] = set()
    for index, node in enumerate(model.graph):
        if not node.name or node.name in taken:
            node.name = f"{node.op_type}_{index}"
        taken.add(node.name)
    return model
