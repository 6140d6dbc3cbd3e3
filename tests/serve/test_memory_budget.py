"""The memory budget: held by what models' files take, whatever the process seems to grow by."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeserve.errors import ServeError
from edgeserve.serve import App, ServeOptions

#: 2.6 MB of weights in one model.
SIDE, MB = 800, 1 << 20


@pytest.fixture(scope="module")
def heavy(models: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """``heavy(name)``: a workspace of a model whose weights are 2.6 MB."""
    import onnx

    from edgeserve.types.processing import Processing
    from edgeserve.types.tensors import Signature, TensorSpec

    specs = [
        TensorSpec(name=name, dtype="float32", shape=("batch", SIDE)) for name in ("x", "logits")
    ]
    sign = Signature(inputs=(specs[0],), outputs=(specs[1],), dims={"batch": (1, 2)})
    weights = np.random.default_rng(1).normal(size=(SIDE, SIDE)).astype(np.float32)
    data = models.model(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["logits"])], sign, {"w": weights}
    )
    made = models.Make(tmp_path_factory.mktemp("heavy"), lambda workspace: None, sign, [])
    fields: dict[str, Any] = {"task": "tensors", "processing": Processing(), "labels": ()}
    root = made.workspace(models.Made("onnx-fp32", data), golden=False, **fields)

    def one(name: str) -> str:
        path = tmp_path_factory.mktemp("copies") / name
        shutil.copytree(root, path)
        manifest = json.loads((path / "manifest.json").read_text()) | {"name": name}
        (path / "manifest.json").write_text(json.dumps(manifest, separators=(",", ":")))
        return str(path)

    return one


@pytest.mark.parametrize("lazy", [False, True])
def test_a_model_larger_than_the_budget_is_refused_at_the_start(heavy: Any, lazy: bool) -> None:
    with pytest.raises(ServeError) as error:
        App(ServeOptions(bundles=(heavy("big"),), memory_mb=1, lazy=lazy))
    assert error.value.code == "EDGE-SERVE-027"
    assert "--memory-mb to 3 or more" in error.value.hint


def test_pinned_models_that_do_not_fit_together_end_the_start(heavy: Any) -> None:
    given: dict[str, Any] = {"memory_mb": 4, "pinned": ("one",), "threads": 1, "workers": 1}
    end = App(ServeOptions(bundles=(heavy("one"), heavy("two")), **given))

    async def start() -> None:
        try:
            await end.start()
        finally:
            await end.stop()

    with pytest.raises(ServeError) as error:
        asyncio.run(start())
    assert error.value.code == "EDGE-SERVE-027"


def test_a_model_loaded_again_still_counts(asgi: Any, heavy: Any) -> None:
    """The room that it left is found again, so that the process does not grow."""
    end = asgi(heavy("one"), heavy("two"), memory_mb=4, lazy=True)
    repository = end.app.service.repository
    for name in ("one", "two", "one", "two", "one"):
        assert end.call("GET", f"/v2/models/{name}").status == 200
        assert {hosted.name for hosted in repository.loaded()} == {name}
        assert repository.places[name].hosted.memory >= 4 * SIDE * SIDE


def test_a_pin_names_a_model(tagger: str) -> None:
    with pytest.raises(ServeError, match="tagger") as error:
        App(ServeOptions(bundles=(tagger,), pinned=("nope",)))
    assert error.value.code == "EDGE-SERVE-002"


def test_a_failed_swap_says_that_the_old_one_goes_on(
    asgi: Any, maker: Any, models: Any, tmp_path: Path
) -> None:
    shutil.copytree(maker.workspace(), tmp_path / "tagger")
    end = asgi(str(tmp_path / "tagger"))
    (tmp_path / "tagger" / "manifest.json").write_text("{}")
    said = end.call("POST", "/v2/repository/models/tagger/load")
    assert (said.status, said.json["code"]) == (503, "EDGE-SERVE-018")
    assert "the old one, version 1" in said.json["error"]
    assert "goes on answering" in said.json["error"]
    photo = models.png(models.pixels(1))
    assert end.call("POST", "/v2/models/tagger/predict", photo).status == 200
