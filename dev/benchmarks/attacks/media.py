"""Sounds and texts of huge length, or that claim one."""

from __future__ import annotations

import struct
from collections.abc import Callable

from dev.benchmarks.attacks.registry import Tally, Target, attack
from dev.benchmarks.attacks.wire import bodies

_HOUR = "X-Request-Deadline-Ms: 3600000"
_MB = 1 << 20


def wav(
    rate: int = 8000, channels: int = 1, bits: int = 16, size: int = 0, claimed: int | None = None
) -> bytes:
    """Silence; ``claimed`` bytes of data, ``size`` there are."""
    width = channels * bits // 8
    form = struct.pack("<HHIIHH", 1, channels, rate, min(rate * width, 2**32 - 1), width, bits)
    count = size if claimed is None else claimed
    head = b"fmt " + struct.pack("<I", 16) + form + b"data" + struct.pack("<I", count)
    return b"RIFF" + struct.pack("<I", min(count + 36, 2**32 - 1)) + b"WAVE" + head + bytes(size)


_SOUNDS: dict[str, Callable[[], bytes]] = {
    "of 60 MB": lambda: wav(size=60 * _MB),
    "of 60 MB, 8 bits": lambda: wav(bits=8, size=60 * _MB),
    "of 60 MB, 192 kHz": lambda: wav(192_000, size=60 * _MB),
    "of an odd rate, 60 MB": lambda: wav(44_099, size=60 * _MB),
    "of 1 Hz": lambda: wav(1, size=4 * _MB),
    "of 2^32 - 1 Hz": lambda: wav(2**32 - 1, size=4 * _MB),
    "of 65,535 channels": lambda: wav(channels=32_767, size=60 * _MB // 65_534 * 65_534),
    "that claims 4 GB": lambda: wav(size=1000, claimed=2**32 - 1),
    "of a million chunks": lambda: (
        b"RIFF" + struct.pack("<I", 8_000_004) + b"WAVE" + b"junk\0\0\0\0" * 1_000_000
    ),
}
_TEXTS: dict[str, Callable[[], bytes]] = {
    "of 60 MB of one letter": lambda: b"a" * (60 * _MB),
    "of 60 MB of words": lambda: b"the birds " * (6 * _MB),
    "of 60 MB of blanks": lambda: b" " * (60 * _MB),
    "of 20 million signs": lambda: "\u4e2d".encode() * (20 * _MB),
    "of combining marks": lambda: b"a" + "\u0301".encode() * (30 * _MB),
    "of letters that grow when normalized": lambda: "\ufdfa".encode() * (20 * _MB),
    "of punctuation": lambda: b"!" * (60 * _MB),
    "of joined emoji": lambda: "\U0001f468\u200d".encode() * (8 * _MB),
    "of control characters": lambda: b"\0" * (60 * _MB),
}


def _add(title: str, bundle: str, make: Callable[[], bytes]) -> None:
    @attack(f"{bundle}: {title}", bundle=bundle)
    def run(target: Target, tally: Tally) -> None:
        bodies(target, tally, target.predict, make(), _HOUR)


for _name, _make in _SOUNDS.items():
    _add(_name, "sound", _make)
for _name, _make in _TEXTS.items():
    _add(_name, "text", _make)
