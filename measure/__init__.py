"""What an artifact costs to run: load, first run, latency, memory, each measured apart and doubted.

A measurement is made in a process of its own::

    from edgeserve.measure import MeasureRequest, measure

    m = measure(MeasureRequest(artifact=artifact, root="OUT", signature=signature))
    m.run.wall.p50, m.run.cpu.p50, m.rss_mb, m.noisy

`edgeserve.measure.ab` compares two functions with each other, interleaved; the benchmarks use it.
"""

from edgeserve.environment import environment
from edgeserve.measure.request import MeasureRequest, measure

__all__ = ["MeasureRequest", "environment", "measure"]
