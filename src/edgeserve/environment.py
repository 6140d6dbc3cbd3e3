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
_MEMINFO = Path("/proc/meminfo")
#: Limit, use and statistics of the container's memory: control groups of version 2 and version 1.
_CGROUPS = (
    ("/sys/fs/cgroup", "memory.max", "memory.current"),
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
)


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


def available_memory() -> int:
    """Bytes that new processes may take without pushing others out, as far as the system tells."""
    known = [_system_memory(), *(_cgroup_memory(*files) for files in _CGROUPS)]
    return min(amount for amount in known if amount is not None)


def _system_memory() -> int:
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = _MEMINFO.read_text().splitlines()
        return int(next(x for x in lines if x.startswith("MemAvailable:")).split()[1]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def _cgroup_memory(folder: str, limit: str, used: str) -> int | None:
    """What a control group leaves free: the pages of files count as used, and are given back."""
    with contextlib.suppress(OSError, ValueError):  # "max" is no number: no limit
        most = int(Path(folder, limit).read_text())
        lines = map(str.split, Path(folder, "memory.stat").read_text().splitlines())
        files = sum(int(n) for name, n in lines if name in ("active_file", "inactive_file"))
        return max(0, most - int(Path(folder, used).read_text()) + files)
    return None


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
