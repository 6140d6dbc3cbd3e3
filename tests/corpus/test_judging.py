"""What an error means for a case: edgeserve's own refusals, and faults of the corpus."""

from __future__ import annotations

import pytest

from dev.corpus.judging import _refusal
from edgeserve.errors import BackendError, ValidateError


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (BackendError("EDGE-BACKEND-012", "model", wanted="a", got="b", hint="c"), "refused"),
        (ValidateError("EDGE-VALIDATE-010", "answers", wanted="a", got="b", hint="c"), "broken"),
        (KeyError("x"), "broken"),
    ],
)
def test_only_a_refusal_of_the_artifact_counts_as_one(error: Exception, verdict: str) -> None:
    assert _refusal(error)["verdict"] == verdict
