"""Profiles: the device an artifact is for, and the workload that says what harm is allowed."""

from __future__ import annotations

from typing import Literal

from edgeserve.types.base import Value
from edgeserve.types.reports import Limits
from edgeserve.types.words import Format, Precision

__all__ = ["DeviceProfile", "Profile", "WorkloadProfile"]


class DeviceProfile(Value, frozen=True):
    """A class of device: what runs there and what fits.

    Attributes:
        name: e.g. "pixel-8", "raspberry-pi-5".
        title: For people.
        kind: android, ios, web, linux, macos or windows.
        chip: Processor and its instruction sets that matter (dotprod, i8mm, vnni, avx2, ...).
        cores: Big cores worth using.
        memory_mb: What an app may use.
        formats: Formats that run there, best first.
        delegates: Delegates worth trying, by format, best first.
        precisions: Precisions worth trying, best first.
        int8_activations: "u8" or "s8": which runs faster there.
        source: Where the facts come from.
    """

    name: str
    title: str
    kind: Literal["android", "ios", "web", "linux", "macos", "windows"]
    chip: str
    features: tuple[str, ...]
    cores: int
    memory_mb: int
    formats: tuple[Format, ...]
    delegates: dict[str, tuple[str, ...]]
    precisions: tuple[Precision, ...]
    int8_activations: Literal["u8", "s8"]
    source: str


class WorkloadProfile(Value, frozen=True):
    """A kind of use: what harm and what time are allowed.

    Attributes:
        name: e.g. "interactive", "safety", "batch".
        limits: What harm is allowed.
        deadline_ms: What one answer may take; None: no deadline.
        batch: Batch sizes measured.
        threads: Threads given to the runtime; None: the device's big cores.
    """

    name: str
    title: str
    limits: Limits
    deadline_ms: float | None
    batch: tuple[int, ...]
    threads: int | None
    source: str


Profile = DeviceProfile | WorkloadProfile
