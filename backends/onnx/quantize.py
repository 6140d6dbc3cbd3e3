"""Other precisions of an ONNX artifact: fp16, w8 and w8a8, derived from its fp32 file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import LiftConstantsToInitializersPass, ShapeInferencePass

from edgeserve.backends.host import versions
from edgeserve.backends.onnx.choices import resolved
from edgeserve.backends.onnx.half import to_half
from edgeserve.backends.onnx.inspect import io_of, read
from edgeserve.backends.onnx.kept import kept_nodes
from edgeserve.backends.onnx.static import quantize_static
from edgeserve.backends.onnx.weights import quantize_weights
from edgeserve.backends.onnx.write import MODEL, check, listed, save
from edgeserve.errors import BackendError, QuantizeError
from edgeserve.types.artifact import Artifact, Provenance, Recipe

__all__ = ["PRECISIONS", "quantize_onnx"]

PRECISIONS = ("fp16", "w8", "w8a8")


def quantize_onnx(
    artifact: Artifact,
    root: Path,
    recipe: Recipe,
    samples: Iterable[Mapping[str, np.ndarray]],
    out: Path,
) -> Artifact:
    """Derive another precision of ``artifact`` into ``out/model.onnx``.

    The file keeps its inputs and outputs (names, order, float32), its operator set, and of every
    node the source op and module it came from.

    Args:
        artifact: fp32, its files below ``root``.
        root: See ``artifact``.
        recipe: Precision, what stays float, and options ("activation", "reduce_range").
        samples: Feeds to calibrate with; only w8a8 looks at them.
        out: Folder to write into.

    Returns:
        The new artifact; its recipe has the options that were chosen for this machine.

    Raises:
        BackendError: EDGE-BACKEND-006, another precision.
        QuantizeError: EDGE-QUANTIZE-001 no samples, -008 an option's value, -009 an unknown op to
            keep float, -010 the model overflows on a sample, -011 there is nothing to quantize.
        ConvertError: EDGE-CONVERT-023 the file that was written is not valid.
    """
    if recipe.precision not in PRECISIONS:
        raise BackendError(
            "EDGE-BACKEND-006",
            f"{artifact.format} {recipe.precision}",
            wanted=", ".join(PRECISIONS),
            got="one that this version does not make",
            hint=f"ask for --precision {PRECISIONS[-1]}",
        )
    recipe = resolved(recipe)
    model = _loaded(root / artifact.entry)
    kept = kept_nodes(model, recipe)
    if recipe.precision == "fp16":
        to_half(model, kept)
    elif recipe.precision == "w8":
        _weights_only(model, kept)
    else:
        model = quantize_static(model, artifact, root, recipe, kept, samples)
        quantize_weights(model, kept)
    save(model, out)
    check(out, artifact.io.inputs, artifact.io.outputs)
    return Artifact(
        format="onnx",
        precision=recipe.precision,
        entry=MODEL,
        files=listed(out),
        io=io_of(read(out / MODEL)),
        provenance=Provenance(
            parent=artifact.sha256,
            recipe=recipe,
            route=artifact.provenance.route,
            rewrites=artifact.provenance.rewrites,
            tools=versions("onnx", "onnx-ir", "onnxruntime"),
        ),
    )


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


def _weights_only(model: ir.Model, kept: set[str]) -> None:
    if not quantize_weights(model, kept):
        raise QuantizeError(
            "EDGE-QUANTIZE-011",
            "model",
            got="none that is to be quantized",
            wanted="a layer with constant float32 weights",
            hint="ask for --precision fp16, or keep less in float",
        )
