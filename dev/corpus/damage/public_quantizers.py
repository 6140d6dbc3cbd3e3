"""The honest fp32 file quantized by public tools, with the right samples and their own defaults."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from edgeserve.files import describe
from edgeserve.types.artifact import Artifact

Feeds = Sequence[Mapping[str, np.ndarray]]


def quantized(
    kind: str, how: int, parent: Artifact, root: Path, feeds: Feeds, out: Path
) -> Artifact:
    """Static 8 bits of an fp32 artifact, edges left in float.

    Args:
        kind: "by-onnxruntime" or "by-ai-edge".
        how: Of ONNX Runtime: 0 its defaults, 1 signed and per channel.
        parent: The artifact, under ``root``.
        root: See ``parent``.
        feeds: What to calibrate on.
        out: Folder for the file.
    """
    path = out / parent.entry
    path.parent.mkdir(parents=True, exist_ok=True)
    make = _by_onnxruntime if kind == "by-onnxruntime" else _by_ai_edge
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the tools' own
        make(how, root / parent.entry, feeds, path)
    files = (describe(out, parent.entry),)
    return msgspec.structs.replace(parent, precision="w8a8", files=files)


def _by_onnxruntime(how: int, source: Path, feeds: Feeds, path: Path) -> None:
    from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static

    class Reader(CalibrationDataReader):  # type: ignore[misc, unused-ignore]
        def __init__(self) -> None:
            self._left: Iterator[Any] = iter(feeds)

        def get_next(self) -> Any:
            return next(self._left, None)

    kind = QuantType.QInt8 if how == 1 else QuantType.QUInt8
    quantize_static(
        source,
        path,
        Reader(),
        activation_type=kind,
        weight_type=QuantType.QInt8,
        per_channel=how == 1,
    )


def _by_ai_edge(how: int, source: Path, feeds: Feeds, path: Path) -> None:
    from ai_edge_quantizer.qtyping import TFLOperationName
    from ai_edge_quantizer.quantizer import Quantizer

    tool = Quantizer(source.read_bytes())
    tool.add_static_config(".*", TFLOperationName.ALL_SUPPORTED, 8, 8)
    for edge in (TFLOperationName.INPUT, TFLOperationName.OUTPUT):
        tool.update_quantization_recipe(".*", edge, algorithm_key="no_quantize")
    rows = [{name: _narrow(array) for name, array in feed.items()} for feed in feeds]
    ranges = tool.calibrate({"serving_default": rows})
    path.write_bytes(bytes(tool.quantize(ranges).quantized_model))


def _narrow(array: np.ndarray) -> np.ndarray:
    return array.astype(np.int32) if array.dtype == np.int64 else array
