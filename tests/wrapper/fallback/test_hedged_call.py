"""One call's way: attempts, budget, deadline, hedges and breakers, on a clock of the test's own."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest

from edgeserve.durations import LatencyWindow
from edgeserve.oip.client import EndpointReply, EndpointRequest
from edgeserve.wrapper.fallback.hedged_call import CallLost, CallWon, HedgedCaller
from edgeserve.wrapper.fallback.replies import BadReply
from edgeserve.wrapper.fallback.transport import (
    CircuitBreaker,
    RequestFailure,
    RequestOutcome,
    RetryBudget,
)

URLS = ("https://a", "https://b")
MESSAGE = EndpointRequest("/x", {"x-request-id": "1"}, b"")
OK = EndpointReply(200, {}, b"yes")


class Script:
    """A race in which each request's end is written down beforehand: (seconds, outcome)."""

    def __init__(self, *ends: tuple[float, RequestOutcome | None], time: float = 0.0) -> None:
        self.time, self._ends = time, list(ends)
        self.sent: list[tuple[float, str]] = []
        self.abandoned: list[int] = []
        self._flying: dict[int, tuple[float, RequestOutcome]] = {}
        self._numbers = itertools.count()

    def now(self) -> float:
        return self.time

    def start(self, url: str, message: EndpointRequest, deadline: float) -> int:
        number = next(self._numbers)
        self.sent.append((self.time, url))
        after, outcome = self._ends.pop(0)
        if outcome is not None:
            self._flying[number] = (self.time + after, outcome)
        return number

    def next(self, until: float) -> tuple[int, RequestOutcome] | None:
        ends = sorted((at, number) for number, (at, _) in self._flying.items() if at <= until)
        if not ends:
            self.time = max(self.time, until)
            return None
        at, number = ends[0]
        self.time = max(self.time, at)
        return number, self._flying.pop(number)[1]

    def abandon(self, number: int) -> None:
        self.abandoned.append(number)
        self._flying.pop(number, None)


def caller(urls: Sequence[str] = URLS[:1], hedge: bool = False, saved: int = 30) -> HedgedCaller:
    """A caller that has saved up some second requests."""
    made = HedgedCaller(urls, 2, 0.1, hedge, 2, random.Random(1))
    for _ in range(saved):
        made.budget.call()
    return made


def read(reply: EndpointReply) -> bytes:
    if reply.body != b"yes":
        raise BadReply("nonsense")
    return reply.body


def call(of: HedgedCaller, race: Script, seconds: float = 1.0) -> CallWon[bytes]:
    return of.call(race, MESSAGE, race.now() + seconds, read)


def test_an_answer_is_an_answer() -> None:
    race = Script((0.02, OK))
    won = call(caller(), race)
    assert (won.value, won.url, won.attempts) == (b"yes", "https://a", 1)


@pytest.mark.parametrize(
    "fault",
    [
        RequestFailure("reset"),
        EndpointReply(503),
        EndpointReply(200, {}, b"no"),
        EndpointReply(500),
    ],
)
def test_what_may_pass_is_tried_once_more(fault: RequestOutcome) -> None:
    race = Script((0.01, fault), (0.01, OK))
    assert call(caller(), race).attempts == 2
    assert race.sent[1][0] > 0.01, "it waits a moment before it asks the same endpoint again"


@pytest.mark.parametrize(
    "fault",
    [
        EndpointReply(400),
        EndpointReply(401),
        EndpointReply(404),
        EndpointReply(413),
        EndpointReply(301),
    ],
)
def test_what_will_not_pass_is_not_tried_again(fault: RequestOutcome) -> None:
    race = Script((0.01, fault), (0.01, OK))
    of = caller(URLS)
    with pytest.raises(
        CallLost, match=str(fault.status) if isinstance(fault, EndpointReply) else ""
    ):
        call(of, race)
    assert len(race.sent) == 1
    assert of.breakers["https://a"].allows(race.now()), "the endpoint itself is well"


def test_never_a_third_time() -> None:
    race = Script((0.01, RequestFailure("reset")), (0.01, RequestFailure("reset")), (0.01, OK))
    with pytest.raises(CallLost) as lost:
        call(caller(), race)
    assert (len(race.sent), lost.value.attempts) == (2, 2)


def test_the_second_time_goes_to_another_endpoint_at_once() -> None:
    race = Script((0.01, RequestFailure("no trust", retryable=False)), (0.01, OK))
    assert call(caller(URLS), race).url == "https://b"
    assert race.sent == [(0.0, "https://a"), (0.01, "https://b")]


def test_a_dead_first_endpoint_never_hides_the_second() -> None:
    """From the very first call, until the dead one is left alone."""
    of = caller(URLS, saved=0)
    for i in range(8):
        race = Script((0.01, RequestFailure("no connection")), (0.01, OK), time=0.05 * i)
        if of.breakers["https://a"].is_open(race.now()):
            race = Script((0.01, OK), time=0.05 * i)
        assert call(of, race).url == "https://b"


def test_who_says_no_second_request_gets_none() -> None:
    of = HedgedCaller(URLS, 2, 0.0, False, 2, random.Random(1))
    race = Script((0.01, RequestFailure("no connection")), (0.01, OK))
    with pytest.raises(CallLost) as lost:
        call(of, race)
    assert str(lost.value) == (
        "https://a: no connection; https://b: not asked (the retry budget is used up)"
    )


