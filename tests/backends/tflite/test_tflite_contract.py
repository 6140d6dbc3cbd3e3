"""The TFLite backend keeps the contract: fixed to one sample, and with int32 ids and lengths."""

from __future__ import annotations

from typing import Any

import pytest

from edgeserve import backends
from edgeserve.backends import Backend
from edgeserve.backends.contract import BackendContract, Case
from edgeserve.backends.contract_base import BuiltArtifact


class TestTflite(BackendContract):
    @pytest.fixture(scope="class")
    @classmethod
    def backend(cls) -> Backend:
        return backends.get("tflite")

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, zoo: Any) -> Case:
        net = zoo.net("conv")
        return Case(net.exported, net.root, net.feed, net.oracle)

    @pytest.fixture(scope="class")
    @classmethod
    def made(cls, zoo: Any, convert: Any) -> BuiltArtifact:
        file = convert(zoo.net("conv"))
        return BuiltArtifact(file.artifact, file.root)


class TestTfliteWithBuckets(TestTflite):
    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, text: Any) -> Case:
        return Case(text.exported, text.root, text.feed, text.oracle)

    @pytest.fixture(scope="class")
    @classmethod
    def made(cls, text_file: Any) -> BuiltArtifact:
        return BuiltArtifact(text_file.artifact, text_file.root)
