"""`Wrapper` on a real TFLite file of two lengths, beside the model's ONNX file; and in small apps.

The apps have a runtime, tokenizers and nothing else: no Pillow, and nothing that converts.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeserve import Wrapper
from edgeserve.errors import BackendError
from edgeserve.types.artifact import Artifact
from edgeserve.wrapper import verify

pytestmark = pytest.mark.slow

_PREDICT_TEXT = """
import json, sys
from edgeserve import Wrapper
from edgeserve.types.base import encode

with Wrapper(sys.argv[1]) as model:
    answers = model.predict(json.loads(sys.argv[2]))
    certificate = model.verify()
print(json.dumps({
    "answers": [json.loads(encode(answer)) for answer in answers],
    "verdict": certificate.verdict,
    "not_run": certificate.not_run,
    "loaded": sorted({name.partition(".")[0] for name in sys.modules}),
}))
"""

_BASE = ("numpy", "msgspec", "filelock", "platformdirs", "tokenizers")
#: The last ones are required by tokenizers, and could reach a network.
_BANNED = {
    "PIL",
    "coremltools",
    "litert_torch",
    "onnx",
    "scipy",
    "torch",
    "transformers",
    "httpx",
    "huggingface_hub",
    "requests",
}


def predict(python: str, root: Path, text: Any, folder: Path) -> dict[str, Any]:
    """What such an app says, after a look that its answers are right."""
    command = [python, "-P", "-c", _PREDICT_TEXT, root, json.dumps(text.texts)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    assert said["verdict"] == "pass"
    for answer, each in zip(said["answers"], text.texts, strict=True):
        assert answer["vector"] == pytest.approx(list(text.vector(each)), abs=1e-5)
        assert answer["ran_on"]["proof"] == "golden"
    assert _BANNED & set(said["loaded"]) == set()
    return said


@pytest.fixture
def words(text: Any, converted: tuple[Path, Artifact]) -> Any:
    text.tflite = converted
    return text


def test_the_file_is_fixed_in_every_way(converted: tuple[Path, Artifact]) -> None:
    """What the other tests stand on: one text, int32, 16 or 32 tokens."""
    shapes = [[(s.dtype, s.shape) for s in io.inputs] for io in converted[1].buckets]
    assert shapes == [[("int32", (1, n))] * 2 for n in (16, 32)]


def test_texts_and_lists_of_all_lengths(words: Any) -> None:
    many = [f"{'the birds over the sea ' * (n % 7)}{n} cats" for n in range(21)]
    lengths = {len(words.ids(each)) for each in (*many, *words.texts)}
    assert {2, 32} <= lengths
    assert len(lengths) > 8
    with Wrapper(words.workspace("tflite-fp32"), threads=1) as model:
        assert (model.ran_on.format, model.ran_on.proof) == ("tflite", "golden")
        for each in words.texts:
            assert words.agrees(model.predict(each), each)
        answers = model.predict(many)
        assert all(words.agrees(a, each) for a, each in zip(answers, many, strict=True))


def test_tensors_of_the_source_go_in_and_come_out(words: Any) -> None:
    rows = [words.ids(each) for each in words.texts[:2]]
    longest = max(map(len, rows))
    assert longest not in (16, 32)
    ids = np.array([row + [0] * (longest - len(row)) for row in rows])
    mask = np.array([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
    with Wrapper(words.workspace("tflite-fp32"), threads=1) as model:
        vectors = model.predict({"ids": ids, "mask": mask})["vectors"]
        assert vectors.shape == (2, longest, 16)
        for n, row in enumerate(rows):
            wanted = words.tokens(words.texts[n])
            np.testing.assert_allclose(vectors[n, : len(row)], wanted, atol=1e-5)
        with pytest.raises(BackendError) as refused:
            model.predict({"ids": np.array([[2, 1 << 40]]), "mask": np.array([[1, 1]])})
        assert refused.value.code == "EDGE-BACKEND-021"


def test_both_formats_of_one_model_hold(words: Any) -> None:
    root = words.workspace("onnx-fp32", "tflite-fp32")
    certificate = verify(root)
    assert certificate.verdict == "pass"
    assert {p.format for p in certificate.proofs} == {"onnx", "tflite"}
    with Wrapper(root, threads=1) as model:
        assert model.ran_on.note == ""
        assert words.agrees(model.predict("the cat"), "the cat")


def test_an_app_with_onnxruntime(text: Any, app: Callable[..., str], tmp_path: Path) -> None:
    said = predict(app(*_BASE, "onnxruntime"), text.workspace(), text, tmp_path)
    assert {"onnxruntime", "tokenizers"} <= set(said["loaded"])
    assert said["answers"][0]["ran_on"]["note"] == ""


def test_an_app_with_litert(words: Any, app: Callable[..., str], tmp_path: Path) -> None:
    root = words.workspace("onnx-fp32", "tflite-fp32")
    said = predict(app(*_BASE, "ai-edge-litert"), root, words, tmp_path)
    assert "onnxruntime" not in said["loaded"]
    for answer in said["answers"]:
        assert answer["ran_on"]["runtime"]["name"] == "litert"
    [other] = said["not_run"]
    assert other.startswith("onnx-fp32: its runtime is not here")
