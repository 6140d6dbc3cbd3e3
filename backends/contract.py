"""`BackendContract`: what every backend promises, as tests that a backend's author subclasses.

    class TestMyBackend(BackendContract):
        @pytest.fixture(scope="class")
        @classmethod
        def backend(cls): return backends.get("mine")

        @pytest.fixture(scope="class")
        @classmethod
        def case(cls, tmp_path_factory): return Case(exported, root, feed, oracle)

The right answers come from the case's oracle, never from the backend itself. See docs/backends.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from edgeserve.backends.base import Backend
from edgeserve.backends.contract_case import Case, Feed, Made, code_of
from edgeserve.backends.contract_damage import DamageContract
from edgeserve.backends.session import Session
from edgeserve.errors import BackendError
from edgeserve.files import describe
from edgeserve.types.artifact import Recipe

__all__ = ["BackendContract", "Case", "Feed"]


class BackendContract(DamageContract):
    """Subclass it, override the fixtures `backend` and `case`, and every test below runs."""

    # what is made

    def test_it_is_usable_here(self, backend: Backend) -> None:
        assert backend.missing() is None
        assert backend.missing_tools() is None
        assert backend.routes()
        assert backend.delegates()

    def test_the_artifact_describes_its_files(self, backend: Backend, made: Made) -> None:
        artifact = made.artifact
        assert artifact.format == backend.format
        assert artifact.precision == "fp32"
        assert artifact.judgement is None
        assert artifact.provenance.route == backend.routes()[0]
        assert artifact.files == tuple(describe(made.root, f.path) for f in artifact.files)

    def test_the_io_keeps_the_source_order(self, case: Case, made: Made) -> None:
        signature, io = case.exported.signature, made.artifact.io
        assert [s.name for s in io.inputs] == [s.name for s in signature.inputs]
        assert [s.name for s in io.outputs] == [s.name for s in signature.outputs]
        assert [len(s.shape) for s in io.inputs] == [len(s.shape) for s in signature.inputs]

    def test_an_unknown_route_is_refused(
        self, backend: Backend, case: Case, tmp_path: Path
    ) -> None:
        with pytest.raises(BackendError) as error:
            backend.export(case.exported, case.root, tmp_path, "no-such-route")
        assert code_of(error) == "EDGE-BACKEND-015"

    def test_a_changed_program_is_refused(
        self, backend: Backend, case: Case, tmp_path: Path
    ) -> None:
        program = case.exported.program
        data = bytearray((case.root / program.path).read_bytes())
        data[len(data) // 2] ^= 1
        (tmp_path / program.path).write_bytes(data)
        with pytest.raises(BackendError) as error:
            backend.export(case.exported, tmp_path, tmp_path / "out")
        assert code_of(error) == "EDGE-BACKEND-011"

    def test_another_precision_is_made_or_refused(
        self, backend: Backend, case: Case, made: Made, tmp_path: Path
    ) -> None:
        recipe = Recipe(precision="w8a8")
        artifact, code = None, ""
        try:
            artifact = backend.quantize(made.artifact, made.root, recipe, [case.feed], tmp_path)
        except BackendError as error:
            code = error.code
        if artifact is None:
            assert code == "EDGE-BACKEND-006"
        else:
            assert artifact.precision == "w8a8"
            backend.load(artifact, tmp_path).close()

    # what it answers

    def _compare(self, case: Case, got: Feed, feed: Feed) -> None:
        wanted = case.oracle(feed)
        assert list(got)[: len(wanted)] == list(wanted)
        for name, right in wanted.items():
            assert got[name].shape == right.shape, name
            assert got[name].dtype == right.dtype, name
            np.testing.assert_allclose(got[name], right, rtol=0, atol=case.tolerance, err_msg=name)

    def test_it_answers_as_the_oracle(self, case: Case, session: Session) -> None:
        self._compare(case, session.run(case.feed), case.feed)

    @pytest.mark.parametrize("size", [1, 2, 3, 7])
    def test_it_takes_every_batch_it_declares(
        self, case: Case, session: Session, size: int
    ) -> None:
        signature = case.exported.signature
        assert signature.batch_dim is not None, "give a case with a dynamic batch"
        low, high = signature.dims[signature.batch_dim]
        count = min(max(size, low), high)
        feed = {name: np.resize(x, (count, *x.shape[1:])) for name, x in case.feed.items()}
        self._compare(case, session.run(feed), feed)

    def test_an_answer_repeats_bit_by_bit(self, case: Case, session: Session) -> None:
        first = session.run(case.feed)
        for name, again in session.run(case.feed).items():
            np.testing.assert_array_equal(again, first[name], err_msg=name)

    def test_without_the_engines_rewrites_it_answers_the_same(
        self, backend: Backend, case: Case, made: Made
    ) -> None:
        with backend.load(made.artifact, made.root, optimize=False) as plain:
            self._compare(case, plain.run(case.feed), case.feed)

    @pytest.mark.parametrize("threads", [1, 2])
    def test_threads_are_taken(
        self, backend: Backend, case: Case, made: Made, threads: int
    ) -> None:
        with backend.load(made.artifact, made.root, threads=threads) as session:
            assert session.threads == threads
            self._compare(case, session.run(case.feed), case.feed)

    @pytest.mark.parametrize("threads", [0, -1, 100_000])
    def test_a_senseless_number_of_threads_is_refused(
        self, backend: Backend, made: Made, threads: int
    ) -> None:
        with pytest.raises(BackendError) as error:
            backend.load(made.artifact, made.root, threads=threads)
        assert code_of(error) == "EDGE-BACKEND-018"

    def test_threads_of_the_caller_share_a_session(self, case: Case, session: Session) -> None:
        with ThreadPoolExecutor(4) as pool:
            for got in pool.map(lambda _: session.run(case.feed), range(8)):
                self._compare(case, got, case.feed)

    def test_a_feed_is_left_alone(self, case: Case, session: Session) -> None:
        feed = {name: x.copy() for name, x in case.feed.items()}
        for answer in session.run(feed).values():
            if answer.flags.writeable:
                answer[...] = 0
        for name, x in case.feed.items():
            np.testing.assert_array_equal(feed[name], x, err_msg=name)

    def test_memory_of_any_layout_is_taken(self, case: Case, session: Session) -> None:
        strided = {name: np.stack([x, x], -1)[..., 0] for name, x in case.feed.items()}
        for x in strided.values():
            x.flags.writeable = False
        self._compare(case, session.run(strided), case.feed)

    # what it refuses to be fed

    def test_a_missing_input_is_refused(self, case: Case, session: Session) -> None:
        feed = dict(case.feed)
        feed.pop(next(iter(feed)))
        self._refused(session, feed, "EDGE-BACKEND-008")

    def test_a_surplus_input_is_refused(self, case: Case, session: Session) -> None:
        extra = {"no-such-input": np.zeros(1, np.float32)}
        self._refused(session, {**case.feed, **extra}, "EDGE-BACKEND-008")

    def test_a_misnamed_input_is_refused(self, case: Case, session: Session) -> None:
        (name, x), *rest = case.feed.items()
        self._refused(session, {name + "_": x, **dict(rest)}, "EDGE-BACKEND-008")

    def test_another_dtype_is_refused(self, case: Case, session: Session) -> None:
        name, x = next(iter(case.feed.items()))
        for wrong in (x.astype(np.complex64), x.astype(x.dtype.newbyteorder()), x.tolist()):
            self._refused(session, {**case.feed, name: wrong}, "EDGE-BACKEND-009")

    def test_another_rank_is_refused(self, case: Case, session: Session) -> None:
        name, x = next(iter(case.feed.items()))
        self._refused(session, {**case.feed, name: x[None]}, "EDGE-BACKEND-010")

    def test_another_fixed_size_is_refused(self, case: Case, made: Made, session: Session) -> None:
        spec = made.artifact.io.inputs[0]
        axis = next(i for i, dim in enumerate(spec.shape) if isinstance(dim, int))
        x = case.feed[spec.name]
        wide = np.concatenate([x, x], axis)
        self._refused(session, {**case.feed, spec.name: wide}, "EDGE-BACKEND-010")

    def _refused(self, session: Session, feed: Mapping[str, object], code: str) -> None:
        with pytest.raises(BackendError) as error:
            session.run(feed)  # type: ignore[arg-type]
        assert code_of(error) == code

    # what really runs

    def test_every_delegate_runs_or_says_that_it_cannot(
        self, backend: Backend, case: Case, made: Made
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
                self._compare(case, session.run(case.feed), case.feed)
                ran.append(delegate)
        assert set(ran) <= {*backend.delegates(), "EDGE-BACKEND-005"}
        assert set(ran) != {"EDGE-BACKEND-005"}

    def test_an_unusable_delegate_is_refused(self, backend: Backend, made: Made) -> None:
        with pytest.raises(BackendError) as error:
            backend.load(made.artifact, made.root, delegate="no-such-delegate")
        assert code_of(error) == "EDGE-BACKEND-005"

    def test_a_closed_session_does_not_run(self, case: Case, session: Session) -> None:
        with session:
            session.run(case.feed)
        session.close()
        self._refused(session, case.feed, "EDGE-BACKEND-007")

    # what it shows

    def test_inspection_finds_ops_and_weights(self, backend: Backend, made: Made) -> None:
        graph = backend.inspect(made.artifact, made.root)
        assert graph.inputs == made.artifact.io.inputs
        assert graph.outputs == made.artifact.io.outputs
        assert sum(graph.op_counts.values()) == len(graph.ops) > 0
        assert 0 < graph.weight_bytes <= made.artifact.size

    def test_an_inner_tensor_can_be_tapped(self, backend: Backend, case: Case, made: Made) -> None:
        graph = backend.inspect(made.artifact, made.root)
        outputs = {spec.name for spec in graph.outputs}
        inner = next(name for op in graph.ops for name in op.outputs if name not in outputs)
        with backend.load(made.artifact, made.root, taps=[inner]) as session:
            got = session.run(case.feed)
            assert list(got) == [*(spec.name for spec in graph.outputs), inner]
            assert isinstance(got[inner], np.ndarray)
            self._compare(case, got, case.feed)

    def test_an_unknown_tap_is_refused(self, backend: Backend, made: Made) -> None:
        with pytest.raises(BackendError) as error:
            backend.load(made.artifact, made.root, taps=["no-such-tensor"])
        assert code_of(error) == "EDGE-BACKEND-014"
