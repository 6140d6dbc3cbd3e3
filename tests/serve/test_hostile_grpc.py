"""Hostile gRPC messages: a status that is the caller's fault, a code, and the next is answered."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from testkit.modules import load

from edgeserve.serve.grpc_messages import SERVICE, messages


def _load(name: str) -> ModuleType:
    return load(Path(__file__).with_name(f"{name}.py"), name)


hostile, properties = _load("hostile_grpc"), _load("properties")
CASES = hostile.grpc_cases()
REFUSED = {"INVALID_ARGUMENT", "NOT_FOUND", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION"}
INNER = re.compile(r'Traceback|File "|\.py\b|/tmp/|site-packages|0x[0-9a-f]{8}')


@pytest.fixture
def end(live: Callable[..., Any], tagger: str) -> Any:
    return live(tagger, grpc_port=0, body_mb=4)


@pytest.fixture
def channel(end: Any) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(end.grpc_address) as one:
        yield one


def ask(channel: grpc.Channel, call: str, data: bytes) -> tuple[str, str, bytes]:
    """Status, details and answer to a message's bytes."""
    try:
        return "OK", "", channel.unary_unary(f"/{SERVICE}/{call}")(data, timeout=30)
    except grpc.RpcError as error:
        return error.code().name, str(error.details()), b""


def good(channel: grpc.Channel) -> None:
    status, details, answer = ask(channel, "ModelInfer", hostile._infer())
    assert status == "OK", details
    assert len(messages()["ModelInferResponse"].FromString(answer).raw_output_contents[0]) == 20


def test_hostile_messages_are_refused_with_a_code(end: Any, channel: grpc.Channel) -> None:
    good(channel)
    for name, call, data in CASES:
        status, details, _ = ask(channel, call, data)
        assert status in REFUSED, (name, status, details)
        assert re.match(r"EDGE-[A-Z]+-\d{3} ", details), (name, details)
        assert not INNER.search(details), (name, details)
    assert '"fault"' not in end.log.getvalue(), end.log.getvalue()[-2000:]
    good(channel)


def test_any_message_is_answered_or_refused(end: Any, channel: grpc.Channel) -> None:
    @given(properties.GRPC)
    @settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
    def each(asked: tuple[str, bytes]) -> None:
        status, details, _ = ask(channel, *asked)
        assert status in REFUSED | {"OK"}, details
        assert status == "OK" or re.match(r"EDGE-[A-Z]+-\d{3} ", details)
        assert not INNER.search(details)

    each()
    assert '"fault"' not in end.log.getvalue(), end.log.getvalue()[-2000:]
    good(channel)


def test_a_message_longer_than_the_limit(channel: grpc.Channel) -> None:
    assert ask(channel, "ModelInfer", b"\0" * (5 << 20))[0] == "RESOURCE_EXHAUSTED"
    assert ask(channel, "NoSuchCall", b"")[0] == "UNIMPLEMENTED"
    good(channel)
