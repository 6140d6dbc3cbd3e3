"""What is kept on disk, per user, of the probes on this device.

Outcomes, and a journal of those under way.

An outcome is one small JSON file for each execution plan. A file that is damaged, or that speaks
of something else than it is asked about, counts as absent: a probe is cheap to repeat, a wrong
result is not.

Drivers crash and hang, and take the app with them. So before a plan is probed, an entry is
written and flushed to the disk; afterwards it is erased. An entry that is still there next time
says what was being probed when the process died. A lock, which the system releases when its
holder dies, tells such a leftover from a probe that another process is making right now.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec
from filelock import FileLock, Timeout

from edgeserve.errors import FilesError
from edgeserve.files import LOCAL, Fs, write_atomic
from edgeserve.types.base import Number, Value, decode, encode
from edgeserve.types.records import Runtime

#: accepted: the proof holds. refused: it does not. failed: an error before there was an answer.
#: crashed, hung: the attempt never came back. busy: another process is still at it.
ProbeState = Literal["accepted", "refused", "failed", "crashed", "hung", "busy"]


class ProbeOutcome(Value, frozen=True):
    """How one candidate did on the golden cases of this device.

    Attributes:
        key: Which candidate, on what device and with which versions (`edgeserve.wrapper.plans`).
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
    state: ProbeState
    runtime: Runtime | None = None
    passed: int = 0
    total: int = 0
    min_margin: Number | None = None
    max_difference: Number = 0.0
    run_ms: float | None = None
    reason: str = ""
    tries: int = 0


class ProbeCache:
    """Outcomes by key in one folder.

    Attributes:
        trouble: Why something could not be kept (a read-only disk, say); empty while all is well.
    """

    def __init__(self, folder: Path, fs: Fs = LOCAL) -> None:
        self.folder = folder
        self.trouble = ""
        self._fs = fs

    def get(self, key: str) -> ProbeOutcome | None:
        """The outcome kept under ``key``, if there is one that can be believed."""
        try:
            found = decode(self._path(key).read_bytes(), ProbeOutcome)
        except (OSError, msgspec.MsgspecError):
            return None
        return found if found.key == key else None

    def put(self, outcome: ProbeOutcome) -> None:
        """Keep an outcome. A disk that refuses is noted in ``trouble``, not raised."""
        try:
            write_atomic(self._path(outcome.key), encode(outcome), self._fs)
        except FilesError as error:
            self.trouble = error.message

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.json"


class ProbeBusy(Exception):
    """Another process holds the attempt and did not end within the time given."""


class JournalEntry(Value, frozen=True):
    """One attempt under way.

    Attributes:
        name: What is being tried, for people.
        started: Seconds since the epoch.
    """

    name: str
    started: float


class ProbeJournal:
    """Attempts by key in one folder: ``KEY.trying`` is the entry, ``KEY.lock`` its lock.

    Where the folder cannot be written (a read-only disk) attempts are made without an entry: a
    Wrapper that refuses to work for want of a journal would be the worse fault.
    """

    def __init__(self, folder: Path, fs: Fs = LOCAL) -> None:
        self.folder = folder
        self._fs = fs

    @contextlib.contextmanager
    def attempt(self, key: str, name: str, wait: float) -> Iterator[None]:
        """Hold the entry of ``key`` while the block runs; an exception in the block erases it too.

        Args:
            key: Which candidate.
            name: The same, for people.
            wait: Seconds to wait for another process that is trying the same.

        Raises:
            Busy: the other process is still at it.
        """
        with self._locked(key, wait):
            self._write(key, JournalEntry(name=name, started=time.time()))
            try:
                yield
            finally:
                self._erase(key)

    def leftover(self, key: str) -> JournalEntry | None:
        """Take the entry that a dead attempt left, and erase it; None if there is none."""
        if not self._entry(key).exists():
            return None
        with contextlib.suppress(ProbeBusy), self._locked(key, 0):
            entry = self._read(key)
            self._erase(key)
            return entry
        return None

    @contextlib.contextmanager
    def _locked(self, key: str, wait: float) -> Iterator[None]:
        lock = FileLock(self.folder / f"{key}.lock")
        try:
            self._fs.mkdir(self.folder)
            lock.acquire(timeout=wait)
        except Timeout:
            raise ProbeBusy(key) from None
        except (OSError, NotImplementedError):
            yield  # nothing can be written there, so there is nothing to guard either
            return
        try:
            yield
        finally:
            lock.release()

    def _entry(self, key: str) -> Path:
        return self.folder / f"{key}.trying"

    def _read(self, key: str) -> JournalEntry | None:
        try:
            return decode(self._entry(key).read_bytes(), JournalEntry)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError):
            return JournalEntry(name="", started=0.0)  # torn in the crash: all the more a leftover

    def _write(self, key: str, entry: JournalEntry) -> None:
        with contextlib.suppress(OSError):
            self._fs.write(self._entry(key), encode(entry))
            self._fs.sync_folder(self.folder)

    def _erase(self, key: str) -> None:
        with contextlib.suppress(OSError):
            self._fs.unlink(self._entry(key))
            self._fs.sync_folder(self.folder)
