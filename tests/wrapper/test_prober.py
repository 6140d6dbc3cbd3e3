"""Trials that go wrong, for real: children that crash, hang and are killed; drivers that lie."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from msgspec.structs import replace

from edgeserve import backends, jobs
from edgeserve.bundle import open_model
from edgeserve.wrapper.engine import ProbeOutcome
from edgeserve.wrapper.plans import Constraints, ExecutionPlan, device_digest, plan_tiers
from edgeserve.wrapper.probe import ProbeCache, ProbeJournal
from edgeserve.wrapper.prober import Prober, isolated

Npu = Callable[..., Any]

#: Enough to load a runtime on a busy machine; each test that waits for it to pass takes as long.
_LIMIT_S = 5.0


@contextmanager
def opened(
    root: Path, limit_s: float = 30.0, **wishes: Any
) -> Iterator[tuple[Prober, list[ExecutionPlan]]]:
    with open_model(root) as model:
        attempts = Prober(model, limit_s)
        found = plan_tiers(
            model.manifest, Constraints(**({"threads": 1} | wishes)), backends.get, device_digest()
        )
        try:
            yield attempts, [candidate for tier in found.tiers for candidate in tier]
        finally:
            attempts.close()


def states(candidates: list[ExecutionPlan], outcomes: dict[str, ProbeOutcome]) -> dict[str, str]:
    return {c.name: outcomes[c.key].state for c in candidates}


@pytest.mark.parametrize(
    ("fault", "state", "told"),
    [
        ("crash", "crashed", "SIGABRT"),
        ("wrong", "refused", "4 of 4 golden cases"),
        ("nan", "refused", "golden"),
        ("batch", "refused", "in a batch"),
        ("silent", "failed", "got cpu"),
        ("raise", "failed", "driver says no"),
        ("", "accepted", ""),
    ],
)
def test_an_accelerators_fault_costs_that_candidate_only(
    make: Any, npu: Npu, fault: str, state: str, told: str
) -> None:
    with opened(make.workspace(npu(fault))) as (attempts, candidates):
        outcomes = attempts.outcomes(candidates)
    assert states(candidates, outcomes) == {
        "tflite-fp32 on npu, 1 thread": state,
        "tflite-fp32 on cpu, 1 thread": "accepted",
    }
    assert told in outcomes[candidates[0].key].reason


def no_child(*_: object, **__: object) -> None:
    raise AssertionError("a child was started")


def test_a_hang_ends_at_the_limit_and_is_remembered(
    make: Any, npu: Npu, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make.workspace(npu("hang"))
    with opened(root, limit_s=_LIMIT_S) as (attempts, candidates):
        outcomes = attempts.outcomes(candidates)
        assert [outcomes[c.key].state for c in candidates] == ["hung", "accepted"]
        assert outcomes[candidates[0].key].tries == 1
    monkeypatch.setattr(jobs, "run", no_child)
    with opened(root) as (attempts, candidates):
        assert attempts.outcomes(candidates) == outcomes
        hung = candidates[0]
        assert attempts.outcomes([hung], again=True) == {hung.key: outcomes[hung.key]}
        ProbeCache(outcomes_folder()).put(replace(outcomes[hung.key], made=1.0))  # long ago
        with pytest.raises(AssertionError, match="a child was started"):
            attempts.outcomes([hung], again=True)


def test_a_runtime_that_never_ends_is_ended_too(make: Any) -> None:
    """The real runtime, in C and without the interpreter's lock, on a file with an endless loop."""
    root = make.workspace(
        make.made("onnx-fp32", make.endless()), make.made("onnx-fp16", make.classifier())
    )
    before = set(psutil.Process().children(recursive=True))
    with opened(root, limit_s=_LIMIT_S) as (attempts, candidates):
        outcomes = attempts.outcomes(candidates)
    assert states(candidates, outcomes) == {
        "onnx-fp32 on cpu, 1 thread": "hung",
        "onnx-fp16 on cpu, 1 thread": "accepted",
    }
    left = {p for p in psutil.Process().children(recursive=True) if p.is_running()}
    assert not left - before, "the fork server of earlier tests may stay"


