"""The Open Inference Protocol, version 2: its tensors and messages, in JSON and in binary.

One codec for both ends: `edgeserve.serve` answers with it, the fallback of the Wrapper asks with
it. What comes from outside is read strictly and at a bounded cost: a message that lies about a size
is refused before anything of that size is made.
"""

from edgeserve.oip.messages import (
    VALUE_BYTES,
    InferRequest,
    InferResponse,
    RequestedOutput,
    count_values,
    read_request,
    read_response,
    write_request,
    write_response,
)
from edgeserve.oip.tensors import DATATYPES, BadMessage, Tensor, datatype_of

__all__ = [
    "DATATYPES",
    "VALUE_BYTES",
    "BadMessage",
    "InferRequest",
    "InferResponse",
    "RequestedOutput",
    "Tensor",
    "count_values",
    "datatype_of",
    "read_request",
    "read_response",
    "write_request",
    "write_response",
]
