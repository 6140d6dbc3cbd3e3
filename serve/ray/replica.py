"""`ModelReplica`: what runs in a replica.

The endpoint's ASGI application, the very one that `serve` runs, called in memory.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from edgeserve.errors import EdgeError, InputError
from edgeserve.processing.steps.decode import Decode, Raw, decode
from edgeserve.serve.app import App
from edgeserve.serve.inference import raw_answers
from edgeserve.serve.loaded_model import LoadedModel
from edgeserve.serve.ray.options import RayOptions
from edgeserve.serve.request_errors import RequestRejected, error_body, rejection_of
from edgeserve.types.base import encode
from edgeserve.types.records import Tensors

Headers = Sequence[tuple[bytes, bytes]]
_Application = Callable[[MutableMapping[str, Any], Any, Any], Awaitable[None]]


class ReplicaReply(NamedTuple):
    """What an application answered, headers in lower case."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes

    def header(self, name: bytes) -> bytes:
        """The value of a header; empty: it is not there."""
        return dict(self.headers).get(name, b"")


async def call_app(
    app: _Application, method: str, path: bytes, headers: Headers, body: bytes
) -> ReplicaReply:
    """Send one request, whole, and collect the answer."""
    scope = {
        "type": "http",
        "method": method,
        "path": path.decode("latin-1"),
        "raw_path": path,
        "headers": list(headers),
        "query_string": b"",
    }
    sent: list[MutableMapping[str, Any]] = []
    given = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> MutableMapping[str, Any]:
        return given.pop() if given else {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    start, *pieces = sent
    whole = b"".join(piece.get("body", b"") for piece in pieces)
    return ReplicaReply(start["status"], tuple(start["headers"]), whole)


Box = Sequence[float]


class ModelReplica:
    """A replica's models. Ray makes it in the replica and calls it by its handle.

    Args:
        scale: Of the application.
        paths: Bundles by the name of their model: those that this deployment answers for.
    """

    # Ray waits for it: the models are loaded once the replica counts as started.
    async def __init__(self, scale: RayOptions, paths: Mapping[str, str]) -> None:  # type: ignore[misc]
        self._scale, self._paths = scale, dict(paths)
        self._all: App | None = None
        self._load: Callable[[str], Awaitable[_CachedApp]] | None = None
        if scale.models_per_replica:
            from ray import serve

            # Ray writes on what it wraps, which a method does not let it do.
            async def load(name: str) -> _CachedApp:
                return await self._open(name)

            self._load = serve.multiplexed(
                load, max_num_models_per_replica=scale.models_per_replica
            )
        else:
            self._all = App(scale.endpoint(tuple(self._paths.values())))
            await self._all.start()

    async def _open(self, name: str) -> _CachedApp:
        app = App(self._scale.endpoint((self._paths[name],)))
        await app.start()
        return _CachedApp(app)

    async def _app(self, name: str) -> App:
        if self._load is None:
            assert self._all is not None
            return self._all
        return (await self._load(name)).app

    async def check_health(self) -> None:
        """Ray asks now and then, and puts another in the place of a replica that raises."""
        if self._all is not None and not self._all.service.ready:
            raise RuntimeError("a model of this replica is not loaded")

    async def ask(
        self, name: str, method: str, path: bytes, headers: Headers, body: bytes
    ) -> ReplicaReply:
        """One request to one model."""
        reply = await call_app(await self._app(name), method, path, headers, body)
        if reply.status == 503 and b"EDGE-SERVE-018" in reply.body and self._load is not None:
            # It was put out for another between the load and the use of it.
            reply = await call_app(await self._app(name), method, path, headers, body)
        return reply

    async def crops(
        self, name: str, request_id: str, photo: bytes, boxes: Sequence[Box], deadline_ms: float
    ) -> ReplicaReply:
        """A model's answer to each box of a photo, as a JSON list of what `predict` answers.

        Args:
            name: Of the model.
            request_id: For the log.
            photo: Encoded.
            boxes: xyxy in pixels of the upright photo.
            deadline_ms: Time left.
        """
        app, deadline = await self._app(name), time.monotonic() + deadline_ms / 1e3
        try:
            async with app.service.repository.use(name) as (hosted, _):
                job = partial(_answer_crops, hosted, photo, boxes)
                ran = await hosted.admission.run(job, deadline)
        except (RequestRejected, EdgeError) as error:
            if not isinstance(error, RequestRejected | InputError):
                app.log.fault(request_id, name, error)
            return _rejection_reply(rejection_of(error, name), request_id)
        model_id = (b"x-model-id", hosted.model_id.encode())
        return ReplicaReply(200, ((b"content-type", b"application/json"), model_id), ran.result)


class _CachedApp:
    """A model that Ray keeps among those used last; it closes when Ray lets go of it."""

    def __init__(self, app: App) -> None:
        self.app = app
        self._loop = asyncio.get_running_loop()
        self._open = True

    def __del__(self) -> None:
        # Called by Ray in another thread, and once more at the very end.
        if self._open and not self._loop.is_closed():
            self._open = False
            asyncio.run_coroutine_threadsafe(self.app.stop(), self._loop)


def _rejection_reply(error: RequestRejected, request_id: str) -> ReplicaReply:
    headers = ((b"content-type", b"application/json"), *error.headers())
    return ReplicaReply(error.status, headers, error_body(error.error, request_id))


def _answer_crops(hosted: LoadedModel, photo: bytes, boxes: Sequence[Box]) -> bytes:
    steps = [each for way in hosted.manifest.processing.inputs for each in way.steps]
    picture = decode(next((each for each in steps if isinstance(each, Decode)), Decode()), photo)
    parts: list[Raw] = [np.asarray(picture.crop(_pixel_box(box, picture.size))) for box in boxes]
    records, _ = raw_answers(hosted, parts)
    about = {"model_name": hosted.name, "model_version": hosted.version}
    about["model_id"] = hosted.model_id
    answers = [
        about | {"answer": dict(r) if isinstance(r, Tensors) else r, "ran_on": hosted.ran_on}
        for r in records
    ]
    return encode(answers)


def _pixel_box(box: Box, size: tuple[int, int]) -> tuple[int, int, int, int]:
    """The pixels that a box touches, at least one."""
    (width, height), (left, top, right, bottom) = size, box
    x, y = min(max(0, math.floor(left)), width - 1), min(max(0, math.floor(top)), height - 1)
    right, bottom = max(x + 1, math.ceil(right)), max(y + 1, math.ceil(bottom))
    return x, y, min(right, width), min(bottom, height)
