"""Writes the processing cases, or checks that what is committed is what would be written.

    python spec/conformance/processing/generate.py --write | --check

Expected values come from numpy and Pillow alone; nothing of edgeserve is imported. Resampled
pictures are Pillow's, and each is also held against the integer arithmetic of ``kernel.py``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import kernel  # noqa: E402
from listing import CASES, OUTPUT_CASES  # noqa: E402
from pictures import Picture, given, opened, upright, written  # noqa: E402

#: Files whose pixels come out of a lossy decoder: other builds of it may differ by a level or two.
LOSSY = ".jpg"
DECODER = "libjpeg-turbo 3, accurate integer DCT, as in Pillow 13.0.0"


def main() -> int:
    """Write or check; the exit code says whether what is committed is right."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--write", action="store_true")
    mode.add_argument("--check", action="store_true")
    files = generated(write=parser.parse_args().write)
    if "--check" in sys.argv:
        wrong = [name for name, data in files.items() if _committed(name) != data]
        stray = {p.relative_to(HERE).as_posix() for p in HERE.glob("inputs/*")} - set(files)
        print(f"{len(files) - len(wrong)} of {len(files)} files are as generated")
        for name in (*wrong, *sorted(stray)):
            print(f"differs or does not belong: {name}")
        return 1 if wrong or stray else 0
    for name, data in files.items():
        (HERE / name).parent.mkdir(exist_ok=True)
        (HERE / name).write_bytes(data)
    print(f"{len(files)} files, {sum(map(len, files.values()))} bytes")
    return 0


def _committed(name: str) -> bytes | None:
    path = HERE / name
    return path.read_bytes() if path.exists() else None


def generated(write: bool) -> dict[str, bytes]:
    """Content of every file of this folder that is not source, by relative path."""
    pictures = {picture.name: picture for picture in written()}
    for name, make in given().items():
        data = _committed(f"inputs/{name}")
        if data is None:
            if not write:
                raise SystemExit(f"inputs/{name} is missing: it is committed, not regenerated")
            data = make()
        pictures[name] = opened(name, data)
    blobs, cases = bytearray(), []
    for case_id, name, steps, error in CASES:
        case: dict[str, Any] = {"id": case_id, "input": f"inputs/{name}", "steps": steps}
        if error:
            case["error"] = error
        else:
            tensor = carried_out(pictures[name], steps)
            case["expected"] = _stored(tensor, blobs)
            if name.endswith(LOSSY):
                case["decoder"] = DECODER
        cases.append(case)
    unused = set(pictures) - {name for _, name, _, _ in CASES}
    assert not unused, f"pictures without a case: {unused}"
    outputs = [_output_case(case) for case in OUTPUT_CASES]
    files = {f"inputs/{picture.name}": picture.data for picture in pictures.values()}
    files["cases.json"] = _json({"version": 1, "blob": "expected.bin", "cases": cases})
    files["outputs.json"] = _json({"version": 1, "cases": outputs})
    return {**files, "expected.bin": bytes(blobs)}


def _json(value: dict[str, Any]) -> bytes:
    """One case a line: small to store, and a changed case is a changed line."""
    *head, (_, cases) = value.items()
    fields = "".join(f"{json.dumps(key)}: {json.dumps(item)},\n" for key, item in head)
    lines = ",\n".join(json.dumps(case) for case in cases)
    return f'{{\n{fields}"cases": [\n{lines}\n]\n}}\n'.encode()


def _stored(tensor: np.ndarray, blobs: bytearray) -> dict[str, Any]:
    data = tensor.astype(tensor.dtype.newbyteorder("<")).tobytes()
    offset = blobs.find(data)  # many cases share a result
    if offset < 0:
        offset = len(blobs)
        blobs += data
    return {
        "dtype": tensor.dtype.name,
        "shape": list(tensor.shape),
        "offset": offset,
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
    }


def carried_out(picture: Picture, steps: list[dict[str, Any]]) -> np.ndarray:
    """Run the steps with numpy and Pillow."""
    first, *rest = steps
    value = upright(picture, first["exif"], tuple(first["background"]))
    for step in rest:
        value = STEPS[step["step"]](value, step)
    return value


