"""Figure: the packaged fp32 ONNX file against eager PyTorch, on every crop of the demo's photos.

An independent oracle: the file is taken out of the bundle with Python's zipfile and run by
onnxruntime itself, the module is the factory's own, preprocessing is Pillow and numpy written out
here. Nothing of edgeserve computes anything.

    python -m benchmarks.agreement demo-out/tagger.edge demo-out/photos
"""

from __future__ import annotations

import argparse
import json
import zipfile
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from PIL import Image

from demo.tagger import efficientnet_lite0

__all__ = ["main"]

_BATCH = 8


def _pixels(path: Path, steps: list[dict[str, object]]) -> np.ndarray:
    """The demo's processing by hand: shorter side, middle, scale and bias, CHW."""
    by_name = {str(step["step"]): step for step in steps}
    resize, crop = by_name["resize/1"], by_name["center_crop/1"]
    normalize = by_name["normalize/1"]
    image = Image.open(path).convert("RGB")
    edge, width, height = min(int(str(resize["height"])), int(str(resize["width"]))), *image.size
    size = (
        (edge, int(edge * height / width))
        if width <= height
        else (int(edge * width / height), edge)
    )
    image = image.resize(size, Image.Resampling[str(resize["filter"]).upper()])
    side = int(str(crop["width"]))
    left, top = (image.width - side) // 2, (image.height - side) // 2
    pixels = np.asarray(image.crop((left, top, left + side, top + side)), np.float32)
    scaled = pixels * np.float32(normalize["scale"]) + np.float32(normalize["bias"])  # type: ignore[arg-type]
    return np.ascontiguousarray(scaled.transpose(2, 0, 1))


def _session(bundle: Path) -> onnxruntime.InferenceSession:
    with zipfile.ZipFile(bundle) as archive:
        name = next(n for n in archive.namelist() if n.startswith("artifacts/onnx-fp32/"))
        return onnxruntime.InferenceSession(archive.read(name), providers=["CPUExecutionProvider"])


def measure(bundle: Path, photos: Path) -> dict[str, float]:
    """Compare both on every crop; figures by name."""
    module, _, options = efficientnet_lite0()
    steps = options["processing"]["inputs"][0]["steps"]
    lines = [json.loads(line) for line in (photos / "data.jsonl").read_text().splitlines()]
    session = _session(bundle)
    worst, same = 0.0, 0
    for start in range(0, len(lines), _BATCH):
        chunk = lines[start : start + _BATCH]
        batch = np.stack([_pixels(photos / line["input"], steps) for line in chunk])
        with torch.no_grad():
            wanted = module(torch.from_numpy(batch)).numpy()
        got = session.run(None, {session.get_inputs()[0].name: batch})[0]
        worst = max(worst, float(np.abs(got - wanted).max()))
        same += int((got.argmax(1) == wanted.argmax(1)).sum())
    groups = len({line["group"] for line in lines})
    return {"crops": len(lines), "photos": groups, "max_abs": worst, "same_top1": same / len(lines)}


def main() -> None:
    """Print the figure, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle", type=Path, nargs="?", default=Path("demo-out/tagger.edge"))
    parser.add_argument("photos", type=Path, nargs="?", default=Path("demo-out/photos"))
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = measure(arguments.bundle, arguments.photos)
    if arguments.json:
        print(json.dumps(found))
        return
    print(f"fp32 ONNX vs PyTorch: max abs {found['max_abs']:.2e} (wanted <= 1e-4), ", end="")
    print(
        f"same top-1 {found['same_top1']:.2%} of {found['crops']} crops of {found['photos']} photos"
    )


if __name__ == "__main__":
    main()
