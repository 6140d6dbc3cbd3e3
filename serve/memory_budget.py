"""`MemoryBudget`: which model is evicted for another, and which fits in no case."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from edgeserve.bundle import open_model
from edgeserve.errors import EdgeError
from edgeserve.serve.loaded_model import LoadedModel, min_memory
from edgeserve.serve.options import MB
from edgeserve.serve.request_errors import RequestRejected, rejected


@dataclass
class ModelSlot:
    """One model's name, and what stands behind it.

    Attributes:
        path: Where its bundle lies; requests can never name a path.
        hosted: The open model; None: not loaded.
        wanted: Whether it may be loaded by a request (False after an unload).
        trouble: Why it could not be loaded.
        measured: The most that it was found to take, bytes: kept when it is evicted, since a model
            that is loaded again finds the room it left and seems to take none.
        pending: Bytes that are reserved for it while it is being loaded.
        lock: Held while it is being loaded, so that it is loaded once.
        stop: Ends the load that is under way once it is set.
        opening: That load; None: there is none.
        loading: The state of the file that it opens.
    """

    name: str
    path: str
    hosted: LoadedModel | None = None
    wanted: bool = True
    trouble: EdgeError | None = None
    measured: int = 0
    pending: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    stop: threading.Event = field(default_factory=threading.Event)
    opening: asyncio.Future[LoadedModel] | None = None
    loading: tuple[tuple[int, ...], ...] = ()

    def stop_load(self) -> None:
        """End the load that is under way, and wait for none of its thread."""
        self.wanted = False
        self.stop.set()
        if self.opening is not None:
            self.opening.cancel()


class MemoryBudget:
    """Keeps the loaded models within a budget.

    What a model takes is its weights' files at the least, a copy a session, and what the process
    of its trial grew by, where that is more. A model is refused by its files alone, which are
    certain; the growth, an estimate with the runtime's own share in it, puts others out.

    Args:
        budget_mb: What all loaded models may take; None: no limit.
        pinned: Names of models that are never evicted.
        places: The models by name.
        on_evict: Called with the evicted model and the model that needs its memory.
    """

    def __init__(
        self,
        budget_mb: int | None,
        pinned: Sequence[str],
        places: Mapping[str, ModelSlot],
        on_evict: Callable[[ModelSlot, ModelSlot], None],
    ) -> None:
        self._mb, self._pinned, self._places = budget_mb, pinned, places
        self._on_evict = on_evict

    def check(self, name: str, least: int) -> None:
        """Refuse a model that is larger than the whole budget.

        Raises:
            ServeError: EDGE-SERVE-027.
        """
        if self._mb is not None and least > self._mb * MB:
            raise _too_large(name, least, self._mb).error

    def make(self, place: ModelSlot) -> None:
        """Put out what was used longest ago, until there is room for one more.

        Raises:
            RequestRejected: EDGE-SERVE-027, who is left is in use or pinned.
        """
        if self._mb is None:
            return
        try:
            least = name_and_size(place.path)[1]
        except EdgeError:
            return  # opening it says what is wrong with it
        self._evict_for(place, max(least, place.measured))
        self._fits(place, least)
        place.pending = max(least, place.measured)

    def account(self, place: ModelSlot, hosted: LoadedModel) -> int:
        """Hold what was just opened to the budget, by what it really takes.

        Returns:
            Bytes of all loaded models where they are above the budget by the estimate; else 0.

        Raises:
            RequestRejected: EDGE-SERVE-027, it does not fit and is closed again.
        """
        if place.hosted is not None and place.hosted.model_id != hosted.model_id:
            place.measured = 0  # of another model
        hosted.memory = place.measured = max(hosted.memory, place.measured)
        if self._mb is None:
            return 0
        self._evict_for(place, hosted.memory)
        try:
            self._fits(place, hosted.least)
        except BaseException:
            hosted.retire()
            raise
        taken = self._others(place) + hosted.memory
        return taken if taken > self._mb * MB else 0

    def evict(self, place: ModelSlot) -> None:
        """Close a model once no request holds it."""
        hosted, place.hosted = place.hosted, None
        if hosted is not None:
            hosted.retire()

    def _fits(self, place: ModelSlot, least: int) -> None:
        most = (self._mb or 0) * MB
        if least > most:
            raise _too_large(place.name, least, self._mb or 0)
        if self._others(place) + least > most:
            thing, got = f"model {place.name}", "others that are in use or pinned"
            wanted = "room within the memory budget"
            raise rejected("EDGE-SERVE-027", thing, wanted, got, retry_after=1.0)

    def _others(self, place: ModelSlot) -> int:
        """Bytes of all loaded models but this."""
        others = [p for p in self._places.values() if p is not place]
        return sum(p.pending + (p.hosted.memory if p.hosted else 0) for p in others)

    def _evict_for(self, place: ModelSlot, needed: int) -> None:
        """Put out others, the one used longest ago first, while there is not enough room."""
        while self._others(place) + needed > (self._mb or 0) * MB:
            idle = [
                (p.hosted.last_used, p)
                for p in self._places.values()
                if p.hosted and p is not place and p.name not in self._pinned and not p.hosted.uses
            ]
            if not idle:
                return
            oldest = min(idle, key=lambda pair: pair[0])[1]
            self.evict(oldest)
            self._on_evict(oldest, place)


def name_and_size(path: str) -> tuple[str, int]:
    """Name of the model that lies there, and the bytes that it takes at the least."""
    with open_model(path) as model:
        return model.manifest.name, min_memory(model.manifest)


def _too_large(name: str, least: int, most: int) -> RequestRejected:
    need = -(-least // MB)
    wanted, got = f"at most --memory-mb {most}", f"weights of {need} MB"
    hint = f"raise --memory-mb to {need} or more, or serve it elsewhere"
    return rejected("EDGE-SERVE-027", f"model {name}", wanted, got, hint=hint)
