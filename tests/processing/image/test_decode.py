"""decode/1: every kind of raw input, every Pillow mode, and files that mean harm."""

from __future__ import annotations

import io
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from edgeserve.errors import InputError
from edgeserve.processing.steps.decode import Decode, decode, exif_orientation

CarryOut = Callable[..., np.ndarray]

PHOTO = (np.indices((19, 23, 3)).sum(0) * 7 % 256).astype(np.uint8)


def encoded(image: Image.Image, form: str = "PNG", **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, form, **options)
    return out.getvalue()


def code_of(carry_out: CarryOut, raw: Any, **options: Any) -> str:
    with pytest.raises(InputError) as refused:
        carry_out(raw, **options)
    return refused.value.code


def test_every_kind_of_raw_input_is_the_same_picture(carry_out: CarryOut, tmp_path: Path) -> None:
    image = Image.fromarray(PHOTO)
    data = encoded(image)
    path = tmp_path / "photo.bin"  # the name says nothing about the format
    path.write_bytes(data)
    strided = np.repeat(PHOTO, 2, axis=1)[:, ::2]
    opened = Image.open(io.BytesIO(data))
    backwards = memoryview(bytearray(data[::-1]))[::-1]
    with open(path, "rb") as file, open(path, "rb", buffering=0) as bare:
        contents = [data, bytearray(data), memoryview(data), backwards]
        files = [path, str(path), io.BytesIO(data), file, bare]
        pictures = [image, opened, PHOTO, strided, PHOTO[::-1][::-1]]
        for raw in (*contents, *files, *pictures):
            assert np.array_equal(carry_out(raw), PHOTO)


MODES = ["1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK"]


@pytest.mark.parametrize("mode", MODES)
def test_modes_are_pillows_own_conversion(carry_out: CarryOut, mode: str) -> None:
    alpha = Image.fromarray(np.dstack([PHOTO, PHOTO[..., 0]]))
    image = {
        "PA": lambda: alpha.convert("RGB").convert("PA"),
        "P": lambda: alpha.convert("RGB").convert("P"),
        "La": lambda: alpha.convert("LA").convert("La"),
    }.get(mode, lambda: alpha.convert(mode))()
    assert image.mode == mode
    before = image.copy()
    result = carry_out(image, decode=Decode(background=(9, 90, 200)))
    straight = image.convert("LA").convert("RGBA") if mode == "La" else image.convert("RGBA")
    canvas = Image.new("RGBA", image.size, (9, 90, 200, 255))
    # Pillow's compositing carries more bits than our rule: one level apart at most.
    wanted = np.asarray(Image.alpha_composite(canvas, straight).convert("RGB"))
    assert np.abs(result.astype(int) - wanted).max() <= 1
    if image.mode in ("1", "L", "P", "PA", "RGB", "RGBX", "CMYK"):
        assert np.array_equal(result, np.asarray(image.convert("RGB")))
    if mode in ("LA", "RGBA"):  # and exactly what pasting with a mask gives
        pasted = Image.new("RGB", image.size, (9, 90, 200))
        pasted.paste(image.convert("RGB"), mask=image.getchannel("A"))
        assert np.array_equal(result, np.asarray(pasted))
    assert image == before
    assert image.info == before.info


@pytest.mark.parametrize("clear", [3, bytes(range(0, 256, 4))])
def test_a_callers_palette_stays_as_it_was(carry_out: CarryOut, clear: int | bytes) -> None:
    image = Image.fromarray(PHOTO).quantize(64)
    image.info["transparency"] = clear
    palette = image.im.getpalette("RGBA", "RGBA")
    result = carry_out(image)
    assert image.im.getpalette("RGBA", "RGBA") == palette
    layers = image.convert("RGBA")
    pasted = Image.new("RGB", image.size, "white")
    pasted.paste(layers, mask=layers)
    assert np.array_equal(result, np.asarray(pasted))


@pytest.mark.parametrize("mode", ["I", "F", "LAB", "HSV", "YCbCr"])
def test_modes_without_an_agreed_meaning(carry_out: CarryOut, mode: str) -> None:
    assert code_of(carry_out, Image.new(mode, (3, 2))) == "EDGE-INPUT-005"


