"""Every byte of a bundle counts: a flip anywhere, or an end anywhere, is refused.

Of the four stretches of padding one is flipped byte by byte, the others at every 13th: a flip in
there takes the same path wherever it is, and all of them would take as long as the rest of this
room's tests.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from edgeserve.bundle import Bundle
from edgeserve.errors import BundleError


def test_every_flipped_byte_is_refused(colour: Path) -> None:
    whole = colour.read_bytes()
    with Bundle(colour) as bundle:
        places = list(bundle.members.values())
    data = {at: place.name for place in places for at in range(place.start, place.end)}
    padding = {at for place in places[1:] for at in range(place.start - place.padding, place.start)}
    late = {"artifacts/onnx-fp32/model.onnx", "golden/000.png"}  # read on demand only
    outcomes: Counter[str] = Counter()
    fd = os.open(colour, os.O_RDWR)
    for at in range(len(whole)):
        if at in padding and at % 13:
            continue
        os.pwrite(fd, bytes([whole[at] ^ 1 << at % 8]), at)
        outcome = _refused(colour, data.get(at, ""))
        assert outcome == ("read" if data.get(at) in late else "open"), f"byte {at}: {outcome}"
        outcomes[outcome] += 1
        os.pwrite(fd, whole[at : at + 1], at)
    os.close(fd)
    assert outcomes["read"] == 149 + 268
    assert outcomes["open"] > 20_000
    Bundle(colour).close()  # every byte was put back: nothing but the flips was at fault


def _refused(path: Path, member: str) -> str:
    """When a flipped file is refused: when it is opened, when the member is read, or never."""
    try:
        bundle = Bundle(path)
    except BundleError:
        return "open"
    with bundle, pytest.raises(BundleError):
        bundle.read(member)
    return "read"


def test_every_length_is_refused(colour: Path) -> None:
    whole = colour.read_bytes()
    near = {at + d for at in range(0, len(whole), 16384) for d in range(-40, 41)}
    lengths = {*range(len(whole) - 1, len(whole) - 600, -1), *range(0, len(whole), 97), *near}
    for length in sorted(lengths & set(range(len(whole))), reverse=True):
        os.truncate(colour, length)
        with pytest.raises(BundleError, match="EDGE-BUNDLE-002"):
            Bundle(colour)
