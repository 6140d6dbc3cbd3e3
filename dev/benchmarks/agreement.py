"""Figure: the packaged fp32 files against eager PyTorch, on every crop of the demo's photos.

An independent oracle: each file is taken out of the bundle with Python's zipfile and run by its own
runtime, the module is the factory's own, preprocessing is Pillow and numpy written out here.
Nothing of edgeserve computes anything.

    python -m dev.benchmarks.agreement demo-out/tagger.edge demo-out/photos
"""

from __future__ import annotations

import argparse
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from ai_edge_litert.interpreter import Interpreter
from PIL import Image

from dev.demo.tagger import efficientnet_lite0

_BATCH = 8

Run = Callable[[np.ndarray], np.ndarray]


def prepared(path: Path) -> np.ndarray:
    """The demo's processing by hand: shorter side to 224, middle, (x - 127) / 128, CHW float32."""
    image = Image.open(path).convert("RGB")
    side, short = 224, min(image.size)
    size = (int(side * image.width / short), int(side * image.height / short))
    image = image.resize(size, Image.Resampling.BILINEAR)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    pixels = np.asarray(image.crop((left, top, left + side, top + side)), np.float32)
    return np.ascontiguousarray(((pixels - 127) / 128).transpose(2, 0, 1))


def taken_out(bundle: Path, folder: str) -> bytes | None:
    """The only file of an artifact, or None where the bundle lacks it."""
    with zipfile.ZipFile(bundle) as archive:
        names = [n for n in archive.namelist() if n.startswith(f"artifacts/{folder}/")]
        return archive.read(names[0]) if names else None


def runner(file: bytes, format: str, threads: int = 2) -> Run:
    """A batch through a file with one input and one output, by the runtime itself."""
    if format == "onnx":
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        name = session.get_inputs()[0].name
        return lambda batch: session.run(None, {name: batch})[0]
    interpreter = Interpreter(model_content=file, num_threads=threads)
    run = interpreter.get_signature_runner()
    (name,) = run.get_input_details()
    return lambda batch: np.concatenate(
        [next(iter(run(**{name: row[None]}).values())).copy() for row in batch]
    )


def measure(bundle: Path, photos: Path) -> dict[str, dict[str, float]]:
    """Compare each fp32 file on every crop; figures by format and name."""
    module = efficientnet_lite0()[0].eval()
    lines = [json.loads(line) for line in (photos / "data.jsonl").read_text().splitlines()]
    files = {f: taken_out(bundle, f"{f}-fp32") for f in ("onnx", "tflite")}
    runs = {f: runner(file, f) for f, file in files.items() if file is not None}
    worst, same = dict.fromkeys(runs, 0.0), dict.fromkeys(runs, 0)
    for start in range(0, len(lines), _BATCH):
        batch = np.stack([prepared(photos / x["input"]) for x in lines[start : start + _BATCH]])
        with torch.inference_mode():
            wanted = module(torch.from_numpy(batch)).numpy()
        for name, run in runs.items():
            got = run(batch)
            worst[name] = max(worst[name], float(np.abs(got - wanted).max()))
            same[name] += int((got.argmax(1) == wanted.argmax(1)).sum())
    seen = {"crops": len(lines), "photos": len({line["group"] for line in lines})}
    return {
        name: {**seen, "max_abs": worst[name], "same_top1": same[name] / len(lines)}
        for name in runs
    }


def main() -> None:
    """Print the figures, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle", type=Path, nargs="?", default=Path("demo-out/tagger.edge"))
    parser.add_argument("photos", type=Path, nargs="?", default=Path("demo-out/photos"))
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = measure(arguments.bundle, arguments.photos)
    if arguments.json:
        print(json.dumps(found))
        return
    for name, figures in found.items():
        print(
            f"fp32 {name} vs PyTorch: max abs {figures['max_abs']:.2e} (wanted <= 1e-4), same top-1"
            f" {figures['same_top1']:.2%} of {figures['crops']} crops of {figures['photos']} photos"
        )


if __name__ == "__main__":
    main()
