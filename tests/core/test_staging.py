"""Atomic writes and staged folders: whatever fails, readers see the old or the new, no litter."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from edgeserve import files
from edgeserve.errors import FilesError
from edgeserve.files import LOCAL, Fs, staged, staged_file, sweep, write_atomic

FAULTS = [errno.ENOSPC, errno.EACCES, errno.EIO, errno.EDQUOT, errno.EROFS]


def names(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*"))


def test_write_atomic_makes_folders_and_leaves_one_file(tmp_path: Path) -> None:
    write_atomic(tmp_path / "a/b/file", b"one")
    write_atomic(tmp_path / "a/b/file", b"two")
    assert names(tmp_path) == ["a", "a/b", "a/b/file"]
    assert (tmp_path / "a/b/file").read_bytes() == b"two"


def test_write_atomic_replaces_a_link_and_leaves_what_it_pointed_to(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_bytes(b"theirs")
    (tmp_path / "link").symlink_to(tmp_path / "theirs")
    write_atomic(tmp_path / "link", b"ours")
    assert (tmp_path / "theirs").read_bytes() == b"theirs"
    assert not (tmp_path / "link").is_symlink()


def test_write_atomic_takes_the_longest_name(tmp_path: Path) -> None:
    write_atomic(tmp_path / ("x" * 255), b"1")
    assert names(tmp_path) == ["x" * 255]


def count_operations(act: Callable[[Any], None], faulty: Any) -> int:
    fs = faulty(at=-1)
    act(fs)
    return len(fs.done)


@pytest.mark.parametrize("number", FAULTS)
@pytest.mark.parametrize("for_good", [False, True])
@pytest.mark.parametrize("had", [False, True])
def test_write_atomic_when_any_operation_fails(
    tmp_path: Path, faulty: Any, number: int, for_good: bool, had: bool
) -> None:
    path = tmp_path / "file"
    total = count_operations(lambda fs: write_atomic(tmp_path / "count", b"x", fs), faulty)
    assert total == 3
    (tmp_path / "count").unlink()
    for at in range(total):
        if had:
            path.write_bytes(b"old")
        with pytest.raises(FilesError) as error:
            write_atomic(path, b"a new and longer text", faulty(at, number, for_good=for_good))
        assert error.value.code == "EDGE-FILES-001"
        assert error.value.thing == str(path)
        assert error.value.got == os.strerror(number)
        assert names(tmp_path) == (["file"] if had else [])
        assert not had or path.read_bytes() == b"old"


def test_staged_file_when_any_operation_fails(tmp_path: Path, faulty: Any) -> None:
    def write(path: Path, fs: Any) -> None:
        with staged_file(path, fs) as temporary:
            fs.write_chunks(temporary, [b"in", b"pieces"])

    write(tmp_path / "file", LOCAL)
    for at in range(3):
        with pytest.raises(FilesError):
            write(tmp_path / "file", faulty(at, for_good=True))
        assert names(tmp_path) == ["file"]
        assert (tmp_path / "file").read_bytes() == b"inpieces"


@pytest.mark.parametrize("raised", [KeyboardInterrupt, ValueError])
def test_an_interrupted_file_leaves_nothing(tmp_path: Path, raised: type[BaseException]) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"half"
        raise raised

    def write() -> None:
        with staged_file(tmp_path / "file") as temporary:
            LOCAL.write_chunks(temporary, chunks())

    with pytest.raises(raised):
        write()
    assert names(tmp_path) == []


def fill(target: Path, fs: Fs, words: str) -> None:
    """What a stage does: some files written, one copied, a folder made."""
    with staged(target, fs) as stage:
        fs.write(stage / "a", words.encode())
        fs.mkdir(stage / "deep")
        fs.copy(stage / "a", stage / "deep" / "b")


@pytest.mark.parametrize("number", FAULTS)
@pytest.mark.parametrize("had", [False, True])
def test_staged_when_any_operation_fails(
    tmp_path: Path, faulty: Any, number: int, had: bool
) -> None:
    count, target = tmp_path / "count", tmp_path / "out"
    if had:
        fill(count, LOCAL, "old")
        fill(target, LOCAL, "old")
    total = count_operations(lambda fs: fill(count, fs, "x"), faulty)
    assert total >= 6
    LOCAL.remove_tree(count)
    before = names(tmp_path)
    for at in range(total):
        with pytest.raises(FilesError) as error:
            fill(target, faulty(at, number), "new")
        assert error.value.code == "EDGE-FILES-001"
        assert names(tmp_path) == before, f"after operation {at} failed"
        assert not had or (target / "deep/b").read_text() == "old"


def test_nothing_is_lost_when_the_disk_fails_for_good(tmp_path: Path, faulty: Any) -> None:
    """Even the way back may fail: then `sweep` finds it later."""
    target = tmp_path / "out"
    fill(target, LOCAL, "old")
    total = count_operations(lambda fs: fill(target, fs, "old"), faulty)
    for at in range(total):
        with pytest.raises(FilesError):
            fill(target, faulty(at, for_good=True), "new")
        sweep(tmp_path)
        assert names(tmp_path) == ["out", "out/a", "out/deep", "out/deep/b"]
        assert (target / "a").read_text() == "old", f"after operation {at} failed"


def test_staged_replaces_the_whole_folder(tmp_path: Path, faulty: Any) -> None:
    target = tmp_path / "deep" / "out"
    fill(target, faulty(-1), "first")
    (target / "stale").touch()
    fill(target, faulty(-1), "second")
    assert names(tmp_path / "deep") == ["out", "out/a", "out/deep", "out/deep/b"]
    assert (target / "a").read_text() == "second"


@pytest.mark.parametrize("old", ["file", "link", "dangling"])
def test_staged_takes_the_place_of_anything(tmp_path: Path, faulty: Any, old: str) -> None:
    kept = tmp_path / "kept"
    fill(kept, LOCAL, "theirs")
    target = tmp_path / "out"
    if old == "file":
        target.write_text("a file")
    else:
        target.symlink_to(kept if old == "link" else tmp_path / "nowhere")
    fill(target, faulty(-1), "new")
    assert not target.is_symlink()
    assert (target / "a").read_text() == "new"
    assert (kept / "a").read_text() == "theirs"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["kept", "out"]


class Stop(BaseException):
    """Stands for Ctrl-C."""


@pytest.mark.parametrize("raised", [Stop, KeyboardInterrupt, ValueError])
def test_an_interrupted_block_leaves_nothing(tmp_path: Path, raised: type[BaseException]) -> None:
    fill(tmp_path / "out", LOCAL, "old")

    def stop() -> None:
        with staged(tmp_path / "out") as stage:
            (stage / "half").touch()
            raise raised

    with pytest.raises(raised):
        stop()
    assert names(tmp_path) == ["out", "out/a", "out/deep", "out/deep/b"]


def test_an_interrupt_between_the_two_renames(tmp_path: Path, faulty: Any) -> None:
    class Interrupted(faulty):  # type: ignore[misc]
        def replace(self, source: Path, target: Path) -> None:
            super().replace(source, target)
            if self.done.count("replace") == 1:
                raise KeyboardInterrupt

        def exchange(self, first: Path, second: Path) -> None:
            raise OSError(errno.EINVAL, "no")

    fill(tmp_path / "out", LOCAL, "old")
    with pytest.raises(KeyboardInterrupt):
        fill(tmp_path / "out", Interrupted(-1), "new")
    assert names(tmp_path) == ["out", "out/a", "out/deep", "out/deep/b"]
    assert (tmp_path / "out/a").read_text() == "old"


def test_an_os_error_of_the_block_names_its_file(tmp_path: Path) -> None:
    with pytest.raises(FilesError) as error, staged(tmp_path / "out"):
        (tmp_path / "no such").read_bytes()
    assert error.value.thing == str(tmp_path / "no such")


def test_everything_is_flushed_before_it_takes_the_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A converter's own files too: after a power cut a name must not point to lost bytes."""
    flushed = set()
    real = os.fsync

    def fsync(fd: int) -> None:
        flushed.add(os.fstat(fd).st_ino)
        real(fd)

    with staged(tmp_path / "out") as stage:
        (stage / "deep").mkdir()
        for name in ("a", "deep/b"):
            (stage / name).write_bytes(b"not flushed by who wrote it")
        inodes = {p.stat().st_ino for p in (stage, *stage.rglob("*"))}
        monkeypatch.setattr(os, "fsync", fsync)
    assert len(inodes) == 4
    assert inodes <= flushed


