"""`serve`: the endpoint as a process: ports, signals, and an end that drops nobody."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable
from typing import Any

from edgeserve.errors import ServeError
from edgeserve.serve.addresses import bind, check_before, no_tls
from edgeserve.serve.app import App
from edgeserve.serve.logs import Log
from edgeserve.serve.memory import keep, settle
from edgeserve.serve.options import Options

__all__ = ["Running", "serve"]

#: How long connections that were made and not used yet are kept at the end, seconds.
_LINGER_S = 0.25
_NEEDED = ("uvicorn", "httptools", "prometheus_client")


def serve(
    options: Options, log: Log | None = None, on_start: Callable[[Running], None] | None = None
) -> None:
    """Serve until SIGTERM or Ctrl-C, then drain.

    Args:
        options: Of the endpoint.
        log: Where events are told; None: standard error.
        on_start: Called once requests are answered.

    Raises:
        ServeError: EDGE-SERVE-001 a package is missing or an address cannot be had, -002 to -005,
            -027 a model is larger than the memory budget.
        EdgeError: a bundle cannot be opened.
    """
    _check_packages(options)
    runner = _runner()
    runner(_serve(options, log or Log(), on_start))


def _runner() -> Callable[[Any], None]:
    try:
        import uvloop
    except ModuleNotFoundError:  # Windows
        return asyncio.run
    return uvloop.run


def _check_packages(options: Options) -> None:
    from importlib.util import find_spec

    needed = [*_NEEDED, *(("grpc",) if options.grpc_port is not None else ())]
    if missing := [name for name in needed if find_spec(name) is None]:
        raise ServeError(
            "EDGE-SERVE-001",
            "endpoint",
            wanted="the packages of the extra `serve`",
            got=f"no {', '.join(missing)}",
            hint="pip install 'edgeserve[serve]'",
        )


class Running:
    """A running endpoint.

    Attributes:
        port: Of REST.
        grpc_port: Of gRPC; None: there is none.
        app: The application.
    """

    def __init__(self, app: App, port: int) -> None:
        self.app, self.port = app, port
        self.grpc_port: int | None = None
        self._end = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def end(self) -> None:
        """Begin the end; may be called from any thread, and twice."""
        self._loop.call_soon_threadsafe(self._end.set)

    async def ended(self) -> None:
        """Wait for `end`."""
        await self._end.wait()


async def _serve(options: Options, log: Log, on_start: Callable[[Running], None] | None) -> None:
    keep()
    app = App(options, log)
    check_before(options)
    listening = bind(options)
    try:
        await app.start()
        settle()
        running = Running(app, listening.getsockname()[1])
        _on_signals(running.end)
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(_rest(app, listening, options))
            if options.grpc_port is not None:
                from edgeserve.serve.grpc_server import listen

                running.grpc_port = await stack.enter_async_context(listen(app, options))
            log.event("serving", host=options.host, port=running.port, grpc_port=running.grpc_port)
            if on_start:
                on_start(running)
            await running.ended()
            app.service.draining = True
            log.event("draining", seconds=options.drain_s)
            await asyncio.sleep(options.drain_s)
    finally:
        listening.close()
    await app.stop()
    log.event("ended")


@contextlib.asynccontextmanager
async def _rest(app: App, listening: socket.socket, options: Options) -> Any:
    """Uvicorn on a socket of ours, without its own handling of signals and its own logs."""
    import uvicorn

    from edgeserve.serve.connection import Connection

    server = uvicorn.Server(
        uvicorn.Config(
            app,
            http=Connection,
            ws="none",
            lifespan="off",
            access_log=False,
            log_level="critical",
            log_config=None,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=60,
            backlog=2048,
            ssl_certfile=options.tls_cert,
            ssl_keyfile=options.tls_key,
        )
    )
    try:
        server.config.load()
    except (OSError, ValueError) as error:
        raise no_tls(str(error)) from error
    server.lifespan = server.config.lifespan_class(server.config)
    await server.startup(sockets=[listening])
    ticking = asyncio.ensure_future(server.main_loop())
    try:
        yield
    finally:
        # Who is connected may still ask: each answer asks for its connection to be closed.
        for one in server.servers:
            one.close()
        await _gone(server, _LINGER_S)
        server.should_exit = True
        await ticking
        await server.shutdown(sockets=[listening])


async def _gone(server: Any, seconds: float) -> None:
    """Wait until nobody is connected, at most so long."""
    end = asyncio.get_running_loop().time() + seconds
    while server.server_state.connections and asyncio.get_running_loop().time() < end:
        await asyncio.sleep(0.01)


def _on_signals(end: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        # Elsewhere than in the main thread (tests), whoever started the endpoint ends it.
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(number, end)
