"""`BackendContract`: what every backend promises, as tests that a backend's author subclasses.

    class TestMyBackend(BackendContract):
        @pytest.fixture(scope="class")
        @classmethod
        def backend(cls): return backends.get("mine")

        @pytest.fixture(scope="class")
        @classmethod
        def case(cls, tmp_path_factory): return Case(exported, root, feed, oracle)

The expected answers come from the case's oracle, never from the backend itself.
See docs/reference/backends.md.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from edgeserve.backends.base import Backend
from edgeserve.backends.contract_base import (
    BuiltArtifact,
    Case,
    Feed,
    FeedPair,
    RefusalContract,
    refused,
    run_adapted,
)
from edgeserve.backends.session import Session, numpy_dtype
from edgeserve.errors import BackendError
from edgeserve.files import describe
from edgeserve.types.artifact import Artifact, Recipe
from edgeserve.types.base import check_word
from edgeserve.types.vocabulary import TARGETS, Precision

__all__ = ["BackendContract", "Case", "Feed"]


class BackendContract(RefusalContract):
    """Subclass it, override the fixtures `backend` and `case`, and every test below runs."""

    # what the format is

    def test_it_is_described_in_words_that_fit(self, backend: Backend) -> None:
        """`check_word` is the one rule for words; delegates are declared before they are used."""
        check_word("format", backend.format)
        for precision in backend.precisions:
            check_word("precision", precision)
        declared = set(backend.all_delegates)
        assert set(backend.delegates()) <= declared
        assert set(backend.cpu_delegates) <= declared
        assert set(backend.simulated) <= declared
        assert set(backend.delegate_aliases.values()) <= declared
        assert not declared & set(backend.delegate_aliases), "an alias is not a delegate as well"
        assert all(word == word.lower() for word in (*declared, *backend.delegate_aliases))
        assert set(backend.native) <= set(backend.precisions)
        assert set(backend.targets) <= set(TARGETS)
        assert all(suffix.startswith(".") for suffix in backend.suffixes)

    # what is made

    def test_it_is_usable_here(self, backend: Backend) -> None:
        assert backend.missing() is None
        assert backend.missing_tools() is None
        assert backend.routes()
        assert backend.delegates()

    def test_the_artifact_describes_its_files(self, backend: Backend, made: BuiltArtifact) -> None:
        artifact = made.artifact
        assert artifact.format == backend.format
        assert artifact.precision == "fp32"
        assert artifact.judgement is None
        assert artifact.entry.endswith(backend.suffixes or "")
        assert artifact.provenance.route == backend.routes()[0]
        assert artifact.files == tuple(describe(made.root, f.path) for f in artifact.files)

    def test_the_io_keeps_the_source_order(self, case: Case, made: BuiltArtifact) -> None:
        signature, io = case.exported.signature, made.artifact.io
        assert [s.name for s in io.inputs] == [s.name for s in signature.inputs]
        assert [s.name for s in io.outputs] == [s.name for s in signature.outputs]
        assert [len(s.shape) for s in io.inputs] == [len(s.shape) for s in signature.inputs]

    def test_an_unknown_route_is_refused(
        self, backend: Backend, case: Case, tmp_path: Path
    ) -> None:
        with refused("EDGE-BACKEND-015"):
            backend.export(case.exported, case.root, tmp_path, "no-such-route")

    def test_a_changed_program_is_refused(
        self, backend: Backend, case: Case, tmp_path: Path
    ) -> None:
        program = case.exported.program
        data = bytearray((case.root / program.path).read_bytes())
        data[len(data) // 2] ^= 1
        (tmp_path / program.path).write_bytes(data)
        with refused("EDGE-BACKEND-011"):
            backend.export(case.exported, tmp_path, tmp_path / "out")

    @pytest.mark.parametrize("precision", ["fp16", "w8", "w8a8"])
    def test_a_precision_is_made_if_it_is_promised(
        self,
        backend: Backend,
        case: Case,
        made: BuiltArtifact,
        fed: FeedPair,
        tmp_path: Path,
        precision: Precision,
    ) -> None:
        """Then it has the same inputs and outputs, and says what it derives from."""
        if precision not in backend.precisions:
            with refused("EDGE-BACKEND-006"):
                self._make(backend, case, made, tmp_path, precision)
            return
        artifact = self._make(backend, case, made, tmp_path, precision)
        assert artifact.precision == precision
        assert (artifact.io, artifact.buckets) == (made.artifact.io, made.artifact.buckets)
        with backend.load(artifact, tmp_path) as session:
            assert all(np.isfinite(x).all() for x in session.run(fed.file).values())
        if precision not in backend.native:
            assert artifact.provenance.parent == made.artifact.sha256
            assert artifact.provenance.weights

    def _make(
        self, backend: Backend, case: Case, made: BuiltArtifact, out: Path, precision: Precision
    ) -> Artifact:
        if precision in backend.native:
            return backend.export(case.exported, case.root, out, precision=precision)
        sample = {name: x[:1] for name, x in case.feed.items()}
        recipe = Recipe(precision=precision)
        return backend.quantize(made.artifact, made.root, recipe, [sample], out)

    # what it answers

    def _compare(self, case: Case, session: Session, got: Feed, feed: Feed) -> None:
        """Against the oracle; dtypes are the file's, which may have fewer bits."""
        wanted = case.oracle(feed)
        assert list(got)[: len(wanted)] == list(wanted)
        for spec, (name, right) in zip(session.io.outputs, wanted.items(), strict=True):
            assert got[name].shape == right.shape, name
            assert got[name].dtype == numpy_dtype(spec.dtype, name), name
            np.testing.assert_allclose(got[name], right, rtol=0, atol=case.tolerance, err_msg=name)

    def test_it_answers_as_the_oracle(self, case: Case, fed: FeedPair, session: Session) -> None:
        self._compare(case, session, session.run(fed.file), fed.source)
        self._compare(case, session, run_adapted(session, case, case.feed), case.feed)

    @pytest.mark.parametrize("size", [1, 2, 3, 7])
    def test_it_takes_every_batch_it_declares(
        self, case: Case, session: Session, size: int
    ) -> None:
        signature = case.exported.signature
        assert signature.batch_dim is not None, "give a case with a dynamic batch"
        low, high = signature.dims[signature.batch_dim]
        count = min(max(size, low), high)
        feed = {name: np.resize(x, (count, *x.shape[1:])) for name, x in case.feed.items()}
        self._compare(case, session, run_adapted(session, case, feed), feed)

    def test_an_answer_repeats_bit_by_bit(self, fed: FeedPair, session: Session) -> None:
        first = session.run(fed.file)
        for name, again in session.run(fed.file).items():
            np.testing.assert_array_equal(again, first[name], err_msg=name)

    def test_without_the_engines_rewrites_it_answers_the_same(
        self, backend: Backend, case: Case, made: BuiltArtifact, fed: FeedPair
    ) -> None:
        with backend.load(made.artifact, made.root, optimize=False) as plain:
            self._compare(case, plain, plain.run(fed.file), fed.source)

    @pytest.mark.parametrize("threads", [1, 2])
    def test_threads_are_taken(
        self, backend: Backend, case: Case, made: BuiltArtifact, fed: FeedPair, threads: int
    ) -> None:
        with backend.load(made.artifact, made.root, threads=threads) as session:
            assert session.threads == threads
            self._compare(case, session, session.run(fed.file), fed.source)

    @pytest.mark.parametrize("threads", [0, -1, 100_000])
    def test_a_senseless_number_of_threads_is_refused(
        self, backend: Backend, made: BuiltArtifact, threads: int
    ) -> None:
        with refused("EDGE-BACKEND-018"):
            backend.load(made.artifact, made.root, threads=threads)

    def test_threads_of_the_caller_share_a_session(
        self, case: Case, fed: FeedPair, session: Session
    ) -> None:
        with ThreadPoolExecutor(4) as pool:
            for got in pool.map(lambda _: session.run(fed.file), range(8)):
                self._compare(case, session, got, fed.source)

    def test_a_feed_and_an_answer_are_left_alone(self, fed: FeedPair, session: Session) -> None:
        """An answer is the caller's: neither a view of the engine's memory nor of what was fed."""
        feed = {name: x.copy() for name, x in fed.file.items()}
        first = session.run(feed)
        kept = {name: answer.copy() for name, answer in first.items()}
        session.run({name: np.zeros_like(x) for name, x in feed.items()})
        for name, answer in first.items():
            np.testing.assert_array_equal(answer, kept[name], err_msg=name)
            if answer.flags.writeable:
                answer[...] = 0
        for name, x in fed.file.items():
            np.testing.assert_array_equal(feed[name], x, err_msg=name)

    def test_memory_of_any_layout_is_taken(
        self, case: Case, fed: FeedPair, session: Session
    ) -> None:
        strided = {name: np.stack([x, x], -1)[..., 0] for name, x in fed.file.items()}
        for x in strided.values():
            x.flags.writeable = False
        self._compare(case, session, session.run(strided), fed.source)

    # what really runs

    def test_every_delegate_runs_or_says_that_it_cannot(
        self, backend: Backend, case: Case, made: BuiltArtifact, fed: FeedPair
    ) -> None:
        """A build may have delegates whose driver is missing: never another one in their place."""
        ran = []
        for delegate in backend.delegates():
            try:
                session = backend.load(made.artifact, made.root, delegate=delegate)
            except BackendError as error:
                ran.append(error.code)
                continue
            with session:
                assert session.delegate == session.runtime.delegate == delegate
                assert session.runtime.name
                assert session.runtime.version
                self._compare(case, session, session.run(fed.file), fed.source)
                ran.append(delegate)
        assert set(ran) <= {*backend.delegates(), "EDGE-BACKEND-005"}
        assert set(ran) != {"EDGE-BACKEND-005"}

    def test_an_unusable_delegate_is_refused(self, backend: Backend, made: BuiltArtifact) -> None:
        with refused("EDGE-BACKEND-005"):
            backend.load(made.artifact, made.root, delegate="no-such-delegate")

    def test_a_closed_session_does_not_run(self, fed: FeedPair, session: Session) -> None:
        with session:
            session.run(fed.file)
        session.close()
        self._refused(session, fed.file, "EDGE-BACKEND-007")

    # what it shows

    def test_inspection_finds_ops_and_weights(self, backend: Backend, made: BuiltArtifact) -> None:
        graph = backend.inspect(made.artifact, made.root)
        assert graph.inputs == made.artifact.io.inputs
        assert graph.outputs == made.artifact.io.outputs
        assert sum(graph.op_counts.values()) == len(graph.ops) > 0
        assert 0 < graph.weight_bytes <= made.artifact.size

    def test_an_inner_tensor_can_be_tapped(
        self, backend: Backend, case: Case, made: BuiltArtifact, fed: FeedPair
    ) -> None:
        graph = backend.inspect(made.artifact, made.root)
        outputs = {spec.name for spec in graph.outputs}
        inner = next(name for op in graph.ops for name in op.outputs if name not in outputs)
        with backend.load(made.artifact, made.root, taps=[inner]) as session:
            got = session.run(fed.file)
            assert list(got) == [*(spec.name for spec in graph.outputs), inner]
            assert isinstance(got[inner], np.ndarray)
            self._compare(case, session, got, fed.source)

    def test_an_unknown_tap_is_refused(self, backend: Backend, made: BuiltArtifact) -> None:
        with refused("EDGE-BACKEND-014"):
            backend.load(made.artifact, made.root, taps=["no-such-tensor"])
