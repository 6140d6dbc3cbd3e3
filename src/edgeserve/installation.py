"""The distribution's name, and the pip command that extends or updates this very installation.

Import and command are called ``edgeserve``; the distribution is not, because that name belongs to
another author's package on PyPI. A hint must therefore name `DISTRIBUTION`, and the place that this
copy came from: a clone, a folder, a wheel, a repository or an index, which installers record in
``direct_url.json`` (PEP 610, https://peps.python.org/pep-0610/).
"""

from __future__ import annotations

import functools
import json
import re
import shlex
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

#: The name on package indexes; pyproject.toml and the tests hold it to this one.
DISTRIBUTION = "edgeproof"

#: The extra that a line of the metadata belongs to: ``rich>=13.9; extra == "cli"``.
_EXTRA = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")


def published_command(*extras: str) -> str:
    """The pip command for a published release: what pages print."""
    return f"pip install {_target(DISTRIBUTION, extras)}"


def install_command(*extras: str) -> str:
    """The pip command that adds extras to this installation, quoted for a POSIX shell.

    A local source that is gone (a wheel of a build stage) cannot be installed from again; then the
    command lists the requirements of the extras themselves.
    """
    if tree := _source_tree():
        return f"pip install -e {_target(str(tree), extras)}"
    origin = _direct_url()
    if not origin:
        return published_command(*extras)
    if (path := _local_path(origin)) is None:
        return f"pip install {_target(DISTRIBUTION, extras, _reference(origin, 'commit_id'))}"
    if path.exists():
        return f"pip install {_target(str(path), extras)}"
    return f"pip install {' '.join(map(shlex.quote, _requirements(extras)))}"


def upgrade_command() -> str:
    """The command that replaces this installation by a newer version."""
    if (tree := _source_tree()) and (tree / ".git").exists():
        return f"git -C {shlex.quote(str(tree))} pull && {install_command()}"
    origin = _direct_url()
    if "vcs_info" in origin:
        reference = _reference(origin, "requested_revision")
        return f"pip install -U {_target(DISTRIBUTION, (), reference)}"
    return f"pip install -U {DISTRIBUTION}"


def _target(name: str, extras: tuple[str, ...], reference: str = "") -> str:
    """A requirement as one word of a shell: ``'name[extra] @ reference'`` (PEP 508)."""
    listed = f"[{','.join(extras)}]" if extras else ""
    return shlex.quote(f"{name}{listed}{reference and f' @ {reference}'}")


@functools.cache
def _source_tree() -> Path | None:
    """The root of the source tree that this module lies in, or None where it was installed.

    Asked before the metadata: an environment may hold another copy than the one that runs.
    """
    root = Path(__file__).resolve().parents[2]
    try:
        declared = (root / "pyproject.toml").read_text("utf-8")
    except OSError:
        return None
    return root if f'name = "{DISTRIBUTION}"' in declared else None


@functools.cache
def _direct_url() -> Mapping[str, Any]:
    """What the installer recorded of the origin; empty for an index, or where nothing can be read.

    PEP 610: an object with ``url`` and one of ``dir_info``, ``archive_info`` and ``vcs_info``.
    """
    try:
        text = metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
        origin = json.loads(text or "{}")
    except (metadata.PackageNotFoundError, ValueError):
        return {}
    return origin if isinstance(origin, dict) and isinstance(origin.get("url"), str) else {}


def _local_path(origin: Mapping[str, Any]) -> Path | None:
    """The folder or archive of an installation from this machine's files."""
    parts = urlsplit(origin["url"])
    if parts.scheme != "file" or "vcs_info" in origin:
        return None
    from urllib.request import url2pathname  # brings the modules of HTTP, for a hint alone

    return Path(url2pathname(parts.path))


def _reference(origin: Mapping[str, Any], revision: str) -> str:
    """The URL after the ``@`` of a requirement; of a repository with its tool and revision."""
    vcs = origin.get("vcs_info")
    if not isinstance(vcs, dict):
        return str(origin["url"])
    url = f"{vcs.get('vcs', 'git')}+{origin['url']}"
    if vcs.get(revision):
        url += f"@{vcs[revision]}"
    return url + (f"#subdirectory={origin['subdirectory']}" if origin.get("subdirectory") else "")


def _requirements(extras: tuple[str, ...]) -> list[str]:
    """What the extras bring, as the installed metadata says, those that they include too."""
    found: dict[str, None] = {}
    for line in metadata.requires(DISTRIBUTION) or ():
        requirement, _, marker = line.partition(";")
        extra = _EXTRA.search(marker)
        if extra is None or extra[1] not in extras:
            continue
        own = re.fullmatch(rf"{DISTRIBUTION}\[([^\]]*)\]\s*", requirement)
        more = _requirements(tuple(own[1].split(","))) if own else [requirement.strip()]
        found |= dict.fromkeys(more)
    return list(found)
