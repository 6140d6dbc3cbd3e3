"""Fixtures of the core's tests: verbs for workers, and a disk that fails when told to."""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from testkit.modules import load

from edgeserve import worker_process
from edgeserve.files import Fs


@pytest.fixture(scope="session")
def _verbs() -> Iterator[ModuleType]:
    name = "edgeserve.verbs_for_tests"
    module = load(Path(__file__).with_name("verbs.py"), name)
    yield module
    del sys.modules[name]


@pytest.fixture
def verbs(_verbs: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module of test verbs; workers started during the test know it too."""
    starter = str(Path(__file__).with_name("start_worker.py"))
    for name, module in (("_ALONE", "worker"), ("_SERVER", "fork_server")):
        command = (sys.executable, "-P", starter, f"edgeserve.{module}")
        monkeypatch.setattr(worker_process, name, command)
    return _verbs


class FaultyFs(Fs):
    """Fails at the ``at``-th operation, and at all after it when ``for_good``.

    A failing write or copy leaves half of its bytes, as a full disk does.
    """

    def __init__(self, at: int, number: int = errno.ENOSPC, *, for_good: bool = False) -> None:
        self.at = at
        self.number = number
        self.for_good = for_good
        self.done: list[str] = []

    def _fails(self, what: str) -> bool:
        self.done.append(what)
        now = len(self.done) - 1
        return now == self.at or (self.for_good and now > self.at)

    def _error(self) -> OSError:
        return OSError(self.number, os.strerror(self.number))

    def write(self, path: Path, data: bytes) -> None:
        if self._fails("write"):
            path.write_bytes(data[: len(data) // 2])
            raise self._error()
        super().write(path, data)

    def write_chunks(self, path: Path, chunks: Iterable[bytes]) -> None:
        if self._fails("write_chunks"):
            path.write_bytes(next(iter(chunks)))
            raise self._error()
        super().write_chunks(path, chunks)

    def copy(self, source: Path, target: Path) -> None:
        if self._fails("copy"):
            target.write_bytes(source.read_bytes()[:1])
            raise self._error()
        super().copy(source, target)

    def replace(self, source: Path, target: Path) -> None:
        if self._fails("replace"):
            raise self._error()
        super().replace(source, target)

    def exchange(self, first: Path, second: Path) -> None:
        if self._fails("exchange"):
            raise self._error()
        super().exchange(first, second)

    def mkdir(self, path: Path) -> None:
        if self._fails("mkdir"):
            raise self._error()
        super().mkdir(path)

    def sync_tree(self, path: Path) -> None:
        if self._fails("sync_tree"):
            raise self._error()
        super().sync_tree(path)


class OldFs(FaultyFs):
    """A file system that cannot swap two names in one step."""

    def exchange(self, first: Path, second: Path) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))


@pytest.fixture(params=[FaultyFs, OldFs], ids=["exchange", "two renames"])
def faulty(request: pytest.FixtureRequest) -> type[FaultyFs]:
    """A disk with faults: one that can swap two names, and one that cannot."""
    kind: type[FaultyFs] = request.param
    return kind


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"  # a zombie runs no more; whether init buries it is not edgeserve's doing


@pytest.fixture
def gone() -> Callable[[list[int]], bool]:
    """``gone(pids)``: none of the processes runs any more (waits up to 10 s for it)."""

    def check(pids: list[int]) -> bool:
        assert pids, "nobody to look for"
        deadline = time.monotonic() + 10
        while any(map(_alive, pids)) and time.monotonic() < deadline:
            time.sleep(0.01)
        return not any(map(_alive, pids))

    return check
