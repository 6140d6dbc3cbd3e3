"""What `BackendContract` stands on: its case and fixtures, and the tests of what is refused.

`DamageContract`: none of an artifact's damaged files may reach the engine. `RefusalContract`:
feeds that do not fit are refused alike.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import pytest

from edgeserve.backends.adapter import Adapter
from edgeserve.backends.base import Backend
from edgeserve.backends.session import Session
from edgeserve.errors import BackendError
from edgeserve.files import describe
from edgeserve.types.artifact import Artifact
from edgeserve.types.source import Exported
from edgeserve.types.tensors import Shape

Feed = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Case:
    """A small model to try a backend on; it should have a dynamic batch and a floating point input.

    Attributes:
        exported: The model, exported.
        root: The folder that ``exported.program.path`` is relative to.
        feed: One feed for it.
        oracle: The right answer to any feed, from something that is not the backend.
        tolerance: Largest difference allowed, absolute.
    """

    exported: Exported
    root: Path
    feed: Feed
    oracle: Callable[[Feed], Feed]
    tolerance: float = 1e-5


@dataclass(frozen=True)
class BuiltArtifact:
    """What the backend made of the case: an artifact and the folder its files lie in."""

    artifact: Artifact
    root: Path


@dataclass(frozen=True)
class FeedPair:
    """One input twice: as the file takes it, and as the source does.

    They differ where a file is fixed to one sample, to a length, or to fewer bits.
    """

    file: Feed
    source: Feed


def feed_pair(case: Case, made: BuiltArtifact) -> FeedPair:
    """The case's feed in the sizes that the file is fixed to, and in its dtypes."""
    cut = {
        spec.name: _fit_shape(case.feed[spec.name], spec.shape) for spec in made.artifact.io.inputs
    }
    narrow = {spec.name: cut[spec.name].astype(spec.dtype) for spec in made.artifact.io.inputs}
    return FeedPair(narrow, cut)


def _fit_shape(array: np.ndarray, shape: Shape) -> np.ndarray:
    """As much of an array as a shape has room for, and again from its start where that has more."""
    for axis, size in enumerate(shape):
        if isinstance(size, int):
            array = array.take(np.arange(size) % array.shape[axis], axis)
    return array


def run_adapted(session: Session, case: Case, feed: Feed) -> Feed:
    """The answer to a feed of the source's signature, whatever sizes the file is fixed to."""
    exported = case.exported
    return Adapter(session, exported.signature, exported.processing.padding).run(feed)


@contextmanager
def refused(code: str) -> Iterator[None]:
    """What is done inside must be refused with this code."""
    with pytest.raises(BackendError) as error:
        yield
    assert error.value.code == code


class ContractFixtures:
    """The fixtures of a contract; `backend` and `case` are the author's to override."""

    @pytest.fixture(scope="class")
    @classmethod
    def backend(cls) -> Backend:
        """The backend under test."""
        raise NotImplementedError("override the fixture `backend`")

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls) -> Case:
        """The model to try it on."""
        raise NotImplementedError("override the fixture `case`")

    @pytest.fixture(scope="class")
    @classmethod
    def made(
        cls, backend: Backend, case: Case, tmp_path_factory: pytest.TempPathFactory
    ) -> BuiltArtifact:
        """The case, exported once by the first route."""
        out = tmp_path_factory.mktemp("made")
        return BuiltArtifact(backend.export(case.exported, case.root, out), out)

    @pytest.fixture(scope="class")
    @classmethod
    def fed(cls, case: Case, made: BuiltArtifact) -> FeedPair:
        """The case's feed as the file takes it."""
        return feed_pair(case, made)

    @pytest.fixture
    def session(self, backend: Backend, made: BuiltArtifact) -> Session:
        """A fresh session."""
        return backend.load(made.artifact, made.root)


