"""Environments of their own: made by pip from a folder of wheels, gone on with, asked for."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest

from edgeserve.backends.onnx import optimum
from edgeserve.errors import ConvertError, UsageError
from edgeserve.pipeline import doctor as env
from edgeserve.pipeline.convert import convert
from edgeserve.types.options import ConvertOptions


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder of this test's own, and one small package as all that is asked for."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    pins = ("edgetestpackage==1.2",)
    monkeypatch.setattr(optimum, "PINS", pins)
    monkeypatch.setattr(env, "ENVIRONMENTS", {"optimum": pins})
    (tmp_path / "wheels").mkdir()
    return tmp_path


def wheel(folder: Path) -> None:
    """A wheel by hand, as PEP 427 has it."""
    info = "edgetestpackage-1.2.dist-info"
    files = {
        "edgetestpackage.py": "ANSWER = 42\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: edgetestpackage\nVersion: 1.2\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(folder / "edgetestpackage-1.2-py3-none-any.whl", "w") as made:
        for name, text in {**files, f"{info}/RECORD": record}.items():
            made.writestr(name, text)


def test_an_environment_is_made_once_and_gone_on_with(home: Path) -> None:
    index = ("--no-index", "--find-links", str(home / "wheels"))
    with pytest.raises(ConvertError) as error:
        env.create("optimum", index=index)
    assert error.value.code == "EDGE-CONVERT-081"
    assert "edgetestpackage==1.2" in error.value.message
    with pytest.raises(ConvertError) as unready:
        optimum.environment_python("optimum")
    assert (unready.value.code, unready.value.hint) == (
        "EDGE-CONVERT-080",
        "edgeserve env create optimum",
    )
    wheel(home / "wheels")
    made = env.create("optimum", index=index)
    assert made.made
    assert Path(made.folder).is_relative_to(home / "data")
    python = optimum.environment_python("optimum")
    said = subprocess.run(
        [python, "-c", "import edgetestpackage; print(edgetestpackage.ANSWER)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.strip() == "42"
    again = env.create("optimum", index=("--no-index",))  # nothing is asked of pip
    assert not again.made


def test_other_pins_make_an_environment_stale(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = optimum.environment_folder("optimum")
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").touch()
    optimum.ready_marker(folder).write_text("edgetestpackage==1.2")
    assert optimum.environment_python("optimum") == folder / "bin" / "python"
    monkeypatch.setattr(optimum, "PINS", ("edgetestpackage==1.3",))
    with pytest.raises(ConvertError) as error:
        optimum.environment_python("optimum")
    assert error.value.code == "EDGE-CONVERT-080"


def test_an_unknown_environment_is_refused() -> None:
    with pytest.raises(UsageError) as error:
        env.create("optimun")
    assert "did you mean optimum?" in error.value.hint


def test_a_route_is_checked_before_anything_is_made(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    (home / "folder").mkdir()
    (home / "folder" / "config.json").write_text("{}")
    found = {}
    for source, via in [("folder", "optimum"), ("tagger:factory", "optimum"), ("folder", "dynam")]:
        with pytest.raises((ConvertError, UsageError)) as error:
            convert(ConvertOptions(source=source, out="out", via=via))
        found[source, via] = error.value.code
    assert list(found.values()) == ["EDGE-CONVERT-080", "EDGE-CONVERT-083", "EDGE-USAGE-001"]
    assert not (home / "out").exists()
