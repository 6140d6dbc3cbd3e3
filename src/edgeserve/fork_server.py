"""The fork server, ``python -P -m edgeserve.fork_server FD``; `worker_process` starts it (Linux).

It imports the packages that it is asked for and no module of the user's, and forks a worker a
request; a worker leads a process group of its own, as one that was started alone does. Over the
control socket ``FD`` travels one JSON message a worker, with two or three descriptors: the pipe
that ties the worker to the parent, a socket for reports, and the channel of
`edgeserve.jobs.ask_parent`. On the second of them the worker sends its process id and the server,
when it has ended, its exit code. The worker stays a zombie until the parent closes that socket:
meanwhile its number cannot mean anyone else, and the parent can kill what is left of its group.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import os
import selectors
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from edgeserve import worker
from edgeserve.types.base import decode
from edgeserve.worker_process import ForkRequest, open_log, send_number

_LONGEST = 1 << 16
#: Seconds without a worker after which a server ends; the next job starts another.
_IDLE = 60.0


class _Server:
    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._reports: dict[int, socket.socket] = {}
        self._select = selectors.DefaultSelector()
        self._watch(control, self._fork)

    def run(self) -> None:
        """Fork what is asked for; end once the parent has gone, or asks for nothing for a while."""
        while self._select.get_map():
            ready = self._select.select(None if self._reports else _IDLE)
            if not ready:
                return
            for key, _ in ready:
                key.data()

    def _watch(self, file: int | socket.socket, then: Callable[[], None]) -> None:
        self._select.register(file, selectors.EVENT_READ, then)

    def _fork(self) -> None:
        message, descriptors, _, _ = socket.recv_fds(self._control, _LONGEST, 3)
        if not message:
            self._select.unregister(self._control)
            return
        tie, report, *channel = descriptors
        request = decode(message, ForkRequest)
        _import(request.imports)
        told = socket.socket(fileno=report)
        try:
            pid = os.fork()
        except OSError:  # no process to be had, which the closed report says
            told.close()
        else:
            if not pid:
                self._become(request, tie, told, channel)
            self._reports[pid] = told
            end = os.pidfd_open(pid)
            self._watch(end, functools.partial(self._ended, pid, end))
        for descriptor in (tie, *channel):
            os.close(descriptor)

    def _ended(self, pid: int, end: int) -> None:
        """Report how a worker ended; its number is given back when the parent is done with it."""
        self._select.unregister(end)
        os.close(end)
        how = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert how is not None
        code = how.si_status if how.si_code == os.CLD_EXITED else -how.si_status
        send_number(self._reports[pid], code)
        self._watch(self._reports[pid], functools.partial(self._reap, pid))

    def _reap(self, pid: int) -> None:
        report = self._reports.pop(pid)
        self._select.unregister(report)
        report.close()
        os.waitpid(pid, 0)

    def _become(
        self, request: ForkRequest, tie: int, told: socket.socket, channel: Sequence[int]
    ) -> NoReturn:
        """In the child: be the worker, which holds nothing of the server's open."""
        held = {key.fd for key in self._select.get_map().values()}
        held |= {other.fileno() for other in self._reports.values()}
        self._select.close()
        for descriptor in held:
            os.close(descriptor)
        os.setsid()
        send_number(told, os.getpid())  # not earlier: the parent may kill the group at once
        told.close()
        os.environ.update(request.environment)
        if request.channel:
            os.environ[request.channel] = str(channel[0])
        _redirect(Path(request.job).parent, tie)
        sys.argv = [worker.__file__, request.job]
        worker.run(sys.argv)


def _redirect(folder: Path, tie: int) -> None:
    os.chdir(folder)
    with open_log(folder) as log:
        for source, target in ((tie, 0), (log.fileno(), 1), (log.fileno(), 2)):
            os.dup2(source, target)
    os.close(tie)


_imported: set[str] = set()


def _import(names: Sequence[str]) -> None:
    new = [name for name in names if name not in _imported]
    for name in new:
        _imported.add(name)
        module, _, function = name.partition(":")
        with contextlib.suppress(Exception):  # the worker imports it again, and says what is wrong
            found = importlib.import_module(module)
            if function:
                getattr(found, function)()
    if new:
        gc.collect()
        gc.freeze()  # a collection in a worker would copy every page


def main(argv: list[str]) -> int:
    """Serve on the inherited socket ``argv[1]``."""
    os.close(os.pidfd_open(os.getpid()))  # where the kernel has none, the parent forks nothing here
    with socket.socket(fileno=int(argv[1])) as control:
        control.set_inheritable(False)
        _Server(control).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
