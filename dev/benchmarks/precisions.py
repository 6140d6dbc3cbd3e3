"""Figure: what each precision costs in decisions and saves in time, by the runtimes themselves.

Files come out of the bundle with Python's zipfile. Flips are counted against PyTorch on every crop;
a decision is sure where PyTorch's best class leads by 0.05. CPU times are those of one thread, the
runs of fp32 and of the precision taking turns.

    python -m dev.benchmarks.precisions demo-out/tagger.edge demo-out/photos
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch

from dev.benchmarks.agreement import Run, prepared, runner, taken_out
from dev.demo.tagger import efficientnet_lite0
from edgeserve.measure.ab import compare

_BATCH = 8
_DECIDED = 0.05
_WANTED_RATIO = 0.6
_FORMATS, _PRECISIONS = ("onnx", "tflite"), ("fp32", "fp16", "w8", "w8a8")


def _answers(batches: list[np.ndarray], run: Run) -> np.ndarray:
    return np.concatenate([run(batch) for batch in batches])


def _reference(batches: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """PyTorch's classes, and where it is sure of them."""
    module = efficientnet_lite0()[0].eval()
    with torch.inference_mode():
        logits = torch.cat([module(torch.from_numpy(batch)) for batch in batches])
    best = logits.softmax(1).topk(2).values
    return logits.argmax(1).numpy(), ((best[:, 0] - best[:, 1]) >= _DECIDED).numpy()


def measure(bundle: Path, photos: Path, seconds: float) -> dict[str, dict[str, float]]:
    """Figures by artifact and name."""
    lines = [json.loads(line) for line in (photos / "data.jsonl").read_text().splitlines()]
    crops = [prepared(photos / line["input"]) for line in lines]
    batches = [np.stack(crops[i : i + _BATCH]) for i in range(0, len(crops), _BATCH)]
    classes, sure = _reference(batches)
    found: dict[str, dict[str, float]] = {}
    for format in _FORMATS:
        files = {p: file for p in _PRECISIONS if (file := taken_out(bundle, f"{format}-{p}"))}
        for precision, file in files.items():
            other = _answers(batches, runner(file, format)).argmax(1) != classes
            figures = {
                "bytes": len(file),
                "inputs": len(crops),
                "flips": int(other.sum()),
                "decided": int(sure.sum()),
                "decided_flips": int((other & sure).sum()),
            }
            if precision != "fp32" and "fp32" in files:
                figures |= _times(file, files["fp32"], format, crops[0][None], seconds)
            found[f"{format}-{precision}"] = figures
    return found


def _times(
    file: bytes, base: bytes, format: str, x: np.ndarray, seconds: float
) -> dict[str, float]:
    mine, fp32 = runner(file, format, 1), runner(base, format, 1)
    compared = compare(lambda: mine(x), lambda: fp32(x), seconds=seconds)
    cpu = compared.cpu
    return {"cpu_ratio": float(cpu.value), "lower": float(cpu.lower), "upper": float(cpu.upper)}


def _line(name: str, figures: dict[str, float]) -> str:
    raw, decided = figures["flips"], figures["decided_flips"]
    text = (
        f"  {name}: {figures['bytes'] / 1e6:.2f} MB; top-1 differs on {raw} of {figures['inputs']}"
        f" ({raw / figures['inputs']:.1%}), {decided} of {figures['decided']} decided"
        f" ({decided / figures['decided']:.1%})"
    )
    if "cpu_ratio" in figures:
        wanted = f", wanted <= {_WANTED_RATIO}" if name.endswith("w8a8") else ""
        interval = f"[{figures['lower']:.2f}, {figures['upper']:.2f}]"
        text += f"; CPU {figures['cpu_ratio']:.2f} x fp32 {interval}{wanted}"
    return text


def main() -> None:
    """Print the figures, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle", type=Path, nargs="?", default=Path("demo-out/tagger.edge"))
    parser.add_argument("photos", type=Path, nargs="?", default=Path("demo-out/photos"))
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = measure(arguments.bundle, arguments.photos, arguments.seconds)
    if arguments.json:
        print(json.dumps(found))
        return
    print("against eager PyTorch, raw runtimes:")
    for name, figures in found.items():
        print(_line(name, figures))


if __name__ == "__main__":
    main()
