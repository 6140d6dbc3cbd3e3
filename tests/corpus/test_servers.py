"""Servers that differ in one step: it is named, and what is kept holds its golden cases."""

from __future__ import annotations

import pytest

from dev.corpus.servers import RIGHT, run, servers


@pytest.mark.parametrize(
    "name", ["right", "luma", "orientation ignored", "crop rounding", "corner and mean"]
)
def test_the_step_is_named_and_the_proof_holds(name: str) -> None:
    (server,) = [each for each in (RIGHT, *servers()) if each.name == name]
    outcome = run(server)
    assert outcome.named, outcome.finding
    assert outcome.kept
    assert outcome.proven
