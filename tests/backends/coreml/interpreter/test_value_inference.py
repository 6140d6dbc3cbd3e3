"""Every op that coremltools can compute itself, in numpy, against the interpreter.

`CASES` has a case or more for each op with a ``value_inference``; `test_no_op_is_left_out` holds
the table complete. Where the two differ, a test at the end shows it and says why.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import coremltools as ct
import numpy as np
import pytest
from coremltools.converters.mil.mil import Builder, Function, Operation, Placeholder, Program, types
from coremltools.converters.mil.mil.ops.registry import SSAOpRegistry

from edgeserve.errors import MilError

Arrays = dict[str, np.ndarray]
Case = tuple[Arrays, dict[str, Any]]

RNG = np.random.default_rng(20)
IOS18 = {"scaled_dot_product_attention", "slice_update"}


def floats(*shape: int, low: float = -3.0, high: float = 3.0) -> np.ndarray:
    return RNG.uniform(low, high, shape).astype(np.float32)


def whole(*shape: int, low: int = -9, high: int = 10) -> np.ndarray:
    return RNG.integers(low, high, shape).astype(np.int32)


def truths(*shape: int) -> np.ndarray:
    return RNG.random(shape) < 0.5


def x(array: np.ndarray, **attributes: Any) -> Case:
    return {"x": array}, attributes


def xy(left: np.ndarray, right: np.ndarray, **attributes: Any) -> Case:
    return {"x": left, "y": right}, attributes


def f32(value: float) -> np.float32:
    return np.float32(value)


def plain(low: float = -3.0, high: float = 3.0) -> list[Case]:
    """Two floats cases, one of rank 0 elements only in one axis."""
    return [x(floats(2, 3, 4, low=low, high=high)), x(floats(1, low=low, high=high))]


def binary(right: Callable[..., np.ndarray] = floats) -> list[Case]:
    """Same shapes, broadcast both ways, another rank."""
    shapes = [((2, 3), (2, 3)), ((4, 1, 3), (2, 1)), ((3,), (2, 2, 3))]
    return [xy(floats(*a), right(*b)) for a, b in shapes]


def nonzero(*shape: int) -> np.ndarray:
    sign = np.where(truths(*shape), 1, -1).astype(np.float32)
    return sign * floats(*shape, low=0.5, high=3.0)


def some(*shape: int) -> np.ndarray:
    """Whole numbers without 0."""
    return np.where(truths(*shape), 1, -1).astype(np.int32) * whole(*shape, low=1)


def ties(*shape: int) -> np.ndarray:
    return RNG.integers(-2, 3, shape).astype(np.float32)


def comparisons() -> list[Case]:
    return [xy(ties(2, 3), ties(2, 3)), xy(whole(3, 1, low=0, high=3), whole(4, low=0, high=3))]


def reductions(low: float = -3.0) -> list[Case]:
    f = floats(2, 3, 4, low=low)
    return [
        x(f),
        x(f, axes=[1], keep_dims=True),
        x(f, axes=[-1, 0], keep_dims=False),
        x(floats(5, low=low), axes=[0]),
    ]


def places() -> list[Case]:
    return [x(floats(2, 3, 4)), x(ties(3, 5), axis=0, keep_dims=True), x(whole(4, 2), axis=-2)]


CHANNELS = {"alpha": floats(3, low=0.1), "beta": floats(3, low=0.5)}
BOTH = {"alpha": f32(0.7), "beta": f32(1.3)}
LOGIC = [xy(truths(2, 3), truths(2, 3)), xy(truths(3, 1), truths(4))]

CASES: dict[str, list[Case]] = {
    # Elementwise, two operands.
    "add": [*binary(), xy(whole(3), whole(2, 3))],
    "floor_div": [*binary(nonzero), xy(whole(4, 5), some(5))],
    "maximum": [*binary(), xy(whole(3), whole(2, 3))],
    "minimum": [*binary(), xy(whole(3), whole(2, 3))],
    "mod": [*binary(nonzero), xy(whole(4, 5), some(5))],
    "mul": [*binary(), xy(whole(3), whole(2, 3))],
    "pow": [
        xy(floats(2, 3, low=0.1), floats(3)),
        xy(floats(5), np.full(5, 3, np.float32)),
        xy(whole(4), whole(4, low=0, high=5)),
    ],
    "real_div": [*binary(nonzero), xy(whole(30), some(30))],
    "sub": [*binary(), xy(whole(3), whole(2, 3))],
    # Elementwise, one operand.
    "abs": [*plain(), x(whole(3, 2))],
    "acos": plain(-1, 1),
    "asin": plain(-1, 1),
    "atan": plain(),
    "atanh": plain(-0.9, 0.9),
    "ceil": plain(),
    "clip": [x(floats(3, 4), alpha=f32(-1), beta=f32(0.5))],
    "cos": plain(),
    "cosh": plain(),
    "erf": plain(),
    "exp": plain(),
    "exp2": [*plain(), x(whole(6, low=0, high=20))],
    "floor": plain(),
    "inverse": [x(nonzero(3, 4)), x(nonzero(2), epsilon=f32(0.1)), x(np.zeros(2, np.float32))],
    "log": [x(floats(3, 4, low=0.0)), x(floats(3, low=0.0), epsilon=f32(0.2))],
    "logical_not": [x(truths(2, 3))],
    "round": [*plain(), x(np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5], np.float32))],
    "rsqrt": [x(floats(3, 4, low=0.01)), x(floats(3, low=0.0), epsilon=f32(0.2))],
    "sign": [*plain(), x(whole(3, 2, low=-1, high=2))],
    "sin": plain(),
    "sinh": plain(),
    "sqrt": plain(0, 9),
    "square": [*plain(), x(whole(3, 2))],
    "tan": plain(-1.5, 1.5),
    "tanh": plain(),
    "threshold": [x(floats(3, 4), alpha=f32(0.5)), x(whole(6), alpha=np.int32(2))],
    # Comparison and logic.
    **{
        name: comparisons()
        for name in ("equal", "greater", "greater_equal", "less", "less_equal", "not_equal")
    },
    **{name: LOGIC for name in ("logical_and", "logical_or", "logical_xor")},
    # Activations.
    "clamped_relu": [x(floats(3, 4), **BOTH), x(floats(9), alpha=f32(-2), beta=f32(0.5))],
    "elu": [x(floats(3, 4), alpha=f32(0.7))],
    "gelu": [
        x(floats(3, 4), mode=mode)
        for mode in ("EXACT", "TANH_APPROXIMATION", "SIGMOID_APPROXIMATION")
    ],
    "leaky_relu": [x(floats(3, 4), alpha=f32(0.1))],
    "linear_activation": [x(floats(3, 4), **BOTH)],
    "prelu": [x(floats(2, 3, 4, 5), alpha=CHANNELS["alpha"])],
    "relu": plain(),
    "relu6": plain(-3, 9),
    "scaled_tanh": [x(floats(3, 4), **BOTH)],
    "sigmoid": plain(-9, 9),
    "sigmoid_hard": [x(floats(3, 4), alpha=f32(0.2), beta=f32(0.5))],
    "softmax": [x(floats(2, 3, 4), axis=axis) for axis in (-1, 0, 1)] + [x(floats(3, 2))],
    "softplus": plain(-30, 30),
    "softplus_parametric": [x(floats(2, 3, 4, 2), **CHANNELS)],
    "softsign": plain(),
    "thresholded_relu": [x(floats(3, 4), alpha=f32(0.5)), x(floats(9), alpha=f32(-1))],
    # Reductions.
    "reduce_argmax": places(),
    "reduce_argmin": places(),
    "reduce_l1_norm": [*reductions(), x(whole(3, 4), axes=[0])],
    "reduce_l2_norm": [*reductions(), x(whole(3, 4), axes=[0])],
    "reduce_log_sum": [*reductions(0.1), x(whole(3, 4, low=1), axes=[0])],
    "reduce_log_sum_exp": reductions(),
    "reduce_max": [*reductions(), x(whole(3, 4), axes=[0])],
    "reduce_mean": [*reductions(), x(whole(3, 4), axes=[0])],
    "reduce_min": [*reductions(), x(whole(3, 4), axes=[0])],
    "reduce_prod": [*reductions(), x(whole(3, 4), axes=[1, 0])],
    "reduce_sum": [*reductions(), x(whole(3, 4), axes=[0], keep_dims=True)],
    "reduce_sum_square": [*reductions(), x(whole(3, 4), axes=[1])],
    # Normalization, products.
    "l2_norm": [x(floats(2, 3, 4)), x(floats(2, 5, 3, 2, 2), epsilon=f32(0.5))],
    "layer_norm": [
        x(floats(2, 3, 4), axes=[-1], gamma=floats(4), beta=floats(4)),
        x(floats(2, 3, 4, 2), axes=[1, 3], gamma=floats(3, 2), beta=floats(3, 2)),
        x(floats(2, 3, 4), axes=[0, 1], epsilon=f32(0.1)),
        x(floats(4, 6), axes=[0, 1]),
    ],
    "linear": [
        x(floats(2, 3, 4), weight=floats(5, 4), bias=floats(5)),
        x(floats(4), weight=floats(5, 4)),
        x(whole(3, 4), weight=whole(2, 4), bias=whole(2)),
    ],
    "matmul": [
        xy(floats(2, 3), floats(3, 4)),
        xy(floats(5, 1, 3, 2), floats(4, 3, 6), transpose_x=True),
        xy(floats(4, 3, 2), floats(5, 2), transpose_y=True),
        xy(floats(3, 2), floats(4, 3), transpose_x=True, transpose_y=True),
        xy(floats(3), floats(3, 4)),
        xy(whole(2, 3), whole(3, 2)),
    ],
    "einsum": [
        (
            {"values.0": floats(2, 3, 4, 5), "values.1": floats(2, 5, 4, 6)},
            {"equation": "nchw,nwhu->nchu"},
        ),
        (
            {"values.0": floats(1, 3, 4, 5), "values.1": floats(2, 5, 1, 6)},
            {"equation": "nchw,nwhu->nchu"},
        ),
        ({"values.0": floats(3, 4, 5), "values.1": floats(5, 1, 6)}, {"equation": "chw,whr->chr"}),
    ],
    "scaled_dot_product_attention": [
        ({"query": floats(2, 3, 4), "key": floats(2, 5, 4), "value": floats(2, 5, 6)}, {}),
        (
            {
                "query": floats(2, 2, 3, 4),
                "key": floats(2, 2, 5, 4),
                "value": floats(2, 2, 5, 6),
                "attn_mask": floats(3, 5),
            },
            {},
        ),
        (
            {
                "query": floats(2, 2, 3, 4),
                "key": floats(2, 2, 5, 4),
                "value": floats(2, 2, 5, 6),
                "attn_mask": np.tri(3, 5, 2) > 0,
            },
            {},
        ),
    ],
    # Shapes and moves.
    "band_part": [x(floats(2, 4, 5), lower=1, upper=2), x(floats(4, 3), lower=-1, upper=0)],
    "cast": [
        x(floats(6), dtype="int32"),
        x(whole(6, low=-1, high=2), dtype="bool"),
        x(whole(6), dtype="fp32"),
        x(truths(6), dtype="fp32"),
    ],
    "concat": [
        ({"values.0": floats(2, 3), "values.1": floats(2, 1)}, {"axis": axis}) for axis in (1, -1)
    ],
    "cumsum": [x(floats(3, 4), axis=1), x(whole(3, 4), axis=0, reverse=True)],
    "expand_dims": [x(floats(2, 3), axes=[0, -1]), x(floats(2), axes=[1])],
    "fill": [({"shape": np.array([2, 3], np.int32)}, {"value": f32(1.5)})],
    "fill_like": [({"ref_tensor": floats(2, 3)}, {"value": f32(1.5)})],
    "flatten2d": [x(floats(2, 3, 4), axis=axis) for axis in (1, 2)],
    "gather": [
        ({"x": floats(3, 4), "indices": np.array([2, 0], np.int32)}, {"axis": axis})
        for axis in (0, 1, -1)
    ]
    + [
        (
            {"x": floats(2, 3, 4), "indices": np.array([[0], [2]], np.int32)},
            {"axis": 1, "batch_dims": 1},
        )
    ],
    "gather_along_axis": [
        ({"x": floats(3, 4), "indices": whole(2, 4, low=0, high=3)}, {"axis": 0})
    ],
    "identity": [x(floats(2, 3))],
    "non_zero": [x(ties(3, 4)), x(truths(5))],
    "pad": [
        x(floats(2, 3, 4), pad=[1, 0, 2, 1], mode="constant", constant_val=f32(0.5)),
        x(floats(1, 2, 3, 4), pad=[1, 2, 1, 0], mode="reflect"),
        x(floats(1, 2, 3, 4), pad=[1, 2, 1, 0], mode="replicate"),
    ],
    "range_1d": [
        ({}, {"start": np.int32(1), "end": np.int32(9), "step": np.int32(3)}),
        ({}, {"start": f32(0.5), "end": f32(2.5), "step": f32(0.5)}),
    ],
    "reshape": [x(floats(2, 3, 4), shape=[4, -1]), x(floats(6), shape=[1, 2, 3])],
    "reverse": [x(floats(2, 3, 4), axes=[0, 2]), x(floats(2, 3))],
    "scatter_along_axis": [
        (
            {
                "data": floats(3, 4),
                "indices": np.array([[2, 0, 1, 1]], np.int32),
                "updates": floats(1, 4),
            },
            {"axis": 0, "mode": "update"},
        )
    ],
    "select": [({"cond": truths(2, 3), "a": floats(2, 3), "b": floats(2, 3)}, {})],
    "shape": [x(floats(2, 3, 4))],
    "slice_by_index": [
        x(floats(4, 5), begin=[1, -1], end=[3, 0], stride=[1, -2], end_mask=[False, True]),
        x(floats(4, 5, 2), begin=[0, 2, 0], end=[2, 3, 2], squeeze_mask=[False, True, False]),
    ],
    "slice_by_size": [x(floats(4, 5), begin=np.array([1, 2], np.int32), size=[2, -1])],
    "slice_update": [
        ({"x": floats(4, 5), "update": floats(2, 2)}, {"begin": [1, 2], "end": [3, 4]})
    ],
    "split": [x(floats(4, 6), num_splits=2, axis=0), x(floats(4, 6), split_sizes=[1, 5], axis=-1)],
    "squeeze": [x(floats(1, 3, 1), axes=[0]), x(floats(1, 3, 1))],
    "stack": [({"values.0": floats(2, 3), "values.1": floats(2, 3)}, {"axis": 1})],
    "tile": [x(floats(2, 3), reps=[2, 3])],
    "transpose": [x(floats(2, 3, 4), perm=[2, 0, -2])],
    # Order.
    "argsort": [x(floats(3, 4)), x(floats(3, 4), axis=0, ascending=True)],
    "topk": [x(floats(3, 5), k=2), x(floats(3, 5), k=3, axis=0, ascending=True)],
    # Quantization.
    "quantize": [
        ({"input": floats(3, 4)}, {"scale": f32(0.05), "output_dtype": "int8"}),
        (
            {"input": floats(3, 4)},
            {
                "scale": floats(4, low=0.02, high=0.1),
                "axis": 1,
                "zero_point": np.array([3, 100, 128, 200], np.uint8),
                "output_dtype": "uint8",
            },
        ),
    ],
}

#: Ops of `CASES` that have no float16 of their own, or change the type.
NOT_HALVED = {"cast", "fill", "fill_like", "inverse", "log", "quantize", "range_1d"}

#: Ops that have a ``value_inference`` and no case here, with the reason.
ELSEWHERE = {
    "_const_symbolic": "holds a symbol while a program is built; no package can have one",
    "cond": "takes blocks: see test_branches_and_lists",
    "const": "is its value: see test_branches_and_lists",
    "list_length": "takes a list: see test_branches_and_lists",
    "reverse_sequence": "its value_inference raises NotImplementedError",
}


def has_numpy(name: str) -> bool:
    return any(
        version.value_inference is not Operation.value_inference
        for version in SSAOpRegistry.core_ops[name].values()
    )


def test_no_op_is_left_out() -> None:
    with_numpy = {name for name in SSAOpRegistry.core_ops if has_numpy(name)}
    assert len(with_numpy) == 113
    assert with_numpy == set(CASES) | set(ELSEWHERE)
    assert not set(CASES) & set(ELSEWHERE)


@pytest.mark.parametrize("name", sorted(CASES))
def test_it_computes_what_numpy_does(both_ways: Any, name: str) -> None:
    for tensors, attributes in CASES[name]:
        opset = ct.target.iOS18 if name in IOS18 else ct.target.iOS17
        found, wanted = both_ways(name, tensors, opset=opset, **attributes)
        assert len(found) == len(wanted)
        for got, right in zip(found, wanted, strict=True):
            assert got.shape == right.shape
            if got.dtype.kind == "f":
                np.testing.assert_allclose(got, right, rtol=2e-5, atol=2e-6)
            else:
                np.testing.assert_array_equal(got, right)


def halved(given: dict[str, Any], dtype: type) -> dict[str, Any]:
    """Floating arrays as float16 values, held as ``dtype``."""
    return {
        name: np.asarray(each).astype(np.float16).astype(dtype)
        if isinstance(each, (np.ndarray, np.float32)) and each.dtype == np.float32
        else each
        for name, each in given.items()
    }


@pytest.mark.parametrize("name", sorted(set(CASES) - NOT_HALVED))
def test_float16_is_float32_rounded_once(one_op: Any, both_ways: Any, name: str) -> None:
    """Of float16 values: numpy in float32, then rounded; to one unit in the last place."""
    for tensors, attributes in CASES[name]:
        if all(each.dtype != np.float32 for each in tensors.values()):
            continue
        opset = ct.target.iOS18 if name in IOS18 else ct.target.iOS17
        wide = halved(tensors, np.float32), halved(attributes, np.float32)
        _, wanted = both_ways(name, wide[0], opset=opset, **wide[1])
        small, options = halved(tensors, np.float16), halved(attributes, np.float16)
        found = one_op(name, small, opset=opset, precision="fp16", **options)
        for got, right in zip(found, wanted, strict=True):
            if got.dtype.kind != "f":
                np.testing.assert_array_equal(got, right)
                continue
            np.testing.assert_array_equal(got, got.astype(np.float16))
            np.testing.assert_allclose(got, right, rtol=2.0**-10, atol=2.0**-14)


def test_branches_and_lists(run_mil: Any) -> None:
    stored = np.array([1, 2], np.float32)
    with Function({"unused": Placeholder((1,), types.fp32)}, opset_version=ct.target.iOS17) as main:
        const = Builder.const(val=stored)
        pile = Builder.make_list(init_length=3, dynamic_length=False, elem_shape=(2,), dtype="fp32")
        outputs = [
            Builder.identity(x=const),
            Builder.list_length(ls=pile),
            *(
                Builder.cond(
                    pred=pred,
                    _true_fn=lambda: Builder.add(x=const, y=f32(1)),
                    _false_fn=lambda: Builder.mul(x=const, y=f32(3)),
                )
                for pred in (True, False)
            ),
        ]
        main.set_outputs(outputs)
    program = Program()
    program.add_function("main", main)
    found = run_mil(program, {"unused": np.zeros(1, np.float32)})
    for var in outputs:
        np.testing.assert_array_equal(found[var.name], var.val)


def test_an_exclusive_sum_has_no_numpy(one_op: Any, both_ways: Any) -> None:
    """The code for it is broken: it makes a shape of data. The documentation says what it gives."""
    tensors = {"x": whole(3, 4)}
    with pytest.raises(TypeError):
        both_ways("cumsum", tensors, axis=1, exclusive=True)
    (found,) = one_op("cumsum", tensors, axis=1, exclusive=True)
    np.testing.assert_array_equal(found, np.cumsum(tensors["x"], 1) - tensors["x"])


def test_a_vector_before_many_matrices_is_typed_wrongly(both_ways: Any) -> None:
    """The op's type loses the batch, which numpy keeps: such a program is refused."""
    with pytest.raises(MilError, match="EDGE-MIL-010"):
        both_ways("matmul", {"x": floats(3), "y": floats(2, 3, 4)})
