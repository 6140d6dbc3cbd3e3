"""Pictures whose headers tell that they cost too much, and what those cost that are taken.

Headers are written by hand. Costs are measured by the system, in a process of their own.
"""

from __future__ import annotations

import io
import struct
import subprocess
import sys
import textwrap
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from edgeserve.errors import InputError
from edgeserve.processing import Processor
from edgeserve.processing.image.plan import scans
from edgeserve.processing.steps.decode import Decode
from edgeserve.processing.steps.resize import Filter, Fit, Resize
from edgeserve.types.processing import InputProcessing, Processing
from edgeserve.types.tensors import Signature, TensorSpec


def processor(fit: Fit = "exact", kernel: Filter = "bilinear") -> Processor:
    """A picture to uint8 [64, 64, 3], or as large as the picture makes it."""
    steps = (Decode(), Resize(height=64, width=64, fit=fit, filter=kernel))
    sides = ("h", "w") if fit == "shortest-edge" else (64, 64)
    signature = Signature(
        inputs=(TensorSpec(name="x", dtype="uint8", shape=("batch", *sides, 3)),),
        outputs=(TensorSpec(name="y", dtype="float32", shape=("batch", 2)),),
        dims={"batch": (1, 4)} | ({"h": (1, 1 << 30), "w": (1, 1 << 30)} if fit[0] == "s" else {}),
    )
    processing = Processing(inputs=(InputProcessing(name="x", steps=steps),))
    return Processor(processing, signature, "tensors")


def chunk(name: bytes, data: bytes = b"") -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(width: int, height: int, bits: int = 8, kind: int = 2, more: bytes = b"") -> bytes:
    """A header, and no pixels behind it."""
    header = struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, 0)
    start = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header)
    palette = chunk(b"PLTE", bytes(768)) if kind == 3 else b""
    return start + palette + more + chunk(b"IDAT", b"\x78\x9c") + chunk(b"IEND")


def bmp(width: int, height: int, bits: int = 24, packing: int = 0, data: int = 0) -> bytes:
    head = struct.pack("<IiiHHIIiiII", 40, width, height, 1, bits, packing, data, 0, 0, 0, 0)
    palette = bytes(1024) if bits == 8 else b""
    size = 14 + len(head) + len(palette)
    return b"BM" + struct.pack("<IHHI", size + data, 0, 0, size) + head + palette + bytes(data)


