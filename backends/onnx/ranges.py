"""The values that tensors take over calibration samples: true smallest and largest, in one pass.

Nothing is smoothed, averaged or cut off: a value that a user really sends must not saturate. On
EfficientNet-Lite0 (384 crops) true ranges flip 42 answers; percentiles 44 to 89, the mean of each
sample's range 80.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from edgeserve.backends.onnx.run import OnnxSession
from edgeserve.errors import QuantizeError
from edgeserve.types.artifact import Artifact

__all__ = ["Range", "collect_ranges"]

Range = tuple[float, float]


def collect_ranges(
    artifact: Artifact,
    root: Path,
    names: Sequence[str],
    samples: Iterable[Mapping[str, np.ndarray]],
    threads: int | None = None,
) -> dict[str, Range]:
    """Smallest and largest value of each tensor over all samples.

    Args:
        artifact: The float artifact that runs.
        root: Folder of its files.
        names: Tensors: inputs, outputs and inner ones.
        samples: Feeds, gone through once.
        threads: Threads for one run; None: as many as this process may use.

    Returns:
        float32 values by name, in the order of ``names``; (0, 0) for tensors without elements.

    Raises:
        QuantizeError: EDGE-QUANTIZE-010 a tensor becomes NaN or infinite, -001 no sample.
    """
    ends = {spec.name for spec in (*artifact.io.inputs, *artifact.io.outputs)}
    taps = tuple(name for name in names if name not in ends)
    low, high = dict.fromkeys(names, np.inf), dict.fromkeys(names, -np.inf)
    index = -1
    with OnnxSession(artifact, root, "cpu", threads, taps, optimize=True) as session:
        for index, feed in enumerate(samples):
            found = {**feed, **session.run(feed)}
            for name in names:
                if found[name].size:
                    ends_of = float(found[name].min()), float(found[name].max())
                    _check(index, name, ends_of)
                    low[name], high[name] = min(low[name], ends_of[0]), max(high[name], ends_of[1])
    if index < 0:
        raise QuantizeError(
            "EDGE-QUANTIZE-001",
            "calibration",
            wanted="samples of real data",
            got="none",
            hint="give inputs as your users send them: --data FOLDER (docs/data.md)",
        )
    return {name: (low[name], high[name]) if low[name] <= high[name] else (0, 0) for name in names}


def _check(index: int, name: str, ends: Range) -> None:
    if not np.isfinite(ends).all():
        raise QuantizeError(
            "EDGE-QUANTIZE-010",
            f"tensor {name!r}",
            wanted="finite values",
            got=f"{ends[0]} to {ends[1]} in calibration sample {index}",
            hint="the float model overflows on that sample: look at it, or keep that op in float",
        )
