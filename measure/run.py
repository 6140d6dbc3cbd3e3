"""The verb `measure_artifact`: runs in a worker process of its own, so that nothing else is in it.

In order: memory with the runtime imported, load, first run, warm-up, the runs that count, and
with a raw sample the whole way from it to a decision, split over the processing steps. Resident
memory of the process is read in MiB, now and at its peak.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from edgeserve.environment import environment, usable_cores
from edgeserve.errors import MeasureError
from edgeserve.installation import install_command
from edgeserve.jobs import progress
from edgeserve.measure import inputs as feeds
from edgeserve.measure.noise import LoadMeter, MachineLoad, noise_reason
from edgeserve.measure.request import MeasureRequest
from edgeserve.measure.timing import RunTimes, time_once, time_runs, time_steps, warm_up
from edgeserve.types.base import number
from edgeserve.types.reports import Measurement, Timing

if TYPE_CHECKING:
    from edgeserve.backends import Backend, Session
    from edgeserve.processing import Processor


_STATUS = Path("/proc/self/status")
_MB = 1024.0 * 1024.0


def resident_mb() -> float:
    """Resident memory now.

    Raises:
        MeasureError: EDGE-MEASURE-007, psutil is needed here and missing.
    """
    if _STATUS.exists():
        return parse_status(_STATUS.read_text(), "VmRSS")
    return float(_psutil_memory().rss) / _MB


def peak_mb() -> float:
    """Highest resident memory so far.

    On Linux this is VmHWM and not ``ru_maxrss``, which a process inherits over fork and exec: a
    worker started by a process that holds PyTorch would show PyTorch's memory.

    Raises:
        MeasureError: EDGE-MEASURE-007, psutil is needed here and missing.
    """
    if _STATUS.exists():
        return parse_status(_STATUS.read_text(), "VmHWM")
    if sys.platform == "win32":
        return float(_psutil_memory().peak_wset) / _MB
    import resource

    unit = 1.0 if sys.platform == "darwin" else 1024.0  # macOS counts bytes, others KiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / _MB


def parse_status(text: str, field: str) -> float:
    """Read a memory field of ``/proc/self/status`` (kernel kB, which are KiB) in MiB."""
    for line in text.splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024.0
    raise ValueError(f"no {field} in /proc/self/status")


def _psutil_memory() -> Any:
    try:
        import psutil  # type: ignore[import-untyped]
    except ImportError as error:
        raise MeasureError(
            "EDGE-MEASURE-007",
            "psutil",
            wanted="the package that reads this system's memory",
            got="not installed",
            hint=install_command("measure"),
        ) from error
    return psutil.Process().memory_info()


#: Shares of the time budget.
_FOR_WARMUP = 0.2
_FOR_SPLIT = 0.4


class _MeasuredInput(NamedTuple):
    """The tensors to feed, and their origin."""

    tensors: dict[str, np.ndarray]
    batch: int
    dims: dict[str, int]
    name: str
    raw: bytes | str | None = None
    processor: Processor | None = None


class _TimedRuns(NamedTuple):
    """Results of the timed runs."""

    first_ms: float
    warmup: int
    warm: bool
    times: RunTimes
    around: MachineLoad
    split: dict[str, Timing]


def measure_artifact(request: MeasureRequest) -> Measurement:
    """Measure one artifact on this machine.

    Raises:
        MeasureError: EDGE-MEASURE-001 another target, -002 to -005 no fitting input, -006 a figure
            of the request makes no sense, -007 no way to read memory here.
            -008 another engine stands in for the format's own.
        BackendError: the runtime is missing, or refuses the artifact or its input.
    """
    began = time.perf_counter()
    _check(request)
    feed = _feed(request)
    backend = _import_backend(request)
    before = resident_mb()
    progress(f"loading {request.artifact.name}")
    start = time.perf_counter()
    session = backend.load(
        request.artifact,
        Path(request.root),
        delegate=request.delegate,
        threads=request.threads,
        verified=True,
    )
    load_ms = 1e3 * (time.perf_counter() - start)
    with session:
        _check_engine(session, request)
        runs = _runs(session, feed, request)
        timing = runs.times.timing()
        return Measurement(
            artifact_sha256=request.artifact.sha256,
            format=request.artifact.format,
            precision=request.artifact.precision,
            target=request.settings.on,
            runtime=session.runtime,
            threads=session.threads,
            batch=feed.batch,
            load_ms=number(load_ms),
            first_ms=number(runs.first_ms),
            warmup=runs.warmup,
            run=timing,
            split=runs.split,
            rss_mb=number(max(peak_mb(), before)),  # the kernel's peak is exact to some pages only
            rss_before_mb=number(before),
            size_bytes=request.artifact.size,
            noisy=noise_reason(
                timing,
                runs.times.wall,
                runs.around,
                threads=request.threads,
                on_cpu=session.delegate in backend.cpu_delegates,
                warm=runs.warm or request.max_warmup == 0,
            ),
            environment=environment(),
            wall_ms=tuple(runs.times.wall),
            cpu_ms=tuple(runs.times.cpu),
            dims=feed.dims,
            input=feed.name,
            notes=_notes(runs, request, feed),
            seconds=number(time.perf_counter() - began),
        )


def _check(request: MeasureRequest) -> None:
    if request.settings.on != "host":
        raise MeasureError(
            "EDGE-MEASURE-001",
            f"target {request.settings.on!r}",
            wanted="host",
            got="a target that is not in this version",
            hint="measure with --on host",
        )
    least = {
        "threads": request.threads,
        "batch": 1 if request.settings.batch is None else request.settings.batch,
        "min_runs": request.min_runs,
        "max_runs": request.max_runs - request.min_runs + 1,
        "max_warmup": request.max_warmup + 1,
    }
    wrong = [name for name, value in least.items() if value < 1]
    if wrong or not 0 < request.settings.seconds < 86_400:
        raise MeasureError(
            "EDGE-MEASURE-006",
            wrong[0] if wrong else "seconds",
            wanted="threads, batch and runs >= 1, max_runs >= min_runs, 0 < seconds < 86400",
            got=str(least.get(wrong[0]) if wrong else request.settings.seconds),
            hint="change that figure",
        )


def _check_engine(session: Session, request: MeasureRequest) -> None:
    if session.simulated:
        raise MeasureError(
            "EDGE-MEASURE-008",
            request.artifact.name,
            wanted="the format's own engine",
            got=f"{session.runtime.name}, which stands in for it: its times say nothing",
            hint="measure this artifact on a device that has the engine",
        )


def _feed(request: MeasureRequest) -> _MeasuredInput:
    """Make the tensors to feed: from the sample where there is one, else from the seed."""
    artifact, signature = request.artifact, request.signature
    batch = feeds.batch_size(artifact.io, signature, request.settings.batch)
    if request.sample is None:
        padding = request.processing.padding
        masks = {name for name, step in padding.items() if step.part == "attention_mask"}
        masks |= {spec.name for spec in signature.inputs if "mask" in spec.name.lower()}
        ios = artifact.buckets or (artifact.io,)
        dims = feeds.choose_sizes(ios, signature, batch, request.dims, padding)
        tensors = feeds.seeded_tensors(signature, dims, request.seed, masks)
        return _MeasuredInput(tensors, batch, dims, "seeded tensors")
    path = Path(request.sample)
    if path.suffix == ".npz":
        tensors = feeds.named_tensors(path, signature, batch)
        return _MeasuredInput(tensors, batch, feeds.sizes_in(tensors, signature), path.name)
    return _raw_feed(request, path, batch)


def _raw_feed(request: MeasureRequest, path: Path, batch: int) -> _MeasuredInput:
    """Prepare a raw sample as the Wrapper would."""
    from edgeserve.processing import Processor

    folder = Path(request.assets or request.root)
    processor = Processor(
        request.processing,
        request.signature,
        request.task,
        request.labels,
        assets=lambda name: (folder / name).read_bytes(),
    )
    if processor.medium == "tensors":
        raise feeds.sample_error(path, "an .npz: this model has no processing", "a raw input")
    raw: bytes | str
    try:
        raw = path.read_text("utf-8-sig") if processor.medium == "text" else path.read_bytes()
    except OSError as error:
        raise feeds.sample_error(path, "a readable file", error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise feeds.sample_error(path, "a text in UTF-8", str(error)) from error
    tensors = processor.batch([processor.prepare(raw)] * batch)
    dims = feeds.sizes_in(tensors, request.signature)
    return _MeasuredInput(tensors, batch, dims, path.name, raw, processor)


def _import_backend(request: MeasureRequest) -> Backend:
    """The backend, its runtime imported and the files' hashes compared: no part of loading."""
    from edgeserve.backends import get
    from edgeserve.backends.base import check_files

    backend = get(request.artifact.format)
    if backend.missing() is None:  # if something is, `load` says what
        backend.delegates()
    check_files(request.artifact, Path(request.root))
    return backend


