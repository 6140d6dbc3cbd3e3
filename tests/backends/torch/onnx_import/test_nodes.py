"""Each ONNX operator's PyTorch form against the cases that come with onnx, and ONNX Runtime."""

from __future__ import annotations

import functools
import warnings
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from edgeserve.backends.torch.onnx_import.build import build
from edgeserve.backends.torch.onnx_import.table import UnimportableOp, entry_of, known_ops

#: Types that PyTorch has no arithmetic for, or numpy none of its own.
_FOREIGN = {"uint16", "uint32", "uint64", "bfloat16", "object", "float8_e4m3fn", "int4", "uint4"}
#: Cases about nothing at all, or about which of equals comes first, which PyTorch leaves open.
_LEFT_OPEN = {
    "test_reduce_max_empty_set",
    "test_reduce_max_empty_set_bool",
    "test_reduce_min_empty_set",
    "test_top_k_same_values",
    "test_top_k_same_values_2d",
    "test_top_k_same_values_largest",
}

Feed = dict[str, np.ndarray]


@functools.cache
def cases() -> Mapping[str, list[Any]]:
    """The cases of one node that come with onnx, by operator."""
    from onnx.backend.test.case.node import collect_testcases

    found: dict[str, list[Any]] = defaultdict(list)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they divide by zero on purpose
        for case in collect_testcases(None):
            if len(case.model.graph.node) == 1 and not case.model.graph.node[0].domain:
                found[case.model.graph.node[0].op_type].append(case)
    return found


def fixed(model: onnx.ModelProto, feed: Feed) -> onnx.ModelProto:
    """The model with those inputs as constants that its operator's form reads beforehand."""
    (node,) = model.graph.node
    entry = entry_of(node.op_type)
    assert entry is not None
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for name in (node.input[i] for i in entry.host if i < len(node.input) and node.input[i]):
        made.graph.initializer.append(numpy_helper.from_array(np.asarray(feed[name]), name))
        (value,) = (each for each in made.graph.input if each.name == name)
        made.graph.input.remove(value)
    return made


def answer(model: onnx.ModelProto, feed: Feed) -> list[np.ndarray]:
    module = build(fixed(model, feed))
    with torch.no_grad():
        return [t.numpy() for t in module(*(torch.tensor(feed[n]) for n in module.input_names))]


def usable(arrays: Any) -> bool:
    return all(
        isinstance(a, np.ndarray | np.generic) and str(a.dtype) not in _FOREIGN for a in arrays
    )


@pytest.mark.parametrize("name", known_ops())
def test_an_operator_answers_its_cases(name: str) -> None:
    """Right values are those that onnx stores with each case."""
    for case in cases()[name]:
        inputs, outputs = case.data_sets[0]
        if case.name in _LEFT_OPEN or not usable([*inputs, *outputs]):
            continue
        feed = dict(zip((v.name for v in case.model.graph.input), inputs, strict=True))
        try:
            found = answer(case.model, feed)
        except UnimportableOp:  # how many may be is said below
            continue
        for got, right in zip(found, outputs, strict=False):
            assert (got.shape, got.dtype) == (np.shape(right), right.dtype), case.name
            np.testing.assert_allclose(got, right, rtol=1e-3, atol=1e-5, err_msg=case.name)


def test_nearly_all_cases_are_answered() -> None:
    """What is refused is refused for a reason; a table that refused everything would pass above."""
    answered, refused = 0, 0
    for name in known_ops():
        for case in cases()[name]:
            inputs, outputs = case.data_sets[0]
            if case.name not in _LEFT_OPEN and usable([*inputs, *outputs]):
                feed = dict(zip((v.name for v in case.model.graph.input), inputs, strict=True))
                try:
                    answer(case.model, feed)
                    answered += 1
                except UnimportableOp:
                    refused += 1
    assert answered >= 740
    assert refused <= 35


def test_the_table_is_known() -> None:
    assert len(known_ops()) >= 130
    assert {"Conv", "MatMul", "Resize", "LSTM", "ScatterND"} <= set(known_ops())


