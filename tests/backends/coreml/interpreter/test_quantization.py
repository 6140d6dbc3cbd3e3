"""Compressed weights: each op against coremltools' own decompression, and whole packages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import coremltools as ct
import coremltools.optimize.coreml as cto
import numpy as np
import pytest
import torch
from coremltools.converters.mil.mil import Builder, Function, Placeholder, Program, types
from coremltools.converters.mil.mil.ops.registry import SSAOpRegistry

from edgeserve.backends.coreml.interpreter import Interpreter
from edgeserve.backends.torch.program.io import log_warnings

RNG = np.random.default_rng(7)
IOS16, IOS18 = ct.target.iOS16, ct.target.iOS18


def halves(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float16)


def sub_byte(values: Any, name: str) -> np.ndarray:
    """Numbers of a few bits, as coremltools marks them."""
    return np.asarray(values).astype(types.nptype_from_builtin(types.string_to_builtin(name)))


def mask(*shape: int) -> np.ndarray:
    return (RNG.random(shape) < 0.4).astype(np.uint8)


def below(high: int, *shape: int) -> np.ndarray:
    return RNG.integers(0, high, shape).astype(np.uint8)


MASK = mask(6, 8)
ONES = int(MASK.sum())
BITS = np.packbits(MASK.reshape(-1), bitorder="little")
SIZES = np.array([6, 8], np.uint32)

CASES: list[tuple[str, Any, dict[str, Any]]] = [
    ("constexpr_cast", IOS16, {"source_val": halves(3, 4), "output_dtype": "fp32"}),
    (
        "constexpr_affine_dequantize",
        IOS16,
        {
            "quantized_data": below(255, 3, 4, 2),
            "zero_point": np.uint8(7),
            "scale": np.float16(0.3),
            "axis": np.int32(0),
        },
    ),
    (
        "constexpr_affine_dequantize",
        IOS16,
        {
            "quantized_data": below(127, 3, 4).astype(np.int8),
            "axis": np.int32(-1),
            "zero_point": np.array([-3, 0, 4, 9], np.int8),
            "scale": halves(4).astype(np.float32),
        },
    ),
    *(
        (
            "constexpr_lut_to_dense",
            IOS16,
            {
                "indices": below(256, -(-bits * 15 // 8)),
                "lut": halves(2**bits),
                "shape": np.array([3, 5], np.uint32),
            },
        )
        for bits in (1, 2, 4, 6, 8)
    ),
    (
        "constexpr_sparse_to_dense",
        IOS16,
        {"nonzero_data": halves(ONES), "mask": BITS, "shape": SIZES},
    ),
    (
        "constexpr_sparse_to_dense",
        IOS18,
        {"nonzero_data": halves(ONES), "mask": sub_byte(MASK, "uint1")},
    ),
    *(
        (
            "constexpr_lut_to_dense",
            IOS18,
            {
                "indices": sub_byte(below(2**bits, 6, 4), f"uint{bits}"),
                "lut": halves(3, 1, 2**bits, 1),
            },
        )
        for bits in (1, 2, 3, 4, 6, 8)
    ),
    *(
        (
            "constexpr_lut_to_dense",
            IOS18,
            {
                "indices": sub_byte(below(4, 6, 4), "uint2"),
                "lut": halves(2, 4, 4, 3),
                "vector_axis": np.int32(axis),
            },
        )
        for axis in (0, 1, -1)
    ),
    (
        "constexpr_lut_to_sparse",
        IOS18,
        {
            "indices_mask": sub_byte(MASK, "uint1"),
            "indices_nonzero_data": sub_byte(below(4, ONES), "uint2"),
            "lut": halves(2, 1, 4, 1),
        },
    ),
    (
        "constexpr_lut_to_sparse",
        IOS18,
        {
            "indices_mask": sub_byte(MASK, "uint1"),
            "vector_axis": np.int32(1),
            "indices_nonzero_data": sub_byte(below(2, ONES), "uint1"),
            "lut": halves(1, 1, 2, 4),
        },
    ),
    (
        "constexpr_blockwise_shift_scale",
        IOS18,
        {
            "data": sub_byte(below(8, 6, 8).astype(np.int8) - 4, "int4"),
            "scale": halves(3, 4).astype(np.float32),
        },
    ),
    (
        "constexpr_blockwise_shift_scale",
        IOS18,
        {
            "data": sub_byte(below(16, 6, 8), "uint4"),
            "scale": halves(6, 1).astype(np.float32),
            "offset": sub_byte(below(16, 6, 1), "uint4"),
        },
    ),
    (
        "constexpr_sparse_blockwise_shift_scale",
        IOS18,
        {
            "data_mask": sub_byte(MASK, "uint1"),
            "nonzero_data": below(127, ONES).astype(np.int8),
            "scale": halves(1, 8).astype(np.float32),
            "offset": halves(1, 8).astype(np.float32),
        },
    ),
]


def test_there_is_a_case_for_each_op() -> None:
    ops = {name for name in SSAOpRegistry.core_ops if name.startswith("constexpr_")}
    assert ops == {name for name, _, _ in CASES}


@pytest.mark.parametrize(("name", "opset", "inputs"), CASES)
def test_it_decompresses_as_coremltools_does(
    run_mil: Any, name: str, opset: Any, inputs: dict[str, Any]
) -> None:
    with Function({"unused": Placeholder((1,), types.fp32)}, opset_version=opset) as function:
        outputs = getattr(Builder, name)(**inputs)
        outputs = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
        function.set_outputs(outputs)
    program = Program()
    program.add_function("main", function)
    wanted = outputs[0].op.materialized_val_inference()
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    found = run_mil(program, {"unused": np.zeros(1, np.float32)})
    for var, right in zip(outputs, wanted, strict=True):
        np.testing.assert_allclose(found[var.name], right, rtol=2e-3, atol=1e-3)  # its are float16
        assert found[var.name].shape == right.shape


class _Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(8)
        self.conv = torch.nn.Conv2d(4, 32, 3)
        self.linear = torch.nn.Linear(32 * 36, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(self.conv(x).relu().flatten(1))  # type: ignore[no-any-return]


def _linear(mode: str) -> Callable[[Any], Any]:
    op = cto.OpLinearQuantizerConfig(mode=mode, weight_threshold=64)
    return lambda model: cto.linear_quantize_weights(model, cto.OptimizationConfig(op))


def _blocks(model: Any) -> Any:
    op = cto.OpLinearQuantizerConfig(
        mode="linear_symmetric",
        dtype="int4",
        granularity="per_block",
        block_size=4,
        weight_threshold=64,
    )
    return cto.linear_quantize_weights(model, cto.OptimizationConfig(op))


def _palette(**options: Any) -> Callable[[Any], Any]:
    op = cto.OpPalettizerConfig(mode="uniform", weight_threshold=64, **options)
    return lambda model: cto.palettize_weights(model, cto.OptimizationConfig(op))


def _pruned(model: Any) -> Any:
    op = cto.OpThresholdPrunerConfig(
        threshold=0.02, minimum_sparsity_percentile=0.1, weight_threshold=64
    )
    return cto.prune_weights(model, cto.OptimizationConfig(op))


def _pruned_and_palettized(model: Any) -> Any:
    op = cto.OpPalettizerConfig(mode="uniform", nbits=4, weight_threshold=64)
    config = cto.OptimizationConfig(op)
    return cto.palettize_weights(_pruned(model), config, joint_compression=True)


PACKED: dict[Any, dict[str, tuple[Callable[[Any], Any], str]]] = {
    IOS16: {
        "affine": (_linear("linear"), "constexpr_affine_dequantize"),
        "palette": (_palette(nbits=4), "constexpr_lut_to_dense"),
        "sparse": (_pruned, "constexpr_sparse_to_dense"),
    },
    IOS18: {
        "symmetric": (_linear("linear_symmetric"), "constexpr_blockwise_shift_scale"),
        "blocks": (_blocks, "constexpr_blockwise_shift_scale"),
        "groups": (
            _palette(nbits=3, granularity="per_grouped_channel", group_size=8),
            "constexpr_lut_to_dense",
        ),
        "sparse palette": (_pruned_and_palettized, "constexpr_lut_to_sparse"),
    },
}


@pytest.mark.parametrize("opset", PACKED)
def test_a_compressed_package_computes_with_its_own_weights(
    placed: Any, tmp_path: Path, opset: Any
) -> None:
    """PyTorch with the weights that coremltools takes out of the package must agree."""
    stored: dict[str, list[np.ndarray]] = {}

    def compress(model: Any) -> Any:
        for kind, (change, _) in PACKED[opset].items():
            packed = change(model)
            packed.save(str(tmp_path / f"{kind}.mlpackage"))
            stored[kind] = _weights(cto.decompress_weights(packed))
        return model

    example = (torch.zeros(1, 4, 8, 8),)
    with log_warnings():
        exported = torch.export.export(_Net().eval(), example).run_decompositions()
    tensor = ct.TensorType(name="x", shape=(1, 4, 8, 8), dtype=np.float32)
    placed(exported, tmp_path, opset=opset, edit=compress, inputs=[tensor])
    for kind, (_, op_type) in PACKED[opset].items():
        interpreter = Interpreter(tmp_path / f"{kind}.mlpackage")
        assert op_type in {op.type for op in interpreter.ops}
        _compare(interpreter, stored[kind])


def _compare(interpreter: Interpreter, weights: list[np.ndarray]) -> None:
    net = _Net().eval()
    conv, linear = (next(w for w in weights if w.ndim == rank) for rank in (4, 2))
    assert np.abs(linear - net.linear.weight.detach().numpy()).max() > 1e-4
    with torch.no_grad():
        net.conv.weight.copy_(torch.from_numpy(conv))
        net.linear.weight.copy_(torch.from_numpy(linear))
        x = torch.from_numpy(RNG.normal(size=(1, 4, 8, 8)).astype(np.float32))
        wanted = net(x).numpy()
    (found,) = interpreter.run({"x": x.numpy()}).values()
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


def _weights(model: Any) -> list[np.ndarray]:
    """The constants of a model with two axes or more."""
    function = model._mil_program.functions["main"]
    values = [np.array(op.val.val) for op in function.operations if op.op_type == "const"]
    return [value for value in values if value.ndim >= 2]
