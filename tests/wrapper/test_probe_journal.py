"""The attempt journal, with processes that really die."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgeserve.files import Fs
from edgeserve.wrapper.probe import ProbeBusy, ProbeJournal

_TRY = """
import sys, time
from pathlib import Path
from edgeserve.wrapper.probe import ProbeJournal

with ProbeJournal(Path(sys.argv[1])).attempt("key", "onnx-fp32 on npu", 5):
    print("trying", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def trying(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process in the middle of an attempt at "key"."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", textwrap.dedent(_TRY), str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "trying\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_an_attempt_that_ends_leaves_nothing(tmp_path: Path) -> None:
    journal = ProbeJournal(tmp_path)
    with journal.attempt("key", "a name", 0):
        assert (tmp_path / "key.trying").exists()
    with pytest.raises(RuntimeError), journal.attempt("key", "a name", 0):
        raise RuntimeError("an error is not a crash")
    with pytest.raises(KeyboardInterrupt), journal.attempt("key", "a name", 0):
        raise KeyboardInterrupt
    assert journal.leftover("key") is None
    assert not (tmp_path / "key.trying").exists()


def test_a_killed_process_leaves_its_entry_once(
    tmp_path: Path, trying: subprocess.Popen[str]
) -> None:
    trying.send_signal(signal.SIGKILL)
    trying.wait()
    journal = ProbeJournal(tmp_path)
    entry = journal.leftover("key")
    assert entry is not None
    assert entry.name == "onnx-fp32 on npu"
    assert journal.leftover("key") is None
    assert journal.leftover("another") is None
    with journal.attempt("key", "again", 0):
        pass


def test_an_attempt_under_way_is_no_leftover(tmp_path: Path, trying: subprocess.Popen[str]) -> None:
    journal = ProbeJournal(tmp_path)
    assert journal.leftover("key") is None
    assert (tmp_path / "key.trying").exists()
    with pytest.raises(ProbeBusy), journal.attempt("key", "second", 0.1):
        pytest.fail("two processes at the same attempt")
    with journal.attempt("other", "another candidate", 0):
        pass


def test_a_torn_entry_is_a_leftover_too(tmp_path: Path) -> None:
    (tmp_path / "key.trying").write_bytes(b'{"name":"onn')
    assert ProbeJournal(tmp_path).leftover("key") is not None


class ReadOnly(Fs):
    def mkdir(self, path: Path) -> None:
        raise PermissionError("read-only")

    def write(self, path: Path, data: bytes) -> None:
        raise PermissionError("read-only")


def test_a_read_only_disk_stops_no_attempt(tmp_path: Path) -> None:
    journal = ProbeJournal(tmp_path / "missing", ReadOnly())
    done = []
    with journal.attempt("key", "a name", 0):
        done.append("tried")
    assert done == ["tried"]
    assert journal.leftover("key") is None
    with pytest.raises(OSError, match="the model's own"), journal.attempt("key", "a name", 0):
        raise OSError("the model's own")
