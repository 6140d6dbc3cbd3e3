"""Image processors become steps: every pixel as transformers makes it, or refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image

from edgeserve.convert.huggingface.folder import ModelFolder
from edgeserve.convert.huggingface.image import load_image_processor, verified_steps
from edgeserve.convert.huggingface.model import plan_network
from edgeserve.errors import ConvertError
from edgeserve.processing import Processor
from edgeserve.processing.steps.center_crop import CenterCrop
from edgeserve.processing.steps.resize import Resize
from edgeserve.types.processing import InputProcessing, Processing
from edgeserve.types.tensors import Signature, TensorSpec

Change = Callable[[Path, dict[str, Any]], None]

#: Odd, narrow, tall, tiny and the very size that the processors make.
SIZES = [(331, 217), (64, 601), (31, 29), (224, 224), (257, 225)]

LEVELS = {"do_rescale": False, "do_normalize": False}

PROCESSORS: list[tuple[str, dict[str, Any]]] = [
    ("ViT", {}),
    ("ViT", {"size": {"height": 61, "width": 47}, "resample": 3}),
    ("ViT", {"resample": 0, "do_normalize": False}),
    ("ViT", {"resample": 1, "do_rescale": False}),
    ("ViT", {"rescale_factor": 1 / 127.5, "image_mean": [1.0] * 3, "image_std": [1.0] * 3}),
    ("DeiT", {}),
    ("CLIP", {}),
    ("Siglip", {}),
    ("Beit", {}),
    ("Bit", {}),
    ("MobileNetV1", {}),
    ("MobileNetV2", {"crop_size": {"height": 63, "width": 91}}),
    ("ConvNext", {}),
    ("ConvNext", {"size": {"shortest_edge": 224}, "crop_pct": 0.875}),
    ("ConvNext", {"size": {"shortest_edge": 96}, "crop_pct": 0.95}),
    ("Levit", {}),
    ("PoolFormer", {}),
    ("EfficientNet", {}),
    ("EfficientNet", {"rescale_offset": True, "rescale_factor": 1 / 127.5, "include_top": False}),
]


def picture(height: int, width: int) -> np.ndarray:
    rng = np.random.default_rng(height + width)
    return rng.integers(0, 256, (height, width, 3), np.uint8)


def of_transformers(name: str, settings: dict[str, Any]) -> Any:
    return getattr(transformers, f"{name}ImageProcessorPil")(**settings)


def steps_of(processor: Any) -> Processor:
    """Our processor with the steps of one of transformers."""
    spec = TensorSpec(name="pixel_values", dtype="float32", shape=("batch", 3, "h", "w"))
    dims = dict.fromkeys(("batch", "h", "w"), (1, 9999))
    steps = verified_steps(processor)
    return Processor(
        Processing(inputs=(InputProcessing(name="pixel_values", steps=steps),)),
        Signature(inputs=(spec,), outputs=(), dims=dims),
        "tensors",
    )


def both(name: str, settings: dict[str, Any]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Tensors of each size: ours and those of transformers."""
    theirs = of_transformers(name, settings)
    ours = steps_of(theirs)
    for size in SIZES:
        pixels = picture(*size)
        wanted = theirs(pixels, return_tensors="np")["pixel_values"][0]
        yield ours.prepare(pixels)["pixel_values"], np.asarray(wanted)


@pytest.mark.parametrize(("name", "settings"), PROCESSORS)
def test_every_pixel_is_that_of_transformers(name: str, settings: dict[str, Any]) -> None:
    """Equal levels before normalisation, and rounding only after it."""
    for ours, theirs in both(name, settings | LEVELS | {"include_top": False}):
        assert theirs.dtype == np.uint8
        np.testing.assert_array_equal(ours, theirs)
    for ours, theirs in both(name, settings):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=2e-6 * np.abs(theirs).max())


