"""Ops that move values, against numpy, PyTorch and the formula of the op's own documentation."""

from __future__ import annotations

from typing import Any

import coremltools as ct
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeserve.backends.coreml.interpreter.tensor_transformation import slice_by_index, slice_update
from edgeserve.errors import MilError

RNG = np.random.default_rng(4)
IOS15, IOS16, IOS17, IOS18 = ct.target.iOS15, ct.target.iOS16, ct.target.iOS17, ct.target.iOS18


def floats(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def same(found: list[np.ndarray], wanted: Any) -> None:
    assert len(found) == 1
    np.testing.assert_array_equal(found[0], wanted)
    assert found[0].shape == np.shape(wanted)


@pytest.mark.parametrize(
    ("opset", "shape", "wanted"),
    [
        (IOS15, [0, -1], None),  # needs an equal rank
        (IOS15, [4, 0, 2], (4, 3, 2)),
        (IOS15, [0, 4, -1], (2, 4, 3)),
        (IOS17, [-1, 0], (6, 4)),  # 0 counts from the right since iOS 17
        (IOS17, [0, 0, -1, 0, 0], (1, 1, 2, 3, 4)),
    ],
)
def test_reshape_and_its_zeros(one_op: Any, opset: Any, shape: list[int], wanted: Any) -> None:
    x = floats(2, 3, 4)
    if wanted is None:
        with pytest.raises(ValueError, match="When there is 0"):
            one_op("reshape", {"x": x}, opset=opset, shape=shape)
    else:
        same(one_op("reshape", {"x": x}, opset=opset, shape=shape), x.reshape(wanted))


def test_reshape_takes_sizes_from_other_tensors(one_op: Any) -> None:
    x, first, second = floats(6, 30), floats(2, 3, 4), floats(1, 5, 6)
    tensors = {"x": x, "ref_tensors.0": first, "ref_tensors.1": second}
    masks = {"begins": [0, 1], "ends": [2, 0], "end_masks": [False, True]}
    same(one_op("reshape_like", tensors, opset=IOS16, **masks), x.reshape(2, 3, 5, 6))


def test_squeeze_leaves_other_sizes_alone(one_op: Any) -> None:
    x = floats(2, 1, 4, 1)
    same(one_op("squeeze", {"x": x}, axes=[0, 1]), x[:, 0])
    same(one_op("squeeze", {"x": x}), x[:, 0, :, 0])


def test_windows(one_op: Any) -> None:
    x = floats(3, 9, 2)
    for stride in (1, 2, 3):
        wanted = np.lib.stride_tricks.sliding_window_view(x, 4, axis=1)[:, ::stride]
        found = one_op("sliding_windows", {"x": x}, axis=1, size=4, stride=stride)
        same(found, np.moveaxis(wanted, -1, 2))
    found = one_op("sliding_windows", {"x": x}, axis=-1, size=2)
    same(found, np.lib.stride_tricks.sliding_window_view(x, 2, axis=2))


def test_blocks_and_channels(one_op: Any) -> None:
    """One element at a time by the definition: the block's row is the slowest part."""
    x, b = floats(2, 8, 3, 5), 2
    deep = np.zeros((2, 2, 6, 10), np.float32)
    for c, i, j in np.ndindex(2, 2, 2):
        deep[:, c, i::b, j::b] = x[:, (i * b + j) * 2 + c]
    same(one_op("depth_to_space", {"x": x}, block_size=b), deep)
    same(one_op("space_to_depth", {"x": deep}, block_size=b), x)


def test_pixels_as_pytorch_orders_them(one_op: Any) -> None:
    x = floats(2, 18, 4, 3)
    big = torch.pixel_shuffle(torch.from_numpy(x), 3).numpy()
    same(one_op("pixel_shuffle", {"x": x}, upscale_factor=3), big)
    found = one_op("pixel_unshuffle", {"x": big}, opset=IOS16, downscale_factor=np.uint32(3))
    same(found, x)


def test_space_to_batch_and_back(one_op: Any) -> None:
    """The example of TensorFlow's documentation, which this op follows, in this op's layout."""
    x = np.arange(1, 17, dtype=np.float32).reshape(2, 1, 2, 4)
    wanted = np.array(
        [0, 1, 3, 0, 9, 11, 0, 2, 4, 0, 10, 12, 0, 5, 7, 0, 13, 15, 0, 6, 8, 0, 14, 16]
    )
    found = one_op("space_to_batch", {"x": x}, block_shape=[2, 2], paddings=[[0, 0], [2, 0]])
    same(found, wanted.reshape(8, 1, 1, 3))
    back = one_op("batch_to_space", {"x": found[0]}, block_shape=[2, 2], crops=[[0, 0], [2, 0]])
    same(back, x)
    y = floats(1, 3, 6, 4)
    away = one_op("space_to_batch", {"x": y}, block_shape=[3, 2], paddings=[[1, 2], [0, 2]])
    assert away[0].shape == (6, 3, 3, 3)
    same(one_op("batch_to_space", {"x": away[0]}, block_shape=[3, 2], crops=[[1, 2], [0, 2]]), y)


def test_sequences_are_turned_around_up_to_their_length(one_op: Any) -> None:
    x, lengths = floats(4, 6, 2), np.array([0, 1, 4, 6], np.int32)
    wanted = x.copy()
    for i, n in enumerate(lengths):
        wanted[i, :n] = x[i, :n][::-1]
    found = one_op("reverse_sequence", {"x": x, "lengths": lengths}, seq_axis=1, batch_axis=0)
    same(found, wanted)
    tensors = {"x": x.transpose(1, 2, 0).copy(), "lengths": lengths}
    found = one_op("reverse_sequence", tensors, seq_axis=0, batch_axis=2)
    same(found, wanted.transpose(1, 2, 0))


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_slices_are_numpys(data: Any) -> None:
    rank = data.draw(st.integers(1, 4))
    shape = tuple(data.draw(st.integers(1, 6)) for _ in range(rank))
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    ints = st.integers(-8, 8)
    begin = [data.draw(ints) for _ in shape]
    end = [data.draw(ints) for _ in shape]
    stride = [data.draw(ints.filter(bool)) for _ in shape]
    masks = [[data.draw(st.booleans()) for _ in shape] for _ in range(2)]
    single = [data.draw(st.booleans()) for _ in shape]
    begin = [
        data.draw(st.integers(-size, size - 1)) if one else b
        for b, size, one in zip(begin, shape, single, strict=True)
    ]
    cut = tuple(
        (0 if from_start else b)
        if one
        else slice(None if from_start else b, None if to_end else e, s)
        for b, e, s, from_start, to_end, one in zip(begin, end, stride, *masks, single, strict=True)
    )
    arguments = [torch.tensor(each) for each in (begin, end, stride, *masks, single)]
    found = slice_by_index(torch.from_numpy(x), *arguments)
    np.testing.assert_array_equal(found.numpy(), x[cut])
    wanted = x.copy()
    wanted[cut] = -1.0
    update = torch.full(found.shape, -1.0)
    np.testing.assert_array_equal(
        slice_update(torch.from_numpy(x), update, *arguments).numpy(), wanted
    )


def test_an_update_is_no_write_into_its_input(one_op: Any) -> None:
    x = floats(4, 3)
    tensors = {"x": x.copy(), "update": floats(2, 3)}
    (found,) = one_op("slice_update", tensors, opset=IOS18, begin=[1, 0], end=[3, 3])
    np.testing.assert_array_equal(tensors["x"], x)
    np.testing.assert_array_equal(found[1:3], tensors["update"])


def test_padding_in_several_axes(one_op: Any) -> None:
    x = floats(2, 3, 5, 4)
    pads = [1, 0, 2, 1, 3, 3]
    pairs = [(0, 0), (1, 0), (2, 1), (3, 3)]
    for mode, name in (("reflect", "reflect"), ("replicate", "edge")):
        same(one_op("pad", {"x": x}, pad=pads, mode=mode), np.pad(x, pairs, name))
    with pytest.raises(MilError, match="EDGE-MIL-006"):
        one_op("pad", {"x": x}, pad=[0, 4], mode="reflect")


def test_one_hot_is_all_off_outside(one_op: Any) -> None:
    indices = np.array([[0, 2], [-1, 3]], np.int32)
    (found,) = one_op(
        "one_hot",
        {"indices": indices},
        one_hot_vector_size=3,
        axis=0,
        on_value=np.float32(5),
        off_value=np.float32(-1),
    )
    wanted = np.where(indices[None] == np.arange(3)[:, None, None], 5, -1)
    np.testing.assert_array_equal(found, wanted.astype(np.float32))
