"""Which formats took which operators: made by ``dev/zoo/op_support.py``."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["TAKEN"]

#: Formats, and the operators of ATen (without overloads) that all of these took.
TAKEN: Mapping[tuple[str, ...], str] = {
    ("onnx",): "_assert_scalar index_by_mask sym_size",
    ("onnx", "tflite", "coreml"): (
        "__and__ __lshift__ __or__ __rshift__ __xor__ _assert_tensor_metadata "
        "_upsample_bicubic2d_aa _upsample_bilinear2d_aa _upsample_nearest_exact2d _weight_norm "
        "abs acos acosh adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d "
        "adaptive_max_pool1d adaptive_max_pool2d add add_ addcdiv addcmul addmm "
        "affine_grid_generator all amax amin aminmax angle any arange argmax argmin argsort "
        "as_strided asin asinh atan atan2 atanh atleast_3d avg_pool1d avg_pool2d avg_pool3d "
        "baddbmm batch_norm bilinear bitwise_and bitwise_not bitwise_or bitwise_xor block_diag "
        "bmm broadcast_tensors broadcast_to bucketize cartesian_prod cat cdist ceil celu "
        "channel_shuffle chunk clamp clamp_min clone col2im complex contiguous conv1d conv2d "
        "conv3d conv_transpose1d conv_transpose2d conv_transpose3d copy_ copysign cos cosh "
        "cosine_similarity count_nonzero cummax cummin cumprod cumsum deg2rad detach_ "
        "diag_embed diagonal diff digamma dist div dot dropout dstack einsum elu embedding "
        "embedding_bag eq erf erfc erfinv exp exp2 expand expand_as expm1 eye fft_fft fft_fft2 "
        "fft_fftshift fft_ifft fft_irfft fft_irfft2 fft_rfft fft_rfft2 fill_ flatten flip "
        "fliplr floor floor_divide fmax fmod frac full_like gather ge gelu glu grid_sampler "
        "group_norm gru gru_cell gt hann_window hardshrink hardsigmoid hardswish hardtanh "
        "heaviside hstack hypot im2col index index_add index_copy index_fill index_put "
        "index_select instance_norm isfinite isnan istft kron kthvalue l1_loss layer_norm le "
        "leaky_relu lerp lgamma lift_fresh_copy linalg_cross linalg_det linalg_inv "
        "linalg_vecdot linalg_vector_norm linear linspace log log10 log1p log2 log_sigmoid "
        "log_softmax logaddexp logaddexp2 logcumsumexp logical_and logical_or logical_xor logit "
        "logsumexp lstm lstm_cell lt mT masked_fill matmul max max_pool1d max_pool2d "
        "max_pool2d_with_indices max_pool3d max_unpool2d maximum mean median meshgrid min "
        "minimum mish movedim mse_loss msort mul mv nan_to_num nansum narrow ne neg new_zeros "
        "numpy_T one_hot ones ones_like outer pad permute pixel_shuffle pixel_unshuffle "
        "positive pow prelu prod quantile real reciprocal relu relu6 remainder renorm repeat "
        "repeat_interleave reshape rms_norm rnn_relu rnn_tanh roll rot90 round rrelu rsqrt rsub "
        "scaled_dot_product_attention scatter scatter_add scatter_reduce searchsorted select "
        "select_scatter selu sgn sigmoid sign signbit silu sin sinc sinh slice slice_scatter "
        "smooth_l1_loss softmax softplus softshrink sort special_i0 split split_with_sizes sqrt "
        "square squeeze stack std stft sub sum swapaxes take take_along_dim tan tanh "
        "tensor_split tensordot threshold tile to topk trace transpose tril triu true_divide "
        "trunc unbind unflatten unfold unsqueeze upsample_bicubic2d upsample_bilinear2d "
        "upsample_linear1d upsample_nearest1d upsample_nearest2d upsample_nearest3d "
        "upsample_trilinear3d var var_mean view view_as_complex view_as_real where xlogy zeros "
        "zeros_like "
    ),
}
