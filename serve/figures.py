"""`Figures`: what is counted of one model, for the protocol's statistics."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Figures", "Times"]

_PARTS = ("queued", "before", "ran", "after")


@dataclass(frozen=True)
class Times:
    """Where the time of one request went, seconds."""

    queued: float = 0.0
    before: float = 0.0
    ran: float = 0.0
    after: float = 0.0

    @property
    def total(self) -> float:
        """All of it."""
        return self.queued + self.before + self.ran + self.after


@dataclass
class Figures:
    """Sums since the model was loaded; seconds become nanoseconds only when they are shown."""

    answered: int = 0
    failed: int = 0
    samples: int = 0
    runs: float = 0.0
    last_ms: int = 0
    sums: dict[str, float] = field(default_factory=lambda: dict.fromkeys(_PARTS, 0.0))
    failed_s: float = 0.0
    batches: dict[int, tuple[int, float]] = field(default_factory=dict)

    def add(self, times: Times, samples: int, batch: int = 1) -> None:
        """Count an answer.

        Args:
            times: Where its time went.
            samples: How many samples it held.
            batch: How many requests shared its run.
        """
        self.answered += 1
        self.samples += samples
        self.runs += 1 / batch
        self.last_ms = int(time.time() * 1e3)
        for part in _PARTS:
            self.sums[part] += getattr(times, part)
        count, seconds = self.batches.get(samples, (0, 0.0))
        self.batches[samples] = (count + 1, seconds + times.ran)

    def fail(self, seconds: float) -> None:
        """Count a request that was not answered."""
        self.failed += 1
        self.failed_s += seconds

    def said(self, name: str, version: str) -> dict[str, Any]:
        """As the statistics extension has it."""
        spent = {part: _duration(self.answered, s) for part, s in self.sums.items()}
        return {
            "name": name,
            "version": version,
            "last_inference": self.last_ms,
            "inference_count": self.samples,
            "execution_count": round(self.runs),
            "inference_stats": {
                "success": _duration(self.answered, sum(self.sums.values())),
                "fail": _duration(self.failed, self.failed_s),
                "queue": spent["queued"],
                "compute_input": spent["before"],
                "compute_infer": spent["ran"],
                "compute_output": spent["after"],
            },
            "batch_stats": [
                {"batch_size": size, "compute_infer": _duration(count, seconds)}
                for size, (count, seconds) in sorted(self.batches.items())
            ],
        }


def _duration(count: int, seconds: float) -> dict[str, int]:
    return {"count": count, "ns": int(seconds * 1e9)}
