"""From raw inputs to feeds, as a package's description says it.

Written anew, with Pillow, numpy and the tokenizers library.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps
from tokenizers import Tokenizer

Said = dict[str, Any]
_FILTERS = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3}


def feeds(said: Said, raws: Sequence[Any], folder: Path) -> dict[str, np.ndarray]:
    """One array [n, ...] for each input of the model.

    Args:
        said: ``source.json`` as JSON.
        raws: Encoded pictures, texts, or dicts of arrays.
        folder: Where the assets lie.
    """
    inputs = said["processing"]["inputs"]
    if not inputs:
        return {name: np.stack([raw[name] for raw in raws]) for name in raws[0]}
    if inputs[0]["steps"][0]["step"] == "tokenize/1":
        types = {spec["name"]: spec["dtype"] for spec in said["signature"]["inputs"]}
        length = said["signature"]["inputs"][0]["shape"][1]
        return {
            each["name"]: _rows(each["steps"][0], raws, folder, length, types[each["name"]])
            for each in inputs
        }
    return {
        each["name"]: np.stack([_picture(each["steps"], raw) for raw in raws]) for each in inputs
    }


def _rows(step: Said, raws: Sequence[str], folder: Path, length: int, dtype: str) -> np.ndarray:
    reader = Tokenizer.from_file(str(folder / step["tokenizer"]["path"]))
    reader.no_padding()
    reader.enable_truncation(step["max_length"], direction=step.get("truncation", "right"))
    made = np.full((len(raws), length), step.get("pad_id", 0), dtype)
    for i, encoded in enumerate(reader.encode_batch(list(raws))):
        row = encoded.ids if step["part"] == "ids" else encoded.attention_mask
        left = step.get("padding", "right") == "left"
        made[i, slice(length - len(row), None) if left else slice(0, len(row))] = row
    return made


def _picture(steps: Sequence[Said], raw: bytes) -> np.ndarray:
    picture: Any = None
    for step in steps:
        name = step["step"]
        if name == "decode/1":
            opened = Image.open(io.BytesIO(raw))
            upright = ImageOps.exif_transpose(opened) if step.get("exif", True) else opened
            picture = upright.convert("RGB")
        elif name == "resize/1":
            picture = _resized(picture, step)
        elif name == "center_crop/1":
            picture = _cropped(picture, step)
        elif name == "normalize/1":
            scale, bias = (np.array(step[key], np.float32) for key in ("scale", "bias"))
            picture = np.asarray(picture, np.float32) * scale + bias
        elif name == "layout/1":
            picture = np.asarray(picture)
            picture = picture.transpose(2, 0, 1) if step["order"] == "CHW" else picture
        else:
            raise ValueError(f"the oracle does not know {name}")
    return np.ascontiguousarray(picture)


def _resized(picture: Image.Image, step: Said) -> Image.Image:
    high, wide, fit = step["height"], step["width"], step.get("fit", "exact")
    kernel = Image.Resampling(_FILTERS[step.get("filter", "bilinear")])
    if fit == "exact":
        return picture.resize((wide, high), kernel)
    w, h = picture.size
    if fit == "shortest-edge":
        short = min(high, wide)
        size = (short, short * h // w) if w <= h else (short * w // h, short)
        return picture.resize(size, kernel)
    if wide * h <= high * w:
        size = (wide, max(1, round(h * wide / w)))
    else:
        size = (max(1, round(w * high / h)), high)
    made = Image.new("RGB", (wide, high), tuple(step.get("fill", (114, 114, 114))))
    made.paste(picture.resize(size, kernel), ((wide - size[0]) // 2, (high - size[1]) // 2))
    return made


def _cropped(picture: Image.Image, step: Said) -> Image.Image:
    half_even = step.get("rounding", "floor") == "half-even"
    starts = []
    for old, new in zip(picture.size, (step["width"], step["height"]), strict=True):
        left = old - new
        starts.append(-(-left // 2) if left < 0 else round(left / 2) if half_even else left // 2)
        if left < 0:
            starts[-1] = -(-left // 2)
    x, y = starts
    return picture.crop((x, y, x + step["width"], y + step["height"]))
