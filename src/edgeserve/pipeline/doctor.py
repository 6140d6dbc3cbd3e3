"""``edgeserve doctor``: what works here, what is missing and how to get it; ``env create``.

``edgeserve env create`` makes environments for tools that cannot live beside ours: ordinary venvs
below the user's data folder. Making one is the one command that goes to a package index; what uses
it afterwards does not.
"""

from __future__ import annotations

import importlib.metadata as metadata
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from edgeserve.backends.onnx.optimum import (
    NAME,
    PINS,
    environment_folder,
    environment_python,
    ready_marker,
)
from edgeserve.errors import ConvertError
from edgeserve.files import write_atomic
from edgeserve.installation import install_command
from edgeserve.jobs import Progress
from edgeserve.options import check_choice
from edgeserve.pipeline.stage_context import QUIET, ProgressCallback, Ui
from edgeserve.types.base import encode

#: What each extra brings; the package that shows it is there.
_EXTRAS = {
    "onnx": "onnxruntime pillow",
    "tflite": "ai-edge-litert pillow",
    "text": "tokenizers",
    "cli": "typer rich",
    "report": "jinja2 matplotlib",
    "convert": "torch onnx onnx-ir onnxscript litert-torch ai-edge-quantizer transformers "
    "safetensors",
    "coreml": "torch coremltools",
    "measure": "psutil",
}


@dataclass(frozen=True)
class Finding:
    """One finding: ok True works, None not installed (only some commands need it), False broken."""

    name: str
    ok: bool | None
    detail: str
    hint: str = ""


