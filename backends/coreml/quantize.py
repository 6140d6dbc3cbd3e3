"""Other precisions of a Core ML package: 8-bit weights, and with real samples 8-bit activations.

Apple's Neural Engine computes in 16 bits or, where weights and activations are quantized, in 8; a
program in float32 never runs there. So the package is brought to float16 first, unless the recipe
says ``compute: fp32``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from edgeserve.backends.base import Samples, Tools
from edgeserve.backends.checks import (
    check_precision,
    check_unlisted_files,
    derived_provenance,
    no_samples,
    nothing_to_quantize,
)
from edgeserve.backends.coreml.activation_quantization import (
    Ranges,
    float_operations,
    measure_ranges,
)
from edgeserve.backends.coreml.coremltools_import import (
    coremltools,
    remove_weight_folders,
    validate_once,
)
from edgeserve.backends.coreml.dynamic_ranges import has_dynamic_sizes
from edgeserve.backends.coreml.export_request import TARGETS
from edgeserve.backends.coreml.float16 import float16_precision
from edgeserve.backends.coreml.inspect import constants_of
from edgeserve.backends.coreml.metadata import SourceMap
from edgeserve.backends.coreml.package import (
    ENTRY,
    merge_functions,
    read_package,
    split_functions,
    write_package,
)
from edgeserve.backends.coreml.spec import (
    DATA,
    MODEL,
    WEIGHTS,
    block_of,
    name_of,
    operations_of,
    read_spec,
    signatures,
)
from edgeserve.backends.torch.program.io import log_warnings
from edgeserve.errors import QuantizeError
from edgeserve.types.artifact import Artifact, Recipe

PRECISIONS = ("w8", "w8a8")

#: Operations whose constant tensors are weights: for others (an added table) 8 bits are too few,
#: and there is little to save.
_WEIGHT_OPS = set("conv conv_transpose einsum gather gru linear lstm matmul rnn".split())

#: For each precision the values of the recipe's options, the default first. coremltools quantizes
#: activations in float16 only.
_OPTIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "w8": {"compute": ("fp16", "fp32")},
    "w8a8": {"compute": ("fp16",), "activation": ("s8", "u8")},
}


def quantize_coreml(
    artifact: Artifact, root: Path, recipe: Recipe, samples: Samples, out: Path, tools: Tools
) -> Artifact:
    """Derive another precision of ``artifact`` into ``out/model.mlpackage``.

    Args:
        artifact: fp32, its files below ``root``.
        root: See ``artifact``.
        recipe: Precision, what stays float, and options: ``compute`` (fp16 or fp32: what the
            program computes in; w8 only) and ``activation`` (s8: symmetric, as Apple documents it;
            u8: with a zero point).
        samples: Feeds to calibrate with; only w8a8 uses them.
        out: Folder to write into.
        tools: Versions of what makes the artifact.

    Returns:
        The new artifact; its recipe has all options.

    Raises:
        BackendError: EDGE-BACKEND-006 another precision, -012 the package is damaged.
        QuantizeError: EDGE-QUANTIZE-001 no samples, -008 an option's value, -009 an unknown op to
            keep float, -010 the model overflows on a sample, -011 there is nothing to quantize.
    """
    check_precision(artifact.format, recipe.precision, PRECISIONS)
    recipe = _resolve_options(recipe)
    parent = read_spec(artifact, root)
    check_unlisted_files(artifact, root, root / artifact.entry)
    origin = SourceMap.of(parent)
    with tempfile.TemporaryDirectory(prefix=".tmp-", dir=out) as stage:
        weights = root / artifact.entry / DATA / WEIGHTS
        parts = {"main": root / artifact.entry}
        if artifact.buckets:
            parts = split_functions(parent, weights, Path(stage))
        made = {
            name: _quantized(
                folder, partial(_kept, origin, name, recipe.keep_float), recipe, samples
            )
            for name, folder in parts.items()
        }
        spec, weights = (
            merge_functions(made, Path(stage)) if artifact.buckets else read_package(made["main"])
        )
        spec.description.CopyFrom(parent.description)
        origin.describe(spec)
        files = write_package(spec, weights, out)
    ios = (artifact.io,) if has_dynamic_sizes(artifact.io) else signatures(spec)
    options = {**recipe.options, "target": coremltools().target(spec.specificationVersion).name}
    recipe = Recipe(recipe.precision, recipe.keep_float, options)
    provenance = derived_provenance(artifact, recipe, tools)
    buckets = ios if len(ios) > 1 else ()
    return Artifact("coreml", recipe.precision, ENTRY, files, ios[-1], buckets, provenance)


def _resolve_options(recipe: Recipe) -> Recipe:
    """The recipe with all options of its precision."""
    options = dict(recipe.options)
    for name, values in _OPTIONS[recipe.precision].items():
        if options.setdefault(name, values[0]) not in values:
            raise QuantizeError(
                "EDGE-QUANTIZE-008",
                f"option {name!r} of {recipe.precision}",
                wanted=f"one of {list(values)}",
                got=repr(options[name]),
                hint="omit it, or give one of these values",
            )
    return Recipe(recipe.precision, recipe.keep_float, options)


#: Gives the operations of a function that stay float.
_Kept = Callable[[Any], list[Any]]


def _kept(origin: SourceMap, name: str, keep: tuple[str, ...], function: Any) -> list[Any]:
    """The operations of a function of the program that stay float."""
    return list(origin.kept(name, block_of(function), keep))


def _quantized(folder: Path, keeping: _Kept, recipe: Recipe, samples: Samples) -> Path:
    """Quantize a package of one function; returns coremltools' folder with the result."""
    ct = coremltools()
    least = ct.target[TARGETS[1 if recipe.precision == "w8a8" else 0]].value
    with log_warnings(), validate_once():
        model = ct.models.MLModel(str(folder), skip_model_load=True)
        if recipe.options["compute"] == "fp16":
            model = _reconvert(model, least, ct.PassPipeline(), float16_precision())
        pipeline = ct.PassPipeline.EMPTY
        if recipe.precision == "w8a8":
            pipeline = ct.PassPipeline()  # its passes pull quantized operations together
            _describe_as(Path(model.package_path), folder)
            ranges = measure_ranges(Path(model.package_path), samples)
            _quantize_activations(pipeline, model, keeping, recipe, ranges)
        _quantize_weights(pipeline, model, keeping)
        model = _reconvert(model, least, pipeline, ct.precision.FLOAT32)
    return Path(model.package_path)


