"""What somebody else's code may do in a worker: take memory, write without end, end the process."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from edgeserve import jobs
from edgeserve.errors import UsageError, WorkerError

VERBS = "edgeserve.verbs_for_tests:"

Gone = Callable[[list[int]], bool]

_ODD = """
import ctypes, os, sys, time
class Silent(Exception):
    def __str__(self): raise ValueError
class Odd(BaseException): pass
def make():
    {}
"""


@pytest.mark.parametrize(
    ("does", "code", "told"),
    [
        ("raise Silent", 1, "Silent: no message: its __str__ raises ValueError"),
        ("raise KeyboardInterrupt", 1, "KeyboardInterrupt: no message"),
        ("raise Odd('odd')", 1, "Odd: odd"),
        ("raise ValueError('m' * (50 << 20))", 1, "ValueError: mmm"),
        ("raise ValueError('a') from Silent()", 1, "ValueError: a"),
        ("raise MemoryError", 8, "MemoryError: no memory left"),
        ("os._exit(0)", 2, "exit status 0"),
        ("os._exit(9)", 2, "exit status 9"),
        ("ctypes.string_at(0)", 2, "signal SIGSEGV"),
        ("os.abort()", 2, "signal SIGABRT"),
        ("time.sleep(60)", 3, "an answer within 1.5 s"),
        ("held = [bytearray(b'x' * (1 << 24)) for _ in range(10**9)]", 8, "at most 300 MB"),
        ("while True: os.write(1, bytes(1 << 20))", 3, "an answer within 1.5 s"),
    ],
)
def test_users_code_ends_the_worker_and_the_line_is_named(
    verbs: ModuleType, tmp_path: Path, does: str, code: int, told: str
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/users_module.py").write_text(_ODD.format(does))
    limits: dict[str, Any] = {"timeout": 1.5 if code == 3 else 60, "memory": 300 << 20}
    with pytest.raises(WorkerError) as error:
        jobs.run(
            VERBS + "use_users_code",
            verbs.Ask(),
            verbs.Answer,
            tmp_path / "job",
            imports=(),
            path=[str(tmp_path / "mine")],
            **limits,
        )
    assert error.value.code == f"EDGE-WORKER-00{code}"
    assert told in error.value.message
    assert len(error.value.message) < 1000
    assert error.value.hint
    noise = "os.write" in does  # goes on over what the worker says of its place
    assert error.value.source_line == (None if noise else "users_module.py:7")
    assert (tmp_path / "job/log.txt").stat().st_size < 64 << 20


def test_memory_of_the_children_counts(
    verbs: ModuleType, tmp_path: Path, gone: Gone, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever takes it, and however many: the limit is one for the whole tree."""
    monkeypatch.setenv("EDGESERVE_WORKER_MB", "400")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/users_module.py").write_text(
        textwrap.dedent("""
        import os, time
        def make():
            for _ in range(4):
                if not os.fork():
                    with open('pid', 'a') as told: told.write(f'{os.getpid()} ')
                    held = b'x' * (150 << 20)
                    time.sleep(60)
            time.sleep(60)
        """)
    )
    with pytest.raises(WorkerError) as error:
        jobs.run(
            VERBS + "use_users_code",
            verbs.Ask(),
            verbs.Answer,
            tmp_path / "job",
            path=[str(tmp_path / "mine")],
        )
    assert (error.value.code, error.value.wanted) == ("EDGE-WORKER-008", "at most 400 MB of memory")
    assert gone([int(pid) for pid in (tmp_path / "job/pid").read_text().split()])


def test_the_processor_time_is_limited_too(verbs: ModuleType, tmp_path: Path) -> None:
    """A process that left the worker's group is killed by nobody else."""
    from edgeserve.environment import usable_cores

    (tmp_path / "users_module.py").write_text(
        textwrap.dedent("""
        import resource, time
        def make():
            time.sleep(0.2)
            print(resource.getrlimit(resource.RLIMIT_CPU)[0])
        """)
    )
    options: dict[str, Any] = {"path": [str(tmp_path)], "timeout": 30.0}
    ask, job = verbs.Ask(), tmp_path / "job"
    jobs.run(VERBS + "use_users_code", ask, verbs.Answer, job, **options)
    assert (job / "log.txt").read_text() == f"{30 * usable_cores() + 60}\n"


@pytest.mark.parametrize("given", ["0", "-1", "4 GB", "1e3", "9" * 5000, "\u0663"])
def test_a_limit_that_is_no_number_is_refused(
    verbs: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.setenv("EDGESERVE_WORKER_MB", given)
    with pytest.raises(UsageError) as error:
        jobs.run(VERBS + "double", verbs.Ask(), verbs.Answer, tmp_path / "job")
    assert error.value.code == "EDGE-USAGE-014"
    assert not (tmp_path / "job").exists()
