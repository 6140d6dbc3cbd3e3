"""`emit`: the files of a deployment, written to a folder, nobody's file lost."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from edgeserve.errors import FilesError, ServeError
from edgeserve.files import sha256_bytes, sha256_file, staged_file, unwritable, write_atomic
from edgeserve.serve.emit.deployment import KINDS, Deployment, deployment_error, subject_of
from edgeserve.serve.emit.docker import docker
from edgeserve.serve.emit.kubernetes import kserve, kubernetes


def emit(kind: str, deployment: Deployment, out: str | Path, force: bool = False) -> list[str]:
    """Write the files of a deployment.

    Args:
        kind: One of `KINDS`.
        deployment: What is deployed, and how.
        out: The folder, made if it is not there.
        force: Whether files of the same names may be overwritten.

    Returns:
        What was written, relative to ``out``, sorted.

    Raises:
        ServeError: EDGE-SERVE-050, files of other content lie there, or ``out`` is a file; nothing
            was written. -051.
        FilesError: EDGE-FILES-001, the folder cannot be written.
    """
    if kind not in KINDS:
        raise deployment_error("kind", " or ".join(KINDS), repr(kind))
    if os.path.lexists(out) and not Path(out).is_dir():
        raise ServeError(
            "EDGE-SERVE-050",
            f"folder {out}",
            wanted="a folder, there or to be made",
            got="a file",
            hint="choose another folder with -o",
        )
    subject, folder = subject_of(deployment), Path(out)
    files = {"docker": docker, "kubernetes": kubernetes, "kserve": kserve}[kind](subject)
    paths = [Path(path) for path in deployment.bundles] if kind == "docker" else []
    bundles = {f"bundles/{path.name}": path for path in paths}
    if not force:
        _check(folder, files, bundles)
    for name, data in files.items():
        write_atomic(folder / name, data)
    for name, source in bundles.items():
        _copy(source, folder / name)
    return sorted([*files, *bundles])


def _check(folder: Path, files: dict[str, bytes], bundles: dict[str, Path]) -> None:
    """Refuse to overwrite anything but the very same bytes."""
    wanted = {name: sha256_bytes(data) for name, data in files.items()}
    wanted |= {name: sha256_file(path) for name, path in bundles.items()}
    other = [name for name, digest in sorted(wanted.items()) if not _free(folder / name, digest)]
    if other:
        raise ServeError(
            "EDGE-SERVE-050",
            f"folder {folder}",
            wanted="no other files of these names",
            got=", ".join(other),
            hint="choose another folder with -o, or say --force",
        )


def _free(path: Path, digest: str) -> bool:
    if not os.path.lexists(path):
        return True
    return path.is_file() and not path.is_symlink() and sha256_file(path) == digest


def _copy(source: Path, target: Path) -> None:
    if target.exists() and target.samefile(source):
        return
    try:
        with staged_file(target) as temporary:
            shutil.copyfile(source, temporary)
    except FilesError:
        raise
    except OSError as error:
        raise unwritable(error, target) from error
