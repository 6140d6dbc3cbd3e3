"""What an import loads: light where users are. Measured in fresh processes, from `sys.modules`."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

#: The command and its errors start in a blink: the standard library, typer, and what typer brings.
LIGHT = ("edgeserve", "edgeserve.errors", "edgeserve.cli")
HEAVY = {
    "PIL",
    "ai_edge_litert",
    "coremltools",
    "jinja2",
    "litert_torch",
    "matplotlib",
    "onnx",
    "onnx_ir",
    "onnxruntime",
    "onnxscript",
    "psutil",
    "ray",
    "rich",
    "scipy",
    "tensorflow",
    "tokenizers",
    "torch",
    "transformers",
    "typer",
}


def loaded(code: str) -> set[str]:
    """The top-level modules that a fresh Python holds after running ``code``."""
    script = (
        f"{code}\nimport json, sys\nprint('\\n' + json.dumps(sorted(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    names = json.loads(done.stderr.splitlines()[-1])
    return {name.partition(".")[0] for name in names} - sys.stdlib_module_names - {"edgeserve"}


@pytest.fixture(scope="module")
def bare() -> set[str]:
    """What the environment loads at every start (hooks of editable installs and the like)."""
    return loaded("")


def test_the_measurement_sees_what_is_loaded(bare: set[str]) -> None:
    assert "numpy" in loaded("import numpy") - bare
    assert "numpy" not in bare


@pytest.mark.parametrize("module", LIGHT)
def test_light_modules_load_the_standard_library_and_typer(module: str, bare: set[str]) -> None:
    assert loaded(f"import {module}") <= bare | loaded("import typer")


def test_the_top_loads_the_standard_library_only(bare: set[str]) -> None:
    assert loaded("import edgeserve, edgeserve.errors, edgeserve.codes") <= bare


@pytest.mark.parametrize(
    "arguments", [["--help"], ["convert", "--help"], ["explain", "EDGE-FILES-001"]]
)
def test_help_and_explain_stay_light(arguments: list[str], bare: set[str]) -> None:
    code = f"import sys\nsys.argv = {['edgeserve', *arguments]!r}\nfrom edgeserve.cli import main\n"
    code += "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code"
    heavy = loaded(code) - bare - loaded("import typer")
    assert heavy & (HEAVY | {"numpy", "msgspec"}) <= ({"rich"} if "explain" in arguments else set())


@pytest.mark.parametrize(
    "module",
    ["edgeserve.backends", "edgeserve.processing", "edgeserve.bundle", "edgeserve.wrapper"],
)
def test_rooms_of_the_runtime_load_nothing_heavy(module: str, bare: set[str]) -> None:
    assert (loaded(f"import {module}") - bare) & HEAVY == set()


def test_every_package_can_be_imported_with_nothing_heavy(
    packages: dict[str, object], bare: set[str]
) -> None:
    """Also the rooms that work with torch: they load it when they work, in a worker."""
    shallow = [
        p for p in packages if not p.startswith(("edgeserve.backends.torch", "edgeserve.cli"))
    ]
    code = "".join(f"import {package}\n" for package in shallow)
    assert (loaded(code) - bare) & HEAVY == set()
