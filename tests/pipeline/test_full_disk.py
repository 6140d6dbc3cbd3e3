"""A disk that fills up, the real thing: a small file system of its own, mounted in a namespace."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

#: A namespace of mounts of its own; who is not root needs one of users too.
NAMESPACE = ["unshare", "--mount"] + (["--user", "--map-root-user"] if os.geteuid() else [])


@pytest.mark.parametrize("size", ["4k", "48k", "128k"])
def test_a_full_disk_is_named_and_nothing_half_written_is_left(project: Path, size: str) -> None:
    small = project / f"small-{size}"
    small.mkdir()
    script = (
        f"mount -t tmpfs -o size={size} tmpfs {small} && "
        f"{sys.executable} -P -m edgeserve convert toy:build -o {small}/out --data photos; "
        f"echo code=$?; cd {small}; find . -name '.tmp-*'; find . -name manifest.json"
    )
    done = subprocess.run(
        [*NAMESPACE, "sh", "-c", script],
        cwd=project,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=os.environ | {"PYTHONWARNINGS": "default"},
    )
    assert "code=3" in done.stdout, done.stdout + done.stderr
    assert "EDGE-FILES-001" in done.stderr
    assert "No space left" in done.stderr
    assert ".tmp-" not in done.stdout
    assert "manifest.json" not in done.stdout
