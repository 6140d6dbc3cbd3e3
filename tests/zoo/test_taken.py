"""What formats refused or got wrong before it was rewritten: a pack of it in each, all right."""

from __future__ import annotations

import pytest

from dev.zoo.measure import measure

#: By format, operators that the raw converter refuses or gets wrong
#: (see docs/reference/backends.md).
PACKS = {
    "onnx": (
        "avg_pool2d_divisor",
        "epsilon_tiny",
        "adaptive_max2d",
        "adaptive_avg3d",
        "median",
        "cummax",
        "hypot",
        "copysign",
        "searchsorted",
        "istft",
        "inverse_4",
        "shift_left",
    ),
    "tflite": (
        "upsample_nearest2d",
        "upsample_bilinear_scale",
        "fold",
        "conv_transpose2d_uneven",
        "max_pool2d_indices",
        "conv1d_same",
        "conv_transpose2d",
        "sort",
        "topk_smallest",
        "scatter_add",
        "index_add",
        "floor_divide",
        "exp2",
        "one_hot",
        "int_pow",
        "rotary_complex",
        "istft",
        "spectral_conv",
        "bitwise_and",
        "shift_left",
        "inverse",
        "embedding_bag",
        "conv_transpose3d_groups",
        "conv3d_groups",
        "conv_transpose1d_uneven",
        "conv_transpose2d_uneven_stride",
        "conv_transpose2d_padded_groups",
        "conv3d_one_channel",
        "conv1d_one_sample",
        "avg_pool2d_one_sample",
        "pow_rank5",
        "remainder_rank5",
        "xor_rank5",
        "rms_norm_rank5",
        "repeat_rank5",
        "unfold_rank5",
        "flip_along_first",
        "sort_along_one",
        "topk_along_one",
        "max_along_one",
        "cummax_along_of_five",
    ),
    "coreml": (
        "argmax_all",
        "gelu_tanh",
        "selu",
        "celu",
        "reciprocal_small",
        "add_alpha",
        "rsub_alpha",
        "addmm",
        "rank6",
        "roll_flat",
        "upsample_bicubic",
        "diagonal",
        "pad_negative",
        "asinh",
        "unfold",
        "as_strided",
        "index_copy",
        "new_zeros",
        "rotary_complex",
        "istft",
        "stft_twosided",
        "bitwise_or",
        "shift_right",
        "det_4",
        "embedding_bag_max",
        "conv_transpose3d_groups",
        "group_norm_rank5",
        "roll_cummax_rank5",
        "max_pool3d_one_sample",
        "cumsum_along_first",
        "logcumsumexp_along_of_five",
    ),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("format", list(PACKS))
def test_a_format_takes_what_was_rewritten(format: str) -> None:
    row = measure(f"ops:{'+'.join(PACKS[format])}", (format,))
    assert row["export"]["ok"], row
    assert row["still"] == []
    assert row[format]["ok"], row[format] | {"names": row["outputs"]}
