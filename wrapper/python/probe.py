"""One probe: load an execution plan, check it on the golden cases, time it; and what is kept of it.

A probe is made here, or as the verb of a child process. The journal entry and the outcome are
written by whoever probes, so that they are on the disk before a driver can take the process down.

An outcome is one small JSON file for each execution plan, per user, sealed by a key of that user. A
file that is damaged, that was edited, or that speaks of something else than it is asked about,
counts as absent: a probe is cheap to repeat, a wrong result is not.

Drivers crash and hang, and take the app with them. So before a plan is probed, an entry is
written and flushed to the disk; afterwards it is erased. An entry that is still there next time
says what was being probed when the process died. A lock, which the system releases when its
holder dies, tells such a leftover from a probe that another process is making right now.
"""

from __future__ import annotations

import contextlib
import faulthandler
import hmac
import os
import secrets
import time
from collections.abc import Iterator
from hmac import compare_digest
from pathlib import Path

import msgspec
from filelock import FileLock, Timeout
from msgspec.structs import replace

from edgeserve import jobs
from edgeserve.backends import Session
from edgeserve.bundle import Model, open_model
from edgeserve.errors import BundleError, EdgeError, FilesError
from edgeserve.files import LOCAL, Fs, staged_file, write_atomic
from edgeserve.machine import machine_error
from edgeserve.processing import Processor
from edgeserve.types.base import Value, decode, encode
from edgeserve.worker_limits import held_memory
from edgeserve.wrapper.engine import (
    Engine,
    GoldenResult,
    ProbeOutcome,
    check_golden,
    open_session,
    processor,
    zero_feed,
)
from edgeserve.wrapper.plans import ExecutionPlan

#: What is said where an outcome cannot be kept.
UNKEPT = "nothing can be kept for the next start"
#: File with the key that seals outcomes.
_SECRET = ".key"


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
        outcome, secret = replace(found, seal=""), self._secret()
        sealed = secret is not None and compare_digest(_seal(outcome, secret), found.seal)
        return outcome if sealed and outcome.key == key else None

    def put(self, outcome: ProbeOutcome) -> None:
        """Keep an outcome. A disk that refuses is noted in ``trouble``, not raised."""
        try:
            secret = self._secret() or self._new_secret()
            sealed = replace(outcome, seal=_seal(outcome, secret))
            write_atomic(self._path(outcome.key), encode(sealed), self._fs)
        except FilesError as error:
            self.trouble = f"{UNKEPT} ({error.got})"

    def _secret(self) -> bytes | None:
        """The key that outcomes are sealed by; None where there is none that only this user has."""
        with contextlib.suppress(OSError), open(self.folder / _SECRET, "rb") as file:
            if not os.fstat(file.fileno()).st_mode & 0o077 or os.name == "nt":
                return file.read() or None
        return None

    def _new_secret(self) -> bytes:
        secret = secrets.token_bytes(32)
        with staged_file(self.folder / _SECRET, self._fs) as stage:
            self._fs.write(stage, secret)
            stage.chmod(0o600)
        return secret

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.json"


def _seal(outcome: ProbeOutcome, secret: bytes) -> str:
    """HMAC-SHA256 (RFC 2104) of an outcome without a seal, in hex."""
    return hmac.digest(secret, encode(outcome), "sha256").hex()


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
        # Where nothing can be written there is nothing to guard either.
        with contextlib.suppress(OSError, NotImplementedError):
            try:
                self._fs.mkdir(self.folder)
                lock.acquire(timeout=wait)
            except Timeout:
                raise ProbeBusy(key) from None
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


VERB = "edgeserve.wrapper.probe:probe_all"
#: Of a bundle without golden cases.
NO_PROOF = GoldenResult(passed=0, total=0, min_margin=None, max_difference=0.0)


class ProbeRequest(Value, frozen=True):
    """What a child is to try.

    Attributes:
        bundle: Path of the bundle or workspace.
        folder: Folder of the outcomes and of the journal.
        limit_s: Seconds each candidate may take.
        candidates: In order.
        rehearse: Also run each on zeros of typical sizes, and measure what its process grows by.
    """

    bundle: str
    folder: str
    limit_s: float
    candidates: tuple[ExecutionPlan, ...]
    rehearse: bool = False


class ProbeOutcomes(Value, frozen=True):
    """How the candidates did, in order."""

    outcomes: tuple[ProbeOutcome, ...]