def _resize(rgb: np.ndarray, step: dict[str, Any]) -> np.ndarray:
    (height, width), target = rgb.shape[:2], (step["height"], step["width"])
    if step["fit"] == "exact":
        return _resampled(rgb, *target, step["filter"])
    if step["fit"] == "shortest-edge":
        # As torchvision and Hugging Face write it.
        side = min(target)
        short, long = sorted((width, height))
        new_long = int(side * long / short)
        new = (new_long, side) if width <= height else (side, new_long)
        return _resampled(rgb, *new, step["filter"])
    ratio = min(target[0] / height, target[1] / width)
    new = tuple(
        min(limit, max(1, round(size * ratio)))
        for size, limit in zip((height, width), target, strict=True)
    )
    box = np.empty((*target, 3), np.uint8)
    box[:] = step["fill"]
    top, left = (target[0] - new[0]) // 2, (target[1] - new[1]) // 2
    box[top : top + new[0], left : left + new[1]] = _resampled(rgb, *new, step["filter"])
    return box


def _resampled(rgb: np.ndarray, height: int, width: int, name: str) -> np.ndarray:
    image = Image.fromarray(rgb).resize((width, height), Image.Resampling[name.upper()])
    result = np.asarray(image)
    assert np.array_equal(result, kernel.resample(rgb, height, width, name)), "Pillow and kernel.py"
    return result


def _center_crop(rgb: np.ndarray, step: dict[str, Any]) -> np.ndarray:
    target = (step["height"], step["width"])
    pads = [max(0, want - have) for want, have in zip(target, rgb.shape[:2], strict=True)]
    rgb = np.pad(rgb, [(pad // 2, pad - pad // 2) for pad in pads] + [(0, 0)])
    surplus = [have - want for want, have in zip(target, rgb.shape[:2], strict=True)]
    top, left = (
        math.floor(s / 2) if step["rounding"] == "floor" else round(s / 2) for s in surplus
    )
    return rgb[top : top + target[0], left : left + target[1]]


def _normalize(rgb: np.ndarray, step: dict[str, Any]) -> np.ndarray:
    product = rgb.astype(np.float32) * np.array(step["scale"], np.float32)
    return product + np.array(step["bias"], np.float32)


def _layout(value: np.ndarray, step: dict[str, Any]) -> np.ndarray:
    return value.transpose(2, 0, 1) if step["order"] == "CHW" else value


def _dtype(value: np.ndarray, step: dict[str, Any]) -> np.ndarray:
    dtype = np.dtype(step["dtype"])
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            return value.astype(dtype)
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    flat = [min(max(round(float(x)), low), high) for x in value.reshape(-1)]
    return np.array(flat, dtype).reshape(value.shape)


STEPS = {
    "resize/1": _resize,
    "center_crop/1": _center_crop,
    "normalize/1": _normalize,
    "layout/1": _layout,
    "dtype/1": _dtype,
}


def _output_case(case: dict[str, Any]) -> dict[str, Any]:
    """Add the expected records, from Python's own floats: exponentials and a stable sort."""
    if "error" in case:
        return case
    output = case["outputs"][case["scores"]]
    rows = np.array([float(x) for x in output["values"]]).reshape(output["shape"])
    softmax = any(step["step"] == "softmax/1" for step in case["steps"])
    k = next((step["k"] for step in case["steps"] if step["step"] == "top_k/1"), 5)
    expected = []
    for row in rows.tolist():
        if softmax:
            powers = [math.exp(x - max(row)) for x in row]
            row = [power / math.fsum(powers) for power in powers]
        best = sorted(range(len(row)), key=lambda index: -row[index])[: max(k, 2)]
        names = case["labels"] or [str(index) for index in range(len(row))]
        top = [[names[index], row[index]] for index in best]
        expected.append({"index": best[0], "indexes": best, "label": top[0][0], "top": top})
    return {**case, "expected": expected, "tolerance": 1e-6 if softmax else 1e-7}


if __name__ == "__main__":
    raise SystemExit(main())
