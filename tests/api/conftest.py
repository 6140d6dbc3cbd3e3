"""The toy model's folder as the working directory, and its module as the caller imports it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image
from testkit.modules import load

_PIPELINE = Path(__file__).parents[1] / "pipeline" / "conftest.py"


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder: toy.py and 40 one-colour photos with noise, each its own group."""
    folder = tmp_path_factory.mktemp("project")
    pipeline = load(_PIPELINE, "pipeline_conftest_for_api")
    (folder / "toy.py").write_text(pipeline.TOY)
    (folder / "photos").mkdir()
    rng = np.random.default_rng(0)
    for i in range(40):
        pixels = rng.integers(0, 60, (20 + i, 30, 3))
        pixels[..., i % 3] += 150
        Image.fromarray(pixels.astype(np.uint8)).save(folder / "photos" / f"{i:02}.png")
    return folder


@pytest.fixture
def toy(project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module of the toy model; the working directory is its folder."""
    monkeypatch.chdir(project)
    monkeypatch.syspath_prepend(str(project))
    import toy  # type: ignore[import-not-found]

    yield toy
    sys.modules.pop("toy", None)


@pytest.fixture
def server(toy: Any) -> Any:
    """A function as users write them: a closure over a loaded model, with Pillow and numpy."""
    import io

    import torch

    model = toy.Toy().eval()

    def predict(raw: bytes) -> dict[str, Any]:
        image = (
            Image.open(io.BytesIO(raw)).convert("RGB").resize((16, 16), Image.Resampling.BILINEAR)
        )
        x = torch.from_numpy(np.asarray(image).transpose(2, 0, 1)[None].astype("float32")) / 128 - 1
        scores = model(x).softmax(1)[0].tolist()
        top = sorted(zip(toy.LABELS, scores, strict=True), key=lambda pair: -pair[1])
        return {"label": top[0][0], "score": top[0][1], "top": top}

    return predict
