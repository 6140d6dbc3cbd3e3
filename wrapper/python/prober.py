"""Outcomes of candidates: remembered, or found out now, here or in a child process.

A trial is made in a child process where the system has those and there is something to fear or to
compare: several candidates, one that is not the plain processor, or one that has taken a process
down before. A single candidate on the processor is tried right here: a child costs more than it
guards against (the same code has passed the gate), and the journal catches the rest at the next
start. A service has more to lose: in the block of `isolated` nothing is tried or opened here that
a child has not run.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path

from edgeserve import backends, jobs
from edgeserve.backends import Session
from edgeserve.bundle import Model
from edgeserve.bundle.cache import default_root, private_folder
from edgeserve.errors import BundleError, EdgeError, WorkerError
from edgeserve.files import scratch_folder, sweep_dead
from edgeserve.machine import machine_error
from edgeserve.processing import Processor
from edgeserve.wrapper.engine import ProbeOutcome, ProbeState, open_session, processor
from edgeserve.wrapper.plans import ExecutionPlan
from edgeserve.wrapper.probe import (
    UNKEPT,
    VERB,
    ProbeBusy,
    ProbeCache,
    ProbeJournal,
    ProbeOutcomes,
    ProbeRequest,
    run_probe,
)

#: What one candidate may take to load, to answer the golden cases and to be timed, seconds.
PROBE_LIMIT_S = 60.0
#: What starting Python and a runtime may take a child beyond that, seconds.
_GRACE_S = 60.0
#: Systems without child processes.
_WITHOUT_CHILDREN = ("android", "emscripten", "ios", "tvos", "wasi", "watchos")
#: So often in a row a candidate may fail, or take this very process down, before it is left alone.
_MAX_TRIES = 3
#: Reason of an outcome that nobody saw: a crash of the runtime, or somebody ended the process.
_CUT_SHORT = "the process that tried it last ended in the middle"
#: After so many seconds what was not accepted is tried again; the time doubles with each try.
_AGE_S, _OLDEST_S = 86_400.0, 30 * 86_400.0
#: Bytes that a trial may hold: so many, and so many times the files of the artifact.
_TRIAL_BYTES, _TRIAL_TIMES = 4 << 30, 8
_stop: ContextVar[threading.Event | None] = ContextVar("stop", default=None)


@contextlib.contextmanager
def isolated(stop: threading.Event) -> Iterator[None]:
    """A Wrapper that is opened in this block runs nothing that a child process has not run.

    Args:
        stop: Once set, a trial ends and opening raises EDGE-WORKER-006.
    """
    token = _stop.set(stop)
    try:
        yield
    finally:
        _stop.reset(token)


class Prober:
    """What is known, and finding out, for one open model.

    Args:
        model: Open, with golden cases.
        limit_s: What one candidate may take, seconds; None: `PROBE_LIMIT_S`.
        around: The model's processing; None: made where it is needed.
    """

    def __init__(
        self, model: Model, limit_s: float | None = None, around: Processor | None = None
    ) -> None:
        self._model = model
        self._around = around
        self._limit = limit_s or PROBE_LIMIT_S
        self._folder, self._trouble = _probe_folder()
        self._cache, self._journal = ProbeCache(self._folder), ProbeJournal(self._folder)
        self._open: dict[str, Session] = {}
        self._cut_short: list[str] = []
        self._too_large: set[str] = set()  # not tried twice in one start
        self._stop = _stop.get()
        self.isolated = self._stop is not None

    @property
    def trouble(self) -> str:
        """What a caller should know of earlier starts, or of the next one; empty if all is well."""
        return "; ".join(filter(None, (*self._cut_short, self._trouble or self._cache.trouble)))

    def outcomes(
        self, candidates: Sequence[ExecutionPlan], *, again: bool = False, fresh: bool = False
    ) -> dict[str, ProbeOutcome]:
        """The outcome of each candidate, by key; what is not known yet is tried now.

        Args:
            candidates: In order of preference.
            again: Also try again what crashed or hung before.
            fresh: Believe nothing that was found out earlier.
        """
        found = {c.key: self._remembered(c) for c in candidates}
        known = {
            key: outcome
            for key, outcome in found.items()
            if outcome is not None and not fresh and self._settled(outcome, again)
        }
        todo = [c for c in candidates if c.key not in known]
        if todo and _has_children() and self._needs_subprocess(candidates, found.values()):
            known |= self._apart(todo)
        for candidate in todo:
            if candidate.key not in known and self.isolated:
                reason = "no process could be started to try it in"
                known[candidate.key] = candidate.outcome("busy", reason)
            elif candidate.key not in known:
                known[candidate.key] = self._here(candidate, keep=not fresh and len(todo) == 1)
        return known

    def memory(self, candidate: ExecutionPlan) -> int:
        """Bytes that a candidate was found to take, see `ProbeOutcome`."""
        outcome = self._cache.get(candidate.key)
        return outcome.memory if outcome else 0

    def open(self, candidate: ExecutionPlan) -> Session:
        """A session of a candidate: the one its proof was made with, or a new one.

        Beyond the plain processor the journal is kept here too: that a driver held in a child
        process does not mean that it will in this one.
        """
        if kept := self._open.pop(candidate.key, None):
            return kept
        if candidate.delegate == "cpu":
            return open_session(candidate, self._model)
        with contextlib.ExitStack() as stack:
            # Another process may be opening the same right now.
            with contextlib.suppress(ProbeBusy):
                stack.enter_context(self._journal.attempt(candidate.key, candidate.name, 0))
            return open_session(candidate, self._model)

    def close(self) -> None:
        """Close what was opened and not taken."""
        for session in self._open.values():
            session.close()
        self._open.clear()

    def _remembered(self, candidate: ExecutionPlan) -> ProbeOutcome | None:
        """What is known of a candidate, counting what a dead process left in the journal."""
        entry, known = self._journal.leftover(candidate.key), self._cache.get(candidate.key)
        if entry is None or (known and known.made >= entry.started > 0):  # it came to an end
            return known
        self._cut_short.append(f"{candidate.name}: {_CUT_SHORT}")
        return self._record_crash(candidate, "crashed", _CUT_SHORT)

    def _settled(self, outcome: ProbeOutcome, again: bool) -> bool:
        """Whether an outcome needs no new trial."""
        if outcome.state == "accepted":
            return outcome.rehearsed or not self.isolated
        if outcome.tries >= _MAX_TRIES and not _has_children() and outcome.state != "refused":
            return True
        if outcome.reason == _CUT_SHORT and outcome.tries < 2 and _has_children():
            return False  # in a child it shows which of the two it was
        # What was found out may have been the machine's fault, or be mended since.
        age = min(_AGE_S * 2 ** min(outcome.tries - 1, 9), _OLDEST_S)
        if not 0 <= time.time() - outcome.made <= age:
            return False
        if outcome.state == "failed":
            return outcome.tries >= _MAX_TRIES
        too_large = outcome.key in self._too_large
        return too_large or not again or outcome.state in ("refused", "hung")

    def _needs_subprocess(
        self, candidates: Sequence[ExecutionPlan], found: Iterable[ProbeOutcome | None]
    ) -> bool:
        fell = any(outcome and outcome.state in ("crashed", "hung") for outcome in found)
        alone = len(candidates) == 1 and candidates[0].delegate == "cpu"
        return self.isolated or fell or not alone

    def _here(self, candidate: ExecutionPlan, keep: bool) -> ProbeOutcome:
        self._around = self._around or processor(self._model)
        outcome, session = run_probe(
            candidate, self._model, self._around, self._cache, self._journal, self._limit
        )
        if session is not None and keep:
            self._open[candidate.key] = session
        elif session is not None:
            session.close()
        return outcome

    def _apart(self, todo: Sequence[ExecutionPlan]) -> dict[str, ProbeOutcome]:
        """Try in child processes. One that falls costs one candidate; the next goes on after it.

        What is missing in the answer could not be tried there: no child could be started at all.
        """
        known: dict[str, ProbeOutcome] = {}
        while rest := [c for c in todo if c.key not in known]:
            seen = _ChildProgress()
            try:
                return known | self._child(rest, seen)
            except (OSError, EdgeError) as error:
                fault = machine_error(error, "trial of an artifact")
                stopped = self._stop is not None and self._stop.is_set()
                if stopped or not (fault or isinstance(error, OSError | WorkerError)):
                    self._forget(rest)
                    raise
                found = self._after_a_fall(rest, seen, error, fault)
                if not found:
                    return known
                known |= found
            except BaseException:  # Ctrl-C
                self._forget(rest)
                raise
        return known

    def _forget(self, candidates: Sequence[ExecutionPlan]) -> None:
        """Erase what a child that was ended by this process had begun: it fell over nothing."""
        for candidate in candidates:
            self._journal.leftover(candidate.key)

    def _child(
        self, todo: Sequence[ExecutionPlan], seen: _ChildProgress
    ) -> dict[str, ProbeOutcome]:
        """One child for all; ``seen`` is filled with what it began and ended, and when."""
        request = ProbeRequest(
            bundle=str(self._model.path.absolute()),
            folder=str(self._folder),
            limit_s=self._limit,
            candidates=tuple(todo),
            rehearse=self.isolated,
        )
        # Each may wait for another process first.
        timeout = 2 * self._limit * len(todo) + _GRACE_S
        with scratch_folder(self._folder) as folder:
            trials = jobs.run(
                VERB,
                request,
                ProbeOutcomes,
                folder,
                timeout=timeout,
                on_progress=seen,
                stop=self._stop,
                imports=_runtimes(todo) if self.isolated else None,
                memory=_TRIAL_BYTES + _TRIAL_TIMES * max(c.artifact.size for c in todo),
            )
        return {outcome.key: outcome for outcome in trials.outcomes}

    def _after_a_fall(
        self,
        todo: Sequence[ExecutionPlan],
        seen: _ChildProgress,
        error: Exception,
        fault: EdgeError | None,
    ) -> dict[str, ProbeOutcome]:
        """What a child that fell has found out, and the outcome of the one that it fell over.

        The journal names that one; on a disk that refused the entry, the child's progress does.
        """
        ended = [c for c in todo if c.key in seen.ended]
        found = {c.key: o for c in ended if (o := self._cache.get(c.key))}
        named = [c for c in todo if self._journal.leftover(c.key) is not None]
        under_way = [c for c in todo if c.key in seen.began and c.key not in seen.ended]
        for candidate in (named or under_way)[:1]:
            seconds = time.monotonic() - seen.began.get(candidate.key, time.monotonic())
            found[candidate.key] = (
                candidate.deferred(fault) if fault else self._blame(candidate, seconds, error)
            )
        return found

    def _blame(self, candidate: ExecutionPlan, seconds: float, error: Exception) -> ProbeOutcome:
        # The child's watchdog and this clock are not started at the same instant.
        if seconds > 0.9 * self._limit:
            return self._record_crash(candidate, "hung", f"no answer within {self._limit:.0f} s")
        ending = error.got if isinstance(error, WorkerError) else str(error)
        if isinstance(error, WorkerError) and error.code == "EDGE-WORKER-008":
            ending += f" of memory, wanted {error.wanted}"
            self._too_large.add(candidate.key)
        return self._record_crash(candidate, "crashed", f"its process ended with {ending}")

    def _record_crash(
        self, candidate: ExecutionPlan, state: ProbeState, reason: str
    ) -> ProbeOutcome:
        before = self._cache.get(candidate.key)
        tries = 1 + (before.tries if before else 0)
        outcome = candidate.outcome(state, reason, tries=tries)
        self._cache.put(outcome)
        return outcome


class _ChildProgress:
    """What a child says while it works: when each trial began, and which have ended, by key."""

    def __init__(self) -> None:
        self.began: dict[str, float] = {}
        self.ended: set[str] = set()

    def __call__(self, step: jobs.Progress) -> None:
        if step.done:
            self.ended.add(step.what)
        else:
            self.began[step.what] = time.monotonic()


def _runtimes(todo: Sequence[ExecutionPlan]) -> tuple[str, ...] | None:
    """Modules to import before the child is forked; None for drivers, which a fork may break."""
    if any(candidate.delegate != "cpu" for candidate in todo):
        return None
    packages = [p for c in todo for p in backends.get(c.artifact.format).packages]
    return tuple(dict.fromkeys(package.replace("-", "_") for package in packages))


def _has_children() -> bool:
    """Whether this system has child processes, and this program a Python to start them with."""
    frozen = getattr(sys, "frozen", False)
    return sys.platform not in _WITHOUT_CHILDREN and not frozen and bool(sys.executable)


def _probe_folder() -> tuple[Path, str]:
    """The folder of outcomes and journal, and why nothing can be kept there: empty where it can.

    Raises:
        BundleError: EDGE-BUNDLE-062, others may write there.
    """
    try:
        folder = private_folder("wrapper")
        sweep_dead(folder)  # a start that only looks up would leave it for ever
        return folder, ""
    except BundleError as error:
        if error.code != "EDGE-BUNDLE-060":
            raise
        return default_root() / "wrapper", f"{UNKEPT} ({error.got})"
