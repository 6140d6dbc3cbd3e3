"""Which cases there are: picture, steps, and the error where one is wanted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["CASES", "OUTPUT_CASES"]

Step = dict[str, Any]
Case = tuple[str, str, list[Step], str | None]

FILTERS = ("nearest", "bilinear", "bicubic", "lanczos")


def decode(exif: bool = True, background: tuple[int, ...] = (255, 255, 255), **more: Any) -> Step:
    """decode/1 with every field written out, as a manifest has it."""
    step = {"step": "decode/1", "exif": exif, "background": list(background)}
    return {**step, "max_pixels": 178_956_970, **more}


def resize(height: int, width: int, fit: str = "exact", kernel: str = "bilinear") -> Step:
    """resize/1, the letterbox's borders in a color that shows."""
    step = {"step": "resize/1", "height": height, "width": width, "fit": fit}
    return {**step, "filter": kernel, "fill": [114, 115, 116]}


def crop(height: int, width: int, rounding: str = "floor") -> Step:
    """center_crop/1."""
    return {"step": "center_crop/1", "height": height, "width": width, "rounding": rounding}


def normalize(scale: list[float], bias: list[float]) -> Step:
    """normalize/1."""
    return {"step": "normalize/1", "scale": scale, "bias": bias}


def layout(order: str) -> Step:
    """layout/1."""
    return {"step": "layout/1", "order": order}


def dtype(name: str) -> Step:
    """dtype/1."""
    return {"step": "dtype/1", "dtype": name}


#: The float32 numbers next to 1 / 255 / std and -mean / std of ImageNet.
IMAGENET = normalize(
    [0.01712475344538688, 0.017507003620266914, 0.017429193481802940],
    [-2.1179039478302, -2.0357143878936768, -1.804444432258606],
)
#: (x - 127) / 128.
LITE = normalize([0.0078125] * 3, [-0.9921875] * 3)
#: Products and sums that a fused multiply-add would round differently.
ODD = normalize([0.1, 1 / 3, 0.7], [-12.7, -42.333333333, -89.9])


def _cases() -> Iterator[Case]:
    yield from _decoding()
    yield from _resizing()
    yield from _cropping()
    yield from _tensors()
    yield from _chains()
    yield from _refused()


def _decoding() -> Iterator[Case]:
    names = [
        "pixel.png",
        "row.png",
        "column.png",
        "two.png",
        "small.png",
        "rgb16.png",
        "bmp.bmp",
        *(f"grey{bits}.png" for bits in (1, 2, 4, 8, 16)),
        *(f"grey{bits}-key.png" for bits in (1, 2, 4, 8, 16)),
        *(f"palette{bits}.png" for bits in (1, 2, 4, 8)),
        "palette-alphas.png",
        "palette-one-clear.png",
        "rgb-key.png",
        "alpha.png",
        "alpha16.png",
        "grey-alpha.png",
        "grey-alpha16.png",
        *(f"exif-{value}.png" for value in range(10)),
        "exif-big-endian.png",
        "exif-long.png",
        "exif-byte.png",
        "exif-ascii.png",
        "exif-two-values.png",
        "exif-no-header.png",
        "exif-too-short.png",
        "exif-cut.png",
        "exif-too-many-entries.png",
        "exif-far-directory.png",
        "xmp-6.png",
        "xmp-0.png",
        "exif-1-xmp-6.png",
        "rgb.tiff",
        "oriented.tiff",
        "grey16.tiff",
        "grey16-big-endian.tiff",
        "cmyk.tiff",
        "photo.jpg",
        "subsampled.jpg",
        "progressive.jpg",
        "grey.jpg",
        "cmyk.jpg",
        "exif-6.jpg",
        "rgb.webp",
        "alpha.webp",
        "animated.webp",
        "still.gif",
        "clear.gif",
        "animated.gif",
        "animated.png",
    ]
    for name in names:
        yield f"decode {name}", name, [decode()], None
    for name in ("exif-6.png", "exif-3.png", "xmp-6.png", "oriented.tiff"):
        yield f"decode {name} as stored", name, [decode(exif=False)], None
    for color in ((0, 0, 0), (12, 200, 99)):
        for name in ("alpha.png", "grey-alpha.png", "palette-alphas.png", "rgb-key.png"):
            yield f"decode {name} over {color}", name, [decode(background=color)], None


