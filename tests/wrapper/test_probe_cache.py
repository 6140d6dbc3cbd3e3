"""Outcomes on the disk: what is written comes back, and nothing else is believed."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import pytest

from edgeserve.files import Fs
from edgeserve.types.records import Runtime
from edgeserve.wrapper.engine import ProbeOutcome
from edgeserve.wrapper.probe import ProbeCache

OUTCOME = ProbeOutcome(
    key="ab12",
    name="onnx-fp32 on cpu, 1 thread",
    state="accepted",
    runtime=Runtime(name="onnxruntime", version="1.32.0", delegate="cpu"),
    passed=4,
    total=4,
    min_margin=0.31,
    max_difference="nan",
    run_ms=1.25,
)


class FullDisk(Fs):
    def write(self, path: Path, data: bytes) -> None:
        path.write_bytes(data[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_what_is_kept_comes_back(tmp_path: Path) -> None:
    ProbeCache(tmp_path / "new").put(OUTCOME)
    assert ProbeCache(tmp_path / "new").get("ab12") == OUTCOME
    assert {p.name for p in (tmp_path / "new").iterdir()} == {"ab12.json", ".key"}


@pytest.mark.parametrize(
    "damage",
    [
        lambda good: b"",
        lambda good: good[:-5],
        lambda good: b"\x00" * len(good),
        lambda good: good.replace(b"accepted", b"splendid"),
        lambda good: good.replace(b"ab12", b"ab13"),
        lambda good: good[:-1] + b',"extra":1}',
        lambda good: good.replace(b"1.25", b"0.25"),
        lambda good: re.sub(rb'"seal":"[^"]*"', b'"seal":""', good),
    ],
    ids=["empty", "torn", "zeros", "unknown-word", "another-key", "unknown-field", "edit", "bare"],
)
def test_a_damaged_file_counts_as_absent(tmp_path: Path, damage: object) -> None:
    cache = ProbeCache(tmp_path)
    cache.put(OUTCOME)
    path = tmp_path / "ab12.json"
    assert callable(damage)
    path.write_bytes(damage(path.read_bytes()))
    assert cache.get("ab12") is None
    cache.put(OUTCOME)
    assert cache.get("ab12") == OUTCOME


@pytest.mark.parametrize("harm", ["gone", "another", "empty", "readable by others"])
def test_outcomes_count_only_with_the_key_of_this_user(tmp_path: Path, harm: str) -> None:
    cache, secret = ProbeCache(tmp_path), tmp_path / ".key"
    cache.put(OUTCOME)
    assert len(secret.read_bytes()) == 32
    if harm == "gone":
        secret.unlink()
    elif harm == "readable by others":
        secret.chmod(0o644)
    else:
        secret.write_bytes(b"" if harm == "empty" else bytes(32))
    assert cache.get("ab12") is None
    cache.put(OUTCOME)
    assert ProbeCache(tmp_path).get("ab12") == OUTCOME
    assert secret.stat().st_mode & 0o777 == 0o600


def test_a_full_disk_is_noted_and_leaves_the_old_outcome(tmp_path: Path) -> None:
    ProbeCache(tmp_path).put(OUTCOME)
    full = ProbeCache(tmp_path, FullDisk())
    assert full.trouble == ""
    full.put(ProbeOutcome(key="ab12", name="", state="refused"))
    assert "No space left" in full.trouble
    assert full.get("ab12") == OUTCOME
    assert {p.name for p in tmp_path.iterdir()} == {"ab12.json", ".key"}
