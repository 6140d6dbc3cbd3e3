"""Worker processes, seen from the parent: started alone, or forked from a server.

Importing torch and a converter costs a worker two to six seconds of CPU time, and a command starts
a dozen workers. On Linux a parent keeps one `edgeserve.fork_server`, which imports such packages
once. The idea is that of Python's ``multiprocessing`` fork server, without its pickles and without
running the parent's ``__main__`` again.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Protocol

from edgeserve.types.base import Value, encode

_ALONE = (sys.executable, "-P", "-m", "edgeserve.worker")
_SERVER = (sys.executable, "-P", "-m", "edgeserve.fork_server")
_NUMBER = struct.Struct("<q")
#: Seconds within which a worker is forked, imports included; past them it is started alone.
_PATIENCE = 120.0
#: Variables that no package reads at its import; each worker has them as they are when it starts.
_PASSING = ("EDGESERVE_CACHE", "PYTEST_")


class ForkRequest(Value, frozen=True):
    """A worker to fork. Its descriptors travel beside the message: tie, report, channel.

    Args:
        job: The job file; its folder becomes the working directory.
        environment: What the worker's environment has besides the server's.
        channel: Variable that tells the worker the number of the third descriptor; "": none.
        imports: Modules, or ``module:function`` that imports some, to import first; what cannot be
            imported is left to the worker.
    """

    job: str
    environment: dict[str, str]
    channel: str
    imports: tuple[str, ...]


class WorkerProcess(Protocol):
    """A worker that runs as the leader of a process group of its own."""

    pid: int

    def ended(self) -> bool:
        """Whether it has ended; it stays unreaped, so that its group's number stays its own."""

    def reap(self) -> int:
        """Wait until it has ended and give its number back; its exit code, or minus a signal."""


def open_log(folder: Path) -> BinaryIO:
    """A job's new log. Who writes to it appends, so that its parent may cut it meanwhile."""
    log = folder / "log.txt"
    log.write_bytes(b"")
    return open(log, "ab")


class SpawnedWorker:
    """A worker with an interpreter of its own.

    Args:
        job: The job file; its folder becomes the working directory.
        environment: All of its environment.
        inherited: Descriptors that it inherits.

    Raises:
        OSError: no process could be started.
    """

    def __init__(
        self, job: Path, environment: Mapping[str, str], inherited: Sequence[int] = ()
    ) -> None:
        with open_log(job.parent) as log:
            self._process = subprocess.Popen(
                [*_ALONE, str(job)],
                cwd=job.parent,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                start_new_session=True,
                pass_fds=inherited,
            )
        self.pid = self._process.pid

    def ended(self) -> bool:
        if sys.platform == "darwin":  # no waitid before Python 3.13
            return self._process.poll() is not None
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def reap(self) -> int:
        code = self._process.wait()
        if self._process.stdin:
            self._process.stdin.close()
        return code


class ForkedWorker:
    """A worker that a server forked. The server reaps it once ``report`` is closed.

    Args:
        pid: Its number.
        report: Where the server reports its exit code.
        tie: Descriptor of the pipe whose end means the end of the parent.
    """

    def __init__(self, pid: int, report: socket.socket, tie: int) -> None:
        self.pid = pid
        self._report = report
        self._tie = tie

    def ended(self) -> bool:
        ready = select.poll()  # select() knows no descriptor above 1023
        ready.register(self._report, select.POLLIN)
        return bool(ready.poll(0))

    def reap(self) -> int:
        code = _read_number(self._report)
        self._report.close()
        os.close(self._tie)
        # Where the server has died, nobody knows how the worker ended: most likely in the same way.
        return -signal.SIGKILL if code is None else code