@pytest.mark.parametrize("mode", ["I;16", "I;16B", "I;16L"])
def test_sixteen_bits_keep_their_high_byte(carry_out: CarryOut, mode: str) -> None:
    levels = np.linspace(0, 65_535, 77, dtype=np.uint16).reshape(7, 11)
    raw = levels.astype(">u2" if mode == "I;16B" else "<u2").tobytes()
    image = Image.frombytes(mode, (11, 7), raw)
    assert np.array_equal(carry_out(image)[..., 1], levels // 256)


@pytest.mark.parametrize("value", range(1, 9))
@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_orientation_is_pillows(carry_out: CarryOut, form: str, value: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = value
    data = encoded(Image.fromarray(PHOTO), form, exif=exif)
    wanted = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    assert wanted is not None
    assert np.array_equal(carry_out(data), np.asarray(wanted))
    assert np.array_equal(carry_out(Image.open(io.BytesIO(data))), np.asarray(wanted))
    assert np.array_equal(carry_out(wanted), np.asarray(wanted))  # not turned a second time


def test_png_keeps_exif_as_text_too(carry_out: CarryOut) -> None:
    from PIL.PngImagePlugin import PngInfo

    block = b"MM\0*\0\0\0\x08\0\1\x01\x12\0\3\0\0\0\1\0\6\0\0"
    info = PngInfo()
    info.add_text("Raw profile type exif", f"\nexif\n{len(block):8}\n{block.hex()}\n")
    data = encoded(Image.fromarray(PHOTO), pnginfo=info)
    assert np.array_equal(carry_out(data), np.rot90(PHOTO, -1))
    broken = PngInfo()
    broken.add_text("Raw profile type exif", "\nexif\n       9\nnot hexadecimal\n")
    assert np.array_equal(carry_out(encoded(Image.fromarray(PHOTO), pnginfo=broken)), PHOTO)


@given(st.binary(max_size=80) | st.binary(max_size=60).map(lambda tail: b"II*\0\x08\0\0\0" + tail))
def test_any_exif_block_is_read_without_harm(block: bytes) -> None:
    value = exif_orientation(block)
    assert value is None or 0 <= value < 2**32


ARRAYS = {
    "grey": (np.zeros((4, 5), np.uint8), "repeat grey"),
    "alpha": (np.zeros((4, 5, 4), np.uint8), "transparency"),
    "channels first": (np.zeros((3, 4, 5), np.uint8), "channels last"),
    "float": (np.zeros((4, 5, 3), np.float32), "astype"),
    "int64": (np.zeros((4, 5, 3), np.int64), "astype"),
    "batch": (np.zeros((2, 4, 5, 3), np.uint8), "list of arrays"),
    "scalar": (np.zeros((), np.uint8), "channels last"),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_that_are_no_picture(carry_out: CarryOut, name: str) -> None:
    array, hint = ARRAYS[name]
    with pytest.raises(InputError, match="wanted uint8 of shape") as refused:
        carry_out(array)
    assert refused.value.code == "EDGE-INPUT-006"
    assert hint in refused.value.hint
    assert str(array.dtype) in refused.value.got


def test_pictures_without_pixels(carry_out: CarryOut) -> None:
    assert code_of(carry_out, np.zeros((0, 5, 3), np.uint8)) == "EDGE-INPUT-003"
    assert code_of(carry_out, Image.new("RGB", (0, 3))) == "EDGE-INPUT-003"


@pytest.mark.parametrize("raw", [None, 3, [1, 2], object(), io.StringIO("text"), {"x": PHOTO}])
def test_other_things_are_no_raw_input(carry_out: CarryOut, raw: Any) -> None:
    assert code_of(carry_out, raw) == "EDGE-INPUT-007"


def test_paths_that_cannot_be_read(carry_out: CarryOut, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "missing.jpg", tmp_path, tmp_path / "pipe", "nul\0byte", "/dev/zero"):
        assert code_of(carry_out, path) == "EDGE-INPUT-001"


def test_max_pixels_counts_before_decoding(carry_out: CarryOut) -> None:
    fits, small = Decode(max_pixels=19 * 23), Decode(max_pixels=19 * 23 - 1)
    for raw in (encoded(Image.fromarray(PHOTO)), PHOTO, Image.fromarray(PHOTO)):
        assert carry_out(raw, decode=fits).shape == PHOTO.shape
        assert code_of(carry_out, raw, decode=small) == "EDGE-INPUT-004"
    # The header alone is enough to refuse: no pixels follow it.
    data = encoded(Image.new("1", (6000, 6000)))
    assert code_of(carry_out, data[:60], decode=Decode(max_pixels=10**6)) == "EDGE-INPUT-004"


@pytest.mark.parametrize(("side", "code"), [(9_600, 9), (20_000, 4), (2**31 - 1, 4)])
def test_pillows_own_limits(carry_out: CarryOut, side: int, code: int) -> None:
    # Pillow warns about 9600 squared (an error here), which refuses nothing: what it would cost
    # does. It refuses 20000 squared by itself.
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", 13) + b"IHDR" + header
    chunk += struct.pack(">I", zlib.crc32(b"IHDR" + header))
    data = b"\x89PNG\r\n\x1a\n" + chunk + struct.pack(">I", 4) + b"IDAT" + bytes(8)
    assert code_of(carry_out, data, decode=Decode(max_pixels=2**62)) == f"EDGE-INPUT-00{code}"


def test_broken_exif_never_stops_a_picture(carry_out: CarryOut) -> None:
    data = encoded(Image.fromarray(PHOTO), "JPEG", exif=b"Exif\0\0II*\0\x08\0\0\0\0\0")
    with pytest.warns(UserWarning, match="Corrupt EXIF"):  # an error where nobody expects it
        wanted = Image.open(io.BytesIO(data)).convert("RGB")
    assert np.array_equal(carry_out(data), np.asarray(wanted))


FORMS: dict[str, dict[str, Any]] = {
    "PNG": {},
    "JPEG": {"exif": b"Exif\0\0II*\0\x08\0\0\0\0\0"},
    "GIF": {},
    "BMP": {},
    "TIFF": {"compression": "tiff_lzw"},
    "WEBP": {"lossless": True},
}


def outcome(carry_out: CarryOut, data: bytes) -> np.ndarray | str:
    """The pixels, or the code of the error; anything else that is raised fails the test."""
    try:
        return carry_out(data, decode=Decode(max_pixels=10**6))
    except InputError as error:
        return error.code


@pytest.mark.parametrize("form", FORMS)
def test_cut_off_anywhere_it_is_a_coded_error(carry_out: CarryOut, form: str) -> None:
    data = encoded(Image.fromarray(PHOTO), form, **FORMS[form])
    whole = carry_out(data)
    ends = range(0, len(data), max(1, len(data) // 150))
    results = [outcome(carry_out, data[:end]) for end in ends]
    codes = {result for result in results if isinstance(result, str)}
    assert codes <= {"EDGE-INPUT-002", "EDGE-INPUT-003"}
    # Only a cut behind the last pixel may pass, and then nothing is missing.
    survivors = [result for result in results if not isinstance(result, str)]
    assert all(np.array_equal(survivor, whole) for survivor in survivors)
    assert len(survivors) <= 20  # PNG: two checksums and the end chunk


@settings(deadline=None, max_examples=250)
@given(
    form=st.sampled_from(sorted(FORMS)),
    at=st.floats(0, 1, exclude_max=True),
    bit=st.integers(0, 7),
    length=st.integers(1, 30),
)
def test_any_damage_gives_pixels_or_a_coded_error(
    carry_out: CarryOut, form: str, at: float, bit: int, length: int
) -> None:
    data = bytearray(encoded(Image.fromarray(PHOTO), form, **FORMS[form]))
    start = int(at * len(data))
    for index in range(start, min(start + length, len(data))):
        data[index] ^= 1 << bit
    result = outcome(carry_out, bytes(data))
    if isinstance(result, str):
        assert result in {f"EDGE-INPUT-00{n}" for n in (2, 3, 4, 5)}
    else:
        assert result.dtype == np.uint8
        assert result.shape[2] == 3


@given(st.binary(max_size=300))
def test_any_bytes_give_a_coded_error(data: bytes) -> None:
    with pytest.raises(InputError):
        decode(Decode(), data)


def test_the_message_names_what_came(carry_out: CarryOut) -> None:
    for data, words in {b"": "no bytes", b"\0\0\0 ftypavif": "AVIF", b"%PDF-1": "PDF"}.items():
        with pytest.raises(InputError, match=words):
            carry_out(data)
    with pytest.raises(InputError, match="48 65 6c 6c 6f") as refused:
        carry_out(b"Hello")
    assert "JPEG, PNG, WEBP, GIF, BMP or TIFF" in refused.value.wanted
