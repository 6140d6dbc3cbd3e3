"""`edgeserve.api`: the commands' stages on objects of this process, gate and all."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeserve import Wrapper, api
from edgeserve.bundle.workspace import Workspace as Folder
from edgeserve.errors import BundleError, CheckFailed, UsageError, ValidateError
from edgeserve.options import definitions
from edgeserve.types.options import ConvertOptions, ValidateOptions


def quietly(source: object, example: object = None, **options: Any) -> api.Workspace:
    return api.convert(source, example, progress=False, **options)  # type: ignore[arg-type]


def test_a_module_and_its_path_give_one_workspace(
    toy: Any, server: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """From a module with a closure as its server to a prediction; the import path is the oracle."""
    threads: set[str] = set()

    def predict(raw: bytes) -> Any:
        threads.add(threading.current_thread().name)
        return server(raw)

    module, example, options = toy.build()
    module.train()
    ws = quietly(module, example, out=tmp_path / "ws", data="photos", reference=predict, **options)
    assert capfd.readouterr() == ("", ""), "progress was not wanted"
    assert ws.ok
    assert threads == {threading.current_thread().name}
    assert module.training
    assert ws.manifest.reference == f"<{predict.__module__}:{predict.__qualname__}>"
    (report,) = ws.reports.values()
    assert report.preprocessing == "compared (through the reference's decisions)"

    again = quietly("toy:build", out=str(tmp_path / "path"), data=Path("photos"))
    assert again.manifest.model_id == ws.manifest.model_id
    assert [a.sha256 for a in again.manifest.artifacts] == [a.sha256 for a in ws.manifest.artifacts]
    packaged = ws.package(tmp_path / "toy.edge", version=3)
    with Wrapper(packaged.path) as wrapper:
        photo = Path("photos/01.png")
        assert wrapper.predict(str(photo)).label == server(photo.read_bytes())["label"]
        assert wrapper.manifest.reference is None


def test_a_server_that_decides_otherwise_is_found(toy: Any, tmp_path: Path) -> None:
    """The gate is run: what the documented functions did without."""
    ws = quietly(toy.build, out=tmp_path / "ws", data="photos", reference=toy.liar)
    assert not ws.ok
    assert ws.manifest.artifacts == ()
    assert ws.manifest.reference == "toy:liar", "it can be imported again"
    with pytest.raises(CheckFailed) as error:
        ws.raise_for_status()
    assert error.value.code == ws.manifest.refused[0].code
    assert ws.table().rows[0][1] == "fail"


@pytest.fixture
def made(toy: Any, server: Any, tmp_path: Path) -> api.Workspace:
    """A workspace from a function and a closure."""
    return quietly(toy.build, out=tmp_path / "ws", data="photos", reference=server)


def test_caches_hold_over_functions_too(
    made: api.Workspace, toy: Any, server: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    api.convert(toy.build, out=made.path, data="photos", reference=server)
    lines = capsys.readouterr().err.splitlines()
    assert "onnx-fp32: unchanged, not converted again" in lines
    assert "onnx-fp32: same evidence as before" in lines
    calls: list[int] = []

    def other(raw: bytes) -> str:
        calls.append(len(raw))
        return str(server(raw)["label"])

    made.validate(reference=other)
    assert len(calls) >= 20, "a function is asked anew"
    assert made.ok


def test_a_function_is_remembered_and_its_loss_is_told(made: api.Workspace) -> None:
    made.validate(golden="photos")
    assert made.manifest.golden is not None
    assert made.manifest.golden.origin == "given"
    later = api.open_workspace(made.path, progress=False)
    assert later.validate().ok, "the stored answers do"
    with pytest.raises(ValidateError) as error:
        later.validate(golden="photos/01.png")
    assert error.value.code == "EDGE-VALIDATE-049"
    assert later.validate(reference="pt2").manifest.reference == "pt2"


def test_what_a_function_raises_stops_the_command(toy: Any, tmp_path: Path) -> None:
    def fails(raw: bytes) -> str:
        raise RuntimeError("no connection")

    with pytest.raises(ValidateError, match="no connection") as error:
        quietly(toy.build, out=tmp_path / "ws", data="photos", reference=fails)
    assert error.value.code == "EDGE-VALIDATE-005"
    assert isinstance(error.value.__cause__, RuntimeError)
    assert not (tmp_path / "ws" / "manifest.json").exists()
    with Folder(tmp_path / "ws").lock(timeout=0.1):
        pass  # released


def test_the_lock_is_held(made: api.Workspace) -> None:
    code = "import sys; from edgeserve.bundle import Workspace; w = Workspace(sys.argv[1])\n"
    code += "with w.lock(): print('held', flush=True); sys.stdin.read()"
    holder = subprocess.Popen(
        [sys.executable, "-P", "-c", code, str(made.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout
    holder.stdout.readline()
    with pytest.raises(BundleError) as error:
        made.validate()
    assert error.value.code == "EDGE-BUNDLE-050"
    holder.communicate()


def test_measure_report_and_table(made: api.Workspace) -> None:
    assert "p50 ms" not in made.table().columns
    measured = made.measure(seconds=0.2, threads=1)
    assert list(measured.measurements) == ["onnx-fp32"]
    table = made.table()
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert (row["artifact"], row["verdict"]) == ("onnx-fp32", "pass")
    assert row["agreement with reference"].startswith("decided 20/20")
    assert float(row["p50 ms"]) >= 0
    assert str(table).splitlines()[1].startswith("onnx-fp32  pass")
    shown = made._repr_html_()
    assert shown.count("<tr>") == 2
    assert ">pass<" in shown
    assert made.report().path == str((made.path / "reports" / "report.html").absolute())
    assert repr(made) == f"Workspace({str(made.path)!r})"


def test_options_are_those_of_the_command(toy: Any, tmp_path: Path) -> None:
    ws = quietly(toy.build, out=tmp_path / "ws", to="ort,onnx", require="pass", name="mine")
    assert ws.manifest.name == "mine"
    assert [a.name for a in ws.manifest.artifacts] == ["onnx-fp32"]
    for options, code in (
        ({"too": "onnx"}, "EDGE-USAGE-013"),
        ({"timeout": "soon"}, "EDGE-USAGE-013"),
        ({"to": "onyx"}, "EDGE-USAGE-001"),
        ({"data": ""}, "EDGE-USAGE-005"),
    ):
        with pytest.raises(UsageError) as error:
            quietly(toy.build, out=tmp_path / "ws", **options)
        assert error.value.code == code
    with pytest.raises(UsageError, match="'labels' beside 'toy:build'"):
        quietly("toy:build", out=tmp_path / "ws", labels=["a"])
    with pytest.raises(BundleError, match="convert SOURCE"):
        api.open_workspace(tmp_path / "none")


def test_help_and_completion_know_every_option() -> None:
    named = set(inspect.signature(api.convert).parameters)
    assert set(definitions(ConvertOptions)) | {"example", "labels", "dynamic_shapes"} <= named
    named = set(inspect.signature(api.Workspace.validate).parameters)
    assert set(definitions(ValidateOptions)) - {"out"} <= named


NOTEBOOK = '''
import sys; sys.path.append("")  # as Jupyter has it

def cell(text):
    """Run a cell as IPython does: compiled under a file's name that lies nowhere."""
    name = f"/tmp/ipykernel_1/{len(text)}.py"
    exec(compile(text, name, "exec"), globals())