# against ONNX Runtime, where onnx has no case or too few


def model_of(
    op: str,
    feed: Feed,
    outputs: int = 1,
    opset: int = 17,
    constants: tuple[str, ...] = (),
    kind: int = TensorProto.FLOAT,
    **attributes: Any,
) -> onnx.ModelProto:
    names = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, [n if n[0] != "_" else "" for n in feed], names, "n", **attributes)
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in feed.items()
        if n[0] != "_" and n not in constants
    ]
    graph = helper.make_graph(
        [node],
        "g",
        inputs,
        [helper.make_tensor_value_info(n, kind, None) for n in names],
        [numpy_helper.from_array(feed[n], n) for n in constants],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    made.ir_version = 8
    return made


def check(model: onnx.ModelProto, feed: Feed) -> None:
    """The form against ONNX Runtime."""
    module = build(model)
    given = {n: feed[n] for n in module.input_names}
    with torch.no_grad():
        found = module(*(torch.from_numpy(given[n].copy()) for n in module.input_names))
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for got, right in zip(found, session.run(None, given), strict=True):
        assert (tuple(got.shape), got.numpy().dtype) == (right.shape, right.dtype)
        np.testing.assert_allclose(got.numpy(), right, rtol=1e-4, atol=1e-5)


def numbers(*shape: int) -> np.ndarray:
    rng = np.random.default_rng(sum(shape))
    return rng.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(("op", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_recurrent_layers_answer_as_onnx_runtime(op: str, gates: int, direction: str) -> None:
    ways = 2 if direction == "bidirectional" else 1
    feed = {
        "x": numbers(7, 2, 3),
        "w": numbers(ways, gates * 5, 3),
        "r": numbers(ways, gates * 5, 5),
        "b": numbers(ways, gates * 10),
        "_": numbers(1),
        "h": numbers(ways, 2, 5),
    }
    more: dict[str, Any] = {"linear_before_reset": 1} if op == "GRU" else {}
    if op == "LSTM":
        feed["c"] = numbers(ways, 2, 5) * 0.5
    outputs = 3 if op == "LSTM" else 2
    model = model_of(
        op, feed, outputs, hidden_size=5, direction=direction, constants=("w", "r", "b"), **more
    )
    check(model, feed)


@pytest.mark.parametrize("size", [5, 8, 9])
@pytest.mark.parametrize("word", ["SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"])
@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (3, 1), (1, 2)])
def test_convolutions_pad_as_onnx_runtime(size: int, word: str, stride: int, dilation: int) -> None:
    if word.startswith("SAME") and dilation > 1:
        return  # ONNX Runtime refuses that
    feed = {"x": numbers(1, 4, size, size + 2), "w": numbers(6, 2, 3, 2), "b": numbers(6)}
    pads: dict[str, Any] = {"pads": [2, 0, 1, 1]} if word == "NOTSET" else {}
    model = model_of(
        "Conv",
        feed,
        group=2,
        auto_pad=word,
        strides=[stride] * 2,
        dilations=[dilation] * 2,
        constants=("w", "b"),
        **pads,
    )
    check(model, feed)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("size", [6, 7, 9])
@pytest.mark.parametrize("ceil", [0, 1])
@pytest.mark.parametrize("pads", [[0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 1, 0]])
def test_pools_end_where_onnx_runtime_ends(op: str, size: int, ceil: int, pads: list[int]) -> None:
    feed = {"x": numbers(1, 2, size, size)}
    for counted in (0, 1) if op == "AveragePool" else (0,):
        more = {"count_include_pad": counted} if op == "AveragePool" else {}
        model = model_of(
            op,
            feed,
            opset=19,
            kernel_shape=[3, 3],
            strides=[2, 2],
            ceil_mode=ceil,
            pads=pads,
            **more,
        )
        check(model, feed)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize(
    "place", ["half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners"]
)
@pytest.mark.parametrize("scale", [(2.0, 2.0), (1.5, 3.0), (0.6, 0.5)])
def test_resizing_answers_as_onnx_runtime(
    mode: str, place: str, scale: tuple[float, float]
) -> None:
    if place == "align_corners" and scale[0] < 1:
        return  # sizes that are no whole numbers: the specification says one thing, engines another
    feed = {
        "x": numbers(1, 2, 6, 5),
        "_": numbers(1),
        "scales": np.array([1, 1, *scale], np.float32),
    }
    nears = ["round_prefer_floor", "floor", "ceil"] if mode == "nearest" else ["floor"]
    for near in nears:
        model = model_of(
            "Resize",
            feed,
            mode=mode,
            coordinate_transformation_mode=place,
            nearest_mode=near,
            constants=("scales",),
        )
        check(model, feed)


@pytest.mark.parametrize("kind", ["int32", "int64", "bool", "float64", "uint8"])
def test_casts_answer_as_onnx_runtime(kind: str) -> None:
    feed = {"x": np.abs(numbers(3, 4)) * 3}
    to = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    check(model_of("Cast", feed, to=to, kind=to), feed)
    like = {**feed, "like": np.ones(1, kind)}
    check(model_of("CastLike", like, kind=to), like)


@pytest.mark.parametrize("opset", [9, 10])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_old_upsampling_answers_as_onnx_runtime(opset: int, mode: str) -> None:
    feed = {"x": numbers(1, 2, 4, 3), "scales": np.array([1, 1, 2, 2], np.float32)}
    op = "Upsample" if opset == 9 else "Resize"
    check(model_of(op, feed, opset=opset, mode=mode, constants=("scales",)), feed)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize(("opset", "axis"), [(9, 1), (11, 2), (13, 1), (13, -1)])
def test_softmax_of_every_operator_set(op: str, opset: int, axis: int) -> None:
    feed = {"x": numbers(2, 3, 4)}
    check(model_of(op, feed, opset=opset, axis=axis), feed)


def test_old_operator_sets_say_in_attributes_what_new_ones_take_as_inputs() -> None:
    feed = {"x": numbers(2, 1, 6, 4)}
    check(model_of("Slice", feed, opset=9, starts=[1, -3], ends=[5, 99], axes=[2, 3]), feed)
    check(model_of("Squeeze", feed, opset=9, axes=[1]), feed)
    check(model_of("Unsqueeze", feed, opset=9, axes=[0, 3]), feed)
    check(model_of("ReduceSum", feed, opset=9, axes=[-1], keepdims=0), feed)
    check(model_of("Clip", feed, opset=9, min=-0.5, max=0.25), feed)
    check(model_of("Pad", feed, opset=9, pads=[0, 0, 1, 0, 0, 0, 2, 3], value=1.5), feed)
    check(model_of("Split", feed, outputs=2, opset=9, axis=2, split=[4, 2]), feed)
    check(model_of("Dropout", feed, opset=9, ratio=0.5), feed)
    check(
        model_of("BatchNormalization", feed | {k: np.abs(numbers(1)) for k in "sbmv"}, opset=9),
        feed | {k: np.abs(numbers(1)) for k in "sbmv"},
    )


def run_all(model: onnx.ModelProto, feed: Feed) -> None:
    module = build(model)
    module(*(torch.from_numpy(feed[n]) for n in module.input_names))


@pytest.mark.parametrize(
    ("op", "feed", "said", "more"),
    [
        ("Reshape", {"x": numbers(2, 3), "shape": np.array([3, 2])}, "input 1", {}),
        ("NonZero", {"x": numbers(2, 3)}, "no form", {"kind": TensorProto.INT64}),
        (
            "GRU",
            {"x": numbers(2, 1, 3), "w": numbers(1, 6, 3), "r": numbers(1, 6, 2)},
            "linear_before_reset",
            {"hidden_size": 2},
        ),
    ],
)
def test_what_has_no_form_is_refused_by_name(
    op: str, feed: Feed, said: str, more: dict[str, Any]
) -> None:
    model = model_of(op, feed, **more)
    with pytest.raises(UnimportableOp) as error:
        run_all(model, feed)
    assert (error.value.op, error.value.node) == (op, "n")
    assert said in error.value.why
