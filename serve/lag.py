"""`Lag`: how far behind the event loop is: what a request has waited before anybody saw it.

Under a flood, bytes lie in the system's buffers until the loop comes round to them. That time is
part of the caller's deadline, and no clock that starts with the request knows of it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

__all__ = ["Lag"]

#: The loop is looked at so often, and a lag that was seen counts half after so long, seconds.
_EVERY, _HALF = 0.02, 0.1
#: More is no flood but a pause of the whole process, which is over when it is seen.
_MOST = 0.5
#: Looks without a request after which nobody looks any more.
_IDLE = 250


class Lag:
    """The lag of the loop it is watched on.

    Args:
        clock: Seconds; for tests.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen, self._at = 0.0, 0.0
        self._looks = 0
        self._watching = False

    @property
    def seconds(self) -> float:
        """The lag by now: the largest of late, older ones counting less."""
        age = self._clock() - self._at
        return float(self._seen * 0.5 ** (age / _HALF))

    def watch(self) -> None:
        """Go on looking, or begin to; called with each request."""
        self._looks = _IDLE
        if not self._watching:
            self._watching = True
            self._again()

    def see(self, late: float) -> None:
        """The loop came so late."""
        self._seen, self._at = min(_MOST, max(late, self.seconds)), self._clock()

    def _again(self) -> None:
        asyncio.get_running_loop().call_later(_EVERY, self._look, self._clock() + _EVERY)

    def _look(self, due: float) -> None:
        self.see(self._clock() - due)
        self._looks -= 1
        if self._looks > 0:
            self._again()
        else:
            self._watching = False
