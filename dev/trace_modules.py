"""Counts the product's modules whose functions run on a path: how many files a reader must open.

    python -m dev.trace_modules demo-out/tagger.edge photo.jpg
    python -m dev.trace_modules demo-out/tagger.edge photo.jpg --convert my:factory

A module counts once one of its functions is called; a module that is only imported does not. The
paths are: opening a Wrapper (first: nothing is known of this device; again: the outcomes of the
probes are cached), one `predict`, one request to `infer` over HTTP, and with ``--convert`` the
command and all of its worker processes.

Calls are seen by `sys.setprofile`, in every thread. Another process, such as a worker, reports its
own where ``EDGESERVE_TRACE_MODULES`` names a folder: `hook` writes a ``sitecustomize`` that begins
the recording, and Python imports it at its start.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

#: Environment variable: the folder that a process writes the names of its modules to.
VARIABLE = "EDGESERVE_TRACE_MODULES"
#: Of a code object: it is a function's, not a module's or class's body.
_IS_FUNCTION = 0x1


class Recorder:
    """The product's modules that run, in all threads that begin after it.

    Args:
        roots: Folders of the product, resolved: each folder's modules and their names.
        sink: File that each new module is appended to; None: none.
    """

    def __init__(self, roots: dict[str, str], sink: Path | None = None) -> None:
        self._roots, self._sink = roots, sink
        self.modules: set[str] = set()
        self._seen: set[CodeType] = set()

    def start(self) -> None:
        """Record from now on."""
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    def stop(self) -> None:
        """Record no more in this thread, nor in new ones."""
        sys.setprofile(None)
        threading.setprofile(None)

    def take(self) -> list[str]:
        """The modules recorded since the last time, sorted."""
        found = sorted(self.modules)
        self.modules, self._seen = set(), set()
        return found

    def _profile(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or frame.f_code in self._seen:
            return
        code = frame.f_code
        self._seen.add(code)
        if code.co_flags & _IS_FUNCTION and (name := self._module(code.co_filename)):
            if self._sink is not None and name not in self.modules:
                with self._sink.open("a") as out:
                    out.write(f"{name}\n")
            self.modules.add(name)

    def _module(self, filename: str) -> str:
        path = os.path.realpath(filename)
        for root, package in self._roots.items():
            if path.startswith(root + os.sep):
                inner = path[len(root) :].removesuffix(".py").removesuffix("/__init__")
                return f"{package}{inner}".replace(os.sep, ".")
        return ""


def product_roots() -> dict[str, str]:
    """The folders of the package and of the rooms that it links to, the longest first."""
    import edgeserve

    found: dict[str, str] = {}
    for base in map(Path, edgeserve.__path__):
        found[os.path.realpath(base)] = "edgeserve"
        for child in base.iterdir():
            if child.is_symlink() and child.is_dir():
                found[os.path.realpath(child)] = f"edgeserve.{child.name}"
    return dict(sorted(found.items(), key=lambda pair: -len(pair[0])))


def begin_in_child() -> None:
    """Record in this process from its start; called by the ``sitecustomize`` that `hook` writes."""
    sink = Path(os.environ[VARIABLE]) / f"{os.getpid()}.txt"
    Recorder(product_roots(), sink).start()


@contextlib.contextmanager
def hook(folder: Path) -> Iterator[dict[str, str]]:
    """The environment in which every Python process records its modules in ``folder``."""
    with tempfile.TemporaryDirectory(prefix="edgeserve-trace-") as place:
        here = Path(__file__).resolve().parents[1]
        Path(place, "sitecustomize.py").write_text(
            f"import os, sys\nif {VARIABLE!r} in os.environ:\n"
            f"    sys.path.append({str(here)!r})\n"
            "    from dev.trace_modules import begin_in_child\n    begin_in_child()\n"
        )
        paths = [place, *filter(None, [os.environ.get("PYTHONPATH")])]
        yield os.environ | {VARIABLE: str(folder), "PYTHONPATH": os.pathsep.join(paths)}


def trace_convert(source: str) -> list[str]:
    """Modules that the command ``convert SOURCE`` runs, workers included."""
    with (
        tempfile.TemporaryDirectory(prefix="edgeserve-trace-") as place,
        hook(Path(place)) as environment,
    ):
        out = Path(place, "out")
        command = [sys.executable, "-m", "edgeserve", "convert", source, "-o", str(out)]
        subprocess.run(command, env=environment, check=True, stdout=sys.stderr)
        lines = (path.read_text().splitlines() for path in Path(place).glob("*.txt"))
        return sorted({line for each in lines for line in each})


def trace_runtime(bundle: str, raw: str) -> dict[str, list[str]]:
    """Modules by path: open (first, again), predict, infer."""
    from edgeserve.wrapper import Wrapper

    recorder, found = Recorder(product_roots()), {}
    with tempfile.TemporaryDirectory(prefix="edgeserve-trace-") as cache:
        os.environ["XDG_CACHE_HOME"] = cache
        for name in ("open a Wrapper, first", "open a Wrapper, again"):
            recorder.start()
            wrapper = Wrapper(bundle)
            found[name] = recorder.take()
            if name.endswith("again"):
                wrapper.predict(raw)
                found["predict"] = recorder.take()
            recorder.stop()
            wrapper.close()
        found["infer"] = _trace_infer(bundle, recorder)
    return found


def _trace_infer(bundle: str, recorder: Recorder) -> list[str]:
    """Serve the bundle in another thread and send one request of zeros."""
    import io

    from edgeserve.serve.options import ServeOptions
    from edgeserve.serve.server import RunningServer, serve
    from edgeserve.serve.telemetry import Log
    from edgeserve.wrapper.engine import zero_feed

    started, running = threading.Event(), []

    def on_start(server: RunningServer) -> None:
        running.append(server)
        started.set()

    options = ServeOptions(bundles=(bundle,), port=0, drain_s=0.0)
    recorder.start()
    thread = threading.Thread(target=serve, args=(options, Log(io.StringIO()), on_start))
    thread.start()
    started.wait()
    [hosted] = running[0].app.service.repository.loaded()
    inputs = [
        {"name": name, "datatype": "FP32", "shape": list(x.shape), "data": x.ravel().tolist()}
        for name, x in zero_feed(hosted.manifest.signature).items()
    ]
    recorder.take()
    connection = http.client.HTTPConnection("127.0.0.1", running[0].port)
    connection.request("POST", f"/v2/models/{hosted.name}/infer", json.dumps({"inputs": inputs}))
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    answer.read()
    found = recorder.take()
    connection.close()
    running[0].end()
    thread.join()
    recorder.stop()
    return found


def main(argv: list[str] | None = None) -> None:
    """Print the count of each path, and with ``-v`` the modules."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundle")
    parser.add_argument("input", help="a raw input of the model: a photo, a text, a sound")
    parser.add_argument("--convert", metavar="SOURCE", help="also trace `edgeserve convert SOURCE`")
    parser.add_argument("-v", "--verbose", action="store_true", help="list the modules")
    arguments = parser.parse_args(argv)
    found = trace_runtime(arguments.bundle, arguments.input)
    if arguments.convert:
        found["convert"] = trace_convert(arguments.convert)
    for name, modules in found.items():
        print(f"{name:24} {len(modules):4}")
        for module in modules if arguments.verbose else ():
            print(f"    {module}")


if __name__ == "__main__":
    main()
