"""The part of a backend's contract that is about feeds: what does not fit is refused alike."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from edgeserve.backends.contract_case import Fed, Made, code_of
from edgeserve.backends.contract_damage import DamageContract
from edgeserve.backends.session import Session
from edgeserve.errors import BackendError

__all__ = ["RefusalContract"]


class RefusalContract(DamageContract):
    """Names, dtypes and shapes of a feed are compared with the file's before the engine runs."""

    def test_a_missing_input_is_refused(self, fed: Fed, session: Session) -> None:
        feed = dict(fed.file)
        feed.pop(next(iter(feed)))
        self._refused(session, feed, "EDGE-BACKEND-008")

    def test_a_surplus_input_is_refused(self, fed: Fed, session: Session) -> None:
        extra = {"no-such-input": np.zeros(1, np.float32)}
        self._refused(session, {**fed.file, **extra}, "EDGE-BACKEND-008")

    def test_a_misnamed_input_is_refused(self, fed: Fed, session: Session) -> None:
        (name, x), *rest = fed.file.items()
        self._refused(session, {name + "_": x, **dict(rest)}, "EDGE-BACKEND-008")

    def test_another_dtype_is_refused(self, fed: Fed, session: Session) -> None:
        name, x = next(iter(fed.file.items()))
        for wrong in (x.astype(np.complex64), x.astype(x.dtype.newbyteorder()), x.tolist()):
            self._refused(session, {**fed.file, name: wrong}, "EDGE-BACKEND-009")

    def test_another_rank_is_refused(self, fed: Fed, session: Session) -> None:
        name, x = next(iter(fed.file.items()))
        self._refused(session, {**fed.file, name: x[None]}, "EDGE-BACKEND-010")

    def test_another_fixed_size_is_refused(self, made: Made, fed: Fed, session: Session) -> None:
        spec = made.artifact.io.inputs[0]
        axis = next(i for i, dim in enumerate(spec.shape) if isinstance(dim, int))
        x = fed.file[spec.name]
        wide = np.concatenate([x, x], axis)
        self._refused(session, {**fed.file, spec.name: wide}, "EDGE-BACKEND-010")

    def _refused(self, session: Session, feed: Mapping[str, object], code: str) -> None:
        with pytest.raises(BackendError) as error:
            session.run(feed)  # type: ignore[arg-type]
        assert code_of(error) == code