cell("""
import toy, torch
from edgeserve import api
module, example, options = toy.build()
class Wrapped(torch.nn.Module):          # no worker could import it
    def __init__(self, inner):
        super().__init__()
        self.inner = inner
    def forward(self, image):
        return self.inner(image)
model = Wrapped(module)
""")
cell("""
import io, numpy as np
from PIL import Image
def predict(raw):
    image = Image.open(io.BytesIO(raw)).convert("RGB").resize((16, 16), 2)
    x = np.asarray(image).transpose(2, 0, 1)[None].astype("float32") / 128 - 1
    with torch.no_grad():
        return {"logits": model(torch.from_numpy(x))}
""")
cell("""
ws = api.convert(model, example, out=OUT, data="photos", reference=predict, **options)
print(ws._repr_html_().count("<tr>"), ws.manifest.reference, ws.manifest.name)
print(ws.reports["onnx-fp32"].preprocessing)
""")
cell("""
try:
    ws.validate(reference=lambda raw: 1 / 0)
except Exception as error:
    print(error.code, error.source_line)
""")
'''


def test_a_notebook(project: Path, tmp_path: Path) -> None:
    """Classes and functions of ``__main__``, in cells; in a process of its own."""
    script = f"OUT = {str(tmp_path / 'ws')!r}\n" + textwrap.dedent(NOTEBOOK)
    done = subprocess.run(
        [sys.executable, "-"], input=script, cwd=project, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    first, second, third = done.stdout.splitlines()
    assert first == "2 <__main__:predict> Wrapped"
    assert second == "compared (through the reference's tensors)"
    assert third.startswith("EDGE-VALIDATE-005 /tmp/ipykernel_1/")
    manifest = json.loads((tmp_path / "ws" / "manifest.json").read_bytes())
    assert [a["judgement"]["verdict"] for a in manifest["artifacts"]] == ["pass"]


def test_tensors_without_data_or_server(tmp_path: Path, toy: Any) -> None:
    module, example, _ = toy.build()
    ws = quietly(module, example, out=tmp_path / "ws", input_names=["image"])
    assert ws.manifest.task == "tensors"
    assert ws.ok
    with Wrapper(str(ws.path)) as wrapper:
        x = np.random.default_rng(0).random((2, 3, 16, 16), np.float32)  # fixed by the example
        (got,) = wrapper.predict({"image": x}).values()
    import torch

    np.testing.assert_allclose(got, module.eval()(torch.from_numpy(x)).detach(), atol=1e-5)
