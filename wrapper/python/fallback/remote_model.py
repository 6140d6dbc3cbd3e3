"""`RemoteModel`: encode an input, send it through the egress policy, decode the reply.

A raw input is sent as bytes, for an endpoint that runs the processing itself, or as the model's
tensors.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edgeserve.errors import FallbackError, InputError
from edgeserve.processing import Processor, Sound
from edgeserve.types.manifest import Manifest
from edgeserve.types.records import Tensors
from edgeserve.wrapper.engine import Arrays
from edgeserve.wrapper.fallback.egress import EgressPolicy, EgressRecord, describe_payload
from edgeserve.wrapper.fallback.hedged_call import BadReply, CallWon, HedgedCaller
from edgeserve.wrapper.fallback.policy import Fallback, local_only
from edgeserve.wrapper.fallback.protocols import EndpointAnswer, protocol_of
from edgeserve.wrapper.fallback.transport import ConcurrentRequests, EndpointReply, EndpointRequest

__all__ = ["RemoteModel", "encode_input"]


class RemoteModel:
    """Asks the endpoints of a contract about one model.

    Args:
        contract: What is declared.
        manifest: Of the model.
        around: Its processing.
        on_leave: Called with what is about to leave.
        races: Makes the world for a call; None: the real one, opened when it is first needed.
        caller: Remembers the endpoints; for tests.

    Raises:
        FallbackError: EDGE-FALLBACK-001, the contract's protocol cannot take the model's inputs.
    """

    def __init__(
        self,
        contract: Fallback,
        manifest: Manifest,
        around: Processor,
        on_leave: Callable[[EgressRecord], None] | None = None,
        races: Callable[[], ConcurrentRequests] | None = None,
        caller: HedgedCaller | None = None,
    ) -> None:
        self._contract, self._manifest, self._around = contract, manifest, around
        self._way = protocol_of(contract.protocol, contract.binary)
        if not self._way.suits(manifest.signature):
            raise FallbackError(
                "EDGE-FALLBACK-001",
                "field protocol",
                wanted="a model whose inputs have one first axis, the samples",
                got="one of other inputs",
                hint=f"{contract.protocol} takes rows: use another",
            )
        self.closed_by = local_only(contract, manifest.x)
        self._gate = EgressPolicy(contract.urls, self.closed_by, on_leave)
        self._caller = caller or HedgedCaller(
            contract.urls, contract.attempts, contract.budget, contract.hedge, contract.at_once
        )
        self._close: Callable[[], None] = lambda: None
        self._races = races or self._real()

    def _real(self) -> Callable[[], ConcurrentRequests]:
        from edgeserve.wrapper.fallback.transport import Transport

        transport = Transport(self._contract)
        self._close = transport.close
        return transport.race

    def close(self) -> None:
        """Close the connections."""
        self._close()

    def now(self) -> float:
        """Seconds on the clock that deadlines are on."""
        return self._races().now()

    def ask(self, x: Any, why: str, deadline: float) -> tuple[CallWon[EndpointAnswer], int]:
        """An endpoint's answer to one input, and how many bytes left for it.

        Raises:
            InputError: the input cannot be read.
            Lost: no endpoint answered in time.
        """
        message, told, read = self._message(x)
        self._gate.passes(message, told, why)
        won = self._caller.call(self._races(), message, deadline, self._checked(read))
        return won, len(message.body) * won.attempts

    def _message(
        self, x: Any
    ) -> tuple[EndpointRequest, str, Callable[[EndpointReply], EndpointAnswer]]:
        model = self._contract.model or self._manifest.name
        if isinstance(x, Mapping):
            feed = self._around.check_feed(x)
            return self._way.tensors(model, feed), describe_payload(feed), self._named
        if self._contract.send == "raw" and self._way.raw and self._way.decision:
            decision = self._way.decision
            message = self._way.raw(model, encode_input(x, self._around.medium))
            return message, "raw input", lambda reply: decision(reply, self._manifest)
        feed = self._around.batch([self._around.prepare(x)])
        told = describe_payload(feed)
        return self._way.tensors(model, feed), told, lambda reply: self._finished(reply, feed)

    def _named(self, reply: EndpointReply) -> EndpointAnswer:
        said = self._way.read(reply, self._manifest.signature)
        return EndpointAnswer(Tensors(said.value), said.ran_on)

    def _finished(self, reply: EndpointReply, feed: Arrays) -> EndpointAnswer:
        said = self._way.read(reply, self._manifest.signature)
        try:
            return EndpointAnswer(self._around.finish(said.value, feed)[0], said.ran_on)
        except Exception as error:  # outputs that no model of this signature gives
            raise BadReply("an answer whose outputs make no decision") from error

    def _checked(
        self, read: Callable[[EndpointReply], EndpointAnswer]
    ) -> Callable[[EndpointReply], EndpointAnswer]:
        """Refuse another model's answer, where the contract says so."""
        if self._contract.other_model != "refuse":
            return read

        def strict(reply: EndpointReply) -> EndpointAnswer:
            said = read(reply)
            if said.ran_on.model_id != self._manifest.model_id:
                raise BadReply(f"an answer of another model, {said.ran_on.model_id or 'unnamed'}")
            return said

        return strict


def encode_input(raw: Any, medium: str) -> bytes:
    """What the bytes of a raw input are; a decoded picture becomes a PNG, samples a WAV of floats.

    Neither loses anything.

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
        return Sound(raw, 0).wav()  # which says that the rate is missing
    if isinstance(raw, np.ndarray):
        from PIL import Image

        return _encode_png(Image.fromarray(raw))
    if hasattr(raw, "save") and hasattr(raw, "size"):
        return _encode_png(raw)
    return _read_file(raw)


def _encode_png(picture: Any) -> bytes:
    out = io.BytesIO()
    picture.save(out, "PNG")
    return out.getvalue()


def _read_file(raw: Any) -> bytes:
    try:
        if isinstance(raw, str | Path):
            return Path(raw).read_bytes()
        data = raw.read()
        return bytes(data)
    except (OSError, AttributeError, TypeError) as error:
        raise InputError(
            "EDGE-INPUT-001",
            "raw input",
            wanted="bytes, a path, a file, a picture or an array",
            got=getattr(error, "strerror", None) or type(raw).__name__,
            hint="give `predict` what docs/guide/wrapper.md lists",
        ) from error