def test_sweep_removes_what_was_left_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / ".tmp-01234567").mkdir()
    (tmp_path / ".tmp-01234567" / "half").touch()
    (tmp_path / ".tmp-89abcdef").touch()
    (tmp_path / ".tmp-link").symlink_to(tmp_path / "kept")
    # The new one stands: this is the old one's rest.
    (tmp_path / f".tmp-01234567-{os.getpid()}-01234567-kept-old").mkdir()
    (tmp_path / ".lock").touch()
    sweep(tmp_path)
    assert names(tmp_path) == [".lock", "kept"]


def test_sweep_puts_back_what_was_aside_when_the_process_died(tmp_path: Path) -> None:
    aside = tmp_path / f".tmp-0123abcd-{os.getpid()}-0123abcd-fp32-old"
    aside.mkdir()
    (aside / "model").write_text("old")
    (tmp_path / ".tmp-0123abcd").mkdir()
    sweep(tmp_path)
    assert names(tmp_path) == ["fp32", "fp32/model"]


def test_sweep_says_what_it_cannot_remove(tmp_path: Path) -> None:
    class Stuck(Fs):
        def remove_tree(self, path: Path) -> None:
            raise PermissionError(errno.EACCES, "Permission denied")

    (tmp_path / ".tmp-01234567").mkdir()
    with pytest.raises(FilesError) as error:
        sweep(tmp_path, Stuck())
    assert error.value.code == "EDGE-FILES-001"
    assert error.value.thing.endswith(".tmp-01234567")


