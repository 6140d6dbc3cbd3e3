"""The Open Inference Protocol over gRPC, on the same service, loop and limits as REST."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgeserve import oip
from edgeserve.errors import ServeError
from edgeserve.serve.app import App
from edgeserve.serve.grpc_messages import (
    SERVICE,
    messages,
    parsed_size,
    read_infer_request,
    write_infer_response,
)
from edgeserve.serve.inference import RAW, protocol_error
from edgeserve.serve.inflight import DECODERS, RequestBytes
from edgeserve.serve.loaded_model import LoadedModel
from edgeserve.serve.options import MB, ServeOptions
from edgeserve.serve.request_errors import (
    RequestRejected,
    error_line,
    forget_frames,
    model_failed,
    rejected,
)
from edgeserve.serve.telemetry import new_id

if TYPE_CHECKING:
    from edgeserve.serve.server import RunningServer

#: Statuses of HTTP as gRPC has them.
_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    413: "RESOURCE_EXHAUSTED",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}
#: They need neither a key nor their message, which is empty.
_KEYLESS = ("ServerLive", "ServerReady")
_MOST_STREAMS, _MOST_CONNECTIONS = 128, 1024
#: Bytes of a call that come before it is read; a message up to this size is not counted.
_WINDOW = 64 * 1024
#: Times that the library holds a message in the moment in which it hands it over.
_COPIES = 3


@contextlib.asynccontextmanager
async def listen(running: RunningServer) -> AsyncIterator[int]:
    """Answer gRPC while the block runs; gives the port.

    Raises:
        ServeError: EDGE-SERVE-001, the address cannot be had.
    """
    import grpc

    options = running.app.options
    server = grpc.aio.server(
        options=[
            ("grpc.max_receive_message_length", _longest(options)),
            ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", 0),
            ("grpc.max_metadata_size", 16 * 1024),
            ("grpc.max_concurrent_streams", _MOST_STREAMS),
            ("grpc.max_allowed_incoming_connections", _MOST_CONNECTIONS),
            # What is not read yet is held by the library, up to its window: that does not grow.
            ("grpc.http2.lookahead_bytes", _WINDOW),
            ("grpc.http2.bdp_probe", 0),
        ]
    )
    server.add_generic_rpc_handlers((_handlers(running.app),))
    port = _bind(server, options)
    await server.start()
    try:
        yield port
    finally:
        await server.stop(grace=running.left())


def _longest(options: ServeOptions) -> int:
    """Bytes of a message at most; it must fit into the budget as it is received."""
    longest = min(options.grpc_body_mb, options.body_mb) * MB
    return min(longest, options.inflight_mb * MB // _COPIES)


def _bind(server: Any, options: ServeOptions) -> int:
    import grpc

    host = f"[{options.host}]" if ":" in options.host else options.host
    address = f"{host}:{options.grpc_port}"
    try:
        if options.tls_cert and options.tls_key:
            pair = (Path(options.tls_key).read_bytes(), Path(options.tls_cert).read_bytes())
            return int(server.add_secure_port(address, grpc.ssl_server_credentials([pair])))
        return int(server.add_insecure_port(address))
    except (OSError, RuntimeError) as error:
        raise ServeError(
            "EDGE-SERVE-001",
            f"gRPC address {address}",
            wanted="one to listen on",
            got=str(error),
            hint="choose another --grpc-port, or end what listens there",
        ) from error


def _handlers(app: App) -> Any:
    import grpc

    calls, kinds, made = _Calls(app), messages(), {}
    for name in (kind.removesuffix("Request") for kind in kinds if kind.endswith("Request")):
        response = kinds[f"{name}Response"]
        # Of a stream of one message each: the library would read a single one, whatever its size,
        # before anybody could look at the key. On the wire both are the same.
        made[name] = grpc.stream_stream_rpc_method_handler(
            calls.guarded(name), response_serializer=response.SerializeToString
        )
    return grpc.method_handlers_generic_handler(SERVICE, made)


class _Calls:
    """Who answers each call; the names are the protocol's."""

    def __init__(self, app: App) -> None:
        self._app, self._service = app, app.service
        self._kinds = messages()
        # How long a message is, nobody says before it is there: half of the budget is for them.
        self._longest = _COPIES * _longest(app.options)
        half = app.options.inflight_mb * MB // 2
        self._receiving = asyncio.Semaphore(max(1, half // self._longest))

    def guarded(self, name: str) -> Callable[[Any, Any], Awaitable[None]]:
        """The call of a name: keys checked before it, errors made into gRPC's statuses."""

        async def call(_: Any, context: Any) -> None:
            given = {str(k).encode(): _bytes(v) for k, v in context.invocation_metadata() or ()}
            request_id, status, key = new_id(), "OK", ""
            began, span, attributes = time.monotonic(), None, {}
            held = RequestBytes(self._service.inflight)
            try:
                held.add(_WINDOW)
                if name not in _KEYLESS:
                    started = {"rpc.system": "grpc", "rpc.method": f"{SERVICE}/{name}"}
                    started["edgeserve.request_id"] = request_id
                    span = self._service.traces.begin(name, given, **started)
                    key = self._app.keys.check(given)
                message = None
                if name not in _KEYLESS:
                    message = await self._received(name, context, held)
                answer = await getattr(self, name)(message, context, request_id)
                await context.write(answer)
            except RequestRejected as error:
                forget_frames(error)
                status = _STATUS.get(error.status, "UNKNOWN")
                attributes = {"error.type": error.error.code}
                await self._abort(context, error, status)
            except Exception as error:
                status = "INTERNAL"
                self._app.log.fault(request_id, "", error)
                forget_frames(error)
                await self._abort(context, model_failed("of this request"), status)
            finally:
                held.release()
                self._count(name, request_id, status, key, began)
                ours = status in ("INTERNAL", "UNAVAILABLE", "UNKNOWN")
                self._service.traces.end(
                    span, ours, **attributes | {"rpc.response.status_code": status}
                )

        return call

    async def _received(self, name: str, context: Any, held: RequestBytes) -> Any:
        """The message of a call, read when there is room for the longest that it may be."""
        inflight, seconds = self._service.inflight, self._app.options.body_s
        seconds = min(seconds, max(0.05, self._deadline(context) - time.monotonic()))
        try:
            async with asyncio.timeout(seconds), self._receiving:
                with inflight.holding(self._longest):
                    data = await context.read()
        except TimeoutError:
            wanted = f"all of it within {seconds:g} s"
            raise rejected("EDGE-SERVE-015", "request body", wanted, "less") from None
        if not isinstance(data, bytes):
            raise protocol_error(oip.BadMessage("a call without a message"))
        if len(data) <= _WINDOW:
            return _parsed(self._kinds[f"{name}Request"], data)
        held.set(2 * len(data))
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(DECODERS, self._large, name, data, held)

    def _large(self, name: str, data: bytes, held: RequestBytes) -> Any:
        try:
            held.add(parsed_size(f"{name}Request", data))
        except oip.BadMessage as error:
            raise protocol_error(error) from error
        return _parsed(self._kinds[f"{name}Request"], data)

    def _count(self, name: str, request_id: str, status: str, key: str, began: float) -> None:
        self._service.metrics.requests.labels("", f"grpc:{name}", status).inc()
        if self._app.log.requests and name not in _KEYLESS:
            self._app.log.event(
                "request",
                request_id=request_id,
                route=f"grpc:{name}",
                key=key or None,
                status=status,
                ms=round(1e3 * (time.monotonic() - began), 3),
            )

    async def _abort(self, context: Any, error: RequestRejected, status: str) -> None:
        import grpc

        metadata = [(k.decode(), v.decode()) for k, v in error.headers()]
        context.set_trailing_metadata((*metadata, ("edgeserve-code", error.error.code)))
        await context.abort(grpc.StatusCode[status], error_line(error.error))

    async def ServerLive(self, message: Any, context: Any, request_id: str) -> Any:  # noqa: N802
        return self._kinds["ServerLiveResponse"](live=True)

    async def ServerReady(self, message: Any, context: Any, request_id: str) -> Any:  # noqa: N802
        return self._kinds["ServerReadyResponse"](ready=self._service.ready)

    async def ModelReady(self, message: Any, context: Any, request_id: str) -> Any:  # noqa: N802
        ready = self._service.model_ready(message.name, message.version or None)
        return self._kinds["ModelReadyResponse"](ready=ready)

    async def ServerMetadata(self, message: Any, context: Any, request_id: str) -> Any:  # noqa: N802
        return self._kinds["ServerMetadataResponse"](**self._service.metadata())

    async def ModelMetadata(self, message: Any, context: Any, request_id: str) -> Any:  # noqa: N802
        metadata = await self._service.model_metadata(message.name, message.version or None)
        metadata.pop("parameters")
        return self._kinds["ModelMetadataResponse"](**metadata)

    async def ModelInfer(self, message: Any, context: Any, request_id: str) -> Any:  # noqa: N802
        deadline = self._deadline(context)
        name, version = message.model_name, message.model_version or None
        self._service.precheck(name, deadline)
        answer, hosted, cold = await self._service.ask(
            request_id,
            name,
            version,
            lambda hosted: _read(message, hosted),
            write_infer_response,
            deadline,
        )
        metadata = [("x-model-id", hosted.model_id)]
        if cold:
            metadata.append(("x-cold-start-ms", str(round(cold))))
        context.set_trailing_metadata(tuple(metadata))
        return answer

    async def ModelStatistics(self, message: Any, context: Any, request_id: str) -> Any:  # noqa: N802
        statistics = self._service.statistics(message.name or None, message.version or None)
        return self._kinds["ModelStatisticsResponse"](**statistics)

    async def RepositoryIndex(self, message: Any, context: Any, request_id: str) -> Any:  # noqa: N802
        index = self._service.repository.index()
        if message.ready:
            index = [one for one in index if one["state"] == "READY"]
        return self._kinds["RepositoryIndexResponse"](models=index)

    async def RepositoryModelLoad(self, message: Any, context: Any, request_id: str) -> Any:  # noqa: N802
        await self._service.load(message.model_name, dict(message.parameters))
        return self._kinds["RepositoryModelLoadResponse"]()

    async def RepositoryModelUnload(self, message: Any, context: Any, request_id: str) -> Any:  # noqa: N802
        await self._service.unload(message.model_name)
        return self._kinds["RepositoryModelUnloadResponse"]()

    def _deadline(self, context: Any) -> float:
        options = self._service.options
        left: float | None = context.time_remaining()
        if left is None:
            return time.monotonic() + options.deadline_ms / 1e3
        return time.monotonic() + min(left, options.longest_deadline_ms / 1e3)


def _read(message: Any, hosted: LoadedModel) -> oip.InferRequest:
    try:
        return read_infer_request(message, {RAW: 1 << 16} | hosted.most)
    except oip.BadMessage as error:
        raise protocol_error(error) from error


def _parsed(kind: Any, data: bytes) -> Any:
    """A message out of its bytes; the library itself would tell the caller of a fault of ours."""
    from google.protobuf.message import DecodeError

    try:
        return kind.FromString(data)
    except DecodeError:
        raise protocol_error(oip.BadMessage("bytes that are no such message")) from None


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode("utf-8", "replace")
