"""The fallback policy, on a virtual clock: ``fallback/*.json``."""

from __future__ import annotations

import itertools
import json
import math
import os
import random
from types import SimpleNamespace
from typing import Any
from unittest import mock

import msgspec
import numpy as np

from conformance.golden import tensor
from edgeserve.durations import LatencyWindow
from edgeserve.errors import BackendError, EdgeError, InputError, WrapperError
from edgeserve.oip.client import EndpointReply, EndpointRequest
from edgeserve.tasks.classification import Classification
from edgeserve.tasks.embedding import Embedding
from edgeserve.types.processing import Processing
from edgeserve.types.records import RanOn, Runtime
from edgeserve.wrapper.fallback.egress import (
    EgressPolicy,
    EgressRecord,
    describe_payload,
    with_request_id,
)
from edgeserve.wrapper.fallback.hedged_call import CallLost, CallWon, HedgedCaller
from edgeserve.wrapper.fallback.policy import Fallback, local_only
from edgeserve.wrapper.fallback.protocols import EndpointAnswer, protocol_of
from edgeserve.wrapper.fallback.replies import BadReply
from edgeserve.wrapper.fallback.router import FallbackRouter
from edgeserve.wrapper.fallback.transport import CircuitBreaker, RequestFailure, RetryBudget

__all__ = [
    "check_breaker",
    "check_budget",
    "check_call",
    "check_egress",
    "check_hedge",
    "check_local_only",
    "check_policy",
    "check_triggers",
]

Json = dict[str, Any]


class _Fixed(random.Random):
    """A generator that always gives one place between the ends."""

    def __init__(self, place: float) -> None:
        super().__init__(0)
        self._place = place

    def uniform(self, a: float, b: float) -> float:
        return a + (b - a) * self._place


def check_policy(case: Json, *_: object) -> str | None:
    """A policy's fields: its URLs and triggers, or the refusal."""
    fields = {k: tuple(v) if isinstance(v, list) else v for k, v in case["policy"].items()}
    try:
        policy = Fallback(**fields)
    except EdgeError as error:
        return None if error.code == case.get("error") else f"raised {error}"
    if "error" in case:
        return f"was taken instead of {case['error']}"
    found = {"urls": list(policy.urls), "triggers": list(policy.triggers)}
    return None if found == case["expected"] else f"gave {found}"


def check_local_only(case: Json, *_: object) -> str | None:
    """Who declares that nothing is sent."""
    environment = dict(os.environ)
    environment.pop("EDGESERVE_LOCAL_ONLY", None)
    if case["environment"] is not None:
        environment["EDGESERVE_LOCAL_ONLY"] = case["environment"]
    with mock.patch.dict(os.environ, environment, clear=True):
        try:
            told = local_only(Fallback("https://a.example", when=tuple(case["when"])), case["x"])
        except EdgeError as error:
            return None if error.code == case.get("error") else f"raised {error}"
    if "error" in case:
        return f"was taken instead of {case['error']}"
    words = {"contract": "policy", "policy": "policy"}
    found = told.split()[1] if told else ""
    found = words.get(found, found)
    return None if found == case["expected"] else f"gave {told!r}"


def check_breaker(case: Json, listing: Json, *_: object) -> str | None:
    """Events at an endpoint, and whether it may be asked."""
    breaker = CircuitBreaker(_Fixed(listing["random"]))
    for number, (now, event, *rest) in enumerate(case["events"]):
        if event == "?":
            found = [breaker.allows(now), breaker.is_open(now)]
            if found != rest:
                return f"event {number}: gave {found}"
        elif event == "bad":
            breaker.fail(now, *rest)
        else:
            {"begin": breaker.start, "good": breaker.succeed, "undecided": breaker.abandon}[event]()
    return None


def check_budget(case: Json, *_: object) -> str | None:
    """Calls, and whether a second request is granted."""
    budget = RetryBudget(case["budget"])
    for number, (event, value) in enumerate(case["events"]):
        if event == "call":
            for _ in range(value):
                budget.call()
        elif getattr(budget, event)() is not value:
            return f"event {number}: {event} gave {not value}"
    return None


