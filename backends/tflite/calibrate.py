"""Ranges of a float file's activations over samples: the true minimum and maximum of each tensor.

The library would smooth them over the samples in order (a moving average), which leaves them too
narrow: on photographs that alone turned 27 to 41 of 183 confident decisions around.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from edgeserve.backends.tflite.fit import fitted
from edgeserve.backends.tflite.names import SINGLE
from edgeserve.environment import usable_cores
from edgeserve.errors import QuantizeError
from edgeserve.types.tensors import IO

__all__ = ["calibrate"]


def calibrate(
    data: bytes, buckets: Sequence[IO], samples: Iterable[Mapping[str, np.ndarray]], manager: Any
) -> dict[str, Any]:
    """Run the file on samples, each at every one of its sizes.

    Args:
        data: The float file.
        buckets: Its signatures.
        samples: Feeds in the source's signature, one sample each.
        manager: The quantizer's recipe manager; it says which tensors matter.

    Returns:
        What the quantizer takes as calibration result, by name of the tensor.

    Raises:
        QuantizeError: EDGE-QUANTIZE-001 no samples, -010 the model overflows on one of them.
    """
    from ai_edge_quantizer.calibrator import Calibrator
    from ai_edge_quantizer.utils.qsv_utils import min_max_update

    calibrator = Calibrator(data, num_threads=usable_cores(), qsv_update_func=min_max_update)
    ranges: dict[str, Any] = {}
    for number, sample in enumerate(samples):
        for io in buckets:
            feed = {spec.name: fitted(sample[spec.name], spec) for spec in io.inputs}
            calibrator.calibrate({io.signature or SINGLE: [feed]}, manager)
        ranges = calibrator.get_model_qsvs()
        _check(ranges, number)
    if not ranges:
        raise QuantizeError(
            "EDGE-QUANTIZE-001",
            "calibration",
            wanted="samples of real data",
            got="none",
            hint="give --data inputs as users will send them",
        )
    return ranges


def _check(ranges: Mapping[str, Any], number: int) -> None:
    for name, held in ranges.items():
        if not all(np.isfinite(np.asarray(end)).all() for end in held.values()):
            raise QuantizeError(
                "EDGE-QUANTIZE-010",
                f"tensor {name!r}",
                wanted="finite values",
                got=f"NaN or infinity on sample {number}",
                hint="run the float model on that sample, or keep the op that makes it in float",
            )
