"""Settings for all tests: nothing is downloaded, user state is private, a skip fails in CI."""

from __future__ import annotations

import functools
import gc
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
# Threads that wait in a loop take most of a busy machine; workers are started like this too.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

_numbers = itertools.count()
#: (test, reason) of each test that was skipped.
_skipped: list[tuple[str, str]] = []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests come first, so that no worker begins one when the others are done."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(scope="module", autouse=True)
def _small_heap() -> None:
    """The collector passes over what earlier files imported: millions of objects, each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _one_registry() -> Iterator[None]:
    """torch.onnx reads its translations once, not for each export: a small net takes less time."""
    if "torch" not in sys.modules:
        yield
        return
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    with pytest.MonkeyPatch.context() as patch:
        read = staticmethod(functools.cache(ONNXRegistry.from_torchlib))
        patch.setattr(ONNXRegistry, "from_torchlib", read)
        yield


@pytest.fixture(autouse=True)
def _private_cache(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each test has its own edgeserve cache, never the user's."""
    # `mktemp` would read all names of its folder each time, of which there are thousands.
    cache = tmp_path_factory.getbasetemp() / "caches" / str(next(_numbers))
    cache.mkdir(parents=True)
    monkeypatch.setenv("EDGESERVE_CACHE", str(cache))


@pytest.fixture
def write_reports() -> Callable[[Path], None]:
    """Write what the gate would have said of each artifact of a workspace made by hand."""
    from edgeserve.bundle import Workspace
    from edgeserve.environment import environment
    from edgeserve.types.base import encode
    from edgeserve.types.records import Runtime
    from edgeserve.types.reports import Limits, Report

    def write(folder: Path) -> None:
        for artifact in Workspace(folder).manifest.artifacts:
            assert artifact.judgement is not None
            report = Report(
                artifact_sha256=artifact.sha256,
                format=artifact.format,
                precision=artifact.precision,
                runtime=Runtime(name="onnxruntime", version="1.32.0", delegate="cpu"),
                reference="pt2",
                preprocessing="declared, not compared",
                inputs="8 fillers",
                limits=Limits(),
                checks=(),
                outputs=(),
                decisions=None,
                worst=(),
                judgement=artifact.judgement,
                environment=environment(),
                seconds=1.0,
            )
            path = folder / "reports" / f"{artifact.name}.validate.json"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(encode(report))

    return write


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remember what was skipped."""
    if report.skipped:
        # (file, line, "Skipped: reason"); an expected failure has none.
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        _skipped.append((report.nodeid, reason.removeprefix("Skipped: ")))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In CI a skip is a failure: the machine lacks something that .ci/run must install."""
    if _skipped and os.environ.get("CI"):
        session.exitstatus = 1


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the tests that were skipped, and why; in CI they are failures."""
    if _skipped:
        fatal = ", which fails in CI" if os.environ.get("CI") else ""
        terminalreporter.section(f"{len(_skipped)} skipped{fatal}")
        for nodeid, reason in _skipped:
            terminalreporter.line(f"{nodeid}: {reason}")
