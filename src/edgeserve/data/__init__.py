"""User data: reading what ``--data`` names, splitting it into halves, and reading one sample.

    from edgeserve.data import Reader, load_data, split

    halves = split(load_data(Path("photos"), signature))
    with Reader(signature) as reader:
        raw = reader.read(halves["evaluation"][0])    # bytes, a text, or named arrays

What is accepted, and why some of it is refused, stands in ``docs/guide/data.md``.
"""

from __future__ import annotations

from edgeserve.data.ground_truth import LabelSchema
from edgeserve.data.load import DataSet, load_data, scan, split
from edgeserve.data.npz_io import Rows, read_arrays, write_arrays
from edgeserve.data.reader import Feed, Reader, input_sha256

__all__ = [
    "DataSet",
    "Feed",
    "LabelSchema",
    "Reader",
    "Rows",
    "input_sha256",
    "load_data",
    "read_arrays",
    "scan",
    "split",
    "write_arrays",
]
