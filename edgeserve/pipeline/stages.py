"""What has been done already: a key per stage, so that the same command again does only the rest.

A key is a hash over everything that the stage's result depends on: the model's identity, the
recipe, tool versions, data, reference and limits. Keys lie in ``OUT/reports/stages.json``; losing
the file costs time, never correctness.
"""

from __future__ import annotations

import threading

import msgspec

from edgeserve.bundle.workspace import Workspace
from edgeserve.files import sha256_bytes, write_atomic
from edgeserve.types.base import Value, decode, encode

__all__ = ["Stages", "key_of"]


class _Keys(Value, frozen=True):
    keys: dict[str, str] = {}


def key_of(*parts: object) -> str:
    """sha256 over the canonical JSON of ``parts``."""
    return sha256_bytes(encode(list(parts)))


class Stages:
    """The keys of one workspace. Stages that run side by side share it."""

    def __init__(self, workspace: Workspace) -> None:
        self._path = workspace.reports / "stages.json"
        self._lock = threading.Lock()
        self._keys = self._read()

    def _read(self) -> dict[str, str]:
        try:
            return dict(decode(self._path.read_bytes(), _Keys).keys)
        except (OSError, msgspec.MsgspecError):
            return {}

    def done(self, stage: str, key: str) -> bool:
        """Whether ``stage`` was finished with exactly this key."""
        return self._keys.get(stage) == key

    def finish(self, stage: str, key: str) -> None:
        """Remember that ``stage`` is finished."""
        with self._lock:
            self._keys[stage] = key
            write_atomic(self._path, encode(_Keys(keys=self._keys)))

    def forget(self, stage: str) -> None:
        """Forget ``stage``, so that it runs again."""
        with self._lock:
            if self._keys.pop(stage, None) is not None:
                write_atomic(self._path, encode(_Keys(keys=self._keys)))