def _resizing() -> Iterator[Case]:
    targets = {
        "photo.png": [(24, 32), (61, 47), (47, 20), (21, 61), (47, 61), (1, 1), (66, 83)],
        "upright.png": [(17, 31), (20, 40), (14, 20)],
        "checker.png": [(13, 15), (28, 34)],
        "pixel.png": [(1, 1), (5, 3)],
        "row.png": [(1, 13), (7, 11)],
        "column.png": [(10, 1), (11, 6)],
        "wide.png": [(20, 20)],
        "tall.png": [(20, 20)],
        "two.png": [(3, 9)],
    }
    for name, sizes in targets.items():
        for height, width in sizes:
            for kernel in FILTERS:
                what = f"resize {name} exact {height}x{width} {kernel}"
                yield what, name, [decode(), resize(height, width, kernel=kernel)], None
    for fit in ("shortest-edge", "letterbox"):
        for name, height, width in (
            ("photo.png", 24, 24),
            ("upright.png", 19, 33),
            ("square.png", 21, 21),
            ("small.png", 25, 30),
            ("wide.png", 12, 16),
            ("tall.png", 7, 5),
            ("pixel.png", 4, 6),
            ("row.png", 3, 10),
        ):
            for kernel in FILTERS:
                what = f"resize {name} {fit} {height}x{width} {kernel}"
                yield what, name, [decode(), resize(height, width, fit, kernel)], None
    thin = [decode(), resize(2, 40, "letterbox")]
    yield "letterbox keeps one row", "row.png", thin, None
    yield "letterbox of the same size", "photo.png", [decode(), resize(47, 61, "letterbox")], None


def _cropping() -> Iterator[Case]:
    sizes = [(47, 61), (24, 32), (23, 33), (46, 60), (44, 58), (45, 58), (1, 1), (60, 70), (20, 64)]
    for height, width in sizes:
        for rounding in ("floor", "half-even"):
            step = crop(height, width, rounding)
            yield f"crop {height}x{width} {rounding}", "photo.png", [decode(), step], None
    for name in ("pixel.png", "two.png", "row.png"):
        yield f"crop {name} with zeros around", name, [decode(), crop(6, 7)], None
    steps = [decode(), resize(20, 20, "shortest-edge"), crop(15, 15), resize(9, 11), crop(12, 8)]
    yield "resize and crop by turns", "photo.png", steps, None


def _tensors() -> Iterator[Case]:
    named = {"imagenet": IMAGENET, "lite": LITE, "odd": ODD}
    for name, step in named.items():
        for order in ("CHW", "HWC"):
            steps = [decode(), step, layout(order)]
            yield f"normalize {name} {order}", "small.png", steps, None
    yield "normalize without layout", "small.png", [decode(), IMAGENET], None
    yield "layout of levels", "small.png", [decode(), layout("CHW")], None
    for kind in ("float32", "float64", "float16", "int64", "int8", "uint8", "uint16"):
        steps = [decode(), dtype(kind), layout("CHW")]
        yield f"levels to {kind}", "small.png", steps, None
    halves = normalize([0.5] * 3, [-50.0, 0.0, 10.5])
    for kind in ("int8", "uint8", "int32", "int64", "uint64"):
        yield f"halves to {kind}", "small.png", [decode(), halves, dtype(kind)], None
    for kind in ("float16", "float64"):
        yield (
            f"normalized to {kind}",
            "small.png",
            [decode(), ODD, layout("CHW"), dtype(kind)],
            None,
        )
    far = normalize([1000.0] * 3, [-100_000.0] * 3)
    yield "beyond float16", "small.png", [decode(), far, dtype("float16")], None
    wide = normalize([1e17] * 3, [-1.2e19] * 3)
    for kind in ("int64", "uint64", "int32", "int16"):
        yield f"beyond {kind}", "small.png", [decode(), wide, dtype(kind)], None


def _chains() -> Iterator[Case]:
    classic = [resize(28, 28, "shortest-edge", "bicubic"), crop(24, 24), IMAGENET, layout("CHW")]
    for name in ("photo.png", "upright.png", "alpha.png", "exif-6.png", "grey16.png", "photo.jpg"):
        yield f"classifier {name}", name, [decode(), *classic], None
    boxed = [resize(20, 20, "letterbox"), layout("CHW"), dtype("float32")]
    yield "detector", "photo.png", [decode(), *boxed], None
    quantized = [resize(16, 16), normalize([1.0] * 3, [-128.0] * 3), dtype("int8")]
    yield "quantized, channels last", "upright.png", [decode(), *quantized], None


