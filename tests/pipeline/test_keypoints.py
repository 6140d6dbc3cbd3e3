"""A pose net, the whole way: trained on drawn figures, proven against its server, packaged, asked.

Figures are drawn, so where their joints are is known exactly.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from dev.fixtures.pose_net import NAMES, figure, png, train
from edgeserve import Wrapper
from edgeserve.tasks.keypoints import COCO_SIGMAS, Keypoints

pytestmark = pytest.mark.slow
Run = Callable[..., Any]
PHOTOS, GOLDEN = 48, 6
SIZE = (128, 96)  # of a photo, width and height; the net sees it as 64 x 64
STEPS = 240  # some 13 seconds of a core

#: The user's own code: both models, and a server that reads each with loops of its own.
POSE = textwrap.dedent(
    """
    import io

    import numpy as np
    import torch
    from PIL import Image

    from pose_net import NAMES, PoseNet

    HERE = __file__.rpartition("/")[0]


    def net():
        found = PoseNet().eval()
        found.load_state_dict(torch.load(f"{HERE}/pose.pt"))
        return found


    class Head(torch.nn.Module):
        def __init__(self, which):
            super().__init__()
            self.net, self.which = net(), which

        def forward(self, image):
            return self.net(image)[self.which]


    def built(which, step):
        steps = [
            {"step": "decode/1"},
            {"step": "resize/1", "height": 64, "width": 64},
            {"step": "normalize/1", "scale": [1 / 127.5] * 3, "bias": [-1.0] * 3},
            {"step": "layout/1", "order": "CHW"},
        ]
        options = {
            "input_names": ["image"],
            "output_names": ["y"],
            "task": "keypoint-detection",
            "labels": list(NAMES),
            "dynamic_shapes": {"image": {0: ("batch", 1, 8)}},
            "processing": {"inputs": [{"name": "image", "steps": steps}], "outputs": [step]},
        }
        return Head(which).eval(), (torch.rand(2, 3, 64, 64),), options


    def maps():
        return built(0, {"step": "heatmaps/1", "output": "y", "activation": "sigmoid"})


    def rows():
        points, score = {"output": "y", "stop": 34}, {"output": "y", "start": 34}
        step = {"step": "poses/1", "points": points, "scores": score, "each": 2}
        return built(1, {**step, "unit": "relative", "activation": "sigmoid"})


    def seen(raw):
        photo = Image.open(io.BytesIO(raw)).convert("RGB")
        small = np.asarray(photo.resize((64, 64), Image.Resampling.BILINEAR), np.float32)
        with torch.no_grad():
            found = net()(torch.from_numpy(small).permute(2, 0, 1)[None] / 127.5 - 1)
        return photo.size, [each[0].numpy() for each in found]


    def sigmoid(x):
        return 1 / (1 + np.exp(-np.float64(x)))


    def serve_maps(raw):
        (width, height), (maps, _) = seen(raw)
        points, sure = [], []
        for one in maps:
            y, x = divmod(int(one.argmax()), 32)
            dx = np.sign(one[y, x + 1] - one[y, x - 1]) / 4 if 0 < x < 31 else 0
            dy = np.sign(one[y + 1, x] - one[y - 1, x]) / 4 if 0 < y < 31 else 0
            points.append([(x + 0.5 + dx) * width / 32, (y + 0.5 + dy) * height / 32])
            sure.append(sigmoid(one.max()))
        score = float(np.mean(sure))
        if score < 0.3:
            return {"points": np.zeros((0, 17, 2)), "scores": [], "point_scores": np.zeros((0, 17))}
        counted = [s if s >= 0.2 else 0.0 for s in sure]
        return {"points": [points], "scores": [score], "point_scores": [counted]}


    def serve_rows(raw):
        (width, height), (_, row) = seen(raw)
        points = [[x * width, y * height] for x, y in row[:34].reshape(17, 2)]
        score = float(sigmoid(row[34]))
        return {"points": [points], "scores": [score]} if score >= 0.5 else {
            "points": np.zeros((0, 17, 2)), "scores": []
        }
    """
)


def photo(number: int) -> tuple[bytes, np.ndarray]:
    """A photo's file, and the joints in its pixels."""
    picture, points = figure(np.random.default_rng((7, number)))
    wide = picture.resize(SIZE, Image.Resampling.BICUBIC)
    return png(wide), points * (SIZE[0] / picture.width, SIZE[1] / picture.height)


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder: the trained net, photos with true poses, and some that may be shipped."""
    folder = tmp_path_factory.mktemp("poses")
    (folder / "pose.py").write_text(POSE)
    source = importlib.util.find_spec("dev.fixtures.pose_net")
    assert source is not None
    assert source.origin is not None
    shutil.copy(source.origin, folder / "pose_net.py")
    torch.save(train(STEPS).state_dict(), folder / "pose.pt")
    (folder / "golden").mkdir()
    lines = []
    for i in range(PHOTOS + GOLDEN):
        data, points = photo(i)
        name = f"{i:02}.png" if i < PHOTOS else f"golden/{i:02}.png"
        (folder / name).write_bytes(data)
        flat = np.concatenate([points, np.ones((17, 1))], axis=1).ravel().tolist()
        if i < PHOTOS:
            lines.append(json.dumps({"input": name, "poses": [flat]}))
    (folder / "data.jsonl").write_text("\n".join(lines))
    return folder


def likeness(truth: np.ndarray, found: np.ndarray, area: float) -> float:
    """OKS point by point, as COCO's own evaluation writes it."""
    total = 0.0
    for (x, y), (u, v), sigma in zip(truth, found, COCO_SIGMAS, strict=True):
        total += np.exp(-((x - u) ** 2 + (y - v) ** 2) / (2 * sigma) ** 2 / area / 2)
    return float(total / len(truth))


