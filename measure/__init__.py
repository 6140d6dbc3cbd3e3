"""What an artifact costs to run: load, first run, latency, memory, each measured apart and doubted.

Each measurement is made in a process of its own, by the verb `edgeserve.measure.request.VERB`.
`edgeserve.measure.ab` compares two functions with each other, interleaved; the benchmarks use it.
"""

from edgeserve.environment import environment
from edgeserve.measure.request import MeasureRequest

__all__ = ["MeasureRequest", "environment"]
