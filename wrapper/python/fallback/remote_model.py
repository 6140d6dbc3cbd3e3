"""`RemoteModel`: encode an input, pass it through the egress policy, send it, decode the reply.

A raw input is sent as bytes, for an endpoint that runs the processing itself, or as the model's
tensors.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from edgeserve.oip.client import EndpointReply, EndpointRequest
from edgeserve.processing import Processor, Sound
from edgeserve.processing.inputs import bytes_of
from edgeserve.processing.steps.decode import checked_array
from edgeserve.processing.steps.tokenize import as_text
from edgeserve.types.manifest import Manifest
from edgeserve.types.records import Tensors
from edgeserve.wrapper.fallback.egress import (
    EgressPolicy,
    EgressRecord,
    describe_payload,
    with_request_id,
)
from edgeserve.wrapper.fallback.hedged_call import CallWon, HedgedCaller
from edgeserve.wrapper.fallback.policy import Fallback, field_error, local_only
from edgeserve.wrapper.fallback.protocols import EndpointAnswer, protocol_of
from edgeserve.wrapper.fallback.replies import (
    BadReply,
    check_origin,
    check_outputs,
    check_record,
    longest_reply,
    sizes_of,
)
from edgeserve.wrapper.fallback.transport import ConcurrentRequests, Transport

Decoder = Callable[[EndpointReply], EndpointAnswer]


class RemoteModel:
    """One model behind the endpoints of a contract.

    Args:
        contract: The contract.
        manifest: Of the model.
        processor: Its processing.
        on_leave: Called with each `EgressRecord`.
        requests: Makes the `ConcurrentRequests` of a call; None: real ones.
        caller: Remembers the endpoints' health; for tests.

    Raises:
        FallbackError: EDGE-FALLBACK-001, the contract's protocol cannot carry the model's inputs.
    """

    def __init__(
        self,
        contract: Fallback,
        manifest: Manifest,
        processor: Processor,
        on_leave: Callable[[EgressRecord], None] | None = None,
        requests: Callable[[], ConcurrentRequests] | None = None,
        caller: HedgedCaller | None = None,
    ) -> None:
        self._contract, self._manifest, self._processor = contract, manifest, processor
        self._protocol = protocol_of(contract.protocol, contract.binary)
        self._model = contract.model or manifest.name
        if not self._protocol.suits(manifest.signature):
            wanted = "a model whose inputs share the first axis, the samples"
            hint = f"{contract.protocol} takes rows: use another protocol"
            raise field_error("protocol", wanted, "one with other inputs", hint)
        self.closed_by = local_only(contract, manifest.x)
        self._egress = EgressPolicy(contract.urls, self.closed_by, on_leave)
        self._caller = caller or HedgedCaller(
            contract.urls, contract.attempts, contract.budget, contract.hedge, contract.at_once
        )
        transport = None
        if requests is None:
            transport = Transport(contract)
            requests = transport.requests
        self._transport, self._requests = transport, requests

    def close(self) -> None:
        """Close the connections."""
        if self._transport:
            self._transport.close()

    def now(self) -> float:
        """Seconds on the clock of the deadlines."""
        return self._requests().now()

    def ask(self, x: Any, why: str, deadline: float) -> tuple[CallWon[EndpointAnswer], int]:
        """An endpoint's answer to one input, and the number of bytes that left for it.

        Raises:
            InputError: the input cannot be read.
            CallLost: no endpoint answered in time.
        """
        message, payload, decode = self._encode(x)
        message = with_request_id(message)
        self._egress.check(message, payload, why)

        def read(reply: EndpointReply) -> EndpointAnswer:
            answer = decode(reply)
            check_origin(answer.ran_on)
            model_id = answer.ran_on.model_id
            if self._contract.other_model == "refuse" and model_id != self._manifest.model_id:
                raise BadReply(f"an answer of another model, {model_id or 'unnamed'}")
            return answer

        won = self._caller.call(self._requests(), message, deadline, read)
        return won, len(message.body) * won.attempts

    def _encode(self, x: Any) -> tuple[EndpointRequest, str, Decoder]:
        """The request for one input, a description of its payload, and the reply's decoder."""
        if self._contract.send == "raw" and not isinstance(x, Mapping):
            return self._encode_raw(x)
        processor, protocol, signature = self._processor, self._protocol, self._manifest.signature
        named = isinstance(x, Mapping)
        feed = processor.check_feed(x) if named else processor.batch([processor.prepare(x)])
        sizes = sizes_of(signature, feed)

        def decode(reply: EndpointReply) -> EndpointAnswer:
            answer = protocol.read(reply, signature)
            check_outputs(answer.value, signature, sizes)
            value = Tensors(answer.value) if named else processor.finish(answer.value, feed)[0]
            return EndpointAnswer(value, answer.ran_on)

        message = protocol.tensors(self._model, feed)
        message = dataclasses.replace(message, longest=longest_reply(signature, sizes))
        return message, describe_payload(feed), decode

    def _encode_raw(self, x: Any) -> tuple[EndpointRequest, str, Decoder]:
        """As `_encode`, for an endpoint that runs the processing itself."""
        manifest, make, read = self._manifest, self._protocol.raw, self._protocol.decision
        assert make is not None
        assert read is not None
        medium = self._processor.medium
        message = make(self._model, encode_input(x, medium))
        text = len(x) if medium == "text" else None

        def decode(reply: EndpointReply) -> EndpointAnswer:
            answer = read(reply, manifest)
            if not isinstance(answer.value, Tensors):
                check_record(answer.value, manifest, text)
            return answer

        longest = longest_reply(manifest.signature, sizes_of(manifest.signature, None))
        return dataclasses.replace(message, longest=longest), "raw input", decode


def encode_input(raw: Any, medium: str) -> bytes:
    """The bytes of a raw input; a decoded image becomes a PNG, samples a WAV of floats: lossless.

    Raises:
        InputError: EDGE-INPUT-001 or -007, it cannot be read, or is of a kind that has no bytes;
            -006 an array that is no picture; -020 or -021, no text; -034 or -035, samples of
            another kind, or without a rate.
    """
    if medium == "text":
        return as_text(raw).encode("utf-8")
    if isinstance(raw, Sound):
        return raw.wav()
    if isinstance(raw, np.ndarray) and medium == "audio":
        return Sound(raw, 0).wav()  # raises: the rate is missing
    if isinstance(raw, np.ndarray):
        from PIL import Image

        raw = Image.fromarray(checked_array(raw))
    if hasattr(raw, "save") and hasattr(raw, "size"):
        out = io.BytesIO()
        raw.save(out, "PNG")
        return out.getvalue()
    return bytes_of(raw, "raw input", "an image or an array")
