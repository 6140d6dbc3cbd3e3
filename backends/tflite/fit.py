"""Real inputs of the source in the sizes that a file is fixed to, to try or calibrate it with."""

from __future__ import annotations

import numpy as np

from edgeserve.types.tensors import TensorSpec

__all__ = ["fitted"]


def fitted(array: np.ndarray, spec: TensorSpec) -> np.ndarray:
    """An input in the dtype and the sizes of the file: rows repeated, lengths cut or padded by 0.

    Zero is padding where it counts: in an attention mask. What stands under a mask of zeros is
    computed and thrown away, whatever it is.
    """
    array = array.astype(spec.dtype)
    for axis, dim in enumerate(spec.shape):
        size, have = int(dim), array.shape[axis]
        if axis == 0:
            array = array.take(np.arange(size) % have, axis)
        elif have >= size:
            array = array.take(range(size), axis)
        else:
            widths = [(0, size - have if i == axis else 0) for i in range(array.ndim)]
            array = np.pad(array, widths)
    return array
