"""Figure: faults of the machine at every file operation; the cache changed by others meanwhile.

    python -m dev.benchmarks.fault_loops [--kills 50] [--opens 600] [--out fault-out] [NAME ...]

Opening, predicting, packaging, starting an endpoint and converting are run once for each of their
file operations and each fault (no space, an error of the disk, no rights, no descriptors), in which
this operation fails, and once for each in which the process is killed there. Conversions run with
the recorded results of their workers. Then all is well again, and the same is run once more.

Nothing may be wrong: the run with a fault gives the right result or an error with a code; the next
one gives the right result from the best artifact, and leaves nothing behind. Beside that the real
conversion is killed at random, run on a full file system of 32 MB, and bundles are opened while
another process gives the names of the cache's files to another model.

What was done stands in OUT/results.jsonl and is not done again. Exit code 1: something was wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dev.benchmarks.fault_convert import (
    WorkerRecording,
    artifacts,
    convert,
    full_file_system,
    random_kills,
    template,
    workers,
)
from dev.benchmarks.fault_injection import FAULTS, KILL, Injector
from edgeserve import jobs
from edgeserve.errors import EdgeError

BUNDLE = Path(__file__).parents[2] / "tests/fixtures/bundles/cc339fa/image-classification.edge"
_TIMEOUT_S = 120

Act = Callable[[Path, Injector], str]


@dataclass(frozen=True)
class Ran:
    """How a run ended.

    Attributes:
        answer: What it gave, or "EDGE-..." of its error; "killed"; or what no run may end with.
        seen: Its file operations.
    """

    answer: str
    seen: list[str]

    @property
    def coded(self) -> bool:
        """Whether it ended with an error that has a code."""
        return self.answer.startswith("EDGE-")


def _fork() -> int:
    """Fork without the warnings of libraries that have threads: the child runs none of them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return os.fork()


def run(act: Act, folder: Path, fault: str | None = None, index: int = 0) -> Ran:
    """Run ``act`` in a fork of this process, in which one operation below ``folder`` fails."""
    out, into = os.pipe()
    pid = _fork()
    if pid == 0:
        os.close(out)
        with open(into, "wb") as channel:
            channel.write(json.dumps(_in_child(act, folder, fault, index)).encode())
        os._exit(0)
    os.close(into)
    watch = _Watch(pid)
    with open(out, "rb") as channel:
        told = channel.read()
    watch.end()
    _, status = os.waitpid(pid, 0)
    if told:
        return Ran(*json.loads(told))
    return Ran("killed" if os.WTERMSIG(status) == signal.SIGKILL else f"status {status}", [])


class _Watch:
    """Kills a process that takes too long."""

    def __init__(self, pid: int) -> None:
        self._pid = _fork()
        if self._pid == 0:
            time.sleep(_TIMEOUT_S)
            os.kill(pid, signal.SIGABRT)
            os._exit(0)

    def end(self) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)


def _in_child(act: Act, folder: Path, fault: str | None, index: int) -> tuple[str, list[str]]:
    os.environ["EDGESERVE_CACHE"] = str(folder / "cache")
    os.environ["TMPDIR"] = str(folder / "tmp")
    tempfile.tempdir = None
    injector = Injector(folder, fault, index)
    try:
        answer = act(folder, injector)
    except EdgeError as error:
        answer = f"{error.code} {error.message}"
    except BaseException:
        answer = f"uncoded: {traceback.format_exc()}"
    return answer, injector.seen


def left_behind(folder: Path) -> list[str]:
    """What no finished run leaves: stages, entries of the journal, files for temporary use."""
    names = [path for path in folder.rglob("*") if path.name.startswith(".tmp-")]
    names += [*folder.rglob("*.trying"), *(folder / "tmp").iterdir()]
    return sorted(path.relative_to(folder).as_posix() for path in names)


def demoted(folder: Path) -> list[str]:
    """Outcomes in the cache that are not "accepted"."""
    kept = [json.loads(path.read_bytes()) for path in folder.glob("cache/wrapper/*.json")]
    return [f"{each['name']}: {each['state']}" for each in kept if each["state"] != "accepted"]