def tiff(width: int, height: int, strips: int = 1, order: str = "<") -> bytes:
    """RGB, and strips that lie nowhere."""
    place = 8 + 2 + 12 * 9 + 4
    tags = {256: width, 257: height, 258: 8, 259: 1, 262: 2, 277: 3, 278: -(-height // strips)}
    entries = [(tag, 4, 1, value) for tag, value in tags.items()]
    entries += [(tag, 4, strips, place if strips > 1 else 8) for tag in (273, 279)]
    listed = b"".join(struct.pack(f"{order}HHII", *entry) for entry in sorted(entries))
    start = b"II*\0" if order == "<" else b"MM\0*"
    return start + struct.pack(f"{order}IH", 8, 9) + listed + bytes(4 + 4 * strips)


def encoded(image: Image.Image, format: str, **how: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, format, **how)
    return out.getvalue()


def sized_jpeg(width: int, height: int, **how: Any) -> bytes:
    """A JPEG whose header tells of another size than its pixels have."""
    data = encoded(Image.new("RGB", (16, 16), (9, 99, 200)), "JPEG", **how)
    frame = data.index(b"\xff\xc2" if how.get("progressive") else b"\xff\xc0")
    return data[: frame + 5] + struct.pack(">HH", height, width) + data[frame + 9 :]


TURNED = Image.Exif()
TURNED[0x0112] = 6
MILLION = 1_000_000
#: More than 240 MiB or a second by the plan.
REFUSED: dict[str, Callable[[], bytes]] = {
    "a column": lambda: png(1, 13 * MILLION),
    "a column of bits": lambda: png(1, 178_956_970, 1, 0),
    "a column of alpha": lambda: png(1, 5 * MILLION, 8, 6),
    "a column of palette": lambda: png(1, 7 * MILLION, 8, 3),
    "a narrow picture": lambda: png(9, 5 * MILLION),
    "a row": lambda: png(14 * MILLION, 1),
    "a row of bits": lambda: png(100 * MILLION, 1, 1, 0),
    "two rows": lambda: png(15 * MILLION, 2),
    "13,000 x 13,700 bits": lambda: png(13_000, 13_700, 1, 0),
    "64 million pixels": lambda: png(8_000, 8_000),
    "36 million greys": lambda: png(6_000, 6_000, 8, 0),
    "25 million greys of 16 bits": lambda: png(5_000, 5_000, 16, 0),
    "25 million with alpha": lambda: png(5_000, 5_000, 8, 6),
    "25 million of a palette with alphas": lambda: png(5_000, 5_000, 8, 3, chunk(b"tRNS", b"\0")),
    "40 million, turned behind the pixels": lambda: png(8_000, 5_000) + chunk(b"eXIf", b"x"),
    "a BMP in a column": lambda: bmp(1, 13 * MILLION),
    "a BMP in a row": lambda: bmp(14 * MILLION, 1),
    "a BMP of greys": lambda: bmp(6_000, 6_000, 8),
    "a BMP of run lengths": lambda: bmp(2_000, 2_000, 8, 1, 2 << 20),
    "a TIFF in a column": lambda: tiff(1, 7 * MILLION),
    "a TIFF in a row": lambda: tiff(14 * MILLION, 1),
    "a TIFF": lambda: tiff(6_000, 6_000),
    "a TIFF of many strips": lambda: tiff(1, 70_000, 70_000),
    "a TIFF of many strips, big-endian": lambda: tiff(1, 70_000, 70_000, ">"),
    "a JPEG of 65 million pixels": lambda: sized_jpeg(65_000, 1_000),
    "a JPEG that is turned": lambda: sized_jpeg(8_000, 4_500, exif=TURNED),
    "a JPEG of several scans": lambda: sized_jpeg(5_500, 5_000, progressive=True),
    "a JPEG of many scans": lambda: many_scans(2_000, 300),
    "a JPEG of many blocks": lambda: b"\xff\xd8" + b"\xff\xe5\0\2" * 70_000 + sized_jpeg(9, 9)[2:],
    "a PNG of many blocks": lambda: png(9, 9, more=chunk(b"abCd") * 70_000),
}


def many_scans(side: int, count: int) -> bytes:
    data = encoded(Image.new("RGB", (side, side)), "JPEG", progressive=True)
    last = data.rindex(b"\xff\xda")
    return data[:-2] + data[last:-2] * count + data[-2:]


@pytest.mark.parametrize("name", REFUSED)
def test_what_costs_too_much_is_refused_from_its_header(name: str) -> None:
    data, make = REFUSED[name](), processor()
    began = time.process_time()
    with pytest.raises(InputError) as error:
        make.prepare(data)
    assert error.value.code == "EDGE-INPUT-009", error.value
    assert time.process_time() - began < 0.5


def test_filters_and_sizes_count() -> None:
    """The same picture is within bounds, or not: by the coefficients, by what it is made."""
    row = Image.new("RGB", (5 * MILLION, 1))
    assert processor(kernel="nearest").prepare(row)["x"].shape == (64, 64, 3)
    processor("letterbox").prepare(row)
    wide = np.zeros((1, 20_000, 3), np.uint8)
    refused: list[tuple[Fit, Filter, Any, int]] = [
        ("exact", "lanczos", row, 9),
        ("shortest-edge", "bilinear", row, 8),
        ("shortest-edge", "bilinear", wide, 9),
    ]
    for fit, kernel, raw, code in refused:
        with pytest.raises(InputError) as error:
            processor(fit, kernel).prepare(raw)
        assert error.value.code == f"EDGE-INPUT-00{code}"


_MEASURE = """
    import sys, time, zlib
    sys.path[:0] = sys.argv[1].split(":")
    from test_plan import Image, chunk, encoded, png, processor

    def full(width, height, bits=8, kind=2, more=b""):
        "A PNG of zeros, with its pixels."
        row = 1 + (width * {0: 1, 2: 3, 3: 1, 6: 4}[kind] * bits + 7) // 8
        bare = png(width, height, bits, kind, more)
        at = bare.index(b"IDAT") - 4
        return bare[:at] + chunk(b"IDAT", zlib.compress(bytes(row * height), 1)) + chunk(b"IEND")

    turned = Image.Exif()
    turned[0x0112] = 6
    blue = lambda w, h: Image.new("RGB", (w, h), (9, 99, 200))
    pictures = {
        "column": full(1, 5_000_000),
        "row of bits": full(11_000_000, 1, 1, 0),
        "alpha": full(4_400, 4_700, 8, 6),
        "turned": encoded(blue(6_300, 4_900), "JPEG", exif=turned),
        "scans": encoded(blue(4_900, 5_000), "JPEG", progressive=True, subsampling=0),
        "webp": encoded(blue(3_900, 3_900), "WEBP", method=0),
    }
    make = processor()
    make.prepare(pictures["webp"][:0] + encoded(blue(9, 9), "PNG"))

    def now(key):
        [line] = [line for line in open("/proc/self/status") if line.startswith(key)]
        return int(line.split()[1]) / 1024

    for name, data in pictures.items():
        open("/proc/self/clear_refs", "w").write("5")
        before, began = now("VmRSS"), time.process_time()
        make.prepare(data)
        print(name, "|", now("VmHWM") - before, "|", time.process_time() - began)
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the system tells no peak")
def test_what_is_taken_costs_little() -> None:
    """Each picture here is close to the limit of its kind."""
    folders = ":".join([str(Path(__file__).parent), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(_MEASURE), folders],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = [line.split("|") for line in done.stdout.splitlines()]
    assert len(found) == 6
    assert {name: float(mb) for name, mb, _ in found if float(mb) > 256} == {}
    assert {name: float(s) for name, _, s in found if float(s) > 1.5} == {}


def test_scans_are_those_of_the_picture_alone() -> None:
    """Pillow writes six scans of progressive greys, and ten of colours."""
    picture = Image.new("RGB", (64, 48))
    plain = encoded(picture, "JPEG")
    exif = b"Exif\0\0" + plain * 3  # as a thumbnail's
    for data, count in (
        (plain, 1),
        (encoded(picture, "JPEG", progressive=True), 10),
        (encoded(picture.convert("L"), "JPEG", progressive=True), 6),
        (encoded(picture, "JPEG", exif=exif), 1),
        (encoded(picture, "JPEG", exif=exif, progressive=True), 10),
        (encoded(picture, "JPEG", restart_marker_blocks=1), 1),
        (many_scans(64, 5), 15),
        (plain[:50], 0),
        (b"", 0),
    ):
        assert scans(data) == count