def test_who_was_not_asked_is_named_with_the_reason() -> None:
    of = HedgedCaller((*URLS, "https://c"), 2, 0.1, False, 2, random.Random(1))
    race = Script((0.01, RequestFailure("reset")), (0.01, EndpointReply(503)))
    with pytest.raises(CallLost) as lost:
        call(of, race)
    assert lost.value.outcomes == (
        "https://a: reset",
        "https://b: status 503",
        "https://c: not asked (attempts=2)",
    )


def test_without_a_budget_there_is_no_second_time() -> None:
    race = Script((0.01, RequestFailure("reset")), (0.01, OK))
    with pytest.raises(CallLost):
        call(caller(saved=0), race)
    assert len(race.sent) == 1


def test_the_deadline_is_kept_whatever_happens() -> None:
    race = Script((0.0, None))
    with pytest.raises(CallLost, match="within the deadline"):
        call(caller(), race, 0.2)
    assert race.now() == pytest.approx(0.2)
    assert race.abandoned == [0]


def test_no_second_request_that_could_only_come_too_late() -> None:
    race = Script((0.199, RequestFailure("reset")), (0.01, OK))
    with pytest.raises(CallLost):
        call(caller(), race, 0.2)
    assert len(race.sent) == 1


def test_retry_after_is_kept_even_when_there_is_time() -> None:
    race = Script((0.01, EndpointReply(429, {"retry-after-ms": "300"})), (0.01, OK))
    assert call(caller(), race).attempts == 2
    assert race.sent[1][0] >= 0.31


def test_retry_after_beyond_the_deadline_ends_the_call_at_once() -> None:
    of, race = caller(), Script((0.01, EndpointReply(503, {"retry-after": "5"})))
    with pytest.raises(CallLost):
        call(of, race)
    assert race.now() < 0.1
    with pytest.raises(CallLost, match="circuit breaker open"):
        call(of, race)
    assert len(race.sent) == 1
    later = Script((0.01, OK), time=5.2)
    assert call(of, later).value == b"yes"


@pytest.mark.parametrize(
    "said", ["-1", "soon", "", "\uff11", "1e9", "Wed, 21 Oct 2015 07:28:00 GMT"]
)
def test_a_retry_after_that_is_no_number_is_none(said: str) -> None:
    race = Script((0.01, EndpointReply(503, {"retry-after": said})), (0.01, OK))
    assert call(caller(), race).attempts == 2
    assert race.now() < 0.5


def test_a_hedge_wins_over_a_slow_answer() -> None:
    of = caller(hedge=True, saved=60)
    for _ in range(40):
        call(of, Script((0.02, OK)))
    race = Script((5.0, OK), (0.02, OK))
    won = call(of, race, 10.0)
    assert (won.attempts, race.abandoned) == (2, [0])
    assert race.sent[1][0] == pytest.approx(0.03)
    assert race.now() == pytest.approx(0.05)


def test_no_hedge_without_data_or_wish() -> None:
    for of in (caller(hedge=True), caller(hedge=False)):
        race = Script((0.9, OK))
        assert call(of, race).attempts == 1


def test_the_bulkhead_turns_away_who_is_one_too_many() -> None:
    of = caller()

    class Nested(Script):
        depth = 0

        def next(self, until: float) -> tuple[int, RequestOutcome] | None:
            Nested.depth += 1
            if Nested.depth == 1:
                call(of, Script((0.01, OK)))
                inner = Nested((0.01, OK))
                inner.next = lambda until: _third(of, inner, until)  # type: ignore[method-assign]
                call(of, inner)
            return super().next(until)

    assert call(of, Nested((0.01, OK))).value == b"yes"


def _third(of: HedgedCaller, race: Script, until: float) -> tuple[int, RequestOutcome] | None:
    with pytest.raises(CallLost, match="at_once"):
        call(of, Script((0.01, OK)))
    return Script.next(race, until)


def test_a_breaker_opens_tries_and_closes() -> None:
    breaker = CircuitBreaker(random.Random(1))
    for _ in range(5):
        assert breaker.allows(0.0)
        breaker.start()
        breaker.fail(0.0)
    assert breaker.is_open(0.0)
    assert not breaker.allows(0.3)
    assert breaker.allows(1.0)
    breaker.start()
    assert not breaker.allows(1.0), "one try at a time"
    breaker.fail(1.0)
    assert not breaker.allows(1.5)
    assert breaker.allows(2.4)
    breaker.start()
    breaker.succeed()
    assert breaker.allows(2.4)
    assert not breaker.is_open(2.4)


def test_a_try_that_was_given_up_is_not_the_last() -> None:
    breaker = CircuitBreaker(random.Random(1))
    for _ in range(5):
        breaker.fail(0.0)
    breaker.start()
    breaker.abandon()
    assert breaker.allows(1.0)


def test_a_breaker_stays_closed_where_one_in_ten_fails() -> None:
    breaker, rng = CircuitBreaker(random.Random(1)), random.Random(2)
    for i in range(2000):
        if rng.random() < 0.1:
            breaker.fail(float(i))
        else:
            breaker.succeed()
        assert not breaker.is_open(float(i) + 0.1)


def test_second_requests_never_exceed_their_share() -> None:
    budget, taken = RetryBudget(0.1), 0
    for i in range(1, 5001):
        budget.call()
        taken += budget.retry()
        taken += budget.hedge()
        assert taken <= 0.1 * i + 1e-9


def test_hedges_begin_after_what_nine_of_ten_take() -> None:
    latency = LatencyWindow()
    assert latency.hedge_after() is None
    for i in range(200):
        latency.add(0.02 if i % 20 else 1.0)
    assert latency.hedge_after() == pytest.approx(0.03)
