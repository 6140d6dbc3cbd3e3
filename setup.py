"""Refuse to build from a checkout whose links were lost: its wheel would lack most modules."""

import sys
from pathlib import Path

from setuptools import setup

_ROOMS = (
    "backends",
    "convert",
    "measure",
    "package",
    "profiles",
    "report",
    "serve",
    "validate",
    "wrapper",
)

_lost = [
    room
    for room in _ROOMS
    if not Path(__file__).with_name("src").joinpath("edgeserve", room).is_dir()
]
if _lost:
    sys.exit(
        f"src/edgeserve/{_lost[0]} is not a folder: this checkout has no symbolic links. "
        "Clone again with `git clone -c core.symlinks=true`, or install a released wheel."
    )
setup()
