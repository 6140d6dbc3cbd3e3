"""This machine: processor, system and package versions, never a host or user name."""

from __future__ import annotations

import contextlib
import ipaddress
import math
import os
import platform
import re
from importlib import metadata
from pathlib import Path

from edgeserve import __version__
from edgeserve.types.reports import Environment

#: Packages whose version changes a model's numbers or times; edgeserve's own is added.
PACKAGES = (
    *("numpy", "onnxruntime", "onnxruntime-gpu", "ai-edge-litert", "coremltools", "torch", "onnx"),
    *("onnxscript", "pillow", "tokenizers"),
)

_NAMES = {"sse4_2": "sse4.2", "asimd": "neon", "asimdhp": "fp16", "asimddp": "dotprod"}
_FLAGS = (
    "sse4_2 avx avx2 fma avx512f avx512_vnni avx_vnni avx512_bf16 avx512_fp16 amx_int8 amx_bf16"
    " neon asimd asimdhp asimddp i8mm bf16 sve sve2 sme"
)
#: Instruction sets that change numbers or times: the kernel's word, and the word used here.
FEATURES = {flag: _NAMES.get(flag, flag) for flag in _FLAGS.split()}

_CPUINFO = Path("/proc/cpuinfo")
_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def environment() -> Environment:
    """Describe this machine as far as it decides results, and no further.

    The kernel's release is cut to its numbers, because distributors and companies put names in it.
    """
    text = ""
    with contextlib.suppress(OSError):
        text = _CPUINFO.read_text(errors="replace")
    processor, features = parse_cpuinfo(text)
    return Environment(
        machine=platform.machine() or "unknown",
        processor=processor or platform.processor() or "unknown",
        cores=usable_cores(),
        system=_system(),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        packages=_versions(),
        features=features,
    )


def parse_cpuinfo(text: str) -> tuple[str, tuple[str, ...]]:
    """Read the processor's name and the instruction sets of `FEATURES` from ``/proc/cpuinfo``.

    ARM kernels give no name; then the implementer and part number stand in for it.
    """
    fields: dict[str, str] = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon:
            fields.setdefault(key.strip().lower(), value.strip())
    flags = set((fields.get("flags") or fields.get("features") or "").split())
    name = fields.get("model name") or fields.get("hardware") or ""
    if not name and "cpu part" in fields:
        name = f"ARM implementer {fields.get('cpu implementer', '?')} part {fields['cpu part']}"
    found = (word for flag, word in FEATURES.items() if flag in flags)
    return name, tuple(dict.fromkeys(found))


def usable_cores() -> int:
    """Cores this process may use: its affinity mask, cut by the container's quota; at least 1."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):
        quota, period = _QUOTA.read_text().split()
        if quota != "max":
            cores = min(cores, math.ceil(int(quota) / int(period)))
    return max(1, cores)


def is_loopback(host: str) -> bool:
    """Whether a host name or address reaches this machine only."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _system() -> str:
    """E.g. "Linux 6.1.0 (Debian GNU/Linux 12 (bookworm))"."""
    release = re.match(r"[0-9.]*[0-9]", platform.release())
    name = f"{platform.system()} {release.group() if release else ''}".strip()
    with contextlib.suppress(OSError, AttributeError):
        name += f" ({platform.freedesktop_os_release()['PRETTY_NAME']})"
    return name


def _versions() -> dict[str, str]:
    """Versions by package; edgeserve's is that of the running code, installed or not."""
    found = {"edgeserve": __version__}
    for package in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found