def test_a_child_killed_from_outside_demotes_what_it_tried(make: Any) -> None:
    root = make.workspace(
        make.made("onnx-fp32", make.classifier()), make.made("onnx-fp16", make.endless())
    )

    def tries_the_second() -> bool:
        for path in Path(os.environ["EDGESERVE_CACHE"]).glob("wrapper/*.trying"):
            with suppress(FileNotFoundError):  # erased since
                if "fp16" in path.read_text():
                    return True
        return False

    def kill() -> None:
        while not tries_the_second():
            time.sleep(0.05)
        for child in psutil.Process().children():
            child.send_signal(signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    with opened(root) as (attempts, candidates):
        outcomes = attempts.outcomes(candidates)
    killer.join()
    assert [outcomes[c.key].state for c in candidates] == ["accepted", "crashed"]
    assert "SIGKILL" in outcomes[candidates[1].key].reason


_DIE_TRYING = """
import sys, threading, os, time
from pathlib import Path
from edgeserve import backends, jobs
from edgeserve.bundle import open_model
from edgeserve.wrapper.plans import Constraints, device_digest, plan_tiers
from edgeserve.wrapper.prober import Prober, isolated

with open_model(sys.argv[1]) as model:
    found = plan_tiers(model.manifest, Constraints(threads=1), backends.get, device_digest())
    Prober(model).outcomes(found.tiers[0])
"""


@pytest.fixture
def killed(make: Any) -> Callable[[Path], None]:
    """Kill an app in the middle of its first start."""

    def go(root: Path) -> None:
        cache = Path(os.environ["EDGESERVE_CACHE"]) / "wrapper"
        app = subprocess.Popen(
            [sys.executable, "-P", "-c", textwrap.dedent(_DIE_TRYING), str(root)]
        )
        while not list(cache.glob("*.trying")):
            assert app.poll() is None
            time.sleep(0.02)
        app.kill()
        app.wait()

    return go


def test_an_app_that_died_in_a_trial_finds_it_at_the_next_start(
    make: Any, killed: Callable[[Path], None]
) -> None:
    root = make.workspace(make.made("onnx-fp32", make.endless()))
    killed(root)
    with opened(root, limit_s=_LIMIT_S) as (attempts, candidates):
        # Tried again it is in a child process now, because this one took a process down.
        [outcome] = attempts.outcomes(candidates).values()
        assert (outcome.state, outcome.tries) == ("hung", 2)
        assert list(attempts.outcomes(candidates).values()) == [outcome]


def test_a_start_that_was_only_cut_short_is_forgiven(
    make: Any, killed: Callable[[Path], None]
) -> None:
    slow = make.workspace(make.made("onnx-fp32", make.endless()))
    killed(slow)
    with opened(slow) as (_, [candidate]):
        key = candidate.key
    good = make.workspace()
    with opened(good) as (attempts, candidates):
        cache = Path(os.environ["EDGESERVE_CACHE"]) / "wrapper"
        (cache / f"{key}.trying").rename(cache / f"{candidates[0].key}.trying")
        [outcome] = attempts.outcomes(candidates).values()
        assert (outcome.state, outcome.tries, outcome.reason) == ("accepted", 0, "")


def test_without_children_a_candidate_that_crashes_is_left_alone_at_last(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make.workspace()
    monkeypatch.setattr(sys, "platform", "ios")
    with opened(root) as (attempts, candidates):
        cache = Path(os.environ["EDGESERVE_CACHE"]) / "wrapper"
        for tries in (1, 2, 3):
            (cache / f"{candidates[0].key}.trying").write_text('{"name":"x","started":0}')
            [outcome] = attempts.outcomes(candidates).values()
            assert (outcome.state, outcome.tries) == ("crashed", tries)
        assert list(attempts.outcomes(candidates, again=True).values()) == [outcome]
        [fresh] = attempts.outcomes(candidates, fresh=True).values()
        assert fresh.state == "accepted"


def test_where_no_child_can_be_started_the_trials_are_made_here(
    make: Any, npu: Npu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgeserve.worker_process._ALONE", ("/nowhere/python", "-P"))
    with opened(make.workspace(npu("wrong"))) as (attempts, candidates):
        outcomes = attempts.outcomes(candidates)
    assert [outcomes[c.key].state for c in candidates] == ["refused", "accepted"]


def test_where_a_child_lacks_edgeserve_the_trials_are_made_here(
    make: Any, npu: Npu, monkeypatch: pytest.MonkeyPatch
) -> None:
    isolated = (sys.executable, "-I", "-S", "-m", "edgeserve.worker")
    monkeypatch.setattr("edgeserve.worker_process._ALONE", isolated)
    with opened(make.workspace(npu(""))) as (attempts, candidates):
        outcomes = attempts.outcomes(candidates)
    assert [outcomes[c.key].state for c in candidates] == ["accepted", "accepted"]


def test_a_single_candidate_on_the_processor_starts_no_child(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "run", no_child)
    with opened(make.workspace()) as (attempts, candidates):
        outcomes = attempts.outcomes(candidates)
        session = attempts.open(candidates[0])
        with session:
            assert outcomes[candidates[0].key].runtime == session.runtime


def test_an_error_is_tried_again_and_then_believed(make: Any, npu: Npu) -> None:
    root = make.workspace(npu("raise"))
    for tries in (1, 2, 3, 3, 3):
        with opened(root, delegate="npu") as (attempts, candidates):
            [outcome] = attempts.outcomes(candidates).values()
            assert (outcome.state, outcome.tries) == ("failed", tries)


def outcomes_folder() -> Path:
    return Path(os.environ["EDGESERVE_CACHE"]) / "wrapper"


def test_fresh_believes_nothing(make: Any) -> None:
    root = make.workspace()
    with opened(root) as (attempts, candidates):
        [first] = attempts.outcomes(candidates).values()
        kept = replace(first, state="refused", reason="kept")
        ProbeCache(outcomes_folder()).put(kept)
        assert list(attempts.outcomes(candidates).values()) == [kept]
        assert [o.state for o in attempts.outcomes(candidates, fresh=True).values()] == ["accepted"]
    with opened(root) as (attempts, candidates):
        assert [o.state for o in attempts.outcomes(candidates).values()] == ["accepted"]


def test_a_wrong_model_stays_refused_after_an_edit_by_hand(make: Any) -> None:
    with opened(make.workspace(make.made("onnx-fp32", make.classifier(None, -1.0)))) as opening:
        attempts, candidates = opening
        [first] = attempts.outcomes(candidates).values()
        path = outcomes_folder() / f"{first.key}.json"
        edit = {"state": "accepted", "reason": "", "passed": first.total}
        path.write_text(json.dumps(json.loads(path.read_text()) | edit))
        assert [o.state for o in attempts.outcomes(candidates).values()] == ["refused"]
        secret = outcomes_folder() / ".key"
        assert [p.stat().st_mode & 0o077 for p in (secret, secret.parent)] == [0, 0]


@pytest.mark.parametrize("state", ["refused", "failed", "crashed", "hung"])
def test_what_was_not_accepted_is_tried_again_after_its_time(
    make: Any, state: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(make.workspace()) as (attempts, candidates):
        [candidate] = candidates
        day, cache = 86_400.0, ProbeCache(outcomes_folder())
        for age, found in ((3.9 * day, state), (4.1 * day, "accepted"), (-60.0, "accepted")):
            made = time.time() - age
            cache.put(replace(candidate.outcome(state, "then", tries=3), made=made))
            # A child for what crashed is tested above; here it would only take time.
            monkeypatch.setattr(Prober, "_needs_subprocess", lambda *_: False)
            assert [o.state for o in attempts.outcomes(candidates).values()] == [found]


class Trouble:
    """What the machine may answer, as Python and native code raise it."""

    numbers = (
        *(errno.ENOSPC, errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO, errno.EMFILE),
        *(errno.ENFILE, errno.ENOMEM, errno.EDQUOT, errno.EINTR, errno.EAGAIN),
    )
    errors = (
        *(OSError(number, os.strerror(number), "a file") for number in numbers),
        *(MemoryError(), RuntimeError("std::bad_alloc"), RuntimeError("CUDA error: out of memory")),
    )


@pytest.mark.parametrize("error", Trouble.errors, ids=repr)
@pytest.mark.parametrize("at", ["backends.onnx.run._open", "bundle.workspace.real_file"])
def test_trouble_of_the_machine_is_told_and_never_kept(
    make: Any, at: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make.workspace()

    def fails(*_: object) -> None:
        raise error

    for _ in range(2):
        with opened(root) as (attempts, candidates), monkeypatch.context() as patch:
            patch.setattr(f"edgeserve.{at}", fails)
            [outcome] = attempts.outcomes(candidates).values()
        assert (outcome.state, outcome.tries) == ("deferred", 0)
        assert outcome.trouble is not None
        assert outcome.trouble["code"] == "EDGE-FILES-007"
        assert {path.suffix for path in outcomes_folder().iterdir()} <= {".lock"}
    with opened(root) as (attempts, candidates):
        assert [o.state for o in attempts.outcomes(candidates).values()] == ["accepted"]


@pytest.mark.parametrize("how", ["disk", "memory"])
def test_a_child_that_the_machine_stops_demotes_nothing(make: Any, npu: Npu, how: str) -> None:
    with opened(make.workspace(npu(how))) as (attempts, candidates):
        for _ in range(2):
            found = states(candidates, attempts.outcomes(candidates))
            assert found["tflite-fp32 on npu, 1 thread"] == "deferred"


def test_ctrl_c_during_a_trial_in_a_child_demotes_nothing(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make.workspace(
        make.made("onnx-fp32", make.endless()), make.made("onnx-fp16", make.classifier())
    )

    def interrupt(self: object, step: jobs.Progress) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("edgeserve.wrapper.prober._ChildProgress.__call__", interrupt)
    with opened(root) as (attempts, candidates), pytest.raises(KeyboardInterrupt):
        attempts.outcomes(candidates)
    left = {path.suffix for path in outcomes_folder().iterdir()}
    assert left <= {".lock"}


def test_an_unwritable_cache_is_told_and_costs_nothing_else(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("EDGESERVE_CACHE", str(tmp_path / "file"))
    with opened(make.workspace(), threads=None) as (attempts, candidates):
        assert {o.state for o in attempts.outcomes(candidates).values()} == {"accepted"}
        assert "nothing can be kept" in attempts.trouble


def test_two_processes_share_one_trial(make: Any) -> None:
    """While another process tries, this one waits, then takes its outcome over."""
    root = make.workspace()
    with opened(root) as (_, candidates), opened(root) as (other, _):
        ready, go = threading.Event(), threading.Event()
        cache = Path(os.environ["EDGESERVE_CACHE"]) / "wrapper"
        found: list[ProbeOutcome] = []

        def second() -> None:
            ready.set()
            go.wait()
            found.extend(other.outcomes(candidates).values())

        thread = threading.Thread(target=second)
        thread.start()
        ready.wait()
        with ProbeJournal(cache).attempt(candidates[0].key, "first", 0):
            go.set()
            time.sleep(0.3)
            ProbeCache(cache).put(
                ProbeOutcome(
                    key=candidates[0].key, name="first", state="refused", reason="by the first"
                )
            )
        thread.join()
        assert [o.reason for o in found] == ["by the first"]


def test_what_only_answered_golden_cases_is_rehearsed_for_a_service(make: Any) -> None:
    """Zeros of typical sizes run in a child, once; without golden cases they are all there is."""
    stop = threading.Event()
    root = make.workspace()
    with opened(root) as (attempts, [candidate]):
        assert not attempts.outcomes([candidate])[candidate.key].rehearsed
    with isolated(stop), opened(root) as (attempts, [candidate]):
        outcome = attempts.outcomes([candidate])[candidate.key]
        assert (outcome.state, outcome.rehearsed, outcome.total) == ("accepted", True, 4)
        assert 0 < outcome.memory < 512 << 20
        kept = attempts.outcomes([candidate])[candidate.key]
    assert kept == outcome
    with isolated(stop), opened(make.workspace(golden=False)) as (attempts, [candidate]):
        outcome = attempts.outcomes([candidate])[candidate.key]
        assert (outcome.state, outcome.rehearsed, outcome.total) == ("accepted", True, 0)
        stop.set()
        assert attempts.outcomes([candidate])[candidate.key] == outcome
