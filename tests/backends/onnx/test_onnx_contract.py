"""The ONNX backend keeps the contract, with its weights in the file and beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest

from edgeserve import backends
from edgeserve.backends import Backend
from edgeserve.backends.contract import BackendContract, Case
from edgeserve.backends.contract_base import BuiltArtifact
from edgeserve.backends.onnx.export import save
from edgeserve.files import describe
from edgeserve.types.artifact import Artifact


class TestOnnx(BackendContract):
    @pytest.fixture(scope="class")
    @classmethod
    def backend(cls) -> Backend:
        return backends.get("onnx")

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, zoo: Any) -> Case:
        net = zoo.net("conv")
        return Case(net.exported, net.root, net.feed, net.oracle)


class TestOnnxWithWeightsBeside(TestOnnx):
    """As it is written above 500 MB of weights: two files."""

    @pytest.fixture(scope="class")
    @classmethod
    def made(cls, zoo: Any, tmp_path_factory: pytest.TempPathFactory) -> BuiltArtifact:
        artifact, root = zoo.onnx("conv")
        out: Path = tmp_path_factory.mktemp("beside")
        save(ir.load(root / "model.onnx"), out, external_above=0)
        names = ["model.onnx", "model.onnx.data"]
        beside = Artifact(
            format="onnx",
            precision="fp32",
            entry="model.onnx",
            io=artifact.io,
            files=tuple(describe(out, n) for n in names),
            provenance=artifact.provenance,
        )
        return BuiltArtifact(beside, out)
