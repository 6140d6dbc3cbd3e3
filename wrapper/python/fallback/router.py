"""`FallbackRouter`: decides for each input whether the device or an endpoint answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from edgeserve import tasks
from edgeserve.errors import BackendError, EdgeError, FallbackError
from edgeserve.processing import Processor
from edgeserve.tasks.embedding import Embedding
from edgeserve.types.manifest import Manifest
from edgeserve.types.records import RanOn, Tensors
from edgeserve.wrapper.fallback.egress import EgressRecord, origin
from edgeserve.wrapper.fallback.hedged_call import CallLost
from edgeserve.wrapper.fallback.policy import Fallback, with_policy_fields
from edgeserve.wrapper.fallback.protocols import EndpointAnswer
from edgeserve.wrapper.fallback.remote_model import RemoteModel

__all__ = ["FallbackRouter"]

#: An engine says in many ways that memory ran out.
_OUT_OF_MEMORY = ("out of memory", "bad_alloc", "failed to allocate", "cannot allocate", "oom")
#: The device's own share of a deadline is at most this, where an endpoint is asked first.
_MAX_DEVICE_SHARE = 0.5


class FallbackRouter:
    """Answers inputs under a contract. May be used from several threads.

    Args:
        contract: What is declared.
        manifest: Of the model.
        around: Its processing.
        local: Answers on the device; None: nothing can.
        lacking: Why nothing can: "missing" or "proof-failed", and the error that said so.
        asking: How endpoints are asked; for tests.
    """

    def __init__(
        self,
        contract: Fallback,
        manifest: Manifest,
        around: Processor,
        local: Callable[[Any], Any] | None,
        lacking: tuple[str, EdgeError] | None = None,
        asking: RemoteModel | None = None,
        on_leave: Callable[[EgressRecord], None] | None = None,
    ) -> None:
        self.contract, self._local, self._lacking = contract, local, lacking
        self._manifest = manifest
        self._asking = asking or RemoteModel(contract, manifest, around, on_leave)
        self._rule = tasks.decision_rule(manifest.task, manifest.processing)
        self._pace = _DeviceLatency(self._asking.now)

    def close(self) -> None:
        """Close the connections."""
        self._asking.close()

    @property
    def may_ask(self) -> bool:
        """Whether endpoints may be asked at all."""
        return not self._asking.closed_by

    def answer(self, x: Any) -> Any:
        """One input's answer, its ``ran_on`` a `FallbackRanOn`.

        Raises:
            InputError: the input cannot be used; no endpoint is asked about that.
            FallbackError: EDGE-FALLBACK-007, neither the device nor an endpoint could answer.
            EdgeError: the device's own error, where no endpoint may be asked about it.
        """
        came = self._asking.now()
        deadline = came + self.contract.deadline_ms / 1e3
        why = self._before(deadline - came)
        if why:
            return self._cloud_first(x, why, came, deadline)
        return self._device_first(x, came, deadline)

    def _allowed(self, why: str) -> bool:
        return self.may_ask and why in self.contract.triggers

    def _before(self, left: float) -> str:
        """The trigger that is known before the device has tried; empty: none."""
        if self._lacking is not None:
            return self._lacking[0]
        if self._allowed("always"):
            return "always"
        if self._allowed("busy") and self._pace.expected() > left:
            return "busy"
        return ""

    def _cloud_first(self, x: Any, why: str, came: float, deadline: float) -> Any:
        """Ask an endpoint, the device behind it where it can answer in the time that is left."""
        if self._lacking is not None and not self._allowed(why):
            raise self._lacking[1]
        kept = 0.0
        if self._local is not None:
            kept = min(self._pace.slow(), _MAX_DEVICE_SHARE * (deadline - came))
        try:
            return self._cloud(x, why, came, deadline - kept)
        except CallLost as lost:
            if self._local is None:
                raise self._nobody(why, lost) from lost
            return self._on_device(
                x, came, f"asked an endpoint first ({why}): {lost}", lost.attempts
            )

    def _device_first(self, x: Any, came: float, deadline: float) -> Any:
        try:
            answer = self._on_device(x, came)
        except (BackendError, MemoryError) as error:
            return self._fall_back(x, error, came, deadline)
        if not self._allowed("low-confidence") or not self._unsure(answer):
            return answer
        try:
            return self._cloud(x, "low-confidence", came, deadline)
        except CallLost as lost:
            return _with_note(answer, f"unsure, and no endpoint answered: {lost}", lost.attempts)

    def _fall_back(
        self, x: Any, error: EdgeError | MemoryError, came: float, deadline: float
    ) -> Any:
        """The device failed: an endpoint, or the error."""
        why = _trigger_of(error)
        if not self._allowed(why):
            raise error
        try:
            return self._cloud(x, why, came, deadline)
        except CallLost as lost:
            raise self._nobody(why, lost) from error

    def _on_device(self, x: Any, came: float, note: str = "", attempts: int = 0) -> Any:
        assert self._local is not None
        with self._pace.one():
            answer = self._local(x)
        took = 1e3 * (self._asking.now() - came)
        ran_on = with_policy_fields(answer.ran_on, note, took_ms=took, attempts=attempts)
        return _with_ran_on(answer, ran_on)

    def _cloud(self, x: Any, why: str, came: float, deadline: float) -> Any:
        won, sent = self._asking.ask(x, why, deadline)
        took = 1e3 * (self._asking.now() - came)
        said: EndpointAnswer = won.value
        note = _identity_note(said.ran_on.model_id, self._manifest.model_id)
        ran_on = with_policy_fields(
            msgspec.structs.replace(said.ran_on, where="cloud"),
            note,
            why=why,
            took_ms=took,
            attempts=won.attempts,
            endpoint=origin(won.url),
            sent_bytes=sent,
        )
        return _with_ran_on(said.value, ran_on)

    def _unsure(self, answer: Any) -> bool:
        if isinstance(answer, Mapping | Embedding):
            return False
        margin = tasks.margin(answer, self._rule)
        return margin is not None and margin < self.contract.threshold

    def _nobody(self, why: str, lost: CallLost) -> FallbackError:
        return FallbackError(
            "EDGE-FALLBACK-007",
            "predict",
            wanted=f"an answer, from an endpoint ({why})",
            got=str(lost),
            hint="see whether the endpoint answers: GET URL/v2/health/ready",
        )


class _DeviceLatency:
    """How long answers on this device take, and how many are being made."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now, self._lock = now, threading.Lock()
        self._mean = self._off = 0.0
        self._running = 0

    def expected(self) -> float:
        """Seconds until an answer that is begun now, as the last ones went."""
        with self._lock:
            return (self._running + 1) * self._mean

    def slow(self) -> float:
        """What nearly all answers stay below, seconds."""
        with self._lock:
            return 1.2 * self._mean + 4 * self._off + 0.002

    def one(self) -> _TimedAnswer:
        """Count one while a block runs."""
        return _TimedAnswer(self)

    def add(self, began: float, good: bool) -> None:
        with self._lock:
            self._running -= 1
            if good:
                seconds = self._now() - began
                weight = 0.1 if self._mean else 1.0
                off = abs(seconds - self._mean) if self._mean else 0.0
                self._mean += weight * (seconds - self._mean)
                self._off += 0.1 * (off - self._off)

    def begin(self) -> float:
        with self._lock:
            self._running += 1
        return self._now()


class _TimedAnswer:
    def __init__(self, pace: _DeviceLatency) -> None:
        self._pace = pace

    def __enter__(self) -> None:
        self._began = self._pace.begin()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._pace.add(self._began, kind is None)


def _trigger_of(error: EdgeError | MemoryError) -> str:
    told = str(error).lower()
    full = isinstance(error, MemoryError) or any(words in told for words in _OUT_OF_MEMORY)
    return "out-of-memory" if full else "device-error"


def _identity_note(answered: str, mine: str) -> str:
    if not answered:
        return "the endpoint does not say which model answered"
    if answered != mine:
        return f"ANOTHER MODEL answered: model_id {answered}, not {mine}"
    return ""


def _with_ran_on(answer: Any, ran_on: RanOn) -> Any:
    if isinstance(answer, Tensors):
        answer.ran_on = ran_on
        return answer
    return msgspec.structs.replace(answer, ran_on=ran_on)


def _with_note(answer: Any, note: str, attempts: int) -> Any:
    told = "; ".join(filter(None, (answer.ran_on.note, note)))
    return _with_ran_on(
        answer, msgspec.structs.replace(answer.ran_on, note=told, attempts=attempts)
    )
