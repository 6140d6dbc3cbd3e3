"""Example inputs on disk: an ``.npz`` without pickles, the same bytes every time."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping

import numpy as np

__all__ = ["EXAMPLES", "npz_bytes"]

#: Name of the file with an export's example inputs.
EXAMPLES = "examples.npz"


def npz_bytes(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Arrays as ``.npz`` (numpy itself writes the time of day into it)."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                whole = np.asarray(array, order="C")  # a scalar stays one
                np.lib.format.write_array(member, whole, allow_pickle=False)
    return out.getvalue()
