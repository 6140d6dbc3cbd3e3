"""What is refused before anything runs: empty values, times that are none, foreign folders."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from edgeserve.errors import UsageError
from edgeserve.pipeline.convert import check_workspace_folder, convert
from edgeserve.pipeline.measure import measure
from edgeserve.pipeline.options import check_convert_options
from edgeserve.pipeline.publish import package
from edgeserve.pipeline.result import check_writable
from edgeserve.pipeline.run import read_config
from edgeserve.pipeline.validate import validate
from edgeserve.types.options import ConvertOptions, MeasureOptions, PackageOptions, ValidateOptions


@pytest.mark.parametrize(
    "field", ["source", "out", "to", "data", "reference", "name", "preprocess", "task", "profile"]
)
def test_an_empty_value_of_convert(field: str) -> None:
    whole = ConvertOptions(source="toy:build", out="out")
    empty = () if field == "to" else ""
    with pytest.raises(UsageError) as caught:
        check_convert_options(dataclasses.replace(whole, **{field: empty}))
    assert caught.value.code == "EDGE-USAGE-005"
    assert field in caught.value.message.lower()


@pytest.mark.parametrize("field", ["data", "reference", "golden", "junit", "against", "profile"])
def test_an_empty_value_of_validate(field: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"--{field}") as caught:
        validate(ValidateOptions(out=str(tmp_path), **{field: ""}))
    assert caught.value.code == "EDGE-USAGE-005"


def test_an_empty_value_of_package_and_in_a_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--name"):
        package(PackageOptions(out=str(tmp_path), bundle="a.edge", name=""))
    config = tmp_path / "edgeserve.toml"
    config.write_text("[convert]\nsource='a:b'\nout='o'\ndata=''")
    assert read_config(config)["convert"]["data"] == "", "not the folder of the file"


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_a_time_that_is_none(seconds: float, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--timeout"):
        validate(ValidateOptions(out=str(tmp_path), timeout=seconds))
    with pytest.raises(UsageError, match="--timeout"):
        check_convert_options(ConvertOptions(source="toy:build", out="out", timeout=seconds))
    with pytest.raises(UsageError, match="--seconds"):
        measure(MeasureOptions(out=str(tmp_path), seconds=seconds))


def test_golden_and_junit_are_looked_at_first(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--golden") as caught:
        validate(ValidateOptions(out=str(tmp_path), golden=str(tmp_path / "nope")))
    assert "--data" not in str(caught.value)
    with pytest.raises(UsageError, match="a folder"):
        validate(ValidateOptions(out=str(tmp_path), junit=str(tmp_path)))
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="no folder"):
        check_writable(tmp_path / "file" / "junit.xml")
    check_writable(tmp_path / "new" / "junit.xml")
    check_writable(tmp_path / "file")


def test_a_folder_of_photos_is_not_made_a_workspace(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.png").write_bytes(b"")
    before = os.listdir(tmp_path / "photos")
    with pytest.raises(UsageError) as caught:
        convert(ConvertOptions(source="toy:build", out=str(tmp_path / "photos")))
    assert caught.value.code == "EDGE-USAGE-012"
    assert "a.png" in caught.value.message
    assert os.listdir(tmp_path / "photos") == before


def test_a_new_an_empty_and_a_begun_folder_are_taken(tmp_path: Path) -> None:
    check_workspace_folder(tmp_path / "new")
    check_workspace_folder(tmp_path)
    (tmp_path / ".DS_Store").write_bytes(b"")
    (tmp_path / "logs").mkdir()
    check_workspace_folder(tmp_path)
    (tmp_path / ".lock").write_bytes(b"")
    (tmp_path / "report.html").write_bytes(b"")
    check_workspace_folder(tmp_path)
