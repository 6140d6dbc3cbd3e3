"""The verbs in their worker processes: what users meet, crashes and endless loops included."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from edgeserve import backends, jobs
from edgeserve.convert import ExportRequest, TargetRequest, parse_source
from edgeserve.convert.source import export_source, read_export
from edgeserve.errors import ConvertError, UnsupportedOp, WorkerError
from edgeserve.types.artifact import Artifact
from edgeserve.types.source import Exported

Write = Callable[[str, str], None]
VERB = "edgeserve.convert.source:export_source"
TARGET = "edgeserve.convert.target:convert_target"


def export_in_worker(user: Path, folder: Path, source: str, timeout: float = 120.0) -> Exported:
    request = ExportRequest(source=parse_source(source, user), out=str(folder / "out"))
    return jobs.run(VERB, request, Exported, folder / "job", timeout=timeout)


def test_the_whole_way_in_workers_gives_what_one_process_gives(
    user: Path, write: Write, tmp_path: Path
) -> None:
    """Another process, another hash seed: the same weights, graph text and ONNX bytes."""
    write(
        "noisy",
        """
        import good, sys
        def factory():
            for _ in range(20_000):
                print("noise " * 50)
                print("noise", file=sys.stderr)
            return good.factory()
        """,
    )
    told: list[jobs.Progress] = []
    out = tmp_path / "ws"
    request = ExportRequest(source=parse_source("noisy:factory", user), out=str(out / "source"))
    jobs.run(VERB, request, Exported, out / "logs" / "export", on_progress=told.append)
    target = TargetRequest(
        source_folder=str(out / "source"), format="onnx", precision="fp32", out=str(out / "onnx")
    )
    log = out / "logs" / "onnx-fp32"
    artifact = jobs.run(TARGET, target, Artifact, log, on_progress=told.append)
    exported = read_export(out / "source")
    here = export_source(
        ExportRequest(source=parse_source("good:factory", user), out=str(tmp_path / "here"))
    )
    assert exported.weights == here.weights
    assert exported.graph_sha256 == here.graph_sha256
    assert exported.signature == here.signature
    again = backends.get("onnx").export(here, tmp_path / "here", tmp_path / "onnx")
    assert again.sha256 == artifact.sha256
    assert [step.what for step in told][-1] == "convert to onnx by dynamo"
    assert "route 'dynamo' worked" in (log / "log.txt").read_text()
    assert (out / "logs" / "export" / "log.txt").stat().st_size > 6_000_000
    import good  # the user's own module, as the oracle

    torch.manual_seed(0)
    module, (image,), _ = good.factory()
    with backends.get("onnx").load(artifact, out / "onnx") as session, torch.no_grad():
        got = session.run({"image": image.numpy()})["logits"]
        np.testing.assert_allclose(got, module.eval()(image).numpy(), rtol=0, atol=1e-6)


def test_an_error_keeps_its_code_and_line(user: Path, write: Write, tmp_path: Path) -> None:
    write("late", "def factory():\n    raise KeyError('x')\n")
    with pytest.raises(ConvertError) as error:
        export_in_worker(user, tmp_path, "late:factory")
    assert error.value.code == "EDGE-CONVERT-007"
    assert error.value.source_line == "late.py:2"
    assert "Traceback" in (tmp_path / "job" / "log.txt").read_text()
    assert not (tmp_path / "out").exists()


def test_an_endless_factory_is_stopped(user: Path, write: Write, tmp_path: Path) -> None:
    write("endless", "while True:\n    pass\n")
    with pytest.raises(WorkerError) as error:
        export_in_worker(user, tmp_path, "endless:factory", timeout=6)
    assert error.value.code == "EDGE-WORKER-003"


def test_a_thread_that_a_factory_leaves_running_is_not_waited_for(
    user: Path, write: Write, tmp_path: Path
) -> None:
    write(
        "threaded",
        "import threading, time, torch\n"
        "def factory():\n"
        "    print('noise ' * 999)\n"
        "    threading.Thread(target=time.sleep, args=(900,), name='clock').start()\n"
        "    return torch.nn.Linear(2, 2), (torch.zeros(1, 2),)\n",
    )
    exported = export_in_worker(user, tmp_path, "threaded:factory", timeout=120)
    assert exported.signature.outputs[0].shape == (1, 2)
    assert "['clock']" in (tmp_path / "job" / "log.txt").read_text()


@pytest.mark.parametrize(
    ("text", "said"), [("os._exit(7)", "exit status 7"), ("os.abort()", "SIGABRT")]
)
def test_a_crash_is_told_as_one(
    user: Path, write: Write, tmp_path: Path, text: str, said: str
) -> None:
    write("crash", f"import os\n{text}\n")
    with pytest.raises(WorkerError) as error:
        export_in_worker(user, tmp_path, "crash:factory")
    assert error.value.code == "EDGE-WORKER-002"
    assert said in error.value.message


def test_an_op_that_cannot_be_converted_is_a_failed_check(
    write: Write, export: Callable[[str], Exported], tmp_path: Path
) -> None:
    write(
        "rare",
        """
        import torch
        class Rare(torch.nn.Module):
            def forward(self, x):
                return torch.linalg.svd(x)[1]
        def factory():
            return Rare(), (torch.ones(3, 3),)
        """,
    )
    export("rare:factory")
    request = TargetRequest(
        source_folder=str(tmp_path / "out"),
        format="onnx",
        precision="fp32",
        out=str(tmp_path / "made"),
    )
    with pytest.raises(UnsupportedOp) as error:
        jobs.run(TARGET, request, Artifact, tmp_path / "job")
    assert error.value.source_line == "rare.py:5"
    assert "aten.linalg_svd" in error.value.message
    assert not list((tmp_path / "made").iterdir())


def test_big_answers_are_no_trouble(write: Write, export: Callable[[str], Exported]) -> None:
    """64 MB of output for 4 bytes of input, and a weight of 40 MB."""
    write(
        "big",
        """
        import torch
        class Big(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("table", torch.arange(10_000_000.0))
            def forward(self, x):
                return x.expand(4096, 4096) + self.table[:4096]
        def factory():
            return Big(), (torch.ones(1),)
        """,
    )
    exported = export("big:factory")
    assert exported.signature.outputs[0].shape == (4096, 4096)
    assert exported.program.size > 40_000_000