class DamageContract(ContractFixtures):
    """Every byte of every file is covered by a hash, and a file that is no model is refused."""

    @pytest.mark.parametrize("where", [0.0, 0.3, 0.6, 0.999])
    def test_a_flipped_bit_is_refused(
        self, backend: Backend, made: BuiltArtifact, tmp_path: Path, where: float
    ) -> None:
        for path in self._copies(made, tmp_path):
            data = bytearray(path.read_bytes())
            data[int(len(data) * where)] ^= 1
            path.write_bytes(data)
            self._damaged(backend, made.artifact, tmp_path)

    def test_a_cut_file_is_refused(
        self, backend: Backend, made: BuiltArtifact, tmp_path: Path
    ) -> None:
        for path in self._copies(made, tmp_path):
            path.write_bytes(path.read_bytes()[:-1])
            self._damaged(backend, made.artifact, tmp_path)

    def test_a_missing_file_is_refused(
        self, backend: Backend, made: BuiltArtifact, tmp_path: Path
    ) -> None:
        for path in self._copies(made, tmp_path):
            path.unlink()
            self._damaged(backend, made.artifact, tmp_path)

    def test_a_link_is_refused(self, backend: Backend, made: BuiltArtifact, tmp_path: Path) -> None:
        for path in self._copies(made, tmp_path):
            moved = path.rename(path.with_name("elsewhere"))
            path.symlink_to(moved)
            self._damaged(backend, made.artifact, tmp_path)

    def test_garbage_with_the_right_hash_is_refused(
        self, backend: Backend, made: BuiltArtifact, tmp_path: Path
    ) -> None:
        entry = tmp_path / made.artifact.entry
        entry.parent.mkdir(parents=True, exist_ok=True)
        entry.write_bytes(b"not a model" * 100)
        files = (describe(tmp_path, made.artifact.entry),)
        artifact = msgspec.structs.replace(made.artifact, files=files)
        with refused("EDGE-BACKEND-012"):
            backend.load(artifact, tmp_path)

    def _copies(self, made: BuiltArtifact, folder: Path) -> list[Path]:
        """Fresh copies of all files, each to be damaged alone."""
        for entry in made.artifact.files:
            (folder / entry.path).parent.mkdir(parents=True, exist_ok=True)
            (folder / entry.path).unlink(missing_ok=True)
            shutil.copyfile(made.root / entry.path, folder / entry.path)
        return [folder / entry.path for entry in made.artifact.files]

    def _damaged(self, backend: Backend, artifact: Artifact, folder: Path) -> None:
        for attempt in (backend.load, backend.inspect):
            with refused("EDGE-BACKEND-011"):
                attempt(artifact, folder)


class RefusalContract(DamageContract):
    """Names, dtypes and shapes of a feed are compared with the file's before the engine runs."""

    def test_a_missing_input_is_refused(self, fed: FeedPair, session: Session) -> None:
        feed = dict(fed.file)
        feed.pop(next(iter(feed)))
        self._refused(session, feed, "EDGE-BACKEND-008")

    def test_a_surplus_input_is_refused(self, fed: FeedPair, session: Session) -> None:
        extra = {"no-such-input": np.zeros(1, np.float32)}
        self._refused(session, {**fed.file, **extra}, "EDGE-BACKEND-008")

    def test_a_misnamed_input_is_refused(self, fed: FeedPair, session: Session) -> None:
        (name, x), *rest = fed.file.items()
        self._refused(session, {name + "_": x, **dict(rest)}, "EDGE-BACKEND-008")

    def test_another_dtype_is_refused(self, fed: FeedPair, session: Session) -> None:
        name, x = next(iter(fed.file.items()))
        for wrong in (x.astype(np.complex64), x.astype(x.dtype.newbyteorder()), x.tolist()):
            self._refused(session, {**fed.file, name: wrong}, "EDGE-BACKEND-009")

    def test_another_rank_is_refused(self, fed: FeedPair, session: Session) -> None:
        name, x = next(iter(fed.file.items()))
        self._refused(session, {**fed.file, name: x[None]}, "EDGE-BACKEND-010")

    def test_another_fixed_size_is_refused(
        self, made: BuiltArtifact, fed: FeedPair, session: Session
    ) -> None:
        spec = made.artifact.io.inputs[0]
        axis = next(i for i, dim in enumerate(spec.shape) if isinstance(dim, int))
        x = fed.file[spec.name]
        wide = np.concatenate([x, x], axis)
        self._refused(session, {**fed.file, spec.name: wide}, "EDGE-BACKEND-010")

    def _refused(self, session: Session, feed: Mapping[str, object], code: str) -> None:
        with refused(code):
            session.run(feed)  # type: ignore[arg-type]
