"""What was found out about each candidate on this device, kept per user: one small JSON file each.

A file that is damaged, or that speaks of something else than it is asked about, counts as absent:
a proof is cheap to make again, a wrong belief is not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from edgeserve.errors import FilesError
from edgeserve.files import LOCAL, Fs, write_atomic
from edgeserve.types.base import Number, Value, decode, encode
from edgeserve.types.records import Runtime

__all__ = ["Cache", "Outcome", "State"]

#: accepted: the proof holds. refused: it does not. failed: an error before there was an answer.
#: crashed, hung: the attempt never came back. busy: another process is still at it.
State = Literal["accepted", "refused", "failed", "crashed", "hung", "busy"]


class Outcome(Value, frozen=True):
    """How one candidate did on the golden cases of this device.

    Attributes:
        key: Which candidate, on what device and with which versions (`edgeserve.wrapper.choose`).
        name: The same for people: "onnx-fp32 on cpu, 2 threads".
        state: See `State`.
        runtime: The engine that answered; None where it never came so far.
        passed: Golden cases answered as the reference did.
        total: Golden cases asked.
        min_margin: Smallest margin among the answers; None where the task has none.
        max_difference: Largest difference from the reference, as the cases' tolerance counts it.
        run_ms: Median time of one run of the model, milliseconds; None where it was not timed.
        reason: Why it is not accepted, in one line; empty when it is.
        tries: How often in a row it has failed, crashed or hung.
    """

    key: str
    name: str
    state: State
    runtime: Runtime | None = None
    passed: int = 0
    total: int = 0
    min_margin: Number | None = None
    max_difference: Number = 0.0
    run_ms: float | None = None
    reason: str = ""
    tries: int = 0


class Cache:
    """Outcomes by key in one folder.

    Attributes:
        trouble: Why something could not be kept (a read-only disk, say); empty while all is well.
    """

    def __init__(self, folder: Path, fs: Fs = LOCAL) -> None:
        self.folder = folder
        self.trouble = ""
        self._fs = fs

    def get(self, key: str) -> Outcome | None:
        """The outcome kept under ``key``, if there is one that can be believed."""
        try:
            found = decode(self._path(key).read_bytes(), Outcome)
        except (OSError, msgspec.MsgspecError):
            return None
        return found if found.key == key else None

    def put(self, outcome: Outcome) -> None:
        """Keep an outcome. A disk that refuses is noted in ``trouble``, not raised."""
        try:
            write_atomic(self._path(outcome.key), encode(outcome), self._fs)
        except FilesError as error:
            self.trouble = error.message

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.json"