@contextmanager
def readers(read: Callable[[], object]) -> Iterator[list[object]]:
    """Two threads that read over and over; what they could not read is in the list."""
    seen: list[object] = []
    over = threading.Event()

    def loop() -> None:
        while not over.is_set():
            seen.append(read())

    threads = [threading.Thread(target=loop) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield seen
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_readers_of_a_file_see_one_text_or_the_other(tmp_path: Path) -> None:
    path = tmp_path / "file"
    texts = [bytes([65 + n]) * 50_000 for n in range(2)]
    write_atomic(path, texts[0])
    with readers(path.read_bytes) as seen:
        for n in range(150):
            write_atomic(path, texts[n % 2])
    assert set(seen) == set(texts)


def test_readers_of_a_staged_folder_never_find_it_missing(tmp_path: Path) -> None:
    target = tmp_path / "out"
    fill(target, LOCAL, "0")

    def read() -> object:
        try:
            return (target / "a").read_text()
        except FileNotFoundError:
            return "missing"

    with readers(read) as seen:
        for n in range(1, 150):
            fill(target, LOCAL, str(n))
    assert len(set(seen)) > 10
    assert set(seen) <= {str(n) for n in range(150)}


def killed(code: str, folder: Path) -> None:
    """Run code that writes below ``folder`` and is killed in the middle."""
    head = "import os, signal, sys; from pathlib import Path; from edgeserve.files import *; "
    kill = "os.kill(os.getpid(), signal.SIGKILL)"
    script = f"{head}at = Path(sys.argv[1])\n{code}\n    {kill}"
    done = subprocess.run([sys.executable, "-P", "-c", script, str(folder)], check=False)
    assert done.returncode == -signal.SIGKILL


def test_what_a_killed_process_left_goes_with_the_next_write(tmp_path: Path) -> None:
    """Wherever it is: a package, a report and an outcome lie in folders that nobody locks."""
    killed("with staged_file(at / 'a.edge') as half:\n    half.touch()", tmp_path)
    assert len(names(tmp_path)) == 1, "nothing was left behind: nothing is shown"
    killed("with staged(at / 'b') as half:\n    (half / 'x').touch()", tmp_path)
    assert [Path(name).name for name in names(tmp_path)][1:] == ["x"], "the second begins"
    (tmp_path / ".tmp-theirs").touch()
    write_atomic(tmp_path / "a.edge", b"whole")
    assert names(tmp_path) == [".tmp-theirs", "a.edge"]


def test_what_a_live_process_writes_stays(tmp_path: Path) -> None:
    with (
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other,
        staged_file(tmp_path / "a") as mine,
    ):
        mine.touch()
        place, _, _ = mine.name.removeprefix(".tmp-").split("-")
        theirs = mine.with_name(f".tmp-{place}-{other.pid}-01234567")
        foreign = mine.with_name(".tmp-ffffffff-1-01234567")
        old = mine.with_name(".tmp-ffffffff-1-89abcdef")
        for path in (theirs, foreign, old):
            path.touch()
        os.utime(old, (0, 0))
        files._looked_through.discard(tmp_path)
        write_atomic(tmp_path / "b", b"b")
        assert {p.name for p in tmp_path.iterdir()} == {mine.name, theirs.name, foreign.name, "b"}
        sweep(tmp_path)
        assert names(tmp_path) == [theirs.name, "b"], "only who holds the lock writes here"
        mine.touch()
        other.communicate(b"\n")
    sweep(tmp_path)
    assert names(tmp_path) == ["a", "b"]
