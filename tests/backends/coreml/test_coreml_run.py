"""Sessions: what they say of the engine, and files that change under them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeserve import __version__
from edgeserve.backends.coreml.coremltools_import import coremltools
from edgeserve.backends.coreml.package import write_package
from edgeserve.errors import BackendError
from edgeserve.types.artifact import Artifact
from edgeserve.types.tensors import IO, TensorSpec


@pytest.mark.parametrize(
    ("precision", "note"),
    [("fp32", "float32; not on Apple hardware"), ("fp16", "fp16 rounding; not on Apple hardware")],
)
def test_a_session_says_that_it_stands_in_for_apples_engine(
    packages: Any, precision: str, note: str
) -> None:
    package = packages("conv", precision)
    assert packages.backend.delegates()[-1] == "interpreter"
    with packages.backend.load(
        package.artifact, package.root, delegate="interpreter", threads=1
    ) as session:
        assert (session.note, session.simulated, session.threads) == (note, True, 1)
        assert session.runtime.name == "edgeserve-mil"
        assert session.runtime.version == __version__
        assert session.delegate == "interpreter"


def test_apples_own_engine_is_not_offered_elsewhere(packages: Any) -> None:
    package = packages("conv")
    with pytest.raises(BackendError) as error:
        packages.backend.load(package.artifact, package.root, delegate="coreml")
    assert error.value.code == "EDGE-BACKEND-005"


def test_a_file_that_is_not_listed_is_refused(packages: Any, tmp_path: Path) -> None:
    package = packages("conv")
    shutil.copytree(package.root, tmp_path / "copy")
    extra = tmp_path / "copy/model.mlpackage/Data/com.apple.CoreML/weights/other.bin"
    extra.write_bytes(b"weights from elsewhere")
    with pytest.raises(BackendError) as error:
        packages.backend.load(package.artifact, tmp_path / "copy")
    assert error.value.code == "EDGE-BACKEND-016"
    assert "other.bin" in error.value.message


def test_a_linked_folder_that_is_not_listed_is_refused(packages: Any, tmp_path: Path) -> None:
    package = packages("conv")
    shutil.copytree(package.root, tmp_path / "copy")
    (tmp_path / "outside").mkdir()
    link = tmp_path / "copy/model.mlpackage/Data/com.apple.CoreML/linked"
    link.symlink_to(tmp_path / "outside", target_is_directory=True)
    with pytest.raises(BackendError) as error:
        packages.backend.load(package.artifact, tmp_path / "copy")
    assert error.value.code == "EDGE-BACKEND-016"
    assert "'linked'" in error.value.message


def test_files_are_checked_again_when_another_length_is_first_asked_for(
    packages: Any, text_package: Any, tmp_path: Path
) -> None:
    package = text_package
    shutil.copytree(package.root, tmp_path / "copy")
    blob = tmp_path / "copy/model.mlpackage/Data/com.apple.CoreML/weights/weight.bin"
    feeds = [
        {"ids": np.ones((1, n), np.int32), "mask": np.ones((1, n), np.int32)} for n in (40, 16)
    ]
    with packages.backend.load(package.artifact, tmp_path / "copy") as session:
        session.run(feeds[0])
        data = bytearray(blob.read_bytes())
        data[-100] ^= 1
        blob.write_bytes(data)
        session.run(feeds[0])  # loaded before the change
        with pytest.raises(BackendError) as error:
            session.run(feeds[1])
        assert error.value.code == "EDGE-BACKEND-011"


def test_an_operation_that_the_interpreter_lacks_is_not_run_here(
    packages: Any, tmp_path: Path
) -> None:
    """The package may be right: it is not broken, it could not be run."""
    spec = packages("conv").spec
    function = spec.mlProgram.functions["main"]
    for operation in function.block_specializations[function.opset].operations:
        if operation.type == "relu":
            operation.type = "custom_layer"
    weights = packages("conv").folder / "Data/com.apple.CoreML/weights"
    files = write_package(spec, weights, tmp_path)
    artifact = Artifact("coreml", "fp32", "model.mlpackage", files, packages("conv").artifact.io)
    with pytest.raises(BackendError) as error:
        packages.backend.load(artifact, tmp_path)
    assert error.value.code in ("EDGE-BACKEND-005", "EDGE-BACKEND-012"), error.value


def test_a_package_of_another_kind_is_refused(packages: Any, tmp_path: Path) -> None:
    """A package may hold a tree or a pipeline; only programs are read."""
    spec = coremltools().proto.Model_pb2.Model(specificationVersion=4)
    spec.glmRegressor.offset.append(1.0)
    files = write_package(spec, None, tmp_path)
    x = TensorSpec("x", "float32", (1,))
    artifact = Artifact("coreml", "fp32", "model.mlpackage", files, IO((x,), (x,)))
    for attempt in (packages.backend.load, packages.backend.inspect):
        with pytest.raises(BackendError) as error:
            attempt(artifact, tmp_path)
        assert error.value.code == "EDGE-BACKEND-012"
        assert "glmRegressor" in error.value.message