def probe_plan(
    candidate: ExecutionPlan,
    model: Model,
    around: Processor,
    tries: int = 0,
    rehearse: bool = False,
) -> tuple[ProbeOutcome, Session | None]:
    """Load and prove one candidate in this process; its session comes back open if the proof holds.

    Args:
        candidate: What to try.
        model: The open bundle, with golden cases unless it is only rehearsed.
        around: Its processing.
        tries: How often in a row it was not accepted before.
        rehearse: As in `ProbeRequest`.

    Raises:
        BundleError: the bundle's bytes do not match their hashes: no candidate's fault.
    """
    session, before = None, held_memory(os.getpid())
    try:
        session = open_session(candidate, model)
        engine = Engine(session, around, model.manifest.signature)
        if rehearse:
            engine.named(zero_feed(model.manifest.signature))
        golden = model.manifest.golden
        proof = (
            NO_PROOF if rehearse and not (golden and golden.cases) else check_golden(engine, model)
        )
    except Exception as error:  # whatever a driver's binding raises costs this candidate only
        _close(session)
        if fault := machine_error(error, candidate.name):
            return candidate.deferred(fault, tries), None
        if isinstance(error, BundleError):
            raise
        reason = (
            error.message if isinstance(error, EdgeError) else f"{type(error).__name__}: {error}"
        )
        return candidate.outcome("failed", reason, tries=tries + 1), None
    figures = msgspec.structs.asdict(proof) | {"runtime": session.runtime}
    if wrong := figures.pop("wrong"):
        _close(session)
        reason = f"answered {len(wrong)} of {proof.total} golden cases wrongly; {wrong[0]}"
        return candidate.outcome("refused", reason, tries=tries + 1, **figures), None
    memory = max(0, held_memory(os.getpid()) - before) if rehearse else 0
    figures |= {"rehearsed": rehearse, "memory": memory}
    return candidate.outcome("accepted", "", **figures), session


def _close(session: Session | None) -> None:
    if session is not None:
        session.close()


def run_probe(
    candidate: ExecutionPlan,
    model: Model,
    around: Processor,
    cache: ProbeCache,
    journal: ProbeJournal,
    limit_s: float,
    *,
    child: bool = False,
    rehearse: bool = False,
) -> tuple[ProbeOutcome, Session | None]:
    """`attempt` under the journal, its outcome kept.

    Where another process is trying the same, this one waits for ``limit_s`` and takes its outcome.
    In a child process a trial that takes longer than ``limit_s`` ends the process; anywhere else
    it is not ours to end, and the journal tells the next start.
    """
    before = cache.get(candidate.key)
    try:
        with journal.attempt(candidate.key, candidate.name, limit_s):
            now = cache.get(candidate.key)
            if now is not None and now != before and (now.rehearsed or not rehearse):
                return now, None
            with _watchdog(candidate.key, limit_s) if child else contextlib.nullcontext():
                tries = now.tries if now else 0
                outcome, session = probe_plan(candidate, model, around, tries, rehearse)
            if outcome.state != "deferred":
                cache.put(outcome)
            if child:
                jobs.progress(candidate.key, 1, 1)
            return outcome, session
    except ProbeBusy:
        reason = f"another process has been trying it for {limit_s:.0f} s"
        return candidate.outcome("busy", reason), None


def probe_all(request: ProbeRequest) -> ProbeOutcomes:
    """The verb: try each candidate in turn."""
    cache, journal = ProbeCache(Path(request.folder)), ProbeJournal(Path(request.folder))
    outcomes = []
    with open_model(request.bundle) as model:
        around = processor(model)
        for candidate in request.candidates:
            outcome, session = run_probe(
                candidate,
                model,
                around,
                cache,
                journal,
                request.limit_s,
                child=True,
                rehearse=request.rehearse,
            )
            _close(session)
            outcomes.append(outcome)
    return ProbeOutcomes(outcomes=tuple(outcomes))


@contextlib.contextmanager
def _watchdog(key: str, seconds: float) -> Iterator[None]:
    """Tell the waiting parent what is being tried, and end this process if that does not end.

    The timer is the interpreter's own thread in C: it also ends what a driver blocks.
    """
    jobs.progress(key, 0, 1)
    faulthandler.dump_traceback_later(seconds, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
