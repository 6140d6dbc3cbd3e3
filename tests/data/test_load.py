"""Folders, ``data.jsonl`` and COCO json, written as users write them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from edgeserve.data import Reader, load_data, scan
from edgeserve.data.media import natural_key
from edgeserve.errors import DataError


def picture(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (2, 2), (200, 0, 0)).save(path)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for name in ("img10.png", "img2.png", "IMG1.jpg", "sub/b.webp"):
        picture(tmp_path / name)
    return tmp_path


def refused(code: str, *words: str) -> Any:
    """The coded error, whose message names each of ``words``."""

    def says(error: BaseException) -> bool:
        return getattr(error, "code", "") == code and all(w in str(error) for w in words)

    return pytest.RaisesExc(DataError, check=says)


def test_a_folder_in_natural_order(photos: Path) -> None:
    found = scan(photos)
    assert found.kind == "folder"
    assert [s.id for s in found.samples] == ["IMG1.jpg", "img2.png", "img10.png", "sub/b.webp"]
    assert all(s.group == s.id and s.label is None for s in found.samples)
    assert found.samples[1].path == str(photos / "img2.png")


def test_clutter_is_silent_and_other_files_are_reported(photos: Path) -> None:
    for name in (".DS_Store", "Thumbs.db", ".git/x.png", "__MACOSX/img2.png"):
        (photos / name).parent.mkdir(exist_ok=True)
        (photos / name).write_bytes(b"x")
    for name in ("notes.txt", "movie.mp4", "sub/script.py"):
        (photos / name).write_bytes(b"x")
    found = scan(photos)
    assert len(found.samples) == 4
    assert found.skipped == ("movie.mp4", "notes.txt", "sub/script.py")


def test_a_name_that_is_no_text_is_refused(photos: Path) -> None:
    picture(photos / os.fsdecode(b"caf\xe9.png"))
    with refused("EDGE-DATA-022", "caf"):
        load_data(photos, None)


def test_class_folders_are_labels(tmp_path: Path) -> None:
    for name in ("dog/1.png", "cat/2.png", "cat/deep/3.png"):
        picture(tmp_path / name)
    found = scan(tmp_path)
    assert found.kind == "classes"
    assert [(s.id, s.label) for s in found.samples] == [
        ("cat/2.png", "cat"),
        ("cat/deep/3.png", "cat"),
        ("dog/1.png", "dog"),
    ]


def test_a_folder_of_texts(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\ufeffgrüezi", encoding="utf-8")
    (sample,) = load_data(tmp_path)
    with Reader() as reader:
        assert reader.read(sample) == "grüezi"


@pytest.mark.parametrize("clutter", [[], ["a.csv"], [".hidden.png"]])
def test_a_folder_without_media(tmp_path: Path, clutter: list[str]) -> None:
    for name in clutter:
        (tmp_path / name).write_bytes(b"x")
    with refused("EDGE-DATA-006", tmp_path.name):
        load_data(tmp_path)


def test_empty_and_broken_files_are_named(photos: Path) -> None:
    (photos / "sub/empty.png").write_bytes(b"")
    with refused("EDGE-DATA-004", "sub/empty.png"):
        load_data(photos)
    os.replace(photos / "img2.png", photos / "sub/empty.png")
    (photos / "link.png").symlink_to("nowhere.png")
    with refused("EDGE-DATA-003", "link.png", "a broken link"):
        load_data(photos)


def test_a_folder_loop_ends(photos: Path) -> None:
    (photos / "sub/again").symlink_to(photos, target_is_directory=True)
    assert len(load_data(photos)) == 4


def test_unreadable(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: Path(path).name != "img2.png" and allowed(path, mode)
    )
    with refused("EDGE-DATA-005", "img2.png"):
        load_data(photos)


def test_nothing_there_and_unknown_forms(photos: Path) -> None:
    with refused("EDGE-DATA-001", "gone"):
        load_data(photos / "gone")
    with refused("EDGE-DATA-002", "'.png'"):
        load_data(photos / "img2.png")


Table = Callable[..., Path]


@pytest.fixture
def table(photos: Path) -> Table:
    """Write a ``data.jsonl`` of the given lines (objects, or text as it is)."""

    def write(*lines: Any, name: str = "data.jsonl") -> Path:
        text = "".join(f"{x if isinstance(x, str) else json.dumps(x)}\n" for x in lines)
        (photos / name).write_text(text, encoding="utf-8")
        return photos / name

    return write


def test_a_table(table: Table, tmp_path: Path) -> None:
    path = table(
        {"input": "img10.png", "label": "cat", "group": "p1"},
        {"input": str(tmp_path / "img2.png"), "label": 3, "group": 7},
        "",
        {"input": "a text, not a path"},
        {"input": "x" * 5000},
        {"input": "sub/../IMG1.jpg"},
    )
    found = scan(path)
    assert found.kind == "jsonl"
    first, second, text, long, last = found.samples
    assert (first.id, first.label, first.group) == ("img10.png", "cat", "p1")
    assert (second.path, second.label, second.group) == (str(tmp_path / "img2.png"), "3", "7")
    assert (text.id, text.group, text.text) == ("line 4", "line 4", "a text, not a path")
    assert long.text == "x" * 5000
    assert last.path == str(tmp_path / "IMG1.jpg")


def test_a_folder_with_a_table_is_that_table(table: Table, photos: Path) -> None:
    """Otherwise naming the folder would lose the groups, and every bound would be too tight."""
    table({"input": "img2.png", "group": "one"}, {"input": "img10.png", "group": "one"})
    assert {s.group for s in load_data(photos)} == {"one"}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"input": "img2.png"', ()),
        ('["img2.png"]', ()),
        ('{"label": "cat"}', ("input",)),
        ('{"input": 3}', ("input",)),
        ('{"input": "img2.png", "groups": "a"}', ("groups",)),
        ('{"input": "  "}', ("empty",)),
    ],
)
def test_bad_lines_are_named(table: Table, line: str, words: tuple[str, ...]) -> None:
    with refused("EDGE-DATA-007", "data.jsonl line 2", *words):
        load_data(table({"input": "img10.png"}, line))


def test_a_line_that_is_not_utf8(photos: Path) -> None:
    (photos / "d.jsonl").write_bytes(b'{"input": "a text"}\n{"input": "caf\xe9"}\n')
    with refused("EDGE-DATA-007", "d.jsonl line 2"):
        load_data(photos / "d.jsonl")


def test_missing_files_are_not_taken_for_texts(table: Table) -> None:
    for name in ("my photo.png", "sub/none.jpg"):
        with refused("EDGE-DATA-003", "data.jsonl line 2", name):
            load_data(table({"input": "img2.png"}, {"input": name}))


def test_the_medium_says_what_a_line_is(table: Table, tmp_path: Path) -> None:
    """What ends like a file is a sentence to a text model, and a lost photo to others."""
    picture(tmp_path / "note.png")
    (tmp_path / "note.txt").write_text("what stands in it")
    (tmp_path / "photo").write_bytes(b"a file without a suffix")
    lines = ["Look at cat.jpg", "note.png", "note.txt", "photo", "a.txt is gone.txt"]
    path = table(*(json.dumps({"input": line}) for line in lines))
    texts = scan(path, medium="text").samples
    assert [s.text for s in texts] == ["Look at cat.jpg", "note.png", None, "photo", lines[4]]
    assert [s.id for s in texts] == ["line 1", "line 2", "note.txt", "line 4", "line 5"]
    with Reader() as reader:
        assert reader.read(texts[2]) == "what stands in it"
    with refused("EDGE-DATA-003", "line 1", "cat.jpg"):
        scan(path, medium="image")
    named = table(*(json.dumps({"input": line}) for line in ("note.png", "photo")))
    assert [s.id for s in scan(named, medium="image").samples] == ["note.png", "photo"]
    with refused("EDGE-DATA-003", "line 1"):
        scan(table('{"input": "no such file at all"}'), medium="image")
    (sample,) = scan(table('{"input": "no such file at all"}'), medium=None).samples
    assert sample.text == "no such file at all"


def test_an_input_counts_once(table: Table) -> None:
    with refused("EDGE-DATA-008", "line 3", "line 1"):
        load_data(table({"input": "img2.png"}, {"input": "a"}, {"input": "sub/../img2.png"}))


def test_an_empty_table(table: Table) -> None:
    with refused("EDGE-DATA-006"):
        load_data(table("", "  "))


def coco(folder: Path, **changes: Any) -> Path:
    data = {
        "images": [
            {"id": 1, "file_name": "img2.png"},
            {"id": 2, "file_name": "img10.png"},
            {"id": 3, "file_name": "sub/b.webp"},
        ],
        "categories": [{"id": 7, "name": "cat"}, {"id": 8, "name": "dog"}],
        "annotations": [
            {"id": 1, "image_id": 1, "category_id": 7, "bbox": [0, 0, 1, 1]},
            {"id": 2, "image_id": 1, "category_id": 7, "bbox": [1, 1, 1, 1]},
            {"id": 3, "image_id": 2, "category_id": 7, "bbox": [0, 0, 1, 1]},
            {"id": 4, "image_id": 2, "category_id": 8, "bbox": [0, 0, 1, 1]},
        ],
        "licenses": [],
    }
    (folder / "instances.json").write_text(json.dumps(data | changes))
    return folder / "instances.json"


def test_coco(photos: Path) -> None:
    found = scan(coco(photos))
    assert found.kind == "coco"
    assert [(s.id, s.label, s.group) for s in found.samples] == [
        ("img2.png", "cat", "img2.png"),
        ("img10.png", None, "img10.png"),
        ("sub/b.webp", None, "sub/b.webp"),
    ]


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"images": 3}, "images"),
        ({"images": [{"id": 1, "file_name": "img2.png"}] * 2}, "same id"),
        ({"annotations": [{"image_id": 9, "category_id": 7}]}, "unknown image 9"),
        ({"annotations": [{"image_id": 1, "category_id": 9}]}, "unknown class 9"),
    ],
)
def test_bad_coco(photos: Path, changes: dict[str, Any], word: str) -> None:
    with refused("EDGE-DATA-009", word):
        load_data(coco(photos, **changes))


def test_coco_files(photos: Path) -> None:
    with refused("EDGE-DATA-003", "images[0]", "none.png"):
        load_data(coco(photos, images=[{"id": 1, "file_name": "none.png"}], annotations=[]))
    twice = [{"id": 1, "file_name": "img2.png"}, {"id": 2, "file_name": "./img2.png"}]
    with refused("EDGE-DATA-008", "images[1]", "images[0]"):
        load_data(coco(photos, images=twice, annotations=[]))
    with refused("EDGE-DATA-006"):
        load_data(coco(photos, images=[], annotations=[]))


def test_a_sample_that_went_away(photos: Path) -> None:
    samples = load_data(photos)
    (photos / "img2.png").unlink()
    with Reader() as reader, refused("EDGE-DATA-017", "img2.png"):
        reader.read(samples[1])


@given(st.lists(st.text("a1029_.", max_size=6), unique=True))
def test_natural_order_is_total(names: list[str]) -> None:
    ordered = sorted(names, key=natural_key)
    assert sorted(reversed(ordered), key=natural_key) == ordered


@given(st.lists(st.integers(0, 10**6), unique=True))
def test_natural_order_is_numeric(numbers: list[int]) -> None:
    names = sorted((f"img{n}.png" for n in numbers), key=natural_key)
    assert names == [f"img{n}.png" for n in sorted(numbers)]
