"""A wrong float32 file: which op is named as the first that differs."""

from __future__ import annotations

from typing import Any

import pytest

from dev.mutants.runner import run_program


def test_wrong_weights_name_their_layer(pair: Any, sabotaged: Any) -> None:
    """Both layers have weights of one shape; only those of the second are wrong."""

    def change(graph: Any) -> None:
        found = {n: a for n, a in graph.weights().items() if n.startswith("second") and a.ndim == 2}
        assert found
        graph.put({name: array * 1.01 for name, array in found.items()})

    message = pair.judged(sabotaged(pair, change)).judgement.reasons[0].message
    assert "the first op that differs is aten.linear.default in second" in message


@pytest.mark.parametrize("format", ["tflite", "coreml"])
def test_what_a_converter_reorders_and_fuses_is_not_blamed(format: str) -> None:
    """A convolution and its activation come first, in LiteRT with other axes and as one op."""
    (found,) = run_program("amax", (format,))
    assert (found.honest, found.verdict) == ("pass", "fail")
    assert "the first op that differs is aten.amax.default (table.py:" in found.message