@dataclass(frozen=True)
class Loop:
    """One thing that is done under faults.

    Attributes:
        name: Its name.
        act: What is done in a folder; it arms the injector and returns its result as text.
        template: A folder with what it needs; each run gets a copy, always under the same name.
    """

    name: str
    act: Act
    template: Path

    def fresh(self) -> Path:
        """A new copy of the template."""
        folder = self.template.with_name(f"{self.template.name}-run")
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.template, folder, symlinks=True)
        (folder / "tmp").mkdir(exist_ok=True)
        return folder

    def cells(self) -> tuple[str, list[tuple[str, int]]]:
        """The right result, and each fault with each operation that it may meet."""
        ran = run(self.act, self.fresh())
        if ran.coded or not ran.seen:
            raise RuntimeError(f"{self.name} fails without a fault: {ran.answer}")
        counts = {f: sum(s in may for s in ran.seen) for f, may in FAULTS.items()}
        return ran.answer, [(fault, i) for fault, count in counts.items() for i in range(count)]

    def wrong(self, right: str, fault: str, index: int) -> str:
        """What is wrong with one cell; empty where nothing is."""
        folder = self.fresh()
        first = run(self.act, folder, fault, index)
        allowed = first.answer == right or first.coded or (first.answer, fault) == ("killed", KILL)
        if not allowed:
            return f"with the fault: {first.answer}"
        if found := demoted(folder):
            return f"demoted: {found}"
        then = run(self.act, folder)
        if then.answer != right:
            return f"after {first.answer}, the next time: {then.answer}"
        if found := demoted(folder):
            return f"demoted the next time: {found}"
        return f"left behind: {found}" if (found := left_behind(folder)) else ""


def opening(folder: Path, injector: Injector, **asked: Any) -> str:
    """Open the bundle with an empty cache, and answer its first golden case."""
    from edgeserve import Wrapper

    raw = (folder / "case.png").read_bytes()
    asked = asked or {"format": "onnx", "precision": "fp32", "threads": 1}
    with injector.armed(), Wrapper(folder / "model.edge", **asked) as wrapper:
        answer = wrapper.predict(raw)
        return f"{answer.label} proof {answer.ran_on.proof}"


def opening_several(folder: Path, injector: Injector) -> str:
    """The same with several candidates, which are tried in a child process."""
    return opening(folder, injector, threads=1)


def predicting(folder: Path, injector: Injector) -> str:
    """Answer a picture that is given by its path."""
    from edgeserve import Wrapper

    asked = {"format": "onnx", "precision": "fp32", "threads": 1}
    with Wrapper(folder / "model.edge", **asked) as wrapper, injector.armed():
        return str(wrapper.predict(str(folder / "case.png")).label)


def packaging(folder: Path, injector: Injector) -> str:
    """Write a bundle of a workspace over an older one."""
    from edgeserve.package import package
    from edgeserve.types.options import PackageOptions

    bundle = folder / "bundles" / "model.edge"
    options = PackageOptions(out=str(folder / "out"), bundle=str(bundle))
    with injector.armed():
        return package(options).sha256


def serving(folder: Path, injector: Injector) -> str:
    """Start an endpoint, see it ready, and end it."""
    from edgeserve.serve.options import ServeOptions
    from edgeserve.serve.server import RunningServer, serve

    told: list[str] = []

    def started(server: RunningServer) -> None:
        told.append("ready" if server.app.service.repository.ready else "not ready")
        server.end()

    options = ServeOptions(bundles=(str(folder / "model.edge"),), port=0, threads=1, drain_s=0.0)
    with open(os.devnull, "w") as nothing, contextlib.redirect_stderr(nothing), injector.armed():
        serve(options, on_start=started)
    return " ".join(told)


def converting(recording: WorkerRecording) -> Act:
    """Convert with recorded workers."""

    def act(folder: Path, injector: Injector) -> str:
        with workers(recording.replay(injector)), injector.armed():
            convert(folder)
        return artifacts(folder / "out")

    return act


def changing(folder: Path, opens: int, format: str = "onnx") -> tuple[Counter[str], str]:
    """Open a bundle while another process gives the cached model's name to another model.

    Args:
        folder: Of `bundle_template`.
        opens: How often it is opened.
        format: Of the artifact; its fp32 one runs, the other names' bytes are its w8a8 one's.

    Returns:
        How the opens ended, and what is wrong: empty where nothing is.
    """
    from edgeserve import Wrapper

    os.environ["EDGESERVE_CACHE"] = str(folder / "cache")
    raw = (folder / "case.png").read_bytes()
    asked: dict[str, Any] = {"format": format, "threads": 1}
    paths, scores = [], []
    for precision in ("fp32", "w8a8"):
        with Wrapper(folder / "model.edge", precision=precision, **asked) as wrapper:
            scores.append(wrapper.predict(raw).top)
        kept = folder.glob(f"cache/artifacts-1/{format}-{precision}-*/**/model.*")
        paths.append(next(path for path in kept if path.is_file()))
    assert scores[0] != scores[1]
    right, other = (path.read_bytes() for path in paths)
    pid = _fork()
    if pid == 0:
        _swap_for_ever(paths[0], (other, right), folder / "cache" / "aside")
    ended: Counter[str] = Counter()
    try:
        for _ in range(opens):
            try:
                with Wrapper(folder / "model.edge", precision="fp32", **asked) as wrapper:
                    same = wrapper.predict(raw).top == scores[0]
                    ended["the right model" if same else "ANOTHER MODEL"] += 1
            except EdgeError as error:
                ended[error.code] += 1
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    wrong = ended["ANOTHER MODEL"] or not ended["the right model"] or demoted(folder)
    return ended, f"{dict(ended)}, demoted {demoted(folder)}" if wrong else ""


