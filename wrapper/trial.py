"""One trial: load a candidate, prove it on the golden cases, time it; here or as a child's verb.

The journal entry and the outcome are written by whoever tries, so that they are on the disk before
a driver can take the process down.
"""

from __future__ import annotations

import contextlib
import faulthandler
from collections.abc import Iterator, Sequence
from pathlib import Path

from edgeserve import backends, jobs
from edgeserve.backends import Session
from edgeserve.bundle import Model, open_model
from edgeserve.errors import BundleError, EdgeError, WrapperError
from edgeserve.processing import Processor
from edgeserve.types.base import Value
from edgeserve.wrapper.cache import Cache, Outcome
from edgeserve.wrapper.choose import Candidate
from edgeserve.wrapper.engine import Engine
from edgeserve.wrapper.journal import Busy, Journal
from edgeserve.wrapper.proof import Proof, prove

__all__ = ["VERB", "TrialRequest", "Trials", "attempt", "guarded", "load", "processor", "try_all"]

VERB = "edgeserve.wrapper.trial:try_all"


class TrialRequest(Value, frozen=True):
    """What a child is to try.

    Attributes:
        bundle: Path of the bundle or workspace.
        folder: Folder of the outcomes and of the journal.
        limit_s: Seconds each candidate may take.
        candidates: In order.
    """

    bundle: str
    folder: str
    limit_s: float
    candidates: tuple[Candidate, ...]


class Trials(Value, frozen=True):
    """How the candidates did, in order."""

    outcomes: tuple[Outcome, ...]


def processor(model: Model) -> Processor:
    """The processing of an open model.

    Raises:
        ProcessingError: a step or task is not known, or what a step needs is not installed.
        BundleError: an asset's bytes do not match their hash.
    """
    of = model.manifest
    return Processor(of.processing, of.signature, of.task, of.labels, model.read)


def load(candidate: Candidate, model: Model) -> Session:
    """Open a candidate.

    Raises:
        WrapperError: EDGE-WRAPPER-007, the runtime took another delegate than the one asked for.
        EdgeError: the runtime refused, or the artifact's bytes do not match their hashes.
    """
    session = backends.get(candidate.artifact.format).load(
        candidate.artifact,
        model.local(candidate.artifact),
        delegate=candidate.delegate,
        threads=candidate.threads,
        verified=True,  # by `local`, just now
    )
    if session.delegate != candidate.delegate:
        taken = session.delegate
        session.close()
        raise WrapperError(
            "EDGE-WRAPPER-007",
            candidate.name,
            wanted=f"delegate {candidate.delegate}",
            got=f"{taken}, which the runtime took instead",
            hint="`edgeserve doctor` says what a delegate needs",
        )
    return session


def attempt(
    candidate: Candidate, model: Model, around: Processor, tries: int = 0
) -> tuple[Outcome, Session | None]:
    """Load and prove one candidate in this process; its session comes back open if the proof holds.

    Args:
        candidate: What to try.
        model: The open bundle, with golden cases.
        around: Its processing.
        tries: How often in a row it has failed before.

    Raises:
        BundleError: the bundle's bytes do not match their hashes: no candidate's fault.
    """
    session = None
    try:
        session = load(candidate, model)
        engine = Engine(session, around, model.manifest.signature)
        proof = prove(engine, model)
    except BundleError:
        _close(session)
        raise
    except Exception as error:  # whatever a driver's binding raises costs this candidate only
        _close(session)
        told = error.message if isinstance(error, EdgeError) else f"{type(error).__name__}: {error}"
        outcome = Outcome(
            key=candidate.key, name=candidate.name, state="failed", reason=told, tries=tries + 1
        )
        return outcome, None
    outcome = _judge(candidate, session, proof)
    if outcome.state != "accepted":
        _close(session)
        return outcome, None
    return outcome, session


def _close(session: Session | None) -> None:
    if session is not None:
        session.close()


def _judge(candidate: Candidate, session: Session, proof: Proof) -> Outcome:
    return Outcome(
        key=candidate.key,
        name=candidate.name,
        state="refused" if proof.wrong else "accepted",
        runtime=session.runtime,
        passed=proof.passed,
        total=proof.total,
        min_margin=proof.min_margin,
        max_difference=proof.max_difference,
        run_ms=proof.run_ms,
        reason=_told(proof.wrong, proof.total),
    )


def _told(wrong: Sequence[str], total: int) -> str:
    if not wrong:
        return ""
    return f"answered {len(wrong)} of {total} golden cases wrongly; {wrong[0]}"


def guarded(
    candidate: Candidate,
    model: Model,
    around: Processor,
    cache: Cache,
    journal: Journal,
    limit_s: float,
    *,
    child: bool = False,
) -> tuple[Outcome, Session | None]:
    """`attempt` under the journal, its outcome kept.

    Where another process is trying the same, this one waits for ``limit_s`` and takes its outcome.
    In a child process a trial that takes longer than ``limit_s`` ends the process; anywhere else
    it is not ours to end, and the journal tells the next start.
    """
    before = cache.get(candidate.key)
    try:
        with journal.attempt(candidate.key, candidate.name, limit_s):
            now = cache.get(candidate.key)
            if now is not None and now != before:
                return now, None
            with _watchdog(candidate.key, limit_s) if child else contextlib.nullcontext():
                outcome, session = attempt(candidate, model, around, now.tries if now else 0)
            cache.put(outcome)
            if child:
                jobs.progress(candidate.key, 1, 1)
            return outcome, session
    except Busy:
        told = f"another process has been trying it for {limit_s:.0f} s"
        return Outcome(key=candidate.key, name=candidate.name, state="busy", reason=told), None


def try_all(request: TrialRequest) -> Trials:
    """The verb: try each candidate in turn."""
    cache, journal = Cache(Path(request.folder)), Journal(Path(request.folder))
    outcomes = []
    with open_model(request.bundle) as model:
        around = processor(model)
        for candidate in request.candidates:
            outcome, session = guarded(
                candidate, model, around, cache, journal, request.limit_s, child=True
            )
            _close(session)
            outcomes.append(outcome)
    return Trials(outcomes=tuple(outcomes))


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