class ForkServer:
    """A fork server of this process. `fork` may be called from several threads at once."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, contextlib.ExitStack() as undo:
            undo.callback(self._control.close)
            self._process = subprocess.Popen(
                [*_SERVER, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=dict(environment),
                start_new_session=True,
                pass_fds=(theirs.fileno(),),
            )
            undo.pop_all()

    def fork(self, request: ForkRequest, channel: Sequence[int]) -> ForkedWorker | None:
        """A worker for the request; None where the server forks none: it may have ended."""
        report, theirs = socket.socketpair()
        their_tie, tie = os.pipe()
        pid = None
        try:
            with theirs:
                descriptors = [their_tie, theirs.fileno(), *channel]
                socket.send_fds(self._control, [encode(request)], descriptors)
            report.settimeout(_PATIENCE)
            pid = _worker_number(report)
            report.settimeout(None)
        except OSError:
            pass
        finally:
            os.close(their_tie)
            if pid is None:
                report.close()
                os.close(tie)
        return None if pid is None else ForkedWorker(pid, report, tie)

    def close(self, seconds: float = 0.0) -> None:
        """Let the server end with its last worker, and wait so long for it."""
        self._control.close()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            threading.Thread(target=self._process.wait, daemon=True).start()


def start(
    job: Path,
    environment: Mapping[str, str],
    added: Mapping[str, str],
    channel: tuple[str, int] | None = None,
    imports: Sequence[str] | None = None,
) -> WorkerProcess:
    """Start a worker: forked where ``imports`` are given and the system can, else alone.

    Args:
        job: The job file.
        environment: What every worker of this process has in its environment.
        added: What this one has besides.
        channel: A descriptor to inherit, and the variable that tells its number.
        imports: Modules that a fork server imports first; None: the worker's process is new.

    Raises:
        OSError: no process could be started.
    """
    if imports is not None and sys.platform == "linux":
        name, descriptor = channel or ("", None)
        passing = {k: v for k, v in environment.items() if k.startswith(_PASSING)}
        request = ForkRequest(str(job), {**passing, **added}, name, tuple(imports))
        kept = {k: v for k, v in environment.items() if k not in passing}
        worker = _fork(request, kept, () if descriptor is None else (descriptor,))
        if worker:
            return worker
    told = {channel[0]: str(channel[1])} if channel else {}
    return SpawnedWorker(job, {**environment, **added, **told}, [channel[1]] if channel else ())


_lock = threading.Lock()
_current: tuple[tuple[object, ...], ForkServer] | None = None
#: A system on which a new server forks nothing (no ``pidfd_open``): not tried again.
_useless = False


def _fork(
    request: ForkRequest, environment: Mapping[str, str], channel: Sequence[int]
) -> ForkedWorker | None:
    global _useless
    for again in (False, True):  # a server that was idle for long may end just now
        if _useless:
            return None
        with contextlib.suppress(OSError):
            server = _server(environment)
            worker = server.fork(request, channel)
            if worker:
                return worker
            _forget(server)
        _useless = _useless or again
    return None


def _server(environment: Mapping[str, str]) -> ForkServer:
    """This process's server; a new one where what a library reads at its import has changed."""
    global _current
    key = (os.getpid(), _SERVER, dict(environment), sorted(os.sched_getaffinity(0)))
    with _lock:
        if _current and _current[0] == key:
            return _current[1]
        if _current and _current[0][0] == os.getpid():
            _current[1].close()
        _current = (key, ForkServer(environment))
        return _current[1]


@atexit.register
def _close() -> None:
    if _current and _current[0][0] == os.getpid():
        _current[1].close(1.0)


def _forget(server: ForkServer) -> None:
    global _current
    with _lock:
        if _current and _current[1] is server:
            server.close()
            _current = None


def _worker_number(report: socket.socket) -> int | None:
    """The number that a worker sends; None for the exit code of one that died before it could."""
    number = _read_number(report)
    return number if number and number > 1 else None


def _read_number(channel: socket.socket) -> int | None:
    """The next number on a channel; None at its end."""
    with contextlib.suppress(ConnectionError):
        data = read_exactly(channel, _NUMBER.size)
        return int(_NUMBER.unpack(data)[0]) if data else None
    return None


def read_exactly(channel: socket.socket, size: int) -> bytes | None:
    """So many bytes of a channel; None where the other end has gone."""
    data = bytearray()
    while len(data) < size:
        piece = channel.recv(min(size - len(data), 1 << 20))
        if not piece:
            return None
        data += piece
    return bytes(data)


def send_number(channel: socket.socket, number: int) -> None:
    """Send a number; nothing happens where the other end has gone."""
    with contextlib.suppress(ConnectionError):
        channel.sendall(_NUMBER.pack(number))
