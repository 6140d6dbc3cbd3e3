"""Thumbnails hold pixels and nothing else, and hostile files hold up nothing."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edgeserve.report.thumbnails import Thumbnails


def opened(uri: str | None) -> Image.Image:
    assert uri is not None
    head, _, data = uri.partition(",")
    assert head == "data:image/jpeg;base64"
    return Image.open(io.BytesIO(base64.b64decode(data)))


@pytest.fixture
def thumbs(tmp_path: Path) -> Thumbnails:
    (tmp_path / "OUT").mkdir()
    return Thumbnails(tmp_path / "OUT")


def test_place_and_camera_do_not_reach_the_report(thumbs: Thumbnails, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x010F] = "SecretCamera"
    exif.get_ifd(0x8825).update({1: "N", 2: (52.0, 31.0, 12.0)})
    path = tmp_path / "x.jpg"
    Image.new("RGB", (640, 480), "red").save(path, exif=exif, comment=b"SecretComment")
    assert b"SecretCamera" in path.read_bytes()
    uri = thumbs(str(path))
    picture = opened(uri)
    assert len(picture.getexif()) == 0
    assert b"Secret" not in base64.b64decode((uri or "").partition(",")[2])
    assert picture.size == (288, 216)


def test_a_photo_taken_sideways_stands_upright(thumbs: Thumbnails, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turn 90 degrees clockwise to see it upright
    stored = Image.new("RGB", (400, 200), "blue")
    stored.paste((255, 0, 0), (0, 0, 200, 200))  # left half red: upright, that is the top
    stored.save(tmp_path / "x.jpg", exif=exif, quality=95)
    upright = opened(thumbs(str(tmp_path / "x.jpg")))
    assert upright.size == (144, 288)
    assert thumbs.size(str(tmp_path / "x.jpg")) == (200, 400)
    red, _, blue = upright.getpixel((72, 20))
    assert red > 200
    assert blue < 60


def test_transparent_parts_are_white_and_16_bit_is_not_black(
    thumbs: Thumbnails, tmp_path: Path
) -> None:
    Image.new("RGBA", (40, 40), (0, 0, 0, 0)).save(tmp_path / "t.png")
    assert min(opened(thumbs(str(tmp_path / "t.png"))).getpixel((20, 20))) > 250
    ramp = np.tile(np.linspace(0, 65_535, 64).astype(np.uint16), (64, 1))
    Image.fromarray(ramp).save(tmp_path / "r.png")
    grey = np.asarray(opened(thumbs(str(tmp_path / "r.png"))))[32, :, 0].astype(int)
    assert grey[0] < 10
    assert grey[-1] > 245
    assert 110 < grey[32] < 146


@pytest.mark.parametrize("mode", ["L", "P", "CMYK", "1", "LA"])
def test_every_common_mode_becomes_a_picture(mode: str, thumbs: Thumbnails, tmp_path: Path) -> None:
    path = tmp_path / ("x.jpg" if mode == "CMYK" else "x.png")
    Image.new("RGB", (30, 20), "green").convert(mode).save(path)
    assert opened(thumbs(str(path))).mode == "RGB"


def test_small_pictures_are_not_blown_up(thumbs: Thumbnails, tmp_path: Path) -> None:
    Image.new("RGB", (3, 1)).save(tmp_path / "s.png")
    assert opened(thumbs(str(tmp_path / "s.png"))).size == (3, 1)


@pytest.mark.parametrize("content", [b"", b"no picture", b"\x89PNG\r\n\x1a\n" + b"\0" * 64])
def test_what_is_no_picture_is_left_out(content: bytes, thumbs: Thumbnails, tmp_path: Path) -> None:
    (tmp_path / "x.png").write_bytes(content)
    assert thumbs(str(tmp_path / "x.png")) is None
    assert thumbs.refused == 1


def test_a_format_that_needs_a_second_program_is_not_opened(
    thumbs: Thumbnails, tmp_path: Path
) -> None:
    Image.new("RGB", (10, 10)).save(tmp_path / "x.eps")
    assert thumbs(str(tmp_path / "x.eps")) is None


@pytest.mark.parametrize("path", [None, "", "missing.png", "\0", "../x.png", "a/../../x.png", "."])
def test_paths_that_lead_nowhere_or_out(
    path: str | None, thumbs: Thumbnails, tmp_path: Path
) -> None:
    Image.new("RGB", (10, 10)).save(tmp_path / "x.png")
    assert thumbs(path) is None


def test_a_link_out_of_the_workspace_is_not_followed(thumbs: Thumbnails, tmp_path: Path) -> None:
    Image.new("RGB", (10, 10)).save(tmp_path / "x.png")
    (tmp_path / "OUT" / "link.png").symlink_to(tmp_path / "x.png")
    assert thumbs("link.png") is None


def test_pictures_of_the_workspace_are_found_by_relative_path(
    thumbs: Thumbnails, tmp_path: Path
) -> None:
    Image.new("RGB", (10, 10)).save(tmp_path / "OUT" / "x.png")
    assert opened(thumbs("x.png")).size == (10, 10)


def test_the_budget_holds_and_a_picture_counts_once(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in "ab":
        noise = rng.integers(0, 256, (288, 288, 3), np.uint8)
        Image.fromarray(noise).save(tmp_path / f"{name}.png")
    whole = len(Thumbnails(tmp_path)("a.png") or "")
    thumbs = Thumbnails(tmp_path, budget=int(1.5 * whole))
    assert thumbs("a.png") == thumbs("a.png") is not None
    assert thumbs("b.png") is None
    assert thumbs.left == int(1.5 * whole) - whole
