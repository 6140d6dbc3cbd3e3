"""Fields found in what real heads give, and what is measured of them, against PyTorch and numpy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from edgeserve.types.source import Exported
from edgeserve.types.tensors import Signature, TensorSpec
from edgeserve.validate.compare.output_fields import (
    FieldLayout,
    OutputField,
    field_layouts,
    infer_layout,
    levels,
)
from edgeserve.validate.compare.tensors import TensorComparison

SIDE = 64


def photos(count: int = 8, seed: int = 0) -> list[torch.Tensor]:
    """Smooth random pictures [1, 3, 64, 64] in 0 to 1."""
    generator = torch.Generator().manual_seed(seed)
    small = torch.rand(count, 3, 9, 9, generator=generator)
    return list(
        functional.interpolate(small, size=(SIDE, SIDE), mode="bicubic").clamp(0, 1).split(1)
    )


def grid(side: int, stride: int) -> torch.Tensor:
    """Centres of cells in pixels, [2, cells]."""
    y, x = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    return (torch.stack([x, y]).reshape(2, -1).float() + 0.5) * stride


class Body(nn.Module):
    def __init__(self, out: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1),
            nn.BatchNorm2d(16),
            nn.SiLU(),
            nn.Conv2d(16, 32, 3, 2, 1),
            nn.SiLU(),
            nn.Conv2d(32, 32, 3, 2, 1),
            nn.SiLU(),
            nn.Conv2d(32, out, 1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class JoinedHead(nn.Module):
    """YOLOv8-like: [B, 4 + nc, A]; YOLOv5-like with ``last``: [B, A, 5 + nc], objectness too."""

    def __init__(self, classes: int, last: bool = False, bias: float = -3.0) -> None:
        super().__init__()
        self.body, self.last, self.bias = Body(4 + classes + last), last, bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raw = 3 * self.body(12 * x - 6).flatten(2)
        centre = grid(SIDE // 8, 8) + 8 * raw[:, :2].tanh()
        size = 32 * torch.exp(raw[:, 2:4].clamp(-2, 2))
        joined = torch.cat([centre, size, (raw[:, 4:] + self.bias).sigmoid()], 1)
        return joined.transpose(1, 2) if self.last else joined


class Pose(nn.Module):
    """Boxes, one score and 17 key points of x, y and how visible: [B, 56, A]."""

    def __init__(self) -> None:
        super().__init__()
        self.body = Body(56)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raw = self.body(x).flatten(2)
        place = grid(SIDE // 8, 8)[:, None]
        points = raw[:, 5:].unflatten(1, (17, 3))
        xy = place.transpose(0, 1) + 40 * points[:, :, :2].tanh() + 40
        joined = torch.cat([xy, points[:, :, 2:].sigmoid()], 2).flatten(1, 2)
        boxes = torch.cat([place[:, 0] + 8 * raw[:, :2], 60 + 20 * raw[:, 2:4]], 1)
        return torch.cat([boxes, raw[:, 4:5].sigmoid(), joined], 1)


class Classifier(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.body = Body(32)
        self.head = nn.Linear(32, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x).mean((2, 3)))


Head = Callable[[], nn.Module]


class Of(nn.Module):
    """A body with anything behind it."""

    def __init__(self, channels: int, behind: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.body, self.behind = Body(channels), behind

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.behind(self.body(x))


def outputs(net: nn.Module) -> list[np.ndarray]:
    torch.set_num_threads(1)
    with torch.no_grad():
        return [net.eval()(photo).numpy() for photo in photos()]


def spec(array: np.ndarray, name: str = "out") -> TensorSpec:
    return TensorSpec(name=name, dtype="float32", shape=("batch", *array.shape[1:]))


def split(net: nn.Module, name: str = "out") -> FieldLayout:
    arrays = outputs(net)
    return infer_layout(spec(arrays[0], name), arrays)


@pytest.mark.parametrize("classes", [1, 2, 3, 20, 80])
@pytest.mark.parametrize("bias", [-6.0, -3.0, 0.0])
def test_a_joined_head_is_boxes_and_scores(classes: int, bias: float) -> None:
    found = split(JoinedHead(classes, bias=bias))
    assert found.axis == 1
    assert [(f.word, f.channels) for f in found.fields] == [
        ("boxes", (0, 1, 2, 3)),
        ("scores", tuple(range(4, 4 + classes))),
    ]
    assert found.fields[1].part == ("channel 4" if classes == 1 else f"channels 4-{3 + classes}")


@pytest.mark.parametrize("classes", [1, 20])
def test_channels_may_stand_last(classes: int) -> None:
    found = split(JoinedHead(classes, last=True))
    assert found.axis == 2
    assert [f.word for f in found.fields] == ["boxes", "scores"]
    assert found.fields[1].channels == tuple(range(4, 5 + classes))


def test_key_points_and_how_visible_they_are() -> None:
    found = split(Pose())
    visible = tuple(range(7, 56, 3))
    assert found.axis == 1
    by_word = {f.word: f.channels for f in found.fields}
    assert by_word["scores"] == (4, *visible)
    assert len(found.fields) == 2
    assert found.fields[1].part == "channels 4, 7, 10, ..."


@pytest.mark.parametrize(
    ("net", "axis", "word"),
    [
        (Classifier(6), 1, "values"),
        (Classifier(1000), 1, "values"),
        (nn.Sequential(Classifier(10), nn.Softmax(1)), 1, "scores"),
        (nn.Sequential(Classifier(64), nn.LayerNorm(64)), 1, "values"),  # an embedding
        (Of(64, lambda y: functional.normalize(y.mean((2, 3)), dim=1)), 1, "values"),
        (
            Of(21, lambda y: functional.interpolate(y, scale_factor=8.0)),
            1,
            "values",
        ),  # segmentation
        (Of(1, lambda y: (y.exp() * 10).squeeze(1)), 1, "values"),  # depth [B, H, W]
        (Of(92, lambda y: y.flatten(2).transpose(1, 2)), 1, "values"),  # DETR's logits [B, 64, 92]
        (Of(4, lambda y: y.flatten(2).transpose(1, 2).sigmoid()), 2, "values"),  # relative boxes
        (Of(4, lambda y: y.flatten(2).transpose(1, 2) * 3), 2, "values"),  # SSD's box offsets
        (Of(21, lambda y: y.flatten(2).transpose(1, 2).softmax(-1)), 2, "scores"),  # SSD's scores
        (Of(255, lambda y: y.unflatten(1, (3, 85)).permute(0, 1, 3, 4, 2)), 1, "values"),  # raw
    ],
)
def test_one_meaning_stays_one_field(net: nn.Module, axis: int, word: str) -> None:
    found = split(net)
    assert found.fields == (OutputField(word),), [f.part for f in found.fields]
    assert found.axis == axis


@pytest.mark.parametrize(
    ("name", "word"), [("pred_boxes", "boxes"), ("logits", "logits"), ("scores", "scores")]
)
def test_an_outputs_name_tells_what_it_holds(name: str, word: str) -> None:
    assert split(Of(4, lambda y: y.flatten(2).transpose(1, 2)), name).fields == (OutputField(word),)


def test_what_is_declared_is_not_inferred() -> None:
    arrays = outputs(JoinedHead(3))
    exported: Any = type("E", (), {})()
    exported.signature = Signature(inputs=(), outputs=(spec(arrays[0]),), dims={})
    exported.processing = type("P", (), {"outputs": ()})()
    exported.fields = {"out": "embedding"}
    found = field_layouts(exported, [{"out": a} for a in arrays])
    assert found["out"] == FieldLayout(1, (OutputField("embedding"),))
    assert Exported.__struct_fields__  # what stands in for it has the same fields
    assert {"signature", "processing", "fields"} <= set(Exported.__struct_fields__)


@pytest.mark.parametrize(
    ("magnitudes", "wanted"),
    [
        ([640, 600, 80, 90, 0.9, 0.5, 0.7], [1, 1, 1, 1, 0, 0, 0]),
        ([1, 2, 4, 7, 13, 25], [0, 0, 0, 0, 0, 0]),
        ([0, 640, 0, 1, 0], [1, 1, 1, 0, 0]),
        ([0, 0, 0], [0, 0, 0]),
        ([640, 1, 640, 1], [1, 0, 1, 0]),
    ],
)
def test_levels(magnitudes: list[float], wanted: list[int]) -> None:
    assert levels(np.array(magnitudes, float)).tolist() == wanted


def compared(
    pairs: Sequence[tuple[np.ndarray, np.ndarray]], found: FieldLayout, floor: float = 1e-3
) -> TensorComparison:
    difference = TensorComparison(floor, {"y": found})
    for i, (wanted, got) in enumerate(pairs):
        difference.add(f"input {i}", True, {"y": wanted}, {"y": got})
    return difference


def test_each_field_has_its_own_scale() -> None:
    """A tenth off in the scores is a thousandth of a thousandth of the boxes."""
    arrays = outputs(JoinedHead(3))
    wrong = [a.copy() for a in arrays]
    for array in wrong:
        array[:, 4:] *= 0.9
    found = compared(list(zip(arrays, wrong, strict=True)), split(JoinedHead(3)))
    boxes, scores = found.natural()
    assert (boxes.field, scores.field, scores.part) == ("boxes", "scores", "channels 4-6")
    assert float(boxes.relative) == 0.0
    everything = np.stack([a[:, 4:] for a in arrays])
    span = everything.max() - everything.min()
    assert float(scores.relative) == pytest.approx(0.1 * everything.max() / span, rel=1e-4)
    assert found.of(0) == pytest.approx(0.1 * arrays[0][:, 4:].max() / span, rel=1e-4)


def test_noise_is_measured_around_the_mean() -> None:
    rng = np.random.default_rng(0)
    wanted = [(320 + 50 * rng.standard_normal((1, 3, 40))).astype(np.float32) for _ in range(20)]
    got = [(a + 5 * rng.standard_normal(a.shape)).astype(np.float32) for a in wanted]
    (diff,) = compared(
        list(zip(wanted, got, strict=True)), FieldLayout(1, (OutputField("values"),))
    ).natural()
    stacked = np.concatenate(wanted).astype(np.float64)
    noise = np.square(np.concatenate(got).astype(np.float64) - stacked)
    power = np.square(stacked - stacked.mean((0, 2), keepdims=True))
    by_hand = 10 * np.log10(power.mean() / noise.mean())
    assert float(diff.snr or 0) == pytest.approx(by_hand, abs=1e-3)
    each = 10 * np.log10(power.mean((0, 2)) / noise.mean((0, 2)))
    assert float(diff.channel_snr or 0) == pytest.approx(each.min(), abs=1e-3)
    assert diff.noisiest == int(each.argmin())


def test_divergence_is_pytorchs() -> None:
    torch.manual_seed(0)
    wanted, got = torch.randn(5, 1, 11) * 3, torch.randn(5, 1, 11) * 3
    logits = FieldLayout(1, (OutputField("logits", softmax=True),))
    pairs = list(zip(wanted.numpy(), got.numpy(), strict=True))
    (diff,) = compared(pairs, logits).natural()
    by_torch = functional.kl_div(
        got[:, 0].log_softmax(-1),
        wanted[:, 0].log_softmax(-1),
        log_target=True,
        reduction="batchmean",
    )
    assert float(diff.kl or 0) == pytest.approx(float(by_torch), rel=1e-5)


def kinds(
    pairs: Sequence[tuple[np.ndarray, np.ndarray]], found: FieldLayout
) -> list[tuple[str, str]]:
    return [(fault.kind, fault.finding) for fault in compared(pairs, found).faults()]


def with_changes(arrays: Sequence[np.ndarray], change: Callable[[np.ndarray], None]) -> Any:
    wrong = [a.copy() for a in arrays]
    for array in wrong:
        change(array)
    return list(zip(arrays, wrong, strict=True))


def test_a_field_of_zeros() -> None:
    arrays, found = outputs(JoinedHead(3)), split(JoinedHead(3))

    def no_scores(array: np.ndarray) -> None:
        array[:, 4:] = 0

    (fault,) = kinds(with_changes(arrays, no_scores), found)
    assert fault[0] == "field-moves"
    assert "scores" in fault[1]
    assert "channels 4-6" in fault[1]
    assert "zero" in fault[1]


def test_a_class_that_died_is_named() -> None:
    arrays, found = outputs(JoinedHead(3, bias=0.0)), split(JoinedHead(3, bias=0.0))

    def dead(array: np.ndarray) -> None:
        array[:, 5] = 0.25

    (fault,) = kinds(with_changes(arrays, dead), found)
    assert fault[0] == "field-moves"
    assert "channel 5" in fault[1]


def test_a_box_that_stands_still_for_every_input() -> None:
    arrays, found = outputs(JoinedHead(3)), split(JoinedHead(3))
    still = arrays[0][:, :4]

    def boxes(array: np.ndarray) -> None:
        array[:, :4] = still

    (fault,) = kinds(with_changes(arrays, boxes), found)
    assert fault[0] == "field-moves"
    assert "boxes" in fault[1]


def test_a_constant_that_became_another() -> None:
    rng = np.random.default_rng(1)
    arrays = [
        np.stack([np.zeros(5), rng.standard_normal(5)])[None].astype(np.float32) for _ in range(6)
    ]
    whole = FieldLayout(1, (OutputField("values"),))

    def lost_relu(array: np.ndarray) -> None:
        array[:, 0] = -5

    (fault,) = kinds(with_changes(arrays, lost_relu), whole)
    assert fault == ("constant-kept", "output 'y' holds -5 where the reference is 0 on every input")


def test_scores_at_their_ends() -> None:
    rng = np.random.default_rng(1)
    arrays = [rng.uniform(0.2, 0.8, (1, 30)).astype(np.float32) for _ in range(6)]
    pairs = [(a, (a > 0.5).astype(np.float32)) for a in arrays]
    (fault,) = kinds(pairs, FieldLayout(1, (OutputField("scores"),)))
    assert fault[0] == "scores-spread"


def rounded(array: np.ndarray, low: float, high: float, steps: int = 255) -> np.ndarray:
    """Through an 8-bit scale and back."""
    step = (high - low) / steps
    return (np.round((array - low) / step).clip(0, steps) * step + low).astype(np.float32)


@pytest.mark.parametrize("classes", [1, 3, 80])
@pytest.mark.parametrize("bias", [-9.0, -6.0, -3.0, 0.0])
def test_an_honest_8_bit_scale_breaks_nothing(classes: int, bias: float) -> None:
    """Boxes on their own 8-bit scale, scores on one from 0 to 1."""
    net = JoinedHead(classes, bias=bias)
    arrays, found = outputs(net), split(net)

    def honest(array: np.ndarray) -> None:
        array[:, :4] = rounded(array[:, :4], array[:, :4].min(), array[:, :4].max())
        array[:, 4:] = rounded(array[:, 4:], 0, 1)

    assert kinds(with_changes(arrays, honest), found) == []
