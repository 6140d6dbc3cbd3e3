"""The demo's server: how the tagger answers today, before any device does.

It is the reference that converted models are judged against, so it shares no code with edgeserve:
the photo is prepared with Pillow and torch as a server's author would write it.
"""

from __future__ import annotations

import functools
import io
from typing import Any

import torch
from PIL import Image, ImageOps

from dev.demo.tagger import labels, load_module

_SIDE = 224
_TOP = 5


def tag(raw: bytes | str) -> dict[str, Any]:
    """Tag one encoded photo, given as bytes or as the path of a file."""
    module, names = _loaded()
    with Image.open(io.BytesIO(raw) if isinstance(raw, bytes) else raw) as image:
        batch = prepare(image).unsqueeze(0)
    with torch.inference_mode():
        scores, classes = module(batch)[0].softmax(0).topk(_TOP)
    top = [[names[i], score] for i, score in zip(classes.tolist(), scores.tolist(), strict=True)]
    return {"label": top[0][0], "score": top[0][1], "top": top}


def prepare(image: Image.Image) -> torch.Tensor:
    """Turn a photo into the CHW tensor that the network was trained on."""
    rgb = ImageOps.exif_transpose(image).convert("RGB")
    short = min(rgb.size)
    width, height = rgb.width * _SIDE // short, rgb.height * _SIDE // short
    rgb = rgb.resize((width, height), Image.Resampling.BILINEAR)
    left, top = (width - _SIDE) // 2, (height - _SIDE) // 2
    rgb = rgb.crop((left, top, left + _SIDE, top + _SIDE))
    # A bytearray, since torch warns about tensors over memory that it may not write to.
    pixels = torch.frombuffer(bytearray(rgb.tobytes()), dtype=torch.uint8)
    chw = pixels.reshape(_SIDE, _SIDE, 3).permute(2, 0, 1)
    return (chw.to(torch.float32) - 127.0) / 128.0


@functools.cache
def _loaded() -> tuple[torch.nn.Module, list[str]]:
    return load_module(), labels()
