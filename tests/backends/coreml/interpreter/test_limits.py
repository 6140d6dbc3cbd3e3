"""Attributes that ask for more memory than there is are refused before it is taken."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgeserve.errors import MilError

HUGE = 1 << 29
X = np.ones((1, 1, 4), np.float32)
ONE = np.ones((1, 1, 1), np.float32)
CASES: dict[str, tuple[str, dict[str, np.ndarray], dict[str, Any]]] = {
    "padding": (
        "conv",
        {"x": X},
        {"weight": ONE, "pad_type": "custom", "pad": [HUGE, 0], "strides": [HUGE]},
    ),
    "windows": ("max_pool", {"x": X}, {"kernel_sizes": [HUGE * 2], "pad_type": "same"}),
    "strides": (
        "conv_transpose",
        {"x": X},
        {"weight": ONE, "strides": [HUGE], "pad_type": "custom", "pad": [HUGE * 3 - 4, 0]},
    ),
    "a computed size": (
        "resize",
        {"x": X, "shape": np.array([1 << 15, 1 << 15], np.int32)},
        {"resized_dims": np.uint32(2)},
    ),
    "noise": ("random_normal", {"shape": np.array([1 << 15, 1 << 15], np.int32)}, {"seed": 1}),
}


@pytest.mark.parametrize("what", sorted(CASES))
def test_it_is_refused(one_op: Any, what: str) -> None:
    name, tensors, attributes = CASES[what]
    with pytest.raises(MilError) as caught:
        one_op(name, tensors, **attributes)
    assert caught.value.code == "EDGE-MIL-004"