def check_hedge(case: Json, *_: object) -> str | None:
    """Durations, and the time after which a hedge is sent."""
    window = LatencyWindow()
    for seconds in _durations(case):
        window.add(seconds)
    found = window.hedge_after()
    return None if found == case["expected"] else f"gave {found}"


def _durations(case: Json) -> list[float]:
    found: list[float] = []
    for each in case.get("durations", []):
        found += [each["repeat"][0]] * each["repeat"][1] if isinstance(each, dict) else [each]
    return found


class _Clock:
    """Requests whose ends are known beforehand, and time that passes only when waited for."""

    def __init__(self, time: float, ends: list[Any]) -> None:
        self.time, self._ends = time, list(ends)
        self.sent: list[list[Any]] = []
        self._flying: dict[int, tuple[float, Any]] = {}
        self._numbers = itertools.count()

    def now(self) -> float:
        return self.time

    def start(self, url: str, message: EndpointRequest, deadline: float) -> int:
        number, end = next(self._numbers), self._ends.pop(0)
        self.sent.append([self.time, url.removeprefix("https://")])
        if end is not None:
            self._flying[number] = (self.time + end[0], _outcome(*end[1:]))
        return number

    def next(self, until: float) -> Any:
        ends = sorted((at, number) for number, (at, _) in self._flying.items() if at <= until)
        if not ends:
            self.time = max(self.time, until)
            return None
        at, number = ends[0]
        self.time = max(self.time, at)
        return number, self._flying.pop(number)[1]

    def abandon(self, number: int) -> None:
        self._flying.pop(number, None)


def _outcome(kind: Any, headers: Json | None = None) -> Any:
    if kind in ("no reply", "no trust"):
        return RequestFailure(kind, retryable=kind == "no reply")
    return EndpointReply(200 if kind == "invalid" else kind, headers or {}, str(kind).encode())


def _read(reply: EndpointReply) -> bytes:
    if reply.body == b"invalid":
        raise BadReply("invalid")
    return reply.body


def check_call(case: Json, listing: Json, *_: object) -> str | None:
    """Calls one after another, each with its requests."""
    caller = HedgedCaller(
        [f"https://{name}" for name in case["urls"]],
        case.get("attempts", 2),
        case.get("budget", 0.1),
        case.get("hedge", False),
        4,
        _Fixed(listing["random"]),
    )
    for _ in range(case.get("saved", 0)):
        caller.budget.call()
    for seconds in _durations(case):
        caller.latency.add(seconds)
    for number, call in enumerate(case["calls"]):
        clock = _Clock(call["at"], call["ends"])
        message = EndpointRequest("/x", {"x-request-id": "1"}, b"")
        try:
            won = caller.call(clock, message, call["deadline"], _read)
            found = {"answer": won.url.removeprefix("https://"), "attempts": won.attempts}
        except CallLost as lost:
            found = {"answer": None, "attempts": lost.attempts}
        found |= {"at": clock.time, "sent": clock.sent}
        if told := _differs(found, call["expected"]):
            return f"call {number}: {told}"
    return None


