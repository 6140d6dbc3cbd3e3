"""Verbs that misbehave in every way a worker must survive.

Loaded as ``edgeserve.verbs_for_tests``: by the worker through ``start_worker.py``, by the tests
through the `verbs` fixture.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from edgeserve.errors import BundleError, UnsupportedOp
from edgeserve.jobs import ask_parent, progress
from edgeserve.types.base import Value

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


class Ask(Value, frozen=True):
    """A number to work with, and a folder to leave traces in."""

    number: int = 0
    folder: str = ""


class Answer(Value, frozen=True):
    """What the verb found out."""

    text: str
    numbers: tuple[int, ...] = ()


class Other(Value, frozen=True):
    """Not an `Answer`."""

    words: int


def double(ask: Ask) -> Answer:
    print("doubling", ask.number)
    return Answer(text="doubled", numbers=(2 * ask.number,))


def surroundings(ask: Ask) -> Answer:
    """What the worker's process looks like from inside."""
    where = [os.getcwd(), sys.stdin.read(), str(sys.flags.safe_path), sys.path[-1]]
    return Answer(text="|".join(where), numbers=(os.getpid(), os.getpgrp(), os.getsid(0)))


def loaded(ask: Ask) -> Answer:
    """Whether a module was imported before the worker was, and who started this process."""
    text = f"{'xml.dom.minidom' in sys.modules} {os.environ.get('OMP_NUM_THREADS')}"
    return Answer(text=text, numbers=(os.getppid(),))


def variable(ask: Ask) -> Answer:
    """A variable of this process's environment, named by ``folder``, and who started it."""
    return Answer(text=str(os.environ.get(ask.folder)), numbers=(os.getppid(),))


def ask_often(ask: Ask) -> Answer:
    """Ask the parent about each number; the last message is large."""
    answers = tuple(int(ask_parent(str(i).encode())) for i in range(ask.number))
    return Answer(text=ask_parent(b"x" * (5 << 20)).decode(), numbers=answers)


def open_files(ask: Ask) -> Answer:
    """Files that this process has open beyond its standard three."""
    found = [f"{fd}={os.readlink(fd)}" for fd in Path("/proc/self/fd").iterdir() if fd.exists()]
    return Answer(text=" ".join(found))


def refuse(ask: Ask) -> Answer:
    raise BundleError(
        "EDGE-BUNDLE-004", "member 'x'", wanted="sha256 ab", got="sha256 cd", hint="get it again"
    )


def refuse_by_check(ask: Ask) -> Answer:
    """A failed check whose code is of another area: it must stay a failed check."""
    raise UnsupportedOp(
        "EDGE-CONVERT-001",
        "aten.x",
        got="no such op",
        hint="leave it out",
        source_line="model.py:7",
    )


def fail_oddly(ask: Ask) -> Answer:
    raise KeyError("a key\nwith \x1b[31m and \udcff")


def leave(ask: Ask) -> Answer:
    print("about to leave")
    os._exit(ask.number)


def leave_politely(ask: Ask) -> Answer:
    sys.exit(ask.number)


def kill_self(ask: Ask) -> Answer:
    print("last words", flush=True)
    os.kill(os.getpid(), ask.number)
    time.sleep(60)
    return Answer(text="survived")


def children(ask: Ask) -> Answer:
    """Start a child that starts another; answer while both run."""
    pids = _start_children(Path(ask.folder))
    return Answer(text="left behind", numbers=pids)


def hang(ask: Ask) -> Answer:
    """Start children, write down who runs, and never return. SIGTERM does not help."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    pids = (os.getpid(), *_start_children(Path(ask.folder)))
    (Path(ask.folder) / "running.new").write_text(" ".join(map(str, pids)))
    os.replace(Path(ask.folder) / "running.new", Path(ask.folder) / "running")
    progress("hanging")
    while True:
        time.sleep(60)


def _start_children(folder: Path) -> tuple[int, int]:
    script = (
        "import subprocess, sys, pathlib\n"
        f"child = subprocess.Popen({SLEEP!r})\n"
        "pathlib.Path(sys.argv[1]).write_text(str(child.pid) + ' ')\n"
        "child.wait()\n"
    )
    grandchild = folder / "grandchild"
    child = subprocess.Popen([sys.executable, "-c", script, str(grandchild)])
    while not (grandchild.exists() and grandchild.read_text().endswith(" ")):
        time.sleep(0.01)
    return child.pid, int(grandchild.read_text())


def step(ask: Ask) -> Answer:
    for done in range(ask.number):
        progress("steps", done, ask.number)
    return Answer(text="stepped")


def step_then_tear(ask: Ask) -> Answer:
    """Whole lines, one that a full disk tore, and one without its end."""
    progress("whole", 1)
    with open(os.environ["EDGESERVE_PROGRESS"], "ab") as sink:
        sink.write(b'{"what":"to\n')
    progress("whole", 2)
    with open(os.environ["EDGESERVE_PROGRESS"], "ab") as sink:
        sink.write(b'{"what":"no end"}')
    return Answer(text="torn")


def step_in_halves(ask: Ask) -> Answer:
    """A line that a reader sees half of at first."""
    with open(os.environ["EDGESERVE_PROGRESS"], "ab", buffering=0) as sink:
        sink.write(b'{"what":"ha')
        time.sleep(0.15)  # several looks of the parent
        sink.write(b'lves"}\n{"what":"ne')
        time.sleep(0.15)
        sink.write(b'xt"}\n')
    return Answer(text="halved")


def use_users_code(ask: Ask) -> Answer:
    """Call a function of the user's module, as a factory is called."""
    import users_module

    users_module.make()
    return Answer(text="made")


def answer_otherwise(ask: Ask) -> Other:
    return Other(words=1)


def use_users_module(ask: Ask) -> Answer:
    import users_module  # type: ignore[import-not-found]

    return Answer(text=users_module.WORD)


def takes_two(ask: Ask, more: Ask) -> Answer:
    return Answer(text="two")


def takes_text(text: str) -> Answer:
    return Answer(text=text)


NOT_A_FUNCTION = Answer(text="x")
