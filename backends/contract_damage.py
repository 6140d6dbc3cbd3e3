"""The part of a backend's contract that is about damaged files: none may reach the engine."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from edgeserve.backends.base import Backend
from edgeserve.backends.contract_case import ContractFixtures, Made, code_of
from edgeserve.errors import BackendError
from edgeserve.files import describe
from edgeserve.types.artifact import Artifact

__all__ = ["DamageContract"]


class DamageContract(ContractFixtures):
    """Every byte of every file is covered by a hash, and a file that is no model is refused."""

    @pytest.mark.parametrize("where", [0.0, 0.3, 0.6, 0.999])
    def test_a_flipped_bit_is_refused(
        self, backend: Backend, made: Made, tmp_path: Path, where: float
    ) -> None:
        for path in self._copies(made, tmp_path):
            data = bytearray(path.read_bytes())
            data[int(len(data) * where)] ^= 1
            path.write_bytes(data)
            self._damaged(backend, made.artifact, tmp_path)

    def test_a_cut_file_is_refused(self, backend: Backend, made: Made, tmp_path: Path) -> None:
        for path in self._copies(made, tmp_path):
            path.write_bytes(path.read_bytes()[:-1])
            self._damaged(backend, made.artifact, tmp_path)

    def test_a_missing_file_is_refused(self, backend: Backend, made: Made, tmp_path: Path) -> None:
        for path in self._copies(made, tmp_path):
            path.unlink()
            self._damaged(backend, made.artifact, tmp_path)

    def test_a_link_is_refused(self, backend: Backend, made: Made, tmp_path: Path) -> None:
        for path in self._copies(made, tmp_path):
            moved = path.rename(path.with_name("elsewhere"))
            path.symlink_to(moved)
            self._damaged(backend, made.artifact, tmp_path)

    def test_garbage_with_the_right_hash_is_refused(
        self, backend: Backend, made: Made, tmp_path: Path
    ) -> None:
        entry = tmp_path / made.artifact.entry
        entry.parent.mkdir(parents=True, exist_ok=True)
        entry.write_bytes(b"not a model" * 100)
        files = (describe(tmp_path, made.artifact.entry),)
        artifact = msgspec.structs.replace(made.artifact, files=files)
        with pytest.raises(BackendError) as error:
            backend.load(artifact, tmp_path)
        assert code_of(error) == "EDGE-BACKEND-012"

    def _copies(self, made: Made, folder: Path) -> list[Path]:
        """Fresh copies of all files, each to be damaged alone."""
        for entry in made.artifact.files:
            (folder / entry.path).parent.mkdir(parents=True, exist_ok=True)
            (folder / entry.path).unlink(missing_ok=True)
            shutil.copyfile(made.root / entry.path, folder / entry.path)
        return [folder / entry.path for entry in made.artifact.files]

    def _damaged(self, backend: Backend, artifact: Artifact, folder: Path) -> None:
        for attempt in (backend.load, backend.inspect):
            with pytest.raises(BackendError) as error:
                attempt(artifact, folder)
            assert code_of(error) == "EDGE-BACKEND-011"
