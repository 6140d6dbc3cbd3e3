"""The reference backend keeps the contract."""

from __future__ import annotations

from typing import Any

import pytest

from edgeserve import backends
from edgeserve.backends import Backend
from edgeserve.backends.contract import BackendContract, Case


class TestTorch(BackendContract):
    @pytest.fixture(scope="class")
    @classmethod
    def backend(cls) -> Backend:
        return backends.get("torch")

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, zoo: Any) -> Case:
        net = zoo.net("conv")
        return Case(net.exported, net.root, net.feed, net.oracle, tolerance=1e-6)
