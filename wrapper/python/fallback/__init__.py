"""The contract between an app and an endpoint: when to ask it, which data leaves, at which cost.

from edgeserve import Wrapper
from edgeserve.wrapper.fallback import Fallback

contract = Fallback("https://gpu.example.com", when=("missing", "low-confidence"), threshold=0.6)
with Wrapper("tagger.edge", fallback=contract) as tagger:
    result = tagger.predict("cat.jpg")
    print(result.ran_on.where, result.ran_on.why, result.ran_on.took_ms)
"""

from edgeserve.wrapper.fallback.egress import EgressRecord
from edgeserve.wrapper.fallback.policy import (
    LOCAL_ONLY,
    TRIGGERS,
    Fallback,
    FallbackRanOn,
    parse_policy,
)
from edgeserve.wrapper.fallback.threshold import pick_threshold, threshold_of

__all__ = [
    "LOCAL_ONLY",
    "TRIGGERS",
    "EgressRecord",
    "Fallback",
    "FallbackRanOn",
    "parse_policy",
    "pick_threshold",
    "threshold_of",
]
