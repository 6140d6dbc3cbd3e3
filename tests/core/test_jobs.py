"""Workers, for real: every way to answer, to fail and to die; and nothing is left running."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from edgeserve import jobs, worker_process
from edgeserve.errors import BundleError, EdgeError, FilesError, UnsupportedOp, WorkerError
from edgeserve.jobs import Progress, log_tail

VERBS = "edgeserve.verbs_for_tests:"

Run = Callable[..., Any]
Gone = Callable[[list[int]], bool]


@pytest.fixture(params=[None, ("xml.dom.minidom", "no_such_module")], ids=["spawned", "forked"])
def imports(request: pytest.FixtureRequest) -> Any:
    """What the fork server imports; None: none is used."""
    return request.param


@pytest.fixture
def run(verbs: ModuleType, tmp_path: Path, imports: Any) -> Run:
    """``run(verb, number)``: the verb's `Answer` from a worker; its folder is ``tmp_path/job``."""

    def go(verb: str, number: int = 0, **options: Any) -> Any:
        ask = verbs.Ask(number=number, folder=str(tmp_path))
        options.setdefault("imports", imports)
        return jobs.run(VERBS + verb, ask, verbs.Answer, tmp_path / "job", **options)

    return go


@pytest.fixture
def real_command() -> tuple[str, ...]:
    """How a worker is started where no test changes it."""
    return worker_process._ALONE


def test_a_verb_answers(run: Run, tmp_path: Path) -> None:
    assert run("double", 21).numbers == (42,)
    kept = {p.name for p in (tmp_path / "job").iterdir()}
    assert kept == {"job.json", "log.txt", "result.json", "usage.json"}
    assert (tmp_path / "job/log.txt").read_text() == "doubling 21\n"
    assert run("double", 4).numbers == (8,), "an old result was taken for the new one"


