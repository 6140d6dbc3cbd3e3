"""Requests made out of the OpenAPI document by schemathesis; answers must be as it says.

`python -m dev.benchmarks.hostile` asks 10,000 of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode, checks

#: Load and unload take a second each; they have tests of their own.
_SLOW = ("/load", "/unload")
_HELD = [
    checks.content_type_conformance,
    checks.response_schema_conformance,
    checks.status_code_conformance,
]


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
def test_answers_are_as_the_document_says(
    live: Callable[..., Any], tagger: str, mode: GenerationMode
) -> None:
    end = live(tagger, deadline_ms=30_000.0)
    schema = schemathesis.openapi.from_url(f"http://{end.address}/openapi.json")
    seen: dict[str, set[int]] = {}

    def ask(operation: Any, count: int) -> None:
        @given(operation.as_strategy(generation_mode=mode))
        @settings(
            max_examples=count,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def each(case: Any) -> None:
            response = case.call(base_url=f"http://{end.address}", timeout=60)
            seen.setdefault(operation.path, set()).add(response.status_code)
            late = response.status_code == 503 and "EDGE-SERVE-020" in response.text
            assert response.status_code < 500 or late, response.content
            case.validate_response(response, checks=_HELD)

        try:
            each()
        except Unsatisfiable:  # a question without parameters cannot be asked wrongly
            assert mode is GenerationMode.NEGATIVE

    for found in schema.get_all_operations():
        operation = found.ok()
        if not operation.path.endswith(_SLOW):
            ask(operation, 20 if operation.method == "post" else 4)
    # Whether a wrong question about the index is answered hangs on what is drawn.
    assert mode is GenerationMode.NEGATIVE or 200 in seen["/v2"]
    assert 400 in seen["/v2/models/{model}/infer"]
    assert '"fault"' not in end.log.getvalue()
