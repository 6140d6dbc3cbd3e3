"""Addresses of endpoints, and which of them a reference may have."""

from __future__ import annotations

import pytest

from edgeserve.errors import ValidateError
from edgeserve.oip.metadata import parse_address
from edgeserve.validate.reference.endpoint import check_address


@pytest.mark.parametrize(
    ("reference", "server", "model", "version"),
    [
        ("http://h:1", "http://h:1", None, None),
        ("https://h/v2/", "https://h", None, None),
        ("http://h:1/v2/models/a b", "http://h:1", "a b", None),
        ("http://h/in/front/v2/models/m/versions/3", "http://h/in/front", "m", "3"),
    ],
)
def test_addresses(reference: str, server: str, model: str | None, version: str | None) -> None:
    found = parse_address(reference)
    assert (found.server, found.model, found.version) == (server, model, version)


@pytest.mark.parametrize(
    "reference",
    [
        "grpc://h:1",
        "http://",
        "http://h:port",
        "http://u:secret@h/v2",
        "http://h/v2?x=1",
        "http://h/v2#x",
        "http://h/v2/models",
        "http://h/v2/models/../x",
        "http://h/v2/model/x",
        "http://h/v2/models/m/infer",
        "http://h/v2/models/m/versions",
    ],
)
def test_addresses_that_are_none(reference: str) -> None:
    with pytest.raises(ValidateError) as caught:
        check_address(reference)
    assert caught.value.code == "EDGE-VALIDATE-002"
    assert "secret" not in str(caught.value)