def test_the_real_command_starts_the_real_worker(
    real_command: tuple[str, ...],
    verbs: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without the tests' starter: the worker knows edgeserve's own modules only."""
    monkeypatch.setattr(worker_process, "_ALONE", real_command)
    with pytest.raises(WorkerError) as error:
        jobs.run(VERBS + "double", verbs.Ask(), verbs.Answer, tmp_path)
    assert error.value.code == "EDGE-WORKER-001"
    assert error.value.thing == "ModuleNotFoundError"
    assert "verbs_for_tests" in error.value.got


def test_the_worker_has_a_place_and_a_group_of_its_own(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    answer = run("surroundings", path=[str(tmp_path / "mine")])
    folder, stdin, safe_path, last = answer.text.split("|")
    assert folder == str(tmp_path / "job")
    assert (stdin, safe_path) == ("", "True")
    assert last == str(tmp_path / "mine"), "the user's folder comes last"
    pid, group, session = answer.numbers
    assert pid == group == session != os.getpgrp()


def test_users_modules_are_found_and_hide_none_of_ours(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/users_module.py").write_text("WORD = 'theirs'\n")
    (tmp_path / "mine/numpy.py").write_text("raise SystemExit('the wrong numpy')\n")
    assert run("use_users_module", path=[str(tmp_path / "mine")]).text == "theirs"


def test_a_relative_job_folder(
    verbs: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = jobs.run(VERBS + "double", verbs.Ask(number=1), verbs.Answer, Path("deep/job"))
    assert answer.numbers == (2,)
    assert (tmp_path / "deep/job/log.txt").exists()


def test_an_error_comes_back_as_it_was_raised(run: Run, tmp_path: Path) -> None:
    with pytest.raises(BundleError) as error:
        run("refuse")
    assert type(error.value) is BundleError
    assert error.value.message == "member 'x': wanted sha256 ab, got sha256 cd"
    assert "Traceback" in (tmp_path / "job/log.txt").read_text()


def test_a_failed_check_comes_back_as_one(run: Run) -> None:
    with pytest.raises(UnsupportedOp) as error:
        run("refuse_by_check")
    assert (error.value.exit_code, error.value.source_line) == (1, "model.py:7")


def test_an_old_error_is_not_taken_for_a_new_one(run: Run) -> None:
    with pytest.raises(BundleError):
        run("refuse")
    assert run("double", 1).numbers == (2,)


def test_any_other_exception_gets_a_code(run: Run, tmp_path: Path) -> None:
    with pytest.raises(WorkerError) as error:
        run("fail_oddly")
    assert error.value.code == "EDGE-WORKER-001"
    assert error.value.message.startswith("KeyError: ")
    assert error.value.message.isprintable()
    assert "fail_oddly" in (tmp_path / "job/log.txt").read_text()


@pytest.mark.parametrize(("verb", "status"), [("leave", 0), ("leave", 7), ("leave_politely", 3)])
def test_leaving_without_an_answer(run: Run, verb: str, status: int) -> None:
    with pytest.raises(WorkerError) as error:
        run(verb, status)
    assert error.value.code == "EDGE-WORKER-002"
    assert f"exit status {status}" in error.value.got
    assert ("about to leave" in error.value.got) == (verb == "leave")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGTERM])
def test_death_by_a_signal_is_named(run: Run, number: signal.Signals) -> None:
    with pytest.raises(WorkerError) as error:
        run("kill_self", int(number))
    assert error.value.code == "EDGE-WORKER-002"
    assert error.value.got == f"signal {number.name}; it last said: last words"
    assert ("memory" in error.value.hint) == (number is signal.SIGKILL)


def test_a_signal_without_a_name(run: Run) -> None:
    with pytest.raises(WorkerError) as error:
        run("kill_self", 40)  # a real-time signal
    assert error.value.got.startswith("signal 40;")


def test_a_segfault_leaves_its_trace_in_the_log(run: Run, tmp_path: Path) -> None:
    with pytest.raises(WorkerError):
        run("kill_self", int(signal.SIGSEGV))
    log = (tmp_path / "job/log.txt").read_text()
    assert "Segmentation fault" in log
    assert "in kill_self" in log


def hanging(folder: Path) -> list[int]:
    """Who runs in the worker that hangs; waits until all do."""
    while not (folder / "running").exists():
        time.sleep(0.01)
    return [int(pid) for pid in (folder / "running").read_text().split()]


class Clock:
    """Time stands still until the worker hangs with all its children, and then a day has passed."""

    sleep = staticmethod(time.sleep)

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def monotonic(self) -> float:
        return 86_400.0 if (self.folder / "running").exists() else 0.0


def test_a_hanging_worker_is_killed_with_its_grandchildren(
    run: Run, tmp_path: Path, gone: Gone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "time", Clock(tmp_path))
    with pytest.raises(WorkerError) as error:
        run("hang", timeout=90)
    assert error.value.code == "EDGE-WORKER-003"
    assert "90 s" in error.value.wanted
    assert gone(hanging(tmp_path))


def test_children_do_not_outlive_the_answer(run: Run, gone: Gone) -> None:
    assert gone(list(run("children").numbers))


def test_ctrl_c_kills_the_whole_group(run: Run, tmp_path: Path, gone: Gone) -> None:
    def interrupt() -> None:
        hanging(tmp_path)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt, daemon=True)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        run("hang")
    thread.join()
    assert gone(hanging(tmp_path))


def test_an_error_of_who_watches_the_progress_kills_the_group(
    run: Run, tmp_path: Path, gone: Gone
) -> None:
    def bored(step: Progress) -> None:
        raise ZeroDivisionError(step.what)

    with pytest.raises(ZeroDivisionError, match="hanging"):
        run("hang", on_progress=bored)
    assert gone(hanging(tmp_path))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_worker_dies_with_its_parent_however_that_dies(
    tmp_path: Path, gone: Gone, imports: Any, number: signal.Signals
) -> None:
    """No code of the parent's runs on SIGKILL, and none on SIGTERM where nobody handles it."""
    parent = subprocess.Popen(
        [
            sys.executable,
            "-P",
            "-c",
            textwrap.dedent(f"""
        import sys, importlib.util
        from pathlib import Path
        from edgeserve import jobs, worker_process
        here = Path({str(Path(__file__).parent)!r})
        name = "edgeserve.verbs_for_tests"
        spec = importlib.util.spec_from_file_location(name, here / "verbs.py")
        verbs = importlib.util.module_from_spec(spec)
        sys.modules[name] = verbs
        spec.loader.exec_module(verbs)
        start = (sys.executable, "-P", str(here / "start_worker.py"))
        worker_process._ALONE = (*start, "edgeserve.worker")
        worker_process._SERVER = (*start, "edgeserve.fork_server")
        folder = Path({str(tmp_path)!r})
        ask = verbs.Ask(folder=str(folder))
        jobs.run("{VERBS}hang", ask, verbs.Answer, folder / "job", imports={imports})
    """),
        ]
    )
    pids = hanging(tmp_path)
    parent.send_signal(number)
    assert parent.wait() == -number
    assert gone(pids)


def test_progress_arrives_whole_and_in_order(run: Run) -> None:
    steps: list[Progress] = []
    run("step", 500, on_progress=steps.append)
    assert steps == [Progress(what="steps", done=n, total=500) for n in range(500)]


def test_progress_of_an_earlier_run_is_not_told_again(run: Run) -> None:
    run("step", 5)
    steps: list[Progress] = []
    run("step", 2, on_progress=steps.append)
    assert [step.total for step in steps] == [2, 2]


def test_a_half_written_line_waits_for_its_rest(run: Run) -> None:
    steps: list[Progress] = []
    run("step_in_halves", on_progress=steps.append)
    assert [step.what for step in steps] == ["halves", "next"]


def test_a_torn_line_costs_itself_only(run: Run) -> None:
    steps: list[Progress] = []
    assert run("step_then_tear", on_progress=steps.append).text == "torn"
    assert [(step.what, step.done) for step in steps] == [("whole", 1), ("whole", 2)]


def test_progress_outside_a_worker_does_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(jobs.PROGRESS, raising=False)
    monkeypatch.chdir(tmp_path)
    jobs.progress("nobody listens", 1, 2)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "verb",
    [
        "os:system",
        "edgeserve_evil:verb",
        "subprocess:run",
        "edgeserve:__getattr__",
        "edgeserve.jobs:Job",  # a class
        "edgeserve.jobs:subprocess",  # a module
        "edgeserve.files:sha256_file",  # takes no value
        "edgeserve.worker:main",
        "edgeserve.jobs:contextlib",
        f"{VERBS}takes_two",
        f"{VERBS}takes_text",
        f"{VERBS}NOT_A_FUNCTION",
        f"{VERBS}time",
        f"{VERBS}no_such",
        "edgeserve.files",
        "",
    ],
)
def test_what_is_not_a_verb_is_refused(verbs: ModuleType, tmp_path: Path, verb: str) -> None:
    with pytest.raises(WorkerError) as error:
        jobs.run(verb, verbs.Ask(), verbs.Answer, tmp_path)
    assert error.value.code == "EDGE-WORKER-004"


