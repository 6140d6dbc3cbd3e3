"""`Asking`: an input made into a message, sent through the gate, its reply made into an answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from edgeserve.errors import FallbackError
from edgeserve.processing import Processor
from edgeserve.types.manifest import Manifest
from edgeserve.types.records import Tensors
from edgeserve.wrapper.engine import Arrays
from edgeserve.wrapper.fallback.call import BadReply, Caller, Won
from edgeserve.wrapper.fallback.contract import Fallback, local_only
from edgeserve.wrapper.fallback.leaving import Gate, Left, described
from edgeserve.wrapper.fallback.race import Message, Race, Reply
from edgeserve.wrapper.fallback.raws import raw_bytes
from edgeserve.wrapper.fallback.replies import Said
from edgeserve.wrapper.fallback.ways import way_of

__all__ = ["Asking"]


class Asking:
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
        on_leave: Callable[[Left], None] | None = None,
        races: Callable[[], Race] | None = None,
        caller: Caller | None = None,
    ) -> None:
        self._contract, self._manifest, self._around = contract, manifest, around
        self._way = way_of(contract.protocol, contract.binary)
        if not self._way.suits(manifest.signature):
            raise FallbackError(
                "EDGE-FALLBACK-001",
                "field protocol",
                wanted="a model whose inputs have one first axis, the samples",
                got="one of other inputs",
                hint=f"{contract.protocol} takes rows: use another",
            )
        self.closed_by = local_only(contract, manifest.x)
        self._gate = Gate(contract.urls, self.closed_by, on_leave)
        self._caller = caller or Caller(
            contract.urls, contract.attempts, contract.budget, contract.hedge, contract.at_once
        )
        self._close: Callable[[], None] = lambda: None
        self._races = races or self._real()

    def _real(self) -> Callable[[], Race]:
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

    def ask(self, x: Any, why: str, deadline: float) -> tuple[Won[Said], int]:
        """An endpoint's answer to one input, and how many bytes left for it.

        Raises:
            InputError: the input cannot be read.
            Lost: no endpoint answered in time.
        """
        message, told, read = self._message(x)
        self._gate.passes(message, told, why)
        won = self._caller.call(self._races(), message, deadline, self._checked(read))
        return won, len(message.body) * won.attempts

    def _message(self, x: Any) -> tuple[Message, str, Callable[[Reply], Said]]:
        model = self._contract.model or self._manifest.name
        if isinstance(x, Mapping):
            feed = self._around.check_feed(x)
            return self._way.tensors(model, feed), described(feed), self._named
        if self._contract.send == "raw" and self._way.raw and self._way.decision:
            decision = self._way.decision
            message = self._way.raw(model, raw_bytes(x, self._around.medium))
            return message, "raw input", lambda reply: decision(reply, self._manifest)
        feed = self._around.batch([self._around.prepare(x)])
        told = described(feed)
        return self._way.tensors(model, feed), told, lambda reply: self._finished(reply, feed)

    def _named(self, reply: Reply) -> Said:
        said = self._way.read(reply, self._manifest.signature)
        return Said(Tensors(said.value), said.ran_on)

    def _finished(self, reply: Reply, feed: Arrays) -> Said:
        said = self._way.read(reply, self._manifest.signature)
        try:
            return Said(self._around.finish(said.value, feed)[0], said.ran_on)
        except Exception as error:  # outputs that no model of this signature gives
            raise BadReply("an answer whose outputs make no decision") from error

    def _checked(self, read: Callable[[Reply], Said]) -> Callable[[Reply], Said]:
        """Refuse another model's answer, where the contract says so."""
        if self._contract.other_model != "refuse":
            return read

        def strict(reply: Reply) -> Said:
            said = read(reply)
            if said.ran_on.model_id != self._manifest.model_id:
                raise BadReply(f"an answer of another model, {said.ran_on.model_id or 'unnamed'}")
            return said

        return strict