@dataclass(frozen=True)
class Examination:
    """All findings."""

    checks: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is broken."""
        return all(check.ok is not False for check in self.checks)

    def json(self) -> bytes:
        """The ``--json`` object."""
        rows = [asdict(check) for check in self.checks]
        return encode({"schema": 1, "ok": self.ok, "checks": rows, "error": None})


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _extra(name: str, packages: Sequence[str]) -> Finding:
    versions = {p: _version(p) for p in packages}
    if name == "onnx" and versions["onnxruntime"] is None and _version("onnxruntime-gpu"):
        versions["onnxruntime"] = f"{_version('onnxruntime-gpu')} (gpu)"
    missing = [p for p, v in versions.items() if v is None]
    if missing:
        hint = install_command(name)
        return Finding(f"extra {name}", None, f"without {', '.join(missing)}", hint)
    return Finding(f"extra {name}", True, ", ".join(f"{p} {v}" for p, v in versions.items()))


def _both_runtimes() -> Finding:
    """Two packages install the same ``onnxruntime`` module; the later one hides the other."""
    cpu, gpu = _version("onnxruntime"), _version("onnxruntime-gpu")
    if cpu and gpu:
        both = f"onnxruntime {cpu} and onnxruntime-gpu {gpu} overwrite each other"
        again = f"{install_command('onnx')}, or with [gpu]"
        hint = f"pip uninstall -y onnxruntime onnxruntime-gpu; then {again}"
        return Finding("onnxruntime", False, both, hint)
    one = cpu or gpu
    return Finding("onnxruntime", True if one else None, "one package" if one else "none")


def _backends() -> list[Finding]:
    from edgeserve import backends

    found = []
    for name in sorted(backends.formats()):
        backend = backends.get(name)
        missing = backend.missing()
        if missing:
            found.append(Finding(f"format {name}", None, "not usable here", missing))
        else:
            found.append(Finding(f"format {name}", True, ", ".join(backend.delegates())))
    return found


def _cache() -> Finding:
    from edgeserve.bundle.cache import default_root

    folder = default_root()
    existing = next(p for p in (folder, *folder.parents) if p.exists())
    if os.access(existing, os.W_OK):
        return Finding("cache", True, _tidy(folder))
    hint = "set EDGESERVE_CACHE to a folder"
    return Finding("cache", False, f"{_tidy(folder)} cannot be written", hint)


def _tidy(path: Path) -> str:
    return str(path).replace(str(Path.home()), "~", 1)


def _disk() -> Finding:
    free = shutil.disk_usage(Path.cwd()).free / 2**30
    return Finding("disk", free > 1 or None, f"{free:.1f} GiB free here")


def _guarded(check: Callable[[], Finding | list[Finding]], name: str) -> list[Finding]:
    """A check that itself breaks is a finding, not the end of the examination."""
    try:
        found = check()
    except Exception as error:
        return [Finding(name, False, f"{type(error).__name__}: {error}")]
    return found if isinstance(found, list) else [found]


def examine() -> Examination:
    """Look at everything that the commands need."""
    from edgeserve.environment import environment

    here = environment()
    checks = [
        Finding("python", True, f"{here.python} on {here.system}"),
        Finding("processor", True, f"{here.processor}, {here.cores} cores"),
    ]
    checks += [_extra(name, packages.split()) for name, packages in _EXTRAS.items()]
    checks += _guarded(_both_runtimes, "onnxruntime")
    checks += _guarded(_backends, "formats")
    checks += _guarded(_cache, "cache")
    checks += _guarded(_disk, "disk")
    return Examination(tuple(checks))


#: Environments by name, and the packages that each is made of.
ENVIRONMENTS: dict[str, tuple[str, ...]] = {NAME: PINS}

_SAID = 400  # characters of pip's last words
_STEPS = ("Collecting", "Downloading", "Installing", "Requirement")


class ToolEnvironment(msgspec.Struct, frozen=True):
    """An environment as it stands.

    Attributes:
        name: Its name.
        folder: Where it lies.
        made: This call made it; False: it was there.
    """

    name: str
    folder: str
    made: bool

    def json(self) -> bytes:
        """The ``--json`` object."""
        fields = {"name": self.name, "folder": self.folder, "made": self.made}
        return encode({"schema": 1, **fields, "error": None})


def create(name: str, ui: Ui = QUIET, index: Sequence[str] = ()) -> ToolEnvironment:
    """Make an environment, or go on with one that an earlier call left half made.

    Args:
        name: One of `ENVIRONMENTS`.
        ui: Where pip's steps are shown.
        index: Further words for pip ("--index-url", ...).

    Raises:
        UsageError: there is none of that name.
        ConvertError: EDGE-CONVERT-081, pip could not do it.
    """
    from filelock import FileLock

    pins = ENVIRONMENTS[check_choice("NAME", name, tuple(ENVIRONMENTS))]
    folder = environment_folder(name)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if _whole(name):
            return ToolEnvironment(name, str(folder), made=False)
        with ui.stage(f"env {name}") as tell:
            _make(folder, pins, index, tell)
    return ToolEnvironment(name, str(folder), made=True)


def _whole(name: str) -> bool:
    try:
        environment_python(name)
    except ConvertError:
        return False
    return True


def _make(folder: Path, pins: Sequence[str], index: Sequence[str], tell: ProgressCallback) -> None:
    ready_marker(folder).unlink(missing_ok=True)
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not python.exists():
        shutil.rmtree(folder, ignore_errors=True)
        tell(Progress("make the folder"))
        _call([sys.executable, "-m", "venv", str(folder)], tell)
    words = ["install", "--no-input", "--disable-pip-version-check", "--progress-bar", "off"]
    _call([str(python), "-I", "-m", "pip", *words, *index, *pins], tell)
    write_atomic(ready_marker(folder), "\n".join(pins).encode())


def _call(words: Sequence[str], tell: ProgressCallback) -> None:
    """Run a command, showing each of its steps.

    Raises:
        ConvertError: EDGE-CONVERT-081.
    """
    tail: list[str] = []
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                tail = [*tail[-5:], line.strip()]
                if line.startswith(_STEPS):
                    tell(Progress(line.strip()[:80]))
        except BaseException:
            process.kill()
            raise
    code = process.returncode
    if code:
        raise ConvertError(
            "EDGE-CONVERT-081",
            "pip" if "pip" in words else "venv",
            wanted="an environment",
            got=" | ".join(tail)[-_SAID:] or f"exit {code}",
            hint="see what pip says of the network and the disk, then give the command again: it"
            " goes on where it stopped",
        )