def average_precision(pairs: list[tuple[float, float]], least: float) -> float:
    """Of one figure a photo: (score, likeness) of each pose found."""
    found = sorted(pairs, key=lambda pair: -pair[0])
    hits = np.cumsum([alike >= least for _, alike in found])
    precision = hits / np.arange(1, len(hits) + 1)
    return float(
        np.mean([max(precision[100 * hits >= at * PHOTOS / 2], default=0.0) for at in range(101)])
    )


@pytest.mark.parametrize(
    ("factory", "least", "formats"), [("maps", 0.75, ["onnx", "tflite"]), ("rows", 0.55, ["onnx"])]
)
def test_from_the_trained_net_to_a_prediction(
    edgeserve: Run, studio: Path, factory: str, least: float, formats: list[str]
) -> None:
    out, bundle = studio / factory, studio / f"{factory}.edge"
    server = f"pose:serve_{factory}"
    told = ("--to", ",".join(formats), "--data", "data.jsonl", "--reference", server)
    made = edgeserve("convert", f"pose:{factory}", "-o", str(out), *told, "--json", cwd=studio)
    assert made.code == 0, made.err + made.out
    verdicts = {a["format"]: a["verdict"] for a in made.json["artifacts"]}
    assert verdicts == dict.fromkeys(formats, "pass")
    again = edgeserve("validate", str(out), "--golden", "golden", cwd=studio)
    assert again.code == 0, again.err + again.out
    report = json.loads((out / "reports" / "onnx-fp32.validate.json").read_bytes())
    assert report["preprocessing"].startswith("compared")
    assert report["decisions"]["unit"] == "poses"
    assert report["decisions"]["decided"]["count"] == 0
    assert report["decisions"]["figures"]["map50"] == 1.0
    assert report["decisions"]["figures"]["oks"] > 0.999
    metrics = {each["metric"]: each for each in report["metrics"]}
    assert metrics.keys() == {"map50", "map"}

    packed = edgeserve("package", str(out), "-o", str(bundle), "--name", factory, cwd=studio)
    assert packed.code == 0, packed.err
    assert edgeserve("verify", str(bundle), cwd=studio).code == 0
    asked = edgeserve("predict", str(bundle), str(studio / "golden" / "50.png"), cwd=studio)
    assert asked.code == 0, asked.err
    assert "1 pose (surest " in asked.out
    assert "left_knee " in asked.out

    judged = {Path(each["id"]).name for each in report["worst"]}
    alike, pairs = [], []
    with Wrapper(bundle) as model:
        for i in range(PHOTOS):
            data, points = photo(i)
            record = model.predict(data)
            assert isinstance(record, Keypoints)
            assert record.labels == NAMES
            assert record.points.shape == (1, 17, 2)
            wide, high = points.max(axis=0) - points.min(axis=0)
            alike.append(likeness(points, record.points[0], 0.53 * wide * high))
            if f"{i:02}.png" in evaluated(out):
                pairs.append((float(record.scores[0]), alike[-1]))
        empty = model.predict(np.full((96, 128, 3), 90, np.uint8))
    assert judged <= evaluated(out)
    assert len(empty.scores) == 0 or factory == "rows", "a wall is no figure"
    assert np.mean(alike) > least, "it has learnt where joints are"
    assert float(metrics["map50"]["artifact"]) == pytest.approx(average_precision(pairs, 0.5))
    overlaps = np.linspace(0.5, 0.95, 10)
    whole = np.mean([average_precision(pairs, at) for at in overlaps])
    assert float(metrics["map"]["artifact"]) == pytest.approx(whole)


def evaluated(out: Path) -> set[str]:
    """Photos that the gate judged on."""
    answers = json.loads((out / "samples" / "answers.json").read_bytes())
    return {sample["id"] for sample in answers["samples"]}