def _swap_for_ever(path: Path, contents: tuple[bytes, ...], aside: Path) -> None:
    while True:
        for data in contents:
            aside.write_bytes(data)
            try:
                os.rename(aside, path)
            except OSError:
                time.sleep(0.001)  # it is extracted anew just now


#: Loops that need nothing but a bundle, by name.
OPENING: dict[str, Act] = {
    "predict": predicting,
    "open": opening,
    "open several": opening_several,
    "serve": serving,
}


def bundle_template(folder: Path) -> Path:
    """A folder with a bundle and its first golden picture."""
    from edgeserve.bundle import Bundle

    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(BUNDLE, folder / "model.edge")
    with Bundle(BUNDLE) as bundle:
        assert bundle.manifest.golden is not None
        (folder / "case.png").write_bytes(bundle.read(bundle.manifest.golden.cases[0].input.path))
    return folder


def report(loop: Loop, done: dict[str, str], keep: Callable[[str, str], None], every: int) -> int:
    """Run the cells of a loop that were not done; returns how many are wrong."""
    right, cells = loop.cells()
    results: Counter[str] = Counter()
    for fault, index in cells[::every]:
        key = f"{loop.name} {fault} {index} of {len(cells)}"
        if key not in done:
            done[key] = loop.wrong(right, fault, index)
            keep(key, done[key])
        results[f"{fault} {'wrong' if done[key] else 'held'}"] += 1
        if done[key]:
            print(f"WRONG {key}: {done[key]}", flush=True)
    print(f"{loop.name}: {dict(results)}", flush=True)
    return sum(count for key, count in results.items() if key.endswith("wrong"))


#: What is done where no name is given.
NAMES = (*OPENING, "package", "convert", "changes", "kills", "full")


def loops(work: Path, names: Collection[str]) -> Iterator[Loop]:
    """The loops of these names, each made when it is its turn."""
    bundle = bundle_template(work / "bundle")
    yield from (Loop(name, act, bundle) for name, act in OPENING.items() if name in names)
    if {"package", "convert"} & {*names}:
        yield from (loop for loop in _of_a_conversion(work) if loop.name in names)


def changes(work: Path, opens: int) -> list[str]:
    """`changing` for a format that is read and for one that is mapped; what is wrong."""
    wrong = []
    for format in ("onnx", "tflite"):
        ended, found = changing(bundle_template(work / f"changing-{format}"), opens, format)
        print(f"changes {format}: {dict(ended)}", flush=True)
        wrong += [found] * bool(found)
    return wrong


def _of_a_conversion(work: Path) -> Iterator[Loop]:
    """Packaging and converting, from the record of one real conversion."""
    source = template(work / "source")
    loop = Loop("convert", lambda *_: "", source)
    folder = loop.fresh()
    recording = WorkerRecording(work / "recorded", folder)
    with workers(recording.record(jobs.run)):
        pid = _fork()
        if pid == 0:
            convert(folder)
            os._exit(0)
    if os.waitpid(pid, 0)[1]:
        raise RuntimeError("convert fails without a fault")
    made = work / "workspace"
    shutil.copytree(folder, made)
    (made / "bundles").mkdir()
    shutil.copy(BUNDLE, made / "bundles" / "model.edge")
    yield Loop("package", packaging, made)
    yield Loop("convert", converting(recording), source)


def main() -> int:
    """Print what was wrong, and a line for each loop."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--every", type=int, default=1, help="of the cells of a loop, each so many")
    parser.add_argument("--kills", type=int, default=5, help="of the real conversion, at random")
    parser.add_argument("--opens", type=int, default=600, help="while the cache is changed")
    parser.add_argument("--out", type=Path, default=Path("fault-out"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    log = given.out / "results.jsonl"
    lines = log.read_text().splitlines() if log.exists() else []
    done = {key: wrong for key, wrong in map(json.loads, lines) if not wrong}

    def keep(key: str, wrong: str) -> None:
        with log.open("a") as file:
            file.write(json.dumps([key, wrong]) + "\n")

    wrong = 0
    names = given.names or NAMES
    with tempfile.TemporaryDirectory(prefix="fault-loops-") as work:
        for loop in loops(Path(work), names):
            wrong += report(loop, done, keep, given.every)
        single: dict[str, Callable[[], list[str]]] = {
            "changes": lambda: changes(Path(work), given.opens),
            "kills": lambda: random_kills(given.kills),
            "full": full_file_system,
        }
        for name in single.keys() & {*names}:
            found = single[name]()
            wrong += len(found)
            print("\n".join([f"{name}: {'wrong' if found else 'held'}", *found]), flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
