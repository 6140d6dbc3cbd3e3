"""The worker process, ``python -m edgeserve.worker job.json``; `edgeserve.jobs.run` starts it."""

from __future__ import annotations

import atexit
import contextlib
import errno
import faulthandler
import importlib
import itertools
import os
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import NoReturn, get_type_hints

import msgspec

from edgeserve.errors import EdgeError, WorkerError
from edgeserve.files import unwritable, write_atomic
from edgeserve.jobs import PROGRESS, Job
from edgeserve.machine import machine_error
from edgeserve.types.base import Value, decode, encode
from edgeserve.user_lines import exception_chain, line_of_error, message_of
from edgeserve.worker_limits import WHERE

#: Causes of an exception that the log shows.
_MOST_CAUSES = 20
_leave = os._exit


def _die_with_parent() -> None:
    """Kill this process group as soon as the parent's end of standard input is gone.

    The parent never writes there. Its death, however violent, closes the pipe; a death signal
    (prctl) would do the same on Linux only, and fires when the parent's *thread* ends.
    """
    if PROGRESS not in os.environ or os.getpgrp() != os.getpid():
        return  # started by hand: the group is the shell's
    parent = os.dup(0)
    with open(os.devnull, "rb") as nothing:  # what a verb or its children may read
        os.dup2(nothing.fileno(), 0)

    def watch() -> None:
        while os.read(parent, 4096):
            pass
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def _verb(dotted: str) -> tuple[Callable[[Value], Value], type[Value]]:
    """Look up a verb and the type of its request; only edgeserve's own modules hold verbs."""
    module, _, name = dotted.partition(":")
    if not module.startswith("edgeserve."):
        raise _not_a_verb(dotted, f"the module {module!r}")
    found = getattr(importlib.import_module(module), name, None)
    if not isinstance(found, FunctionType) or found.__module__.partition(".")[0] != "edgeserve":
        raise _not_a_verb(dotted, "no function of edgeserve")
    takes = [kind for name, kind in get_type_hints(found).items() if name != "return"]
    if len(takes) != 1 or not (isinstance(takes[0], type) and issubclass(takes[0], Value)):
        raise _not_a_verb(dotted, "a function of another form")
    return found, takes[0]


def _not_a_verb(dotted: str, got: str) -> WorkerError:
    hint = "jobs are written by edgeserve.jobs.run, not by hand"
    return WorkerError("EDGE-WORKER-004", dotted, wanted="a verb of edgeserve", got=got, hint=hint)


def main(argv: list[str]) -> int:
    """Run the job described in ``argv[1]``; write result.json or error.json beside it."""
    began = time.monotonic()
    _die_with_parent()
    _say_where()
    job = Path(argv[1]).absolute()
    folder, users = job.parent, job.parent
    try:
        work = msgspec.json.decode(job.read_bytes(), type=Job)
        sys.path.extend(work.path)
        users = Path(work.path[0]) if work.path else folder
        verb, request = _verb(work.verb)
        answer = verb(decode(bytes(work.request), request))
        write_atomic(folder / "result.json", encode(answer))
        return 0
    except SystemExit:
        raise
    except BaseException as error:  # the border to third-party code: all becomes a coded error
        _print_trace(error)
        failure = _coded(error, folder, users)
    finally:
        _note_usage(folder, began)
    write_atomic(folder / "error.json", encode(failure.fields()))
    return 1


def _coded(error: BaseException, folder: Path, users: Path) -> EdgeError:
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return unwritable(error, Path(error.filename or folder))  # no fault of the code that hit it
    if isinstance(error, EdgeError | OSError) and (fault := machine_error(error, str(folder))):
        return fault
    if isinstance(error, EdgeError):
        return error
    memory = isinstance(error, MemoryError)
    return WorkerError(
        "EDGE-WORKER-008" if memory else "EDGE-WORKER-001",
        type(error).__name__,
        got=message_of(error) or ("no memory left" if memory else "no message"),
        hint=f"the whole trace is in {folder / 'log.txt'}",
        source_line=line_of_error(error, users),
    )


def _print_trace(error: BaseException) -> None:
    """Write an exception and its causes to the log, whatever their messages are."""
    for each in reversed([*itertools.islice(exception_chain(error), _MOST_CAUSES)]):
        trace = "".join(traceback.format_tb(each.__traceback__))
        head = f"Traceback (most recent call last):\n{trace}{type(each).__name__}"
        print(f"{head}: {message_of(each)}", file=sys.stderr, flush=True)


def _say_where() -> None:
    """Tell the parent, through the log, which line this process was at when it ended early."""
    if WHERE:
        faulthandler.register(WHERE, all_threads=False)
    own = os.getpid()

    def exit_at_once(status: int) -> NoReturn:
        if os.getpid() == own and threading.current_thread() is threading.main_thread():
            print(f"Fatal Python error: os._exit({status})", file=sys.stderr, flush=True)
            faulthandler.dump_traceback(all_threads=False)
        _leave(status)

    os._exit = exit_at_once


def _note_usage(folder: Path, began: float) -> None:
    """Leave what the job cost beside its log; a courtesy that must not cost the result."""
    own, below = (
        resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    cpu = own.ru_utime + own.ru_stime + below.ru_utime + below.ru_stime
    usage = {
        "cpu_s": round(cpu, 3),
        "wall_s": round(time.monotonic() - began, 3),
        "peak_mb": round(max(own.ru_maxrss, below.ru_maxrss) / 1024, 1),
    }
    with contextlib.suppress(OSError, EdgeError):
        write_atomic(folder / "usage.json", encode(usage))


def run(argv: list[str]) -> NoReturn:
    """Run the job, and end the process as the interpreter would after `main`.

    Python would wait for threads that the user's code left running, and take long to tear down
    libraries whose memory goes back to the system all the same.
    """
    try:
        code = main(argv)
    except SystemExit as leaving:
        code = _exit_code(leaving)
    except BaseException:
        traceback.print_exc()
        code = 1
    main_thread = threading.main_thread()
    left = [t.name for t in threading.enumerate() if t is not main_thread and not t.daemon]
    if left:
        print(f"threads are left running, and end with the job: {left}", flush=True)
    atexit._run_exitfuncs()
    with contextlib.suppress(OSError):  # the log lies on a full disk
        sys.stdout.flush()
        sys.stderr.flush()
    _leave(code)


def _exit_code(leaving: SystemExit) -> int:
    if leaving.code is None or isinstance(leaving.code, int):
        return (leaving.code or 0) & 0xFF
    print(leaving.code, file=sys.stderr)
    return 1


if __name__ == "__main__":
    run(sys.argv)
