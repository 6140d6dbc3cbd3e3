"""The Open Inference Protocol, version 2: its tensors and messages, in JSON and in binary.

One codec for both ends: `edgeserve.serve` answers with it, the fallback of the Wrapper asks with
it. What comes from outside is read strictly and at a bounded cost: a message that lies about a size
is refused before anything of that size is made.
"""

from edgeserve.oip.messages import (
    Answer,
    Request,
    Wanted,
    read_answer,
    read_request,
    write_answer,
    write_request,
)
from edgeserve.oip.tensors import DATATYPES, BadMessage, Tensor, datatype_of

__all__ = [
    "DATATYPES",
    "Answer",
    "BadMessage",
    "Request",
    "Tensor",
    "Wanted",
    "datatype_of",
    "read_answer",
    "read_request",
    "write_answer",
    "write_request",
]
