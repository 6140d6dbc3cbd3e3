"""`FallbackRouter`: decides for each input whether the device or an endpoint answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from edgeserve import tasks
from edgeserve.durations import DurationEstimate
from edgeserve.errors import BackendError, EdgeError, FallbackError
from edgeserve.processing import Processor
from edgeserve.tasks.embedding import Embedding
from edgeserve.types.manifest import Manifest
from edgeserve.types.records import with_ran_on
from edgeserve.wrapper.fallback.egress import EgressRecord, origin
from edgeserve.wrapper.fallback.hedged_call import CallLost
from edgeserve.wrapper.fallback.policy import Fallback, with_policy_fields
from edgeserve.wrapper.fallback.protocols import EndpointAnswer
from edgeserve.wrapper.fallback.remote_model import RemoteModel

#: Words of runtimes for exhausted memory.
_OUT_OF_MEMORY = ("out of memory", "bad_alloc", "failed to allocate", "cannot allocate", "oom")
#: Largest share of a deadline that is reserved for the device, where an endpoint is asked first.
_MAX_DEVICE_SHARE = 0.5


class FallbackRouter:
    """Answers inputs under a contract. Threads may share it.

    Args:
        contract: The contract.
        manifest: Of the model.
        processor: Its processing.
        local: Answers on the device; None: nothing can.
        unavailable: Why nothing can: the trigger, "missing" or "proof-failed", and the error.
        remote: The model behind the endpoints; for tests.
        on_leave: Called with each `EgressRecord`.
    """

    def __init__(
        self,
        contract: Fallback,
        manifest: Manifest,
        processor: Processor,
        local: Callable[[Any], Any] | None,
        unavailable: tuple[str, EdgeError] | None = None,
        remote: RemoteModel | None = None,
        on_leave: Callable[[EgressRecord], None] | None = None,
    ) -> None:
        self.contract, self._local, self._unavailable = contract, local, unavailable
        self._manifest = manifest
        self._remote = remote or RemoteModel(contract, manifest, processor, on_leave)
        self._rule = tasks.decision_rule(manifest.task, manifest.processing)
        self._latency = _DeviceLatency(self._remote.now)

    def close(self) -> None:
        """Close the connections."""
        self._remote.close()

    @property
    def may_ask(self) -> bool:
        """Whether endpoints may be asked at all."""
        return not self._remote.closed_by

    def answer(self, x: Any) -> Any:
        """One input's answer, its ``ran_on`` a `FallbackRanOn`.

        Raises:
            InputError: the input cannot be used; no endpoint is asked about that.
            FallbackError: EDGE-FALLBACK-007, neither the device nor an endpoint could answer.
            EdgeError: the device's own error, where no endpoint may be asked about it.
        """
        began = self._remote.now()
        deadline = began + self.contract.deadline_ms / 1e3
        why = self._trigger_before(deadline - began)
        if why:
            return self._cloud_first(x, why, began, deadline)
        return self._device_first(x, began, deadline)

    def _allowed(self, why: str) -> bool:
        return self.may_ask and why in self.contract.triggers

    def _trigger_before(self, left: float) -> str:
        """The trigger that holds before the device has run; empty: none."""
        if self._unavailable is not None:
            return self._unavailable[0]
        if self._allowed("always"):
            return "always"
        if self._allowed("busy") and self._latency.expected() > left:
            return "busy"
        return ""

    def _cloud_first(self, x: Any, why: str, began: float, deadline: float) -> Any:
        """Ask an endpoint, then the device where it can answer in the time that is left."""
        if self._unavailable is not None and not self._allowed(why):
            raise self._unavailable[1]
        reserved = 0.0
        if self._local is not None:
            reserved = min(self._latency.upper(), _MAX_DEVICE_SHARE * (deadline - began))
        try:
            return self._cloud(x, why, began, deadline - reserved)
        except CallLost as lost:
            if self._local is None:
                raise _no_answer_error(why, lost) from lost
            note = f"asked an endpoint first ({why}): {lost}"
            return self._device(x, began, note, lost.attempts)

    def _device_first(self, x: Any, began: float, deadline: float) -> Any:
        try:
            answer = self._device(x, began)
        except (BackendError, MemoryError) as error:
            why = _trigger_of(error)
            if not self._allowed(why):
                raise
            try:
                return self._cloud(x, why, began, deadline)
            except CallLost as lost:
                raise _no_answer_error(why, lost) from error
        if not self._allowed("low-confidence") or not self._is_unsure(answer):
            return answer
        try:
            return self._cloud(x, "low-confidence", began, deadline)
        except CallLost as lost:
            note = f"low confidence, and no endpoint answered: {lost}"
            ran_on = with_policy_fields(answer.ran_on, note, attempts=lost.attempts)
            return with_ran_on(answer, ran_on)

    def _device(self, x: Any, began: float, note: str = "", attempts: int = 0) -> Any:
        assert self._local is not None
        with self._latency.timed():
            answer = self._local(x)
        took = 1e3 * (self._remote.now() - began)
        ran_on = with_policy_fields(answer.ran_on, note, took_ms=took, attempts=attempts)
        return with_ran_on(answer, ran_on)

    def _cloud(self, x: Any, why: str, began: float, deadline: float) -> Any:
        won, sent = self._remote.ask(x, why, deadline)
        took = 1e3 * (self._remote.now() - began)
        answer: EndpointAnswer = won.value
        ran_on = with_policy_fields(
            msgspec.structs.replace(answer.ran_on, where="cloud"),
            _identity_note(answer.ran_on.model_id, self._manifest.model_id),
            why=why,
            took_ms=took,
            attempts=won.attempts,
            endpoint=origin(won.url),
            sent_bytes=sent,
        )
        return with_ran_on(answer.value, ran_on)

    def _is_unsure(self, answer: Any) -> bool:
        if isinstance(answer, Mapping | Embedding):
            return False
        margin = tasks.margin(answer, self._rule)
        return margin is not None and margin < self.contract.threshold


class _DeviceLatency:
    """How long answers on this device take, and how many are being made; threads may share it."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now, self._lock = now, threading.Lock()
        self._estimate = DurationEstimate(weight=0.1)
        self._running = 0

    def expected(self) -> float:
        """Seconds until an answer that starts now, by the mean of the last ones."""
        with self._lock:
            return (self._running + 1) * self._estimate.mean

    def upper(self) -> float:
        """An upper estimate for one answer, seconds."""
        with self._lock:
            return self._estimate.upper(4) + 0.2 * self._estimate.mean + 0.002

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Time the answer that the block makes; one that fails says nothing."""
        with self._lock:
            self._running += 1
        began, seconds = self._now(), None
        try:
            yield
            seconds = self._now() - began
        finally:
            with self._lock:
                self._running -= 1
                if seconds is not None:
                    self._estimate.add(seconds)


def _trigger_of(error: EdgeError | MemoryError) -> str:
    text = str(error).lower()
    full = isinstance(error, MemoryError) or any(words in text for words in _OUT_OF_MEMORY)
    return "out-of-memory" if full else "device-error"


def _no_answer_error(why: str, lost: CallLost) -> FallbackError:
    wanted = f"an answer, from an endpoint ({why})"
    hint = "check whether the endpoint is ready: GET URL/v2/health/ready"
    return FallbackError("EDGE-FALLBACK-007", "predict", wanted=wanted, got=str(lost), hint=hint)


def _identity_note(answered: str, mine: str) -> str:
    if not answered:
        return "the endpoint does not say which model answered"
    if answered != mine:
        return f"ANOTHER MODEL answered: model_id {answered}, not {mine}"
    return ""
