"""Workers side by side: slots, memory, and the end of all when one fails."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from edgeserve import jobs
from edgeserve.convert import ExportRequest
from edgeserve.errors import ConvertError, WorkerError
from edgeserve.pipeline.scheduler import WorkerPool, available_memory
from edgeserve.types.source import Exported, Source

GIB = 1 << 30


class Meter:
    """Counts how many blocks are open at once."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self.now -= 1


def run_all(crew: WorkerPool, count: int, memory: int, open_at_once: int) -> int:
    """Start ``count`` stages that wait, once let in, until as many as expected are in."""
    meter = Meter()
    met = threading.Event()

    def stage() -> None:
        with crew.admitted("stage", memory), meter:
            if meter.now >= open_at_once:
                met.set()
            met.wait(20)

    for _ in range(count):
        crew.start(stage)
    crew.finish()
    assert met.is_set(), "fewer ran side by side than could"
    return meter.most


def test_as_many_run_side_by_side_as_there_are_slots() -> None:
    with WorkerPool(slots=3, memory=lambda: 100 * GIB) as crew:
        assert run_all(crew, 8, GIB, open_at_once=3) == 3


def test_memory_keeps_the_second_out() -> None:
    with WorkerPool(slots=4, memory=lambda: 3 * GIB) as crew:
        assert run_all(crew, 4, GIB, open_at_once=1) == 1


def test_half_of_what_is_free_is_shared_out() -> None:
    with WorkerPool(slots=4, memory=lambda: 4 * GIB) as crew:
        assert run_all(crew, 4, GIB, open_at_once=2) == 2


def test_one_is_let_in_whatever_it_is_estimated_to_need() -> None:
    with WorkerPool(slots=2, memory=lambda: 1) as crew:
        assert run_all(crew, 2, 1000 * GIB, open_at_once=1) == 1


def test_the_first_failure_stops_those_that_wait_and_is_what_is_told() -> None:
    held = threading.Event()
    crew = WorkerPool(slots=1, memory=lambda: 100 * GIB)

    def holds() -> bool:
        with crew.admitted("holder", 0):
            held.set()
            return crew.stop.wait(20)

    def fails() -> None:
        held.wait(20)
        raise ConvertError("EDGE-CONVERT-012", "forward", got="an end", hint="mend it")

    def waits() -> None:
        held.wait(20)
        with crew.admitted("second", 0):
            raise AssertionError("let in after the end")

    with crew:
        holder, first, second = crew.start(holds), crew.start(fails), crew.start(waits)
        with pytest.raises(ConvertError) as caught:
            crew.finish()
    assert holder.result() is True
    assert first.exception() is caught.value
    stopped = second.exception()
    assert isinstance(stopped, WorkerError)
    assert stopped.code == "EDGE-WORKER-006"


def test_an_interrupt_ends_running_workers(tmp_path: Path) -> None:
    """The factory would sleep for an hour; its process is gone when the block has been left."""
    (tmp_path / "sleeper.py").write_text(
        "import os, pathlib, time\n"
        "def build():\n"
        "    pathlib.Path(__file__).with_name('pid').write_text(str(os.getpid()))\n"
        "    time.sleep(3600)\n"
    )
    source = Source(kind="factory", location="sleeper:build", folder=str(tmp_path))
    request = ExportRequest(source=source, out=str(tmp_path / "out"))
    told = tmp_path / "pid"
    crew = WorkerPool(slots=1)

    def interrupted() -> None:
        with crew:
            running = crew.start(
                jobs.run,
                "edgeserve.convert.source:export_source",
                request,
                Exported,
                tmp_path / "job",
                path=[str(tmp_path)],
                stop=crew.stop,
            )
            while not (told.exists() and told.read_text()):
                assert not running.done(), running.exception()
                time.sleep(0.02)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    status = Path(f"/proc/{told.read_text()}/stat")
    assert not status.exists() or status.read_text().split()[2] == "Z"


def test_available_memory_is_less_than_the_machine_has() -> None:
    import psutil

    assert 0 < available_memory() <= psutil.virtual_memory().total
