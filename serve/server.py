"""`serve`: the endpoint as a process.

Addresses, certificates, memory, signals, and an end that drops nobody.

Addresses and certificates are tried before a model is loaded, which takes long. The process
holds freed memory back, so that a request does not wait for its pages.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import functools
import gc
import os
import platform
import signal
import socket
import ssl
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from edgeserve.errors import ServeError
from edgeserve.installation import install_command
from edgeserve.serve.app import App
from edgeserve.serve.options import ServeOptions
from edgeserve.serve.telemetry import Log, captured_stderr

if TYPE_CHECKING:
    from edgeserve.serve.connection import ConnectionLimits

#: How long connections that were made and not used yet are kept at the end, seconds.
_LINGER_S = 0.25
#: For so long the endpoint answers new requests after it was told to end, seconds: load balancers
#: see meanwhile that it is not ready.
_NOTICE_S = 1.0
#: After the time to drain, what does not end is left; the process ends so much later at the latest.
_FORCE_S = 1.5
_MOST_CONNECTIONS = 4096
#: Bytes in flight after which freed memory is given back.
_MUCH = 16 << 20
_NEEDED = ("uvicorn", "httptools", "prometheus_client")


def serve(
    options: ServeOptions,
    log: Log | None = None,
    on_start: Callable[[RunningServer], None] | None = None,
) -> None:
    """Serve until SIGTERM or Ctrl-C, then drain.

    Args:
        options: Of the endpoint.
        log: Where events are told; None: standard error.
        on_start: Called once requests are answered.

    Raises:
        ServeError: EDGE-SERVE-001 a package is missing or an address cannot be had, -002 to -005,
            -006 others can reach it without a key, -027 a model is larger than the memory budget.
        EdgeError: a bundle cannot be opened.
    """
    _check_packages(options)
    options.check_access()
    run: Callable[[Any], None] = asyncio.run
    with contextlib.suppress(ModuleNotFoundError):  # Windows has none
        import uvloop

        run = uvloop.run
    with contextlib.nullcontext(log) if log else captured_stderr() as events:
        run(_serve(options, events, on_start))


def _check_packages(options: ServeOptions) -> None:
    from importlib.util import find_spec

    needed = [*_NEEDED, *(("grpc",) if options.grpc_port is not None else ())]
    if missing := [name for name in needed if find_spec(name) is None]:
        raise ServeError(
            "EDGE-SERVE-001",
            "endpoint",
            wanted="the packages of the extra `serve`",
            got=f"no {', '.join(missing)}",
            hint=install_command("serve"),
        )


class RunningServer:
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
        self._until = 0.0

    def end(self) -> None:
        """Begin the end; may be called from any thread, and twice."""
        self._loop.call_soon_threadsafe(self._end.set)

    async def ended(self) -> None:
        """Wait for `end`; from then on `left` is finite."""
        await self._end.wait()
        self._until = self._loop.time() + self.app.options.drain_s

    def left(self) -> float:
        """Seconds for what runs to finish: at least a moment, to say that it will not."""
        return max(0.1, self._until - self._loop.time())


async def _serve(
    options: ServeOptions, log: Log, on_start: Callable[[RunningServer], None] | None
) -> None:
    tune_malloc()
    app = App(options, log)
    check_addresses(options)
    listening = bind(options)
    try:
        await app.start()
        freeze_gc()
        running = RunningServer(app, listening.getsockname()[1])
        _on_signals(running.end)
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(_rest(running, listening, log))
            if options.grpc_port is not None:
                from edgeserve.serve.grpc_server import listen

                running.grpc_port = await stack.enter_async_context(listen(running))
            log.event("serving", host=options.host, port=running.port, grpc_port=running.grpc_port)
            if on_start:
                on_start(running)
            await running.ended()
            app.service.draining = True
            log.event("draining", seconds=options.drain_s)
            force = _end_by_force(options.drain_s + _FORCE_S)
            await asyncio.sleep(min(_NOTICE_S, options.drain_s))
            app.service.repository.stop_loads()  # whoever waits for one is answered
    finally:
        listening.close()
    try:
        left = running.left()
        await asyncio.wait_for(app.stop(left), left + 0.5)
        force.cancel()
    except TimeoutError:
        log.event("unfinished", seconds=options.drain_s)
    log.event("ended")


def _end_by_force(seconds: float) -> threading.Timer:
    """End the process then, whatever still runs: threads that do not end cannot be waited for."""
    timer = threading.Timer(seconds, os._exit, (0,))
    timer.daemon = True
    if threading.current_thread() is threading.main_thread():  # the process is this endpoint's
        timer.start()
    return timer


@contextlib.asynccontextmanager
async def _rest(running: RunningServer, listening: socket.socket, log: Log) -> Any:
    """Uvicorn on a socket of ours, without its own handling of signals and its own logs."""
    import uvicorn

    from edgeserve.serve.connection import Connection, ConnectionLimits

    app, options = running.app, running.app.options
    limits = ConnectionLimits(app.service.inflight, max_connections(), options.body_s)
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            http=functools.partial(Connection, limits=limits),  # type: ignore[arg-type]
            ws="none",
            lifespan="off",
            access_log=False,
            log_level="critical",
            log_config=None,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_keep_alive=75,
            backlog=2048,
            ssl_certfile=options.tls_cert,
            ssl_keyfile=options.tls_key,
        )
    )
    try:
        server.config.load()
    except (OSError, ValueError) as error:
        raise tls_error(str(error)) from error
    server.lifespan = server.config.lifespan_class(server.config)
    await server.startup(sockets=[listening])
    ticking = asyncio.ensure_future(server.main_loop())
    tending = asyncio.ensure_future(_tend(limits, log))
    try:
        yield
    finally:
        # Who is connected may still ask: each answer asks for its connection to be closed.
        for one in server.servers:
            one.close()
        await _until_disconnected(server, min(_LINGER_S, running.left()))
        server.should_exit = True
        await ticking
        server.config.timeout_graceful_shutdown = running.left()  # type: ignore[assignment]
        await server.shutdown(sockets=[listening])
        for connection in list(limits.open):  # whose clients do not read their answers
            connection.transport.abort()
        tending.cancel()


async def _tend(limits: ConnectionLimits, log: Log) -> None:
    """Once a second: give memory back after large requests, and tell of refused connections."""
    inflight, loop = limits.inflight, asyncio.get_running_loop()
    while True:
        await asyncio.sleep(1.0)
        if inflight.peak > _MUCH > inflight.held:
            inflight.peak = inflight.held
            await loop.run_in_executor(None, _trim_malloc)
        if limits.refused:
            log.event("connections_full", most=limits.most, refused=limits.refused)
            limits.refused = 0
            await asyncio.sleep(9.0)


def max_connections() -> int:
    """HTTP connections at a time: each costs a descriptor, and models and gRPC need some too."""
    with contextlib.suppress(ImportError, OSError):  # Windows has no such limit
        import resource

        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return max(16, min(_MOST_CONNECTIONS, most - max(64, most // 4)))
    return _MOST_CONNECTIONS


async def _until_disconnected(server: Any, seconds: float) -> None:
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


def check_addresses(options: ServeOptions) -> None:
    """Find out now what would end the endpoint after its models were loaded.

    Raises:
        ServeError: EDGE-SERVE-005 the certificate and its key; -001 the address of gRPC.
    """
    if options.tls_cert and options.tls_key:
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(options.tls_cert, options.tls_key, password=_no_password)
        except (OSError, ValueError) as error:
            raise tls_error(str(error)) from error
    if options.grpc_port:
        _bind_socket(options.host, options.grpc_port, "--grpc-port").close()


def bind(options: ServeOptions) -> socket.socket:
    """A socket that listens for REST.

    Raises:
        ServeError: EDGE-SERVE-001, the address cannot be had.
    """
    listening = _bind_socket(options.host, options.port, "--port")
    listening.listen(2048)
    listening.setblocking(False)
    return listening


def tls_error(got: str) -> ServeError:
    """The coded error for a pair that is none."""
    return ServeError(
        "EDGE-SERVE-005",
        "TLS",
        got=got,
        wanted="a certificate chain and its key in PEM, without a password",
        hint="check --tls-cert and --tls-key with `openssl x509 -in FILE -noout`",
    )


def _no_password() -> str:
    """A server has nobody to ask for a password."""
    raise ValueError("the key is protected by a password")


def _bind_socket(host: str, port: int, option: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    one = socket.socket(family, socket.SOCK_STREAM)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        one.bind((host, port))
        one.listen(1)  # two may bind in some systems, and only one may listen
    except OSError as error:
        one.close()
        raise ServeError(
            "EDGE-SERVE-001",
            f"address {host} port {port}",
            wanted="one to listen on",
            got=str(error),
            hint=_bind_hint(error, option),
        ) from error
    return one


def _bind_hint(error: OSError, option: str) -> str:
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return "--host is an address of this machine: 127.0.0.1, or 0.0.0.0 for all that it has"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"choose another {option}: those below 1024 want a privileged user"
    return f"choose another {option}, or end what listens there"


#: Of ``mallopt``: what lies free at the end of the heap before it is given back, and the length of
#: a block from which it is asked of the system alone; bytes.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = (-1, 64 << 20), (-3, 16 << 20)
#: Heaps: with one for each thread, what one has freed is of no use to the others.
_ARENA_MAX = (-8, 1)


def tune_malloc() -> bool:
    """Keep some freed memory for the next request; whether the C library here knows how.

    A body, its numbers and the answer are megabytes that come and go with each request. By itself
    the C library gives them back each time, and the system hands them out again page by page, each
    zeroed: half of what a request of 588 KB costs.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return all(mallopt(*option) == 1 for option in (_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX))


def _trim_malloc() -> None:
    """Give freed memory back to the system, where the C library here knows how."""
    gc.collect()
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)


def freeze_gc() -> None:
    """Leave what was loaded out of later garbage collections: they hold the loop for 10 ms."""
    gc.collect()
    gc.freeze()
