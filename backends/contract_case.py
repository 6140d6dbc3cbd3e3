"""What a backend is tried on, and the fixtures that its contract's tests share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from edgeserve.backends.adapter import Adapter
from edgeserve.backends.base import Backend
from edgeserve.backends.session import Session
from edgeserve.errors import EdgeError
from edgeserve.types.artifact import Artifact
from edgeserve.types.source import Exported
from edgeserve.types.tensors import Shape

__all__ = ["Case", "ContractFixtures", "Fed", "Feed", "Made", "ask", "code_of", "feed_file"]

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
class Made:
    """What the backend made of the case: an artifact and the folder its files lie in."""

    artifact: Artifact
    root: Path


@dataclass(frozen=True)
class Fed:
    """One input twice: as the file takes it, and as the source does.

    They differ where a file is fixed to one sample, to a length, or to fewer bits.
    """

    file: Feed
    source: Feed


def feed_file(case: Case, made: Made) -> Fed:
    """The case's feed in the sizes that the file is fixed to, and in its dtypes."""
    cut = {spec.name: _sized(case.feed[spec.name], spec.shape) for spec in made.artifact.io.inputs}
    narrow = {spec.name: cut[spec.name].astype(spec.dtype) for spec in made.artifact.io.inputs}
    return Fed(narrow, cut)


def _sized(array: np.ndarray, shape: Shape) -> np.ndarray:
    """As much of an array as a shape has room for, and again from its start where that has more."""
    for axis, size in enumerate(shape):
        if isinstance(size, int):
            array = array.take(np.arange(size) % array.shape[axis], axis)
    return array


def ask(session: Session, case: Case, feed: Feed) -> Feed:
    """The answer to a feed of the source's signature, whatever sizes the file is fixed to."""
    exported = case.exported
    return Adapter(session, exported.signature, exported.processing.padding).run(feed)


def code_of(error: pytest.ExceptionInfo[EdgeError]) -> str:
    """The code of an error that a test expected."""
    return error.value.code


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
    def made(cls, backend: Backend, case: Case, tmp_path_factory: pytest.TempPathFactory) -> Made:
        """The case, exported once by the first route."""
        out = tmp_path_factory.mktemp("made")
        return Made(backend.export(case.exported, case.root, out), out)

    @pytest.fixture(scope="class")
    @classmethod
    def fed(cls, case: Case, made: Made) -> Fed:
        """The case's feed as the file takes it."""
        return feed_file(case, made)

    @pytest.fixture
    def session(self, backend: Backend, made: Made) -> Session:
        """A fresh session."""
        return backend.load(made.artifact, made.root)
