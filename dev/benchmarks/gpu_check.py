"""The demo's tagger on CUDA, through the endpoint: the same answers as on the CPU, and how fast.

    make gpu-check        (python -m dev.benchmarks.gpu_check [--delegate cuda] [--fresh])

Needs `pip install onnxruntime-gpu` in place of onnxruntime. Takes under five minutes on a machine
with a GPU; where there is no CUDA runtime it says so and ends with 0, and CUDA stays unproven.

The tagger is converted to ONNX in fp32 and fp16 and served. A provider that falls back to the CPU
is an error in every step. Steps that passed stand in ``gpu-out/steps.json``, for the same package
and runtime, and are not repeated; exit code 1: a step did not pass.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from dev.benchmarks.endpoint_agreement import raws
from dev.benchmarks.serve import Client, closed_loop, server
from edgeserve import Wrapper, tasks
from edgeserve.errors import EdgeError
from edgeserve.package import package
from edgeserve.types.options import PackageOptions
from edgeserve.worker_limits import held_memory
from edgeserve.wrapper.certificate import verify

OUT = Path("gpu-out")
_CROPS = 560
_BATCHES = (1, 8, 32)
#: Seconds that the whole may take, the attacks at its end included.
_ATTACKS_S = 45
#: What the tensors of the GPU, whose convolutions may round to ten bits (TF32), may differ by,
#: relative to the largest.
_TOLERANCE = 2e-3


@dataclass
class Check:
    """What the steps work on.

    Attributes:
        delegate: The provider that must answer.
        seconds: Of each measurement of speed.
        bundles: By precision.
        photos: The demo's photos.
    """

    delegate: str
    seconds: float
    bundles: dict[str, str]
    photos: Path

    @contextmanager
    def serving(self, *options: str) -> Iterator[tuple[int, int]]:
        """The endpoint with these bundles and options; gives its process id and port."""
        first, *rest = options
        with server(first, *rest, "--deadline-ms", "60000", one_core=False) as (process, port):
            yield process.pid, port

    def ask(self, link: HTTPConnection, model: str, raw: bytes) -> dict[str, Any]:
        """One decision of the endpoint, which the delegate and no other must have made."""
        link.request("POST", f"/v2/models/{model}/predict", raw)
        answer = json.loads((reply := link.getresponse()).read())
        if reply.status != 200:
            raise AssertionError(f"{reply.status}: {answer}")
        ran = answer["ran_on"]
        if ran["runtime"]["delegate"] != self.delegate or ran["proof"] != "golden":
            raise AssertionError(f"ran on {ran['runtime']['delegate']}, proof {ran['proof']!r}")
        return dict(answer["answer"])


def golden(check: Check) -> str:
    """Both packages reproduce their golden cases on the delegate."""
    told = []
    for precision, bundle in check.bundles.items():
        proven = [each for each in verify(bundle).proofs if each.delegate == check.delegate]
        if not proven or any(each.verdict != "pass" for each in proven):
            raise AssertionError(f"{precision}: {[(e.verdict, e.reason) for e in proven]}")
        told += [f"{precision} {each.passed}/{each.total}" for each in proven]
    return ", ".join(told)


def tensors(check: Check) -> str:
    """The largest difference from the CPU, relative to the largest output."""
    told = []
    for precision, bundle in check.bundles.items():
        with (
            Wrapper(bundle, delegate=check.delegate, strict=True) as there,
            Wrapper(bundle, delegate="cpu") as here,
        ):
            feed = _feed(here, 8)
            pairs = zip(
                there.engine.run(feed).values(), here.engine.run(feed).values(), strict=True
            )
            worst = max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in pairs)
            told.append(f"{precision} {worst:.1e}")
            if precision == "fp32" and worst > _TOLERANCE:
                raise AssertionError(f"{worst:.1e}, wanted {_TOLERANCE:g} at most")
    return ", ".join(told)


def decisions(check: Check) -> str:
    """Decided crops that the endpoint answers otherwise than the CPU: none may be."""
    sure, decided, flips, others = tasks.sure_margin("image-classification"), 0, 0, 0
    bundle = check.bundles["fp32"]
    with Wrapper(bundle, delegate="cpu") as here, check.serving(bundle) as (_, port):
        link = HTTPConnection("127.0.0.1", port, timeout=60)
        for raw in raws(check.photos, _CROPS):
            wanted = here.predict(raw)
            same = check.ask(link, "tagger", raw)["index"] == wanted.index
            certain = wanted.top[0][1] - wanted.top[1][1] >= sure
            decided, flips = decided + certain, flips + (certain and not same)
            others += not certain and not same
        link.close()
    if flips:
        raise AssertionError(f"{flips} of {decided} decided crops differ")
    return f"0 of {decided} decided crops differ, {others} of the {_CROPS - decided} undecided ones"


def throughput(check: Check) -> str:
    """Samples a second of the runtime and of the endpoint, by batch size."""
    told = []
    with Wrapper(check.bundles["fp32"], delegate=check.delegate, strict=True) as wrapper:
        for size in _BATCHES:
            feed = _feed(wrapper, size)
            wrapper.engine.run(feed)
            runs, began = 0, time.perf_counter()
            while time.perf_counter() - began < check.seconds:
                wrapper.engine.run(feed)
                runs += 1
            told.append(f"{runs * size / (time.perf_counter() - began):.0f}")
        one = _feed(wrapper, 1)
    there = [f"{_answers_a_second(check, one, size):.0f}" for size in _BATCHES]
    sizes = " / ".join(map(str, _BATCHES))
    return f"batch {sizes}: runtime {' / '.join(told)}, endpoint {' / '.join(there)} a second"


def _answers_a_second(check: Check, feed: dict[str, np.ndarray], size: int) -> float:
    with check.serving(check.bundles["fp32"], "--batch", str(size)) as (_, port):

        async def go() -> float:
            client = Client(port, "tagger", feed=feed)
            await closed_loop(client, 64, 32)
            answered, began = 0, time.perf_counter()
            while time.perf_counter() - began < check.seconds:
                answered += len(await closed_loop(client, 128, 32))
            client.close()
            return answered / (time.perf_counter() - began)

        return asyncio.run(go())


def memory(check: Check) -> str:
    """Two models in a budget for one: each answers in turn, and the process does not grow."""
    raw = next(raws(check.photos, 1))
    both = [_renamed(name) for name in ("one", "two")]
    with check.serving(both[0], both[1], "--lazy", "--memory-mb", "24") as (pid, port):
        link, taken = HTTPConnection("127.0.0.1", port, timeout=60), []
        for turn in range(10):
            for name in ("one", "two"):
                check.ask(link, name, raw)
            taken.append(_memory_mb(pid))
            link.request("POST", "/v2/repository/index")
            states = [each["state"] for each in json.loads(link.getresponse().read())]
            if states.count("READY") != 1:
                raise AssertionError(f"turn {turn}: {states}")
        link.close()
    if taken[-1] > 1.25 * taken[1]:
        raise AssertionError(f"{taken[1]} MB after two turns, {taken[-1]} MB after ten")
    return f"one of two loaded at a time; {taken[1]} MB after two turns, {taken[-1]} MB after ten"


def swap(check: Check) -> str:
    """A package replaced under load: nobody gets an error, and the new one answers."""
    raw = next(raws(check.photos, 1))
    served = OUT / "served.edge"
    shutil.copyfile(check.bundles["fp32"], served)
    failed: list[str] = []
    seen: list[str] = []
    ended = threading.Event()

    def ask_on(port: int) -> None:
        link = HTTPConnection("127.0.0.1", port, timeout=60)
        while not ended.is_set():
            try:
                check.ask(link, "tagger", raw)
                seen.append("")
            except Exception as error:  # whatever it is, a caller has met it
                failed.append(str(error))
        link.close()

    with check.serving(str(served)) as (_, port):
        callers = [threading.Thread(target=ask_on, args=(port,)) for _ in range(4)]
        for caller in callers:
            caller.start()
        link = HTTPConnection("127.0.0.1", port, timeout=120)
        for precision in ("fp16", "fp32", "fp16"):
            shutil.copyfile(check.bundles[precision], OUT / "next.edge")
            (OUT / "next.edge").replace(served)
            link.request("POST", "/v2/repository/models/tagger/load")
            reply = link.getresponse()
            if reply.read() and reply.status != 200:
                failed.append(f"load of {precision}: {reply.status}")
        answer = check.ask(link, "tagger", raw)
        ended.set()
        for caller in callers:
            caller.join()
        link.close()
    if failed:
        raise AssertionError(f"{len(failed)} of {len(seen)} failed: {failed[0]}")
    return f"3 swaps, {len(seen)} answers, none failed; then {answer['label']!r}"


def attacks(check: Check) -> str:
    """A short pass of `make hostile`."""
    command = [sys.executable, "-m", "dev.benchmarks.attacks", "--quick", "--fresh"]
    ran = subprocess.run(
        [*command, "--budget", str(_ATTACKS_S)], capture_output=True, text=True, check=False
    )
    last = (ran.stdout.strip().splitlines() or [ran.stderr[-300:]])[-1]
    if ran.returncode:
        raise AssertionError(last)
    return last


STEPS: tuple[Callable[[Check], str], ...] = (
    golden,
    tensors,
    decisions,
    throughput,
    memory,
    swap,
    attacks,
)


def _feed(wrapper: Wrapper, size: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    return {
        spec.name: rng.random((size, *map(int, spec.shape[1:])), np.float32)
        for spec in wrapper.manifest.signature.inputs
    }


def _renamed(name: str) -> str:
    return _packaged("fp32", name, OUT / f"{name}.edge")


def _packaged(precision: str, name: str, bundle: Path) -> str:
    only = (f"onnx-{precision}",)
    options = PackageOptions(out=str(OUT / "tagger"), bundle=str(bundle), only=only, name=name)
    package(options)
    return str(bundle)


def _memory_mb(pid: int) -> int:
    """Memory of the GPU that a process holds; where no tool tells it, its own memory."""
    with suppress(OSError, subprocess.CalledProcessError):
        query = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader"]
        lines = subprocess.run(query, capture_output=True, text=True, check=True).stdout
        for line in lines.splitlines():
            if line.partition(",")[0].strip() == str(pid):
                return int(line.partition(",")[2].split()[0])
    return held_memory(pid) >> 20


def prepare() -> tuple[dict[str, str], Path]:
    """Convert the tagger and package each precision; what is there is taken."""
    photos = OUT / "photos"
    commands = [
        ["-m", "dev.demo.photos", str(photos)],
        [
            *("-m", "edgeserve", "convert", "dev.demo.tagger:efficientnet_lite0", "--to", "onnx"),
            *("--precision", "fp32,fp16", "--data", str(photos / "data.jsonl")),
            *("--reference", "dev.demo.server:tag", "-o", str(OUT / "tagger")),
        ],
    ]
    for command in commands:
        subprocess.run([sys.executable, *command], check=True)
    bundles = {
        precision: _packaged(precision, "tagger", OUT / f"tagger-{precision}.edge")
        for precision in ("fp32", "fp16")
    }
    return bundles, photos


def unavailable(delegate: str) -> str:
    """Why this delegate cannot be had here; empty where it can."""
    from edgeserve import backends

    usable = backends.get("onnx").delegates()
    if delegate in usable:
        return ""
    return f"onnxruntime has {', '.join(onnxruntime.get_available_providers())}"


def run_steps(check: Check, fresh: bool) -> bool:
    """Print what each step found; whether all passed."""
    book = OUT / "steps.json"
    key = f"{onnxruntime.__version__} {check.delegate} " + " ".join(
        str(Path(bundle).stat().st_size) for bundle in check.bundles.values()
    )
    known = json.loads(book.read_text()) if book.exists() and not fresh else {}
    known = known if known.get("key") == key else {"key": key}
    for step in STEPS:
        name, began = step.__name__, time.perf_counter()
        try:
            known[name] = known.get(name) or step(check)
            print(f"ok    {name}: {known[name]} ({time.perf_counter() - began:.0f} s)", flush=True)
        except (AssertionError, EdgeError, OSError) as error:
            print(f"FAIL  {name}: {error}", flush=True)
        book.write_text(json.dumps(known, indent=1))
    return all(step.__name__ in known for step in STEPS)


def main() -> int:
    """Print the figures; 1 if the GPU answers otherwise than the CPU, or falls back to it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--delegate", default="cuda", help="another provider, to try the script")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    parser.add_argument("--fresh", action="store_true", help="repeat steps that passed")
    given = parser.parse_args()
    if reason := unavailable(given.delegate):
        print(f"not run: no {given.delegate} here ({reason}); unproven on a GPU")
        return 0
    OUT.mkdir(exist_ok=True)
    bundles, photos = prepare()
    check = Check(given.delegate, given.seconds, bundles, photos)
    return 0 if run_steps(check, given.fresh) else 1


if __name__ == "__main__":
    sys.exit(main())