def test_a_processor_is_read_from_its_folder(tmp_path: Path) -> None:
    of_transformers("ConvNext", {"size": {"shortest_edge": 224}}).save_pretrained(tmp_path)
    steps = verified_steps(load_image_processor(tmp_path))
    assert steps[1:3] == (
        Resize(height=256, width=256, fit="shortest-edge", filter="bicubic"),
        CenterCrop(height=224, width=224),
    )


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("ViT", {"do_resize": False}, "do_resize"),
        ("ViT", {"resample": 4}, "resample"),
        ("ViT", {"size": {"shortest_edge": 224}}, "size.shortest_edge"),
        ("ViT", {"size": {"shortest_edge": 224, "longest_edge": 400}}, "'longest_edge': 400"),
        ("ViT", {"size": {"max_height": 224, "max_width": 224}}, "max_height"),
        ("ViT", {"image_std": [0.5, 0.0, 0.5]}, "image_std"),
        ("ViT", {"image_mean": [0.5]}, "image_mean"),
        ("MobileViT", {}, "do_flip_channel_order"),
        ("BridgeTower", {}, "do_pad"),
        ("Detr", {}, "do_pad"),
        ("GLPN", {}, "size_divisor"),
        ("ImageGPT", {}, "do_color_quantize"),
        ("Perceiver", {}, "steps of its own"),
        ("VideoMAE", {}, "steps of its own"),
    ],
)
def test_what_no_step_expresses_is_refused_by_name(
    name: str, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConvertError) as error:
        verified_steps(of_transformers(name, settings))
    assert error.value.code == "EDGE-CONVERT-069"
    assert said in error.value.message


def test_pictures_smaller_than_the_crop_are_padded_otherwise_and_said_so() -> None:
    """There the border is rounded up, in center_crop/1 down: seen on the probes."""
    settings = {"do_resize": False, "crop_size": {"height": 301, "width": 301}}
    with pytest.raises(ConvertError) as error:
        verified_steps(of_transformers("DeiT", settings))
    assert error.value.code == "EDGE-CONVERT-069"


# whole models


@pytest.fixture
def vit(tmp_path: Path) -> Path:
    torch.manual_seed(5)
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=24,
        image_size=32,
        patch_size=8,
        num_labels=4,
        id2label=dict(enumerate("abcd")),
    )
    network = transformers.ViTForImageClassification(config).eval()
    for weight in network.parameters():
        weight.data.mul_(5 if weight.dim() > 1 else 1)
    network.save_pretrained(tmp_path / "vit")
    of_transformers("ViT", {"size": {"height": 32, "width": 32}}).save_pretrained(tmp_path / "vit")
    return tmp_path / "vit"


def test_an_image_classifier_decides_as_transformers_does(vit: Path, export: Any) -> None:
    found = export(vit)
    exported = found.exported
    assert (exported.task, exported.labels) == ("image-classification", ("a", "b", "c", "d"))
    assert exported.signature.inputs[0].shape == ("batch", 3, 32, 32)
    assert exported.signature.outputs[0].name == "logits"
    pictures = [picture(*size) for size in SIZES]
    pictures += [np.full((40, 40, 3), level, np.uint8) for level in (0, 130, 255)]
    processor = load_image_processor(vit)
    network = transformers.ViTForImageClassification.from_pretrained(vit).eval()
    with torch.no_grad():
        inputs = processor([Image.fromarray(p) for p in pictures], return_tensors="pt")
        wanted = network(**inputs).logits.softmax(1).numpy()
    assert len(set(wanted.argmax(1))) > 1
    for record, row in zip(found.answers(pictures), wanted, strict=True):
        assert record.label == "abcd"[int(row.argmax())]
        assert record.score == pytest.approx(row.max(), abs=1e-5)


def test_a_network_without_a_head_gives_tensors(vit: Path, change: Change) -> None:
    change(vit / "config.json", {"architectures": ["ViTModel"]})
    planned = plan_network(ModelFolder(vit), None)
    assert (planned.task, planned.medium, planned.network.__name__) == (
        "tensors",
        "image",
        "ViTModel",
    )
