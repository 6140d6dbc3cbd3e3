"""Profiles: the device an artifact is for, and the workload that sets the allowed flip rates."""

from __future__ import annotations

import math
import re
from typing import Literal

from edgeserve.types.base import Value
from edgeserve.types.reports import Limits
from edgeserve.types.vocabulary import Format, Precision

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ValueError(f"profile name {name!r}: wanted lower-case words joined by hyphens")


def _check_words(name: str, **fields: str) -> None:
    for field, value in fields.items():
        if not value.strip():
            raise ValueError(f"{name}: {field} is empty")


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
        notes: What a user should know before choosing.
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
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_name(self.name)
        _check_words(self.name, title=self.title, chip=self.chip, source=self.source)
        if self.cores < 1 or self.memory_mb < 1:
            raise ValueError(f"{self.name}: cores and memory_mb must be at least 1")
        for field, values in (("formats", self.formats), ("precisions", self.precisions)):
            if not values or len(set(values)) != len(values):
                raise ValueError(f"{self.name}: {field} must be given, each once")
        if set(self.delegates) != set(self.formats) or not all(self.delegates.values()):
            raise ValueError(f"{self.name}: delegates must be given for each of the formats")


class WorkloadProfile(Value, frozen=True):
    """A kind of use: the flip rates and the latency that it allows.

    Attributes:
        name: e.g. "interactive", "safety", "batch".
        limits: The flip rates and differences that are allowed.
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

    def __post_init__(self) -> None:
        _check_name(self.name)
        _check_words(self.name, title=self.title, source=self.source)
        limits = self.limits
        if not 0 < limits.pass_flips <= limits.degraded_flips < 1:
            raise ValueError(f"{self.name}: wanted 0 < pass_flips <= degraded_flips < 1")
        if not (0 < limits.tensor < math.inf and 0 < limits.scale_floor < math.inf):
            raise ValueError(f"{self.name}: limits must be above 0 and finite")
        if self.deadline_ms is not None and not 0 < self.deadline_ms < math.inf:
            raise ValueError(f"{self.name}: deadline_ms must be above 0")
        if not self.batch or min(self.batch) < 1 or (self.threads or 1) < 1:
            raise ValueError(f"{self.name}: batch sizes and threads must be at least 1")


Profile = DeviceProfile | WorkloadProfile