def test_a_request_of_the_wrong_form(verbs: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(WorkerError) as error:
        jobs.run(VERBS + "double", verbs.Other(words=1), verbs.Answer, tmp_path)
    assert error.value.code == "EDGE-WORKER-001"
    assert "words" in error.value.got


def test_a_result_of_the_wrong_form(run: Run) -> None:
    with pytest.raises(WorkerError) as error:
        run("answer_otherwise")
    assert error.value.code == "EDGE-WORKER-005"
    assert "Answer" in error.value.wanted


def test_a_job_folder_that_cannot_be_made(verbs: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FilesError) as error:
        jobs.run(VERBS + "double", verbs.Ask(), verbs.Answer, tmp_path / "file" / "job")
    assert error.value.code == "EDGE-FILES-001"


def test_many_workers_at_once(verbs: ModuleType, tmp_path: Path, imports: Any) -> None:
    found: dict[int, Any] = {}

    def one(n: int) -> None:
        ask = verbs.Ask(number=n)
        found[n] = jobs.run(VERBS + "double", ask, verbs.Answer, tmp_path / str(n), imports=imports)

    threads = [threading.Thread(target=one, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {n: answer.numbers for n, answer in found.items()} == {n: (2 * n,) for n in range(4)}


def test_nothing_is_left_open_here(run: Run) -> None:
    """Neither files nor zombies, whether the worker answers, fails or is killed."""

    def mine() -> tuple[int, list[str]]:
        gc.collect()
        children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
        return len(os.listdir("/proc/self/fd")), children

    run("double")
    before = mine()
    run("double")
    for verb, options in (("refuse", {}), ("leave", {}), ("hang", {"timeout": 1.0})):
        with pytest.raises(EdgeError):
            run(verb, **options)
    assert mine() == before


def test_the_worker_has_nothing_of_ours_open(run: Run, tmp_path: Path) -> None:
    with open(tmp_path / "secret", "wb"):
        found = run("open_files").text
    assert "secret" not in found
    assert found.count("pipe:") == 1, f"the tie to the parent, and no other: {found}"


def test_log_tail(tmp_path: Path) -> None:
    assert log_tail(tmp_path) == ""
    (tmp_path / "log.txt").write_bytes(b"x" * 100_000 + b"\none\n\n two \xff\n \n")
    assert log_tail(tmp_path) == " two \ufffd"
    assert log_tail(tmp_path, lines=2) == "one |  two \ufffd"
    (tmp_path / "log.txt").write_text("y" * 1000)
    assert log_tail(tmp_path) == "y" * 300


def test_a_worker_asks_a_function_of_its_parent(run: Run) -> None:
    """It is called in the thread that waits, once a message, and messages may be large."""
    where: set[int] = set()

    def answer(message: bytes) -> bytes:
        where.add(threading.get_ident())
        return str(int(message) ** 2 if len(message) < 9 else len(message)).encode()

    done = run("ask_often", 5, answer=answer)
    assert done.numbers == (0, 1, 4, 9, 16)
    assert done.text == str(5 << 20)
    assert where == {threading.get_ident()}


def test_a_parent_that_thinks_does_not_time_its_worker_out(run: Run) -> None:
    def answer(message: bytes) -> bytes:
        time.sleep(3.0 if message == b"0" else 0.0)
        return b"1"

    assert run("ask_often", 2, answer=answer, timeout=2.9).numbers == (1, 1)


def test_what_a_parents_function_raises_ends_the_worker(run: Run) -> None:
    before = len(os.listdir("/proc/self/fd"))

    def answer(message: bytes) -> bytes:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        run("ask_often", 1, answer=answer)
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before, "an end of the channel is left open"


def test_a_worker_dies_while_its_parent_answers(run: Run, tmp_path: Path) -> None:
    """The answer goes nowhere; what counts is how the worker ended."""

    def answer(message: bytes) -> bytes:
        children = Path("/proc/self/task").glob("*/children")
        for pid in " ".join(path.read_text() for path in children).split():
            if b"start_worker" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(int(pid), signal.SIGKILL)
        return b"1" * (5 << 20)

    with pytest.raises(WorkerError) as error:
        run("ask_often", 1, answer=answer)
    assert error.value.code == "EDGE-WORKER-002"


def test_a_worker_whose_parent_has_no_function_is_told(run: Run) -> None:
    with pytest.raises(WorkerError, match="KeyError"):
        run("ask_often", 1)
