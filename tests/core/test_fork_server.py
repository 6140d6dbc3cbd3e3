"""The fork server: one a process, new where it has to be, replaced where it died."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from edgeserve import jobs, worker_process

Loaded = Callable[..., tuple[str, int]]


@pytest.fixture
def loaded(verbs: ModuleType, tmp_path: Path) -> Loaded:
    """``loaded(imports)``: what a worker found loaded, and the process that started it."""

    def go(imports: Any = ("xml.dom.minidom",)) -> tuple[str, int]:
        verb, folder = "edgeserve.verbs_for_tests:loaded", tmp_path / "job"
        answer = jobs.run(verb, verbs.Ask(), verbs.Answer, folder, imports=imports)
        return answer.text, answer.numbers[0]

    return go


def test_workers_come_from_one_server_that_imported_for_them(loaded: Loaded) -> None:
    assert loaded(None) == ("False None", os.getpid()), "without a server, a process of its own"
    first, second = loaded(()), loaded()
    assert (first[0], second[0]) == ("False None", "True None")
    assert first[1] == second[1] != os.getpid()


def test_a_function_that_imports_is_called(loaded: Loaded, tmp_path: Path) -> None:
    assert loaded(("importlib.metadata:nothing_there", "xml.dom.minidom"))[0] == "True None"
    assert loaded(("email.message:policy",))[0] == "True None", "it failed, which costs nothing"


def test_another_environment_gets_another_server(
    loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenMP reads its variables when torch is loaded: later is too late."""
    _, before = loaded()
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "changes with each test")
    assert loaded() == ("True None", before)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    text, other = loaded()
    assert (text, other != before) == ("True 3", True)


def test_the_cache_may_change_between_two_workers_of_one_server(
    verbs: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = set()
    for cache in ("one", "other", None):
        monkeypatch.delenv("EDGESERVE_CACHE")
        if cache:
            monkeypatch.setenv("EDGESERVE_CACHE", cache)
        verb, ask = "edgeserve.verbs_for_tests:variable", verbs.Ask(folder="EDGESERVE_CACHE")
        found = jobs.run(verb, ask, verbs.Answer, tmp_path / "job", imports=())
        assert found.text == str(cache)
        servers.update(found.numbers)
    assert len(servers) == 1


def test_a_server_that_died_is_replaced(loaded: Loaded) -> None:
    _, server = loaded()
    os.kill(server, signal.SIGKILL)
    text, other = loaded()
    assert (text, other != server) == ("True None", True)


def test_an_idle_server_ends(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    *start, module = worker_process._SERVER
    script = (
        f"import sys, runpy; sys.argv = {[start[2], 'edgeserve.jobs', '']!r};"
        "runpy.run_path(sys.argv[0], run_name='__main__');"
    )
    assert module == "edgeserve.fork_server"
    script += "from edgeserve import fork_server; fork_server._IDLE = 0.1; fork_server.main(orig)"
    script = "import sys; orig = list(sys.argv);" + script
    monkeypatch.setattr(worker_process, "_SERVER", (sys.executable, "-P", "-c", script))
    _, server = loaded()
    deadline = time.monotonic() + 20
    while _runs(server) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _runs(server)
    assert loaded()[0] == "True None"


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.mark.parametrize("command", [(sys.executable, "-c", "raise SystemExit(1)"), ("/nowhere",)])
def test_where_no_server_can_be_had_workers_are_started_alone(
    loaded: Loaded, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setattr(worker_process, "_SERVER", command)
    monkeypatch.setattr(worker_process, "_useless", False)
    assert loaded() == ("False None", os.getpid())
    assert worker_process._useless, "it would be tried again for every worker"
