"""Other precisions of a TFLite artifact, by ai-edge-quantizer, with ranges of our own calibration.

Inputs and outputs are those of the float file: the quantizer adds conversions after inputs and
before outputs. Weights are 8 bits per channel and symmetric, activations 8 bits per tensor.
A range is the true minimum and maximum of a tensor over the samples; the library would smooth
them over the samples in order (a moving average), which leaves them too narrow: on photographs
that alone flipped 27 to 41 of 183 confident decisions.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from edgeserve.backends.base import Samples, Tools
from edgeserve.backends.checks import check_precision, derived_provenance, no_samples, not_finite
from edgeserve.backends.tflite.inspect import fit_to_spec, read_signatures
from edgeserve.backends.tflite.quantization_plan import OpQuantization, plan_quantization
from edgeserve.backends.tflite.schema import (
    read_bytes,
    tensor_dtype,
    tensors_of,
    write_artifact,
    write_model,
)
from edgeserve.backends.tflite.tensor_names import SINGLE, names_of, rename_added
from edgeserve.environment import usable_cores
from edgeserve.errors import EdgeError, QuantizeError
from edgeserve.types.artifact import Artifact, Recipe
from edgeserve.types.tensors import IO
from edgeserve.user_lines import one_line


def calibrate(data: bytes, buckets: Sequence[IO], samples: Samples, manager: Any) -> dict[str, Any]:
    """Run the file on samples, each at every one of its sizes.

    Args:
        data: The float file.
        buckets: Its signatures.
        samples: Feeds in the source's signature, one sample each.
        manager: The quantizer's recipe manager, which selects the tensors.

    Returns:
        The quantizer's calibration result, by tensor name.

    Raises:
        QuantizeError: EDGE-QUANTIZE-001 no samples, -010 the model overflows on one of them.
    """
    from ai_edge_quantizer.calibrator import Calibrator
    from ai_edge_quantizer.utils.qsv_utils import min_max_update

    calibrator = Calibrator(data, num_threads=usable_cores(), qsv_update_func=min_max_update)
    ranges: dict[str, Any] = {}
    for number, sample in enumerate(samples):
        for io in buckets:
            feed = {spec.name: fit_to_spec(sample[spec.name], spec) for spec in io.inputs}
            calibrator.calibrate({io.signature or SINGLE: [feed]}, manager)
        ranges = calibrator.get_model_qsvs()
        for name, stats in ranges.items():
            if not all(np.isfinite(np.asarray(end)).all() for end in stats.values()):
                raise not_finite(name, number, "NaN or infinity")
    if not ranges:
        raise no_samples()
    return ranges


PRECISIONS = ("fp16", "w8", "w8a8")

#: Options of other formats, with the only values of TFLite's kernels.
_FIXED = {"activation": "s8", "reduce_range": "false"}


def quantize_tflite(
    artifact: Artifact, root: Path, recipe: Recipe, samples: Samples, out: Path, tools: Tools
) -> Artifact:
    """Derive fp16, w8 or w8a8 from an fp32 artifact; only w8a8 uses the samples.

    Raises:
        BackendError: EDGE-BACKEND-006 another precision.
        QuantizeError: EDGE-QUANTIZE-001 no samples, -009 an unknown op to keep float, -010 the
            model overflows on a sample, -011 there is nothing to quantize, -020 the quantizer
            failed, -021 weights that float16 does not hold.
    """
    check_precision(artifact.format, recipe.precision, PRECISIONS)
    data = (root / artifact.entry).read_bytes()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default")  # for the log, whatever the caller's filter is
            made = _quantized(data, artifact, recipe, samples)
    except EdgeError:
        raise
    except Exception as error:  # the library raises many kinds
        raise QuantizeError(
            "EDGE-QUANTIZE-020",
            f"tflite {recipe.precision}",
            wanted="a quantized file",
            got=one_line(error),
            hint="ask for another precision; the log holds the whole message",
        ) from error
    _check_fp16_range(made)
    found = read_signatures(made)
    ios = artifact.buckets or (artifact.io,)
    buckets = tuple(found[io.signature or next(iter(found))] for io in ios)
    recipe = msgspec.structs.replace(recipe, options=_resolve_options(recipe))
    provenance = derived_provenance(artifact, recipe, tools)
    return write_artifact(write_model(made), out, buckets, provenance, recipe.precision)


def _quantized(data: bytes, artifact: Artifact, recipe: Recipe, samples: Samples) -> Any:
    """The quantized model, with tensors under edgeserve's names."""
    from ai_edge_quantizer.quantizer import Quantizer

    model, quantizer = read_bytes(data), Quantizer(data)
    for planned in plan_quantization(model, recipe.precision, recipe.keep_float):
        _add_config(quantizer, planned)
    for edge in ("INPUT", "OUTPUT"):
        quantizer.update_quantization_recipe(".*", _op(edge), algorithm_key="no_quantize")
    ranges = None
    if quantizer.need_calibration:
        buckets = artifact.buckets or (artifact.io,)
        ranges = calibrate(data, buckets, samples, quantizer._recipe_manager)
    result = quantizer.quantize(ranges, enable_progress_bar=False, enable_progress_report=False)
    made = read_bytes(bytes(result.quantized_model))
    rename_added(made, names_of(model))
    return made


def _add_config(quantizer: Any, planned: OpQuantization) -> None:
    """Add one planned op to the quantizer's recipe."""
    from ai_edge_quantizer.qtyping import QuantGranularity
    from ai_edge_quantizer.quantizer import AlgorithmName

    scope, op = planned.scope, _op(planned.type)
    if planned.how == "half":
        quantizer.add_weight_only_config(
            scope, op, 16, QuantGranularity.TENSORWISE, AlgorithmName.FLOAT_CASTING
        )
    elif planned.how == "weights":
        quantizer.add_weight_only_config(scope, op, 8)
    elif planned.how == "dynamic":
        quantizer.add_dynamic_config(scope, op, 8)
    else:
        quantizer.add_static_config(scope, op, 8, 8)


def _op(type: str) -> Any:
    """The quantizer's name of an op type."""
    from ai_edge_quantizer.qtyping import TFLOperationName

    return TFLOperationName[{"TRANSPOSE_CONV": "CONV_2D_TRANSPOSE"}.get(type, type)]


def _check_fp16_range(model: Any) -> None:
    """Reject weights beyond the range of float16, which a cast would make infinite."""
    for _, tensor in tensors_of(model):
        data = model.buffers[tensor.buffer].data
        half = data is not None and tensor_dtype(tensor) == "float16"
        if half and not np.isfinite(data.view(np.float16)).all():
            raise QuantizeError(
                "EDGE-QUANTIZE-021",
                f"weight {tensor.name.decode()!r}",
                wanted="numbers up to 65504, as float16 holds them",
                got="larger ones",
                hint="keep that op in float, or ask for another precision",
            )


def _resolve_options(recipe: Recipe) -> dict[str, str]:
    """The recipe's options with the values that the format fixes."""
    others = {name: value for name, value in recipe.options.items() if name not in _FIXED}
    for name, value in _FIXED.items():
        if recipe.options.get(name, value) != value:
            print(f"{name} is always {value} in TFLite, not {recipe.options[name]}", flush=True)
    return others | _FIXED if recipe.precision == "w8a8" else others
