"""Spans of requests, collected by OpenTelemetry's own SDK and exporter."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from edgeserve import oip
from edgeserve.serve.telemetry import Traces

INFER = "/v2/models/tagger/infer"
CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(scope="module")
def provided() -> Iterator[InMemorySpanExporter]:
    """A provider for the process: it can be set once only, so it stays and is emptied."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    yield exporter
    provider.shutdown()


@pytest.fixture
def spans(provided: InMemorySpanExporter) -> Any:
    provided.clear()
    return provided.get_finished_spans


def question() -> tuple[bytes, dict[str, str]]:
    x = np.zeros((1, 3, 8, 8), np.float32)
    body, head = oip.write_request([oip.Tensor("image", x)])
    return body, {"inference-header-content-length": str(head)}


def test_a_request_is_one_span_with_its_parts(
    asgi: Callable[..., Any], tagger: str, spans: Any
) -> None:
    app = asgi(tagger)
    body, headers = question()
    reply = app.call("POST", INFER, body, headers | {"traceparent": CALLER})
    assert reply.status == 200
    *parts, whole = spans()
    assert [part.name for part in parts] == ["queue", "pre", "run", "post"]
    assert whole.name == "infer"
    assert whole.kind is trace.SpanKind.SERVER
    assert f"{whole.context.trace_id:032x}-{whole.parent.span_id:016x}" == CALLER[3:52]
    for part in parts:
        assert part.parent.span_id == whole.context.span_id
        assert part.context.trace_id == whole.context.trace_id
    for one, other in itertools.pairwise(parts):
        assert one.end_time == other.start_time
    assert parts[2].end_time > parts[2].start_time
    assert whole.start_time <= parts[0].start_time
    assert parts[-1].end_time <= whole.end_time
    said = whole.attributes
    assert said["edgeserve.model"] == "tagger"
    assert said["edgeserve.model_id"] == reply.headers["x-model-id"]
    assert said["edgeserve.request_id"] == reply.headers["x-request-id"]
    assert said["http.response.status_code"] == 200


def test_without_a_caller_s_trace_it_begins_one(
    asgi: Callable[..., Any], tagger: str, spans: Any
) -> None:
    app = asgi(tagger)
    for value in ("", "00-xyz", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "é" * 20):
        given = {"traceparent": value.encode().decode("latin-1")}
        assert app.call("GET", "/v2", headers=given).status == 200
    assert [span.parent for span in spans()] == [None] * 4
    assert len({span.context.trace_id for span in spans()}) == 4


def test_what_is_refused_says_why(asgi: Callable[..., Any], tagger: str, spans: Any) -> None:
    app = asgi(tagger)
    body, headers = question()
    app.call("POST", INFER, b"{}", {})
    app.call("POST", INFER, body, headers | {"x-request-deadline-ms": "0"})
    first, second = spans()
    assert first.attributes["error.type"] == "EDGE-SERVE-010"
    assert first.status.status_code is trace.StatusCode.UNSET  # the caller's fault, not ours
    assert second.attributes["error.type"] == "EDGE-SERVE-020"
    assert second.status.status_code is trace.StatusCode.ERROR


def test_probes_are_in_no_trace(asgi: Callable[..., Any], tagger: str, spans: Any) -> None:
    app = asgi(tagger)
    for path in ("/v2/health/live", "/v2/health/ready", "/metrics", "/nowhere"):
        app.call("GET", path)
    assert spans() == ()


def test_requests_at_a_time_keep_their_parts_apart(
    asgi: Callable[..., Any], tagger: str, spans: Any
) -> None:
    import asyncio

    app = asgi(tagger, workers=2)
    body, headers = question()

    async def go() -> None:
        await asyncio.gather(*(app.ask("POST", INFER, body, headers) for _ in range(12)))

    app.run(go())
    wholes = {s.context.span_id: s for s in spans() if s.name == "infer"}
    assert len(wholes) == 12
    children = [s.parent.span_id for s in spans() if s.name != "infer"]
    assert sorted(children) == sorted(list(wholes) * 4)


def test_grpc_has_them_too(live: Callable[..., Any], tagger: str, spans: Any) -> None:
    import grpc

    from edgeserve.serve.grpc_messages import SERVICE, messages

    end = live(tagger, grpc_port=0)
    said = messages()["ModelInferRequest"](
        model_name="tagger",
        raw_input_contents=[b"\0" * 768],
        inputs=[{"name": "image", "datatype": "FP32", "shape": [1, 3, 8, 8]}],
    )
    with grpc.insecure_channel(end.grpc_address) as channel:
        call = channel.unary_unary(f"/{SERVICE}/ModelInfer")
        call(said.SerializeToString(), metadata=(("traceparent", CALLER),))
        with contextlib.suppress(grpc.RpcError):
            call(b"\xff")
    end.end()
    *parts, whole, wrong = spans()
    assert [part.name for part in parts] == ["queue", "pre", "run", "post"]
    assert f"{whole.context.trace_id:032x}" == CALLER[3:35]
    assert whole.attributes["rpc.response.status_code"] == "OK"
    assert wrong.attributes["error.type"] == "EDGE-SERVE-010"


def test_without_the_package_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    none = Traces()
    assert none.begin("infer", {b"traceparent": CALLER.encode()}) is None
    none.end(None, failed=True)
