"""The Core ML backend keeps the contract: a package of one function, one of 8-bit weights, text."""

from __future__ import annotations

from typing import Any

import pytest

from edgeserve import backends
from edgeserve.backends import Backend
from edgeserve.backends.contract import BackendContract, Case


class TestCoreml(BackendContract):
    @pytest.fixture(scope="class")
    @classmethod
    def backend(cls) -> Backend:
        return backends.get("coreml")

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, zoo: Any) -> Case:
        net = zoo.net("conv")
        return Case(net.exported, net.root, net.feed, net.oracle)