def _runs(session: Session, feed: _MeasuredInput, request: MeasureRequest) -> _TimedRuns:
    from edgeserve.backends.adapter import Adapter

    adapter = Adapter(session, request.signature, request.processing.padding)

    def run() -> Mapping[str, np.ndarray]:
        return adapter.run(feed.tensors)

    first, _ = time_once(run)
    progress("warming up", 1, 3)
    warmup, warm = warm_up(run, request.max_warmup, _FOR_WARMUP * request.settings.seconds)
    progress("timing runs", 2, 3)
    share = 1.0 - (_FOR_SPLIT if feed.processor else 0.0)
    meter = LoadMeter()
    times = time_runs(run, request.min_runs, request.max_runs, share * request.settings.seconds)
    around = meter.stop()
    parts: dict[str, Timing] = {}
    if feed.processor and feed.raw is not None:
        parts = time_steps(
            feed.processor,
            feed.raw,
            adapter.run,
            batch=feed.batch,
            runs=request.max_runs,
            seconds=_FOR_SPLIT * request.settings.seconds,
        )
    progress("timing runs", 3, 3)
    return _TimedRuns(first, warmup, warm, times, around, parts)


def _notes(runs: _TimedRuns, request: MeasureRequest, feed: _MeasuredInput) -> tuple[str, ...]:
    ios = request.artifact.buckets or (request.artifact.io,)
    larger = feeds.padded_sizes(ios, request.signature, feed.dims)
    notes = [f"{dim} {feed.dims[dim]} runs as {size}" for dim, size in larger.items()]
    if runs.around.load is not None:
        notes.append(f"load average before the runs: {runs.around.load:.2f}")
    if request.threads > usable_cores():
        notes.append(f"{request.threads} threads on {usable_cores()} usable cores")
    return tuple(notes)
