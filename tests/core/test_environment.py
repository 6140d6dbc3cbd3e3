"""The environment: true, complete, and free of names of hosts and people."""

from __future__ import annotations

import getpass
import os
import platform
import socket
from importlib import metadata
from pathlib import Path

import pytest

import edgeserve.environment as module
from edgeserve.environment import environment, parse_cpuinfo, usable_cores
from edgeserve.types.base import decode, encode
from edgeserve.types.reports import Environment

CORTEX_A76 = """\
processor\t: 0
BogoMIPS\t: 108.00
Features\t: fp asimd evtstrm aes crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x4
CPU part\t: 0xd0b
"""

XEON = """\
processor\t: 0
vendor_id\t: GenuineIntel
model name\t: Intel(R) Xeon(R) Processor
flags\t\t: fpu sse4_2 avx avx2 fma avx512f avx512_vnni
processor\t: 1
model name\t: something else
flags\t\t: fpu
"""


def test_it_says_what_this_machine_is() -> None:
    found = environment()
    assert found.machine == platform.machine()
    assert found.python.endswith(platform.python_version())
    assert found.packages["numpy"] == metadata.version("numpy")
    assert found.packages["onnxruntime"] == metadata.version("onnxruntime")
    assert decode(encode(found), Environment) == found


def test_it_holds_no_name_of_host_or_user() -> None:
    text = encode(environment()).decode().lower()
    assert socket.gethostname().lower() not in text
    names = {os.environ.get("USER", ""), os.environ.get("LOGNAME", ""), str(Path.home())}
    for name in {*names, getpass.getuser()} - {"", "root", "/root"}:
        assert name.lower() not in text


def test_a_private_kernel_name_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "release", lambda: "6.1.0-17-acme-secret")
    assert "6.1.0" in environment().system
    assert "acme" not in environment().system


def test_arm_features_by_their_usual_names() -> None:
    name, features = parse_cpuinfo(CORTEX_A76)
    assert name == "ARM implementer 0x41 part 0xd0b"
    assert features == ("neon", "fp16", "dotprod")


def test_x86_features_of_the_first_core() -> None:
    name, features = parse_cpuinfo(XEON)
    assert name == "Intel(R) Xeon(R) Processor"
    assert features == ("sse4.2", "avx", "avx2", "fma", "avx512f", "avx512_vnni")


@pytest.mark.parametrize("text", ["", "garbage", ":::\n:", "flags"])
def test_an_odd_cpuinfo_says_nothing_rather_than_fail(text: str) -> None:
    assert parse_cpuinfo(text) == ("", ())


@pytest.mark.parametrize(
    ("quota", "most"), [("150000 100000", 2), ("10000 100000", 1), ("max 100000", 10**6)]
)
def test_a_containers_quota_limits_the_cores(
    quota: str, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpu.max").write_text(quota)
    monkeypatch.setattr(module, "_QUOTA", tmp_path / "cpu.max")
    assert usable_cores() == min(most, len(os.sched_getaffinity(0)))
