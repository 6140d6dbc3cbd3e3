"""`RemoteModel`: encode an input, pass it through the egress policy, send it, decode the reply.

A raw input is sent as bytes, for an endpoint that runs the processing itself, or as the model's
tensors.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edgeserve.errors import InputError
from edgeserve.oip.client import EndpointReply, EndpointRequest
from edgeserve.processing import Processor, Sound
from edgeserve.types.manifest import Manifest
from edgeserve.types.records import Tensors
from edgeserve.wrapper.engine import Arrays
from edgeserve.wrapper.fallback.egress import (
    EgressPolicy,
    EgressRecord,
    describe_payload,
    with_request_id,
)
from edgeserve.wrapper.fallback.hedged_call import BadReply, CallWon, HedgedCaller
from edgeserve.wrapper.fallback.policy import Fallback, field_error, local_only
from edgeserve.wrapper.fallback.protocols import EndpointAnswer, protocol_of
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
            model_id = answer.ran_on.model_id
            if self._contract.other_model == "refuse" and model_id != self._manifest.model_id:
                raise BadReply(f"an answer of another model, {model_id or 'unnamed'}")
            return answer

        won = self._caller.call(self._requests(), message, deadline, read)
        return won, len(message.body) * won.attempts

    def _encode(self, x: Any) -> tuple[EndpointRequest, str, Decoder]:
        """The request for one input, a description of its payload, and the reply's decoder."""
        model, protocol = self._contract.model or self._manifest.name, self._protocol
        if isinstance(x, Mapping):
            feed = self._processor.check_feed(x)
            return protocol.tensors(model, feed), describe_payload(feed), self._decode_named
        decision = protocol.decision
        if self._contract.send == "raw" and protocol.raw and decision:
            message = protocol.raw(model, encode_input(x, self._processor.medium))
            return message, "raw input", lambda reply: decision(reply, self._manifest)
        feed = self._processor.batch([self._processor.prepare(x)])
        message = protocol.tensors(model, feed)
        return message, describe_payload(feed), lambda reply: self._decode_decision(reply, feed)

    def _decode_named(self, reply: EndpointReply) -> EndpointAnswer:
        answer = self._protocol.read(reply, self._manifest.signature)
        return EndpointAnswer(Tensors(answer.value), answer.ran_on)

    def _decode_decision(self, reply: EndpointReply, feed: Arrays) -> EndpointAnswer:
        answer = self._protocol.read(reply, self._manifest.signature)
        try:
            return EndpointAnswer(self._processor.finish(answer.value, feed)[0], answer.ran_on)
        except Exception as error:  # outputs that no model of this signature gives
            raise BadReply("a reply whose outputs hold no decision") from error


def encode_input(raw: Any, medium: str) -> bytes:
    """The bytes of a raw input; a decoded image becomes a PNG, samples a WAV of floats: lossless.

    Raises:
        InputError: EDGE-INPUT-001, it cannot be read, or is of a kind that has no bytes; -034 or
            -035, samples of another kind, or without a rate.
    """
    if isinstance(raw, bytes | bytearray | memoryview):
        return bytes(raw)
    if medium == "text" and isinstance(raw, str):
        return raw.encode("utf-8")
    if isinstance(raw, Sound):
        return raw.wav()
    if isinstance(raw, np.ndarray) and medium == "audio":
        return Sound(raw, 0).wav()  # raises: the rate is missing
    if isinstance(raw, np.ndarray):
        from PIL import Image

        raw = Image.fromarray(raw)
    if hasattr(raw, "save") and hasattr(raw, "size"):
        out = io.BytesIO()
        raw.save(out, "PNG")
        return out.getvalue()
    try:
        return Path(raw).read_bytes() if isinstance(raw, str | Path) else bytes(raw.read())
    except (OSError, AttributeError, TypeError) as error:
        where = "raw input"
        wanted = "bytes, a path, a file, an image or an array"
        got = getattr(error, "strerror", None) or type(raw).__name__
        hint = "docs/guide/wrapper.md lists the inputs of `predict`"
        raise InputError("EDGE-INPUT-001", where, wanted=wanted, got=got, hint=hint) from error
