"""What the plain scripts share: the model, and the photos prepared by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from dev.demo.tagger import efficientnet_lite0

BATCH = 16
_SIDE = 224


def model() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """The module in eval mode and one example of batch 1."""
    module, example, _ = efficientnet_lite0()
    return module.eval(), (example[0][:1],)


def photos(listed: Path) -> np.ndarray:
    """The photos of a list of paths, prepared: float32 [n, 3, 224, 224]."""
    return np.stack([_prepared(Path(path)) for path in json.loads(listed.read_text())])


def _prepared(path: Path) -> np.ndarray:
    image = Image.open(path).convert("RGB")
    short = min(image.size)
    size = (image.width * _SIDE // short, image.height * _SIDE // short)
    image = image.resize(size, Image.Resampling.BILINEAR)
    left, top = (image.width - _SIDE) // 2, (image.height - _SIDE) // 2
    pixels = np.asarray(image.crop((left, top, left + _SIDE, top + _SIDE)), np.float32)
    return ((pixels - 127) / 128).transpose(2, 0, 1)


def compare(module: torch.nn.Module, batch: np.ndarray, got: np.ndarray) -> None:
    """Hold a file's answers against PyTorch's."""
    with torch.inference_mode():
        pieces = [torch.from_numpy(batch[i : i + BATCH]) for i in range(0, len(batch), BATCH)]
        wanted = torch.cat([module(piece) for piece in pieces]).numpy()
    same = (got.argmax(1) == wanted.argmax(1)).mean()
    print(f"max abs {np.abs(got - wanted).max():.2e}, same top-1 {same:.2%} of {len(batch)}")
