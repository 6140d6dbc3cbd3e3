"""SOURCE as people type it: told apart without importing or loading anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgeserve.convert import parse_source
from edgeserve.errors import ConvertError


@pytest.mark.parametrize("text", ["tagger:make", "my.pkg.models:Zoo.small", "_a:_b", "x1:y2"])
def test_a_factory_is_a_module_and_a_name(text: str, tmp_path: Path) -> None:
    source = parse_source(text, tmp_path)
    assert (source.kind, source.location) == ("factory", text)
    assert source.folder == str(tmp_path)


def test_files_and_folders_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "model.pt2").write_bytes(b"")
    (tmp_path / "old" / "source").mkdir(parents=True)
    (tmp_path / "old" / "source" / "source.json").write_text("{}")
    (tmp_path / "done").mkdir()
    (tmp_path / "done" / "manifest.json").write_text("{}")
    for text, kind in (("model.pt2", "pt2"), ("old", "workspace"), ("./done", "workspace")):
        source = parse_source(text, tmp_path)
        assert source.kind == kind
        assert source.location == str((tmp_path / text).resolve())
        assert parse_source(str(tmp_path / text), Path("/")).location == source.location


def test_a_file_is_a_file_whatever_its_name(tmp_path: Path) -> None:
    """A file with a colon in its name, where there is one, is that file."""
    (tmp_path / "a:b.pt2").write_bytes(b"")
    assert parse_source("a:b.pt2", tmp_path).kind == "pt2"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("", "module:factory"),
        ("tagger", "tagger:FACTORY"),
        ("my.models", "my.models:FACTORY"),
        ("tagger.py:make", "tagger:make"),
        ("a:b:c", "module:factory"),
        ("a b:c", "module:factory"),
        ("a:b()", "module:factory"),
        ("1a:b", "module:factory"),
        ("https://x.example/m:f", ""),
    ],
)
def test_what_is_no_source_is_refused_with_advice(text: str, hint: str, tmp_path: Path) -> None:
    with pytest.raises(ConvertError) as error:
        parse_source(text, tmp_path)
    assert error.value.code in ("EDGE-CONVERT-001", "EDGE-CONVERT-002")
    assert repr(text) in error.value.message
    assert hint in error.value.hint


@pytest.mark.parametrize("text", ["no/such/folder", "gone.pt2", "gone.onnx", "./x", "gone.pth"])
def test_a_missing_file_says_where_it_was_looked_for(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConvertError) as error:
        parse_source(text, tmp_path)
    assert error.value.code == "EDGE-CONVERT-002"
    assert str(tmp_path) in error.value.hint


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("w.pth", "factory"),
        ("w.safetensors", "factory"),
        ("t.edge", "predict"),
        ("m.py", "module:factory"),
        ("m.h5", ".pt2"),
    ],
)
def test_files_of_other_kinds_say_what_to_do(name: str, hint: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(ConvertError) as error:
        parse_source(name, tmp_path)
    assert error.value.code == "EDGE-CONVERT-001"
    assert hint in error.value.hint


def test_model_folders_and_onnx_files_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"")
    for name, file in (("bert", "config.json"), ("sentences", "modules.json")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text("{}")
    kinds = {"model.onnx": "onnx", "bert": "huggingface", "sentences": "huggingface"}
    for text, kind in kinds.items():
        assert parse_source(text, tmp_path).kind == kind
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConvertError) as error:
        parse_source("empty", tmp_path)
    assert error.value.code == "EDGE-CONVERT-001"


def test_the_name_of_a_model_on_the_hub_is_no_source(tmp_path: Path) -> None:
    """Nothing is downloaded, and the error says how to do it."""
    with pytest.raises(ConvertError) as error:
        parse_source("sentence-transformers/all-MiniLM-L6-v2", tmp_path)
    assert error.value.code == "EDGE-CONVERT-002"
    assert "hf download sentence-transformers/all-MiniLM-L6-v2" in error.value.hint


def test_a_linked_file_keeps_its_name(tmp_path: Path) -> None:
    """Its data are named relative to where the link lies, as in the hub's cache."""
    (tmp_path / "blob").write_bytes(b"")
    (tmp_path / "model.onnx").symlink_to("blob")
    source = parse_source("model.onnx", tmp_path)
    assert (source.kind, source.location) == ("onnx", str(tmp_path.resolve() / "model.onnx"))