def _differs(found: Any, wanted: Any, path: str = "") -> str | None:
    """Where two JSON values differ; numbers may by a billionth."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        pairs = [(f"{path}.{k}".lstrip("."), found.get(k), v) for k, v in wanted.items()]
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        pairs = [(f"{path}[{i}]", a, b) for i, (a, b) in enumerate(zip(found, wanted, strict=True))]
    elif isinstance(wanted, float | int) and isinstance(found, float | int):
        near = math.isclose(found, wanted, rel_tol=0, abs_tol=1e-9)
        return None if near else f"{path}: gave {found}, not {wanted}"
    else:
        return None if found == wanted else f"{path}: gave {found!r}, not {wanted!r}"
    return next((told for p, a, b in pairs if (told := _differs(a, b, p))), None)


def _ran_on(where: str) -> RanOn:
    runtime = Runtime(name="r", version="1", delegate="cpu")
    return RanOn(where, "onnx", "fp32", "0" * 64, runtime, "0" * 64)


def _answer(margin: Any, where: str) -> Any:
    if margin == "embedding":
        return Embedding(vector=np.ones(2, np.float32), ran_on=_ran_on(where))
    best = 0.5 + margin / 2
    top = (("a", best), ("b", 1 - best))
    return Classification(label="a", score=best, top=top, ran_on=_ran_on(where))


class _World:
    """A device and an endpoint whose answers a case writes down."""

    def __init__(self, case: Json) -> None:
        self.time, self.asked, self.call = 0.0, [], {}
        self.closed_by = "the bundle" if case.get("local_only") else ""
        if "local-only" in case["policy"]["when"]:
            self.closed_by = "the policy"

    def now(self) -> float:
        return self.time

    def close(self) -> None:
        pass

    def ask(self, x: Any, why: str, deadline: float) -> tuple[Any, int]:
        self.asked.append(deadline - self.call["begin"])
        if self.call["endpoint"] is None:
            raise CallLost(["no reply"], 1)
        self.time += self.call["endpoint"]
        value = _answer(0.5, "cloud")
        return CallWon(EndpointAnswer(value, value.ran_on), "https://a.example", 1), 0

    def device(self, x: Any) -> Any:
        seconds, told = self.call["device"]
        self.time += seconds
        if told == "unreadable":
            raise InputError("EDGE-INPUT-001", "x", got="nothing", hint="h")
        if told in ("device-error", "out-of-memory"):
            got = "failed to allocate memory" if told == "out-of-memory" else "a driver's fault"
            raise BackendError("EDGE-BACKEND-013", "session", got=got, hint="h")
        return _answer(told, "device")


def check_triggers(case: Json, *_: object) -> str | None:
    """Inputs one after another: who answers, and why."""
    fields = {k: tuple(v) if isinstance(v, list) else v for k, v in case["policy"].items()}
    world = _World(case)
    lacking = WrapperError("EDGE-WRAPPER-001", "model", got="none", hint="h")
    manifest: Any = SimpleNamespace(
        task="image-classification", processing=Processing(), model_id="0" * 64
    )
    router = FallbackRouter(
        Fallback("https://a.example", **fields),
        manifest,
        SimpleNamespace(),  # type: ignore[arg-type]
        None if "lacking" in case else world.device,
        (case["lacking"], lacking) if "lacking" in case else None,
        world,  # type: ignore[arg-type]
    )
    for number, call in enumerate(case["calls"]):
        world.call, asked = call | {"begin": world.time}, len(world.asked)
        found: Json = {}
        try:
            ran_on = router.answer(b"x").ran_on
            found |= {"from": ran_on.where, "why": ran_on.why}
        except EdgeError as error:
            found["error"] = error.code
        found["asked"] = len(world.asked) > asked
        if found["asked"]:
            found["deadline"] = world.asked[-1]
        wanted = call["expected"]
        if ("error" in found) is not ("error" in wanted):
            return f"call {number}: gave {found}"
        if told := _differs(found, wanted):
            return f"call {number}: {told}"
    return None


def check_egress(case: Json, *_: object) -> str | None:
    """The request as it leaves, and what the app learns of it."""
    left: list[EgressRecord] = []
    policy = EgressPolicy(
        tuple(case["urls"]), "the policy" if case.get("closed") else "", left.append
    )
    protocol = protocol_of("oip", case.get("binary", True))
    if "raw" in case:
        assert protocol.raw
        request, what = protocol.raw(case["model"], bytes.fromhex(case["raw"])), "raw input"
    else:
        feed = {each["name"]: tensor(each) for each in case["tensors"]}
        request, what = protocol.tensors(case["model"], feed), describe_payload(feed)
    request = with_request_id(request)
    try:
        policy.check(request, what, case["why"])
    except EdgeError as error:
        return None if error.code == case.get("error") else f"raised {error}"
    if "error" in case:
        return f"passed instead of {case['error']}"
    head = int(request.headers.get("inference-header-content-length", len(request.body)))
    record = msgspec.to_builtins(left[0])
    found = {
        "path": request.path,
        "headers": dict(request.headers),
        "body": request.body.hex(),
        "behind": request.body[head:].hex(),
        "record": record | {"to": list(record["to"])},
    }
    if "json" in case["expected"]:
        found["json"] = json.loads(request.body[:head])
        if set(found["json"]) != set(case["expected"]["json"]):
            return f"json: gave {found['json']}"
    if record["bytes"] != len(request.body) or not record["request_id"]:
        return f"record: gave {record}"
    return _differs(found, case["expected"])
