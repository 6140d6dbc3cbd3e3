"""A small model behind the endpoint: called as an ASGI application, or over real sockets."""

from __future__ import annotations

import asyncio
import io
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from testkit.modules import load

from edgeserve.serve import App, ServeOptions
from edgeserve.serve.server import RunningServer, serve
from edgeserve.serve.telemetry import Log


@pytest.fixture(scope="session")
def models() -> ModuleType:
    """The module that makes the Wrapper's test models."""
    path = Path(__file__).parents[1] / "wrapper" / "conftest.py"
    return load(path, "serve_models")


@pytest.fixture(scope="session")
def maker(models: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("served")
    return models.Make(folder, lambda workspace: None)


@pytest.fixture(scope="session")
def tagger(maker: Any) -> str:
    """A workspace of the classifier."""
    return str(maker.workspace())


@pytest.fixture(scope="session")
def raw_only(maker: Any) -> str:
    """A workspace of a model without processing, called otherwise."""
    from edgeserve.types.processing import Processing

    return str(maker.workspace(golden=False, task="tensors", processing=Processing(), labels=()))


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Asgi:
    """An application and the loop that it lives in."""

    app: App
    log: io.StringIO
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)

    def run(self, made: Any) -> Any:
        return self.loop.run_until_complete(asyncio.wait_for(made, 60))

    def close(self) -> None:
        self.run(self.app.stop())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()

    def call(
        self,
        method: str,
        path: str | bytes,
        body: bytes | list[bytes] = b"",
        headers: dict[str, str] | None = None,
    ) -> Reply:
        return self.run(self.ask(method, path, body, headers))

    async def ask(
        self,
        method: str,
        path: str | bytes,
        body: bytes | list[bytes] = b"",
        headers: dict[str, str] | None = None,
    ) -> Reply:
        raw = path if isinstance(path, bytes) else path.encode()
        pieces = body if isinstance(body, list) else [body]
        given = {"content-length": str(sum(map(len, pieces)))} | (headers or {})
        scope = {
            "type": "http",
            "method": method,
            "path": raw.decode("latin-1"),
            "raw_path": raw,
            "headers": [
                (k.lower().encode("latin-1"), v.encode("latin-1")) for k, v in given.items()
            ],
        }
        messages = [
            {"type": "http.request", "body": piece, "more_body": i + 1 < len(pieces)}
            for i, piece in enumerate(pieces)
        ]
        sent: list[Any] = []

        async def receive() -> Any:
            return messages.pop(0) if messages else {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        start, *bodies = sent
        lines = {k.decode(): v.decode() for k, v in start["headers"]}
        return Reply(start["status"], lines, b"".join(b["body"] for b in bodies))


def build(*bundles: str, start: bool = True, **options: Any) -> Asgi:
    log = io.StringIO()
    fixed = {"threads": 1, "workers": 1} | options
    one = Asgi(App(ServeOptions(bundles=bundles, **fixed), Log(log)), log)
    if start:
        one.run(one.app.start())
    return one


@pytest.fixture(scope="session")
def bare_app() -> Callable[..., Asgi]:
    """As `asgi`, for fixtures that live longer than a test; to be closed."""
    return build


@pytest.fixture
def asgi() -> Iterator[Callable[..., Asgi]]:
    """``asgi(bundle, ..., option=...)``: an application whose models are loaded."""
    made: list[Asgi] = []

    def one(*bundles: str, **given: Any) -> Asgi:
        made.append(build(*bundles, **given))
        return made[-1]

    yield one
    for each in made:
        each.close()


@dataclass
class Live:
    """An endpoint on real sockets, in a thread."""

    running: RunningServer
    log: io.StringIO
    thread: threading.Thread

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.running.port}"

    @property
    def grpc_address(self) -> str:
        return f"127.0.0.1:{self.running.grpc_port}"

    def end(self) -> None:
        if self.thread.is_alive():
            self.running.end()
            self.thread.join(30)
            assert not self.thread.is_alive(), "the endpoint did not end"


def start_live(*bundles: str, **options: Any) -> Live:
    """An endpoint that listens on a free port; to be ended."""
    started, found, log = threading.Event(), [], io.StringIO()
    failed: list[BaseException] = []

    def on_start(running: RunningServer) -> None:
        found.append(running)
        started.set()

    def run() -> None:
        fixed = {"threads": 1, "workers": 1, "drain_s": 0.0, "port": 0} | options
        try:
            serve(ServeOptions(bundles=bundles, **fixed), Log(log), on_start)
        except BaseException as error:
            failed.append(error)
            started.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert started.wait(60)
    if failed:
        raise failed[0]
    return Live(found[0], log, thread)


@pytest.fixture(scope="session")
def lasting_live() -> Callable[..., Live]:
    """As `live`, for fixtures that live longer than a test; to be ended."""
    return start_live


@pytest.fixture
def live() -> Iterator[Callable[..., Live]]:
    """``live(bundle, ..., option=...)``: an endpoint that listens on a free port."""
    made: list[Live] = []

    def start(*bundles: str, **options: Any) -> Live:
        made.append(start_live(*bundles, **options))
        return made[-1]

    yield start
    for one in made:
        one.end()