def _refused() -> Iterator[Case]:
    refusals = {
        "EDGE-INPUT-002": ["empty.png", "text.png", "page.pdf", "phone.heic", "drawing.svg"],
        "EDGE-INPUT-003": ["cut-header.png", "cut-pixels.png", "flipped-bit.png"],
        "EDGE-INPUT-004": ["huge.png"],
        "EDGE-INPUT-005": ["rgb16-key.png", "float.tiff", "int32.tiff"],
        "EDGE-INPUT-009": [
            "thin.png",
            "thin1.png",
            "flat.png",
            "large.png",
            "large-grey.png",
            "large-alpha.png",
            "large-grey16.png",
        ],
    }
    for code, names in refusals.items():
        for name in names:
            yield f"refuse {name}", name, [decode()], code
    few = [decode(max_pixels=47 * 61 - 1)]
    yield "refuse one pixel too many", "photo.png", few, "EDGE-INPUT-004"
    yield "take the last pixel allowed", "photo.png", [decode(max_pixels=47 * 61)], None
    long = [decode(), resize(65_535, 65_535, "shortest-edge")]
    yield "refuse a result beyond all bounds", "row.png", long, "EDGE-INPUT-008"
    # 24,000,000 pixels in a row take 92 MiB; coefficients 8 or 48 bytes for each of them.
    for kernel, code in {"nearest": 3, "bilinear": 9, "bicubic": 9, "lanczos": 9}.items():
        steps = [decode(), resize(8, 8, kernel=kernel)]
        yield f"refuse a long row, {kernel}", "long.png", steps, f"EDGE-INPUT-00{code}"
    for what, steps in {
        "no steps": [],
        "no decode": [resize(8, 8)],
        "decode twice": [decode(), decode()],
        "resize after normalize": [decode(), LITE, resize(8, 8)],
        "normalize after layout": [decode(), layout("CHW"), LITE],
        "normalize twice": [decode(), LITE, LITE],
        "two layouts": [decode(), layout("CHW"), layout("CHW")],
        "two dtypes": [decode(), dtype("float32"), dtype("int8")],
    }.items():
        yield f"refuse {what}", "small.png", steps, "EDGE-PROCESS-001"
    one = [decode(), normalize([1.0], [0.0])]
    yield "refuse one channel's normalize", "small.png", one, "EDGE-PROCESS-004"
    for kind in ("bool", "string", "bfloat16"):
        yield f"refuse {kind} pixels", "small.png", [decode(), dtype(kind)], "EDGE-PROCESS-012"


def _outputs() -> Iterator[dict[str, Any]]:
    softmax, ten = {"step": "softmax/1", "output": "y", "axis": -1}, [f"c{n}" for n in range(10)]

    def case(what: str, steps: list[Step], rows: list[list[Any]], **more: Any) -> dict[str, Any]:
        flat = [value for row in rows for value in row]
        output = {"dtype": "float32", "shape": [len(rows), len(rows[0])], "values": flat}
        base = {"id": what, "task": "image-classification", "steps": steps, "labels": []}
        return {**base, "scores": "y", "outputs": {"y": output}, **more}

    def top(k: int) -> Step:
        return {"step": "top_k/1", "output": "y", "k": k}

    slope = [[1.5, -0.25, 3.0, 2.75, 0.0, -8.0, 3.0, 1.0, 0.5, 2.0]]
    yield case("softmax and top 5", [softmax, top(5)], slope, labels=ten)
    yield case("ties go to the lower index", [softmax, top(3)], [[2.0, 7.0, 7.0, 2.0, 7.0]])
    yield case("all the same", [softmax, top(4)], [[0.25] * 6])
    yield case("a tie at the end of top", [top(2)], [[0.5, 0.125, 0.25, 0.125]])
    yield case("top 1 keeps a second", [softmax, top(1)], slope, labels=ten)
    yield case("more asked than there are", [softmax, top(50)], [[0.5, 1.5, 1.0]])
    yield case("two rows", [softmax, top(2)], [[0.0, 1.0, 2.0], [5.0, 4.0, 3.0]])
    yield case("one class", [softmax, top(5)], [[3.5]])
    yield case("probabilities as they are", [], [[0.125, 0.5, 0.25, 0.125]])
    yield case(
        "labels that repeat", [top(2)], [[0.25, 0.5, 0.25]], labels=["crane", "owl", "crane"]
    )
    yield case("large logits", [softmax, top(2)], [[30000.0, 29999.0, -30000.0]])
    yield case("minus infinity is no score", [softmax, top(3)], [["-inf", 1.0, 2.0]])
    yield case("signed zeros tie", [top(2)], [[-0.0, 0.0, 1.0]])
    bad = "EDGE-PROCESS-009"
    yield case("refuse NaN", [softmax, top(2)], [[0.0, "nan", 1.0]], error=bad)
    yield case("refuse infinity", [softmax, top(2)], [[0.0, "inf", 1.0]], error=bad)
    yield case("refuse nothing but -inf", [softmax], [["-inf", "-inf"]], error=bad)
    yield case("refuse logits as scores", [top(2)], [[-3.0, 4.5]], error="EDGE-PROCESS-010")
    yield case("refuse a label too few", [softmax], slope, labels=ten[1:], error="EDGE-PROCESS-007")
    yield case(
        "refuse an unknown output", [dict(softmax, output="z")], slope, error="EDGE-PROCESS-006"
    )
    yield case("refuse top_k before softmax", [top(2), softmax], slope, error="EDGE-PROCESS-006")


CASES: list[Case] = list(_cases())
OUTPUT_CASES = list(_outputs())