def _describe_as(package: Path, parent: Path) -> None:
    """Give a package its parent's description: a conversion forgets the ranges of sizes."""
    spec, _ = read_package(package)
    spec.description.CopyFrom(read_package(parent)[0].description)
    (package / DATA / MODEL).write_bytes(spec.SerializeToString())


def _reconvert(model: Any, least: int, pipeline: Any, precision: Any) -> Any:
    """The model after some passes; its inputs and outputs keep their dtypes."""
    from coremltools.converters.mil.frontend.milproto.load import load

    ct, spec = coremltools(), model.get_spec()
    version = max(int(spec.specificationVersion), int(least))
    with remove_weight_folders():
        return ct.convert(
            load(spec, version, model.weights_dir),
            source="milinternal",
            convert_to="mlprogram",
            compute_precision=precision,
            minimum_deployment_target=ct.target(version),
            pass_pipeline=pipeline,
            skip_model_load=True,
        )


def _prepend_pass(pipeline: Any, name: str, **options: Any) -> None:
    """Put a pass at a pipeline's head."""
    pipeline.insert_pass(0, name)
    if options:
        pipeline.set_options(name, options)


def _quantize_activations(
    pipeline: Any, model: Any, keeping: _Kept, recipe: Recipe, ranges: Ranges
) -> None:
    """The passes of coremltools' own function, with our ranges: its own measures on a Mac only."""
    if not ranges:
        raise no_samples()
    from coremltools.optimize import coreml as optimize

    signed = recipe.options["activation"] == "s8"
    config = optimize.OpLinearQuantizerConfig(
        mode="linear_symmetric" if signed else "linear", dtype="int8" if signed else "uint8"
    )
    main = _main(model)
    out = [*keeping(main), *float_operations(block_of(main), ranges)]
    kept = dict.fromkeys(map(name_of, out))
    for name, floats in (("suffix", {"linear": None}), ("prefix", {})):
        plan = optimize.OptimizationConfig(
            global_config=config, op_type_configs=floats, op_name_configs=kept
        )
        of = f"compression::insert_{name}_quantize_dequantize_pair"
        _prepend_pass(pipeline, of, config=plan, activation_stats=ranges)


def _quantize_weights(pipeline: Any, model: Any, keeping: _Kept) -> None:
    """Store weights in 8 bits, symmetric, with a scale for each output channel."""
    from coremltools.optimize import coreml as optimize

    function = _main(model)
    kept = {v.name for each in keeping(function) for v in each.outputs}
    names = _weights(function, kept)
    if not names:
        raise nothing_to_quantize("a layer with constant weights", "ask for --precision fp16")
    config = optimize.OpLinearQuantizerConfig(
        mode="linear_symmetric", dtype="int8", granularity="per_channel", weight_threshold=0
    )
    plan = optimize.OptimizationConfig(op_name_configs=dict.fromkeys(names, config))
    _prepend_pass(pipeline, "compression::linear_quantize_weights", config=plan)


def _main(model: Any) -> Any:
    return model.get_spec().mlProgram.functions["main"]


def _weights(function: Any, kept: set[str]) -> list[str]:
    """Names of the constants of two axes or more that only operations of `_WEIGHT_OPS` read."""
    candidates = {
        each.name
        for each in constants_of(function)
        if len(each.shape) > 1 and each.dtype.startswith("float")
    }
    read: dict[str, list[bool]] = {}
    for operation in operations_of(block_of(function)):
        good = operation.type in _WEIGHT_OPS and not kept & {v.name for v in operation.outputs}
        for argument in operation.inputs.values():
            for each in argument.arguments:
                read.setdefault(each.name, []).append(good)
    return sorted(name for name in candidates if name in read and all(read[name]))
