"""A toy model, its data and one converted workspace, shared; tests work on copies."""

from __future__ import annotations

import functools
import shutil
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from testkit.command import Done, command, command_process

TOY = textwrap.dedent('''
    """A picture of one colour in, its colour out: three classes by mean colour."""
    import torch

    LABELS = ["red", "green", "blue"]

    class Toy(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)
            self.head = torch.nn.Linear(3, 3)
            with torch.no_grad():
                self.head.weight.copy_(torch.eye(3) * 8 - 1)
                self.head.bias.zero_()

        def forward(self, image):
            texture = torch.relu(self.conv(image)).mean(dim=(1, 2, 3), keepdim=False)
            return self.head(image.mean(dim=(2, 3))) + 0.01 * texture[:, None]

    def build():
        batch = torch.export.Dim("batch", min=1, max=8)
        steps = [
            {"step": "decode/1"},
            {"step": "resize/1", "height": 16, "width": 16, "filter": "bilinear"},
            {"step": "normalize/1", "scale": [1 / 128] * 3, "bias": [-1.0] * 3},
            {"step": "layout/1", "order": "CHW"},
        ]
        options = {
            "input_names": ["image"], "output_names": ["logits"],
            "dynamic_shapes": ({0: batch},), "task": "image-classification", "labels": LABELS,
            "processing": {
                "inputs": [{"name": "image", "steps": steps}],
                "outputs": [{"step": "softmax/1", "output": "logits"},
                            {"step": "top_k/1", "output": "logits", "k": 3}],
            },
        }
        return Toy().eval(), (torch.rand(2, 3, 16, 16),), options

    def tensors():
        """The same without processing: named tensors."""
        module, example, _ = build()
        return module, example, {"input_names": ["image"], "output_names": ["logits"]}

    def nan():
        """A weight is NaN: the reference answers NaN, and so does every faithful conversion."""
        module, example, options = build()
        with torch.no_grad():
            module.head.bias[1] = float("nan")
        return module, example, options

    def broken():
        raise ValueError("the weights are gone")

    def liar(raw):
        """A server that answers something, by the length of the file."""
        told = LABELS[len(raw) % 3]
        return {"label": told, "score": 0.9, "top": [[told, 0.9]]}

    def stuck(raw):
        """A server that answers green whatever it sees."""
        return {"label": "green", "score": 0.9, "top": [["green", 0.9], ["red", 0.1]]}

    def bare(raw):
        """The same in a word."""
        return "green"

    def zeros(raw):
        """A server that lost its weights: the same tensors for everything."""
        return {"logits": [[0.5, 0.1, 0.2]]}

    def dim(raw):
        """A server whose scale differs: same labels, other scores."""
        import io
        import numpy
        from PIL import Image
        pixels = numpy.asarray(Image.open(io.BytesIO(raw)).convert("RGB").resize((16, 16), 2))
        x = torch.from_numpy(pixels.transpose(2, 0, 1)[None].astype("float32")) / 900 - 0.1
        scores = Toy().eval()(x).softmax(1)[0].tolist()
        top = sorted(zip(LABELS, scores), key=lambda pair: -pair[1])
        return {"label": top[0][0], "score": top[0][1], "top": top}
''')


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder: toy.py and 40 one-colour photos with noise, each its own group."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "toy.py").write_text(TOY)
    (folder / "photos").mkdir()
    rng = np.random.default_rng(0)
    for i in range(40):
        pixels = rng.integers(0, 60, (20 + i, 30, 3))
        pixels[..., i % 3] += 150
        Image.fromarray(pixels.astype(np.uint8)).save(folder / "photos" / f"{i:02}.png")
    return folder


@pytest.fixture(scope="session")
def edgeserve(project: Path) -> Callable[..., Done]:
    """``edgeserve(WORDS, cwd=...)``: the command in this process, in the project folder."""
    return functools.partial(command, cwd=project)


@pytest.fixture
def edgeserve_process(project: Path) -> Callable[..., Done]:
    """The same in a process of its own, as a user starts it."""
    return functools.partial(command_process, cwd=project)


@pytest.fixture(scope="session")
def _converted(project: Path, edgeserve: Callable[..., Done]) -> tuple[Path, Done]:
    done = edgeserve("convert", "toy:build", "-o", "made", "--data", "photos", "--json")
    assert done.code == 0, done.err + done.out
    return project / "made", done


@pytest.fixture
def converted(_converted: tuple[Path, Done]) -> Done:
    """The command that made the shared workspace."""
    return _converted[1]


@pytest.fixture
def workspace(_converted: tuple[Path, Done], tmp_path: Path) -> Path:
    """A copy of the converted workspace."""
    return Path(shutil.copytree(_converted[0], tmp_path / "ws"))


def wait_for(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    """Wait until ``condition`` holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came so far"
        time.sleep(0.05)
