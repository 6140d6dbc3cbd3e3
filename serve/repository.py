"""`Repository`: the models of an endpoint: loaded, evicted for others, or swapped while in use."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import Any

from edgeserve.bundle.manifest import MANIFEST
from edgeserve.errors import EdgeError, ServeError
from edgeserve.serve.loaded_model import LoadedModel, load_model
from edgeserve.serve.memory_budget import MemoryBudget, ModelSlot, name_and_size
from edgeserve.serve.options import MB, ServeOptions
from edgeserve.serve.request_errors import RequestRejected, rejected
from edgeserve.serve.telemetry import Log
from edgeserve.serve.threads import DaemonThreads

#: Loads that were stopped and whose threads hang in the system, beside one load of each model.
_MOST_STUCK = 64


class Repository:
    """Models by name, under a memory budget.

    Only the event loop's thread may use it; models are opened in another.

    Args:
        options: Of the endpoint.
        log: Where loads and evictions are told.
        on_change: Called with "loads" or "evictions" and the model's name.
        opener: Opens a bundle, and stops once its event is set; for tests.
    """

    def __init__(
        self,
        options: ServeOptions,
        log: Log,
        on_change: Callable[[str, str], None] = lambda kind, name: None,
        opener: Callable[[str, ServeOptions, threading.Event], LoadedModel] = load_model,
    ) -> None:
        self._options, self._log, self._changed, self._open = options, log, on_change, opener
        self._ended = asyncio.Event()
        self._opening: set[Future[LoadedModel]] = set()
        self.places: dict[str, ModelSlot] = {}
        self._room = MemoryBudget(options.memory_mb, options.pinned, self.places, self._evicted)
        for path in options.bundles:
            name, least = name_and_size(path)
            if name in self.places:
                raise ServeError(
                    "EDGE-SERVE-003",
                    f"model {name}",
                    wanted="one bundle of each name",
                    got="two",
                    hint="package one of them again with another --name",
                )
            self.places[name] = ModelSlot(name, path, measured=least)
            self._room.check(name, least)
        self._loads = DaemonThreads(len(self.places) + _MOST_STUCK, "edgeserve-load")
        if other := [name for name in options.pinned if name not in self.places]:
            raise ServeError(
                "EDGE-SERVE-002",
                f"option pin {other[0]}",
                got="no model of that name is served",
                wanted=f"models of {', '.join(self.places)}",
                hint="a model's name is the one in its bundle: `edgeserve inspect` shows it",
            )

    async def start(self) -> None:
        """Load what is to be loaded at the start.

        Raises:
            EdgeError: a bundle cannot be opened.
        """
        if self._options.lazy:
            return
        try:
            for place in self.places.values():
                await self._ensure(place)
        except RequestRejected as refusal:
            raise refusal.error from None

    @property
    def ready(self) -> bool:
        """Whether each model is loaded, or may be at its first request."""
        wanted = [place for place in self.places.values() if place.wanted]
        return all(p.hosted or (self._options.lazy and not p.trouble) for p in wanted)

    def place(self, name: str, version: str | None = None) -> ModelSlot:
        """The model of a name.

        Raises:
            RequestRejected: EDGE-SERVE-017, there is none, or not of this version.
        """
        place = self.places.get(name)
        if place is None or (version and place.hosted and place.hosted.version != version):
            named = f"model {name[:60]!r}" + (f" version {version[:20]!r}" if version else "")
            wanted = "a model of this endpoint"
            raise rejected("EDGE-SERVE-017", named, wanted, "none of that name")
        return place

    @asynccontextmanager
    async def use(
        self, name: str, version: str | None = None
    ) -> AsyncIterator[tuple[LoadedModel, float]]:
        """Hold a model while the block runs; also the milliseconds that loading it took just now.

        Raises:
            RequestRejected: EDGE-SERVE-017 unknown, -018 not loaded, -027 no room for it.
        """
        place = self.place(name, version)
        cold = 0.0
        if place.hosted is None:
            cold = await self._on_demand(place)
            self.place(name, version)
        hosted = place.hosted
        if hosted is None:
            raise _not_ready(place)
        with hosted.held():
            yield hosted, cold

    async def _on_demand(self, place: ModelSlot) -> float:
        if not place.wanted or not (self._options.lazy or self._options.memory_mb):
            raise _not_ready(place)
        began = time.monotonic()
        try:
            await self._ensure(place)
        except RequestRejected:
            raise
        except EdgeError as error:
            raise _not_ready(place) from error
        return 1e3 * (time.monotonic() - began)

    async def load(self, name: str) -> None:
        """Load a model, or in place of it what lies at its path by now; requests go on meanwhile.

        A load of what lay there before is stopped.

        Raises:
            RequestRejected: EDGE-SERVE-017 unknown; -018 it cannot be loaded: the old one stays.
        """
        place = self.place(name)
        if place.opening is not None and place.loading != _file_state(place.path):
            place.stop_load()
        place.wanted = True
        try:
            await self._ensure(place, again=True)
        except EdgeError as error:
            if place.hosted is not None:
                raise _not_replaced(place, place.hosted, error) from error
            raise _not_ready(place) from error

    async def unload(self, name: str) -> None:
        """Put a model out; requests that hold it are still answered (errors as `load`)."""
        place = self.place(name)
        place.stop_load()
        self._room.evict(place)

    def index(self) -> list[dict[str, Any]]:
        """As the repository extension has it."""
        return [
            {
                "name": p.name,
                "version": p.hosted.version if p.hosted else "",
                "state": "READY" if p.hosted else "UNAVAILABLE",
                "reason": p.trouble.code if p.trouble else "" if p.hosted else "not loaded",
            }
            for p in self.places.values()
        ]

    def loaded(self) -> list[LoadedModel]:
        """The models that are open."""
        return [place.hosted for place in self.places.values() if place.hosted]

    def stop_loads(self) -> None:
        """End what is being loaded, and load nothing more."""
        for place in self.places.values():
            place.stop_load()

    async def drain(self, seconds: float = 1.0) -> None:
        """Stop what is being loaded, wait so long for what runs, then close everything."""
        self.stop_loads()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._idle(), seconds)
        self._loads.shutdown()
        for place in self.places.values():
            self._room.evict(place)

    async def _idle(self) -> None:
        while self._opening:  # a trial that was stopped is not to be taken for a crash
            await asyncio.sleep(0.01)
        for hosted in self.loaded():
            await hosted.admission.idle()

    async def _ensure(self, place: ModelSlot, again: bool = False) -> None:
        async with place.lock:
            if place.hosted and not again:
                return
            if not place.wanted:
                raise _stopped(place)
            place.stop = threading.Event()
            try:
                await self._make_room(place)
                hosted = await self._opened(place)
                if over := self._room.account(place, hosted):
                    self._log.event("over_budget", model=place.name, memory_mb=round(over / MB))
            finally:
                place.pending = 0
                self._ended.set()
            old, place.hosted, place.trouble = place.hosted, hosted, None
            self._changed("loads", place.name)
            self._log.event(
                "load",
                model=place.name,
                version=hosted.version,
                model_id=hosted.model_id,
                ms=round(hosted.cold_ms),
                threads=hosted.plan.threads,
                workers=hosted.plan.workers,
                memory_mb=round(hosted.memory / MB),
            )
            if old is not None:
                old.retire()

    async def _make_room(self, place: ModelSlot) -> None:
        """Reserve what a model takes; another load that is under way may leave room as it ends."""
        while True:
            self._ended.clear()
            try:
                return self._room.make(place)
            except RequestRejected:
                if not any(other.pending for other in self.places.values()):
                    raise
                await self._ended.wait()

    def _evicted(self, oldest: ModelSlot, place: ModelSlot) -> None:
        self._changed("evictions", oldest.name)
        self._log.event("evict", model=oldest.name, for_model=place.name)

    async def _opened(self, place: ModelSlot) -> LoadedModel:
        try:
            hosted = await self._in_thread(place)
        except EdgeError as error:
            place.trouble = _stopped(place) if place.stop.is_set() else error
            told = f"{place.trouble.code} {place.trouble.message}"
            self._log.event("load_failed", model=place.name, error=told)
            raise place.trouble from error
        if hosted.name != place.name:
            hosted.retire()
            raise ServeError(
                "EDGE-SERVE-018",
                f"model {place.name}",
                wanted="a bundle of that name",
                got=f"bundle now contains model {hosted.name}",
                hint="restore the bundle of that model at its path",
            )
        return hosted

    async def _in_thread(self, place: ModelSlot) -> LoadedModel:
        """Open a model; who stops waiting for it also stops the load."""
        if place.stop.is_set():
            raise _stopped(place)
        place.loading = _file_state(place.path)
        opening = self._loads.submit(self._open, place.path, self._options, place.stop)
        self._opening.add(opening)
        opening.add_done_callback(self._opening.discard)
        place.opening = asyncio.wrap_future(opening)
        try:
            return await place.opening
        except asyncio.CancelledError:
            opening.add_done_callback(_retire)
            if place.stop.is_set():
                raise _stopped(place) from None
            place.stop.set()
            raise
        finally:
            place.opening = None


def _file_state(path: str) -> tuple[tuple[int, ...], ...]:
    """What changes when another bundle or workspace is put at a path."""
    found = []
    for each in (path, os.path.join(path, MANIFEST)):
        with contextlib.suppress(OSError):
            state = os.stat(each)
            found.append((state.st_ino, state.st_mtime_ns, state.st_size))
    return tuple(found)


def _retire(opening: Future[LoadedModel]) -> None:
    if not opening.cancelled() and not opening.exception():
        opening.result().retire()


def _stopped(place: ModelSlot) -> ServeError:
    wanted, got = "to be loaded", "an unload, another bundle or the end of the endpoint meanwhile"
    hint = f"POST /v2/repository/models/{place.name}/load"
    return ServeError("EDGE-SERVE-018", f"model {place.name}", wanted=wanted, got=got, hint=hint)


def _not_ready(place: ModelSlot) -> RequestRejected:
    failed = place.trouble and f"one that could not be loaded ({place.trouble.code})"
    hint = f"POST /v2/repository/models/{place.name}/load, and see the endpoint's log"
    got = failed or "one that is not loaded"
    return rejected("EDGE-SERVE-018", f"model {place.name}", "a loaded model", got, hint=hint)


def _not_replaced(place: ModelSlot, old: LoadedModel, error: EdgeError) -> RequestRejected:
    """The old one goes on answering: whoever asked for the load must not think that it is gone."""
    wanted = "the new bundle to be loaded"
    got = (
        f"it could not be ({error.code}): the old one, version {old.version}, model_id"
        f" {old.model_id[:12]}, goes on answering"
    )
    return rejected("EDGE-SERVE-018", f"model {place.name}", wanted, got)
