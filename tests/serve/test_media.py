"""Raw inputs other than photos: what the app sends goes through the bundle's own processing."""

from __future__ import annotations

import gzip
import io
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
from scipy.io import wavfile
from scipy.signal import resample_poly
from testkit.modules import load

from edgeserve import Wrapper, oip
from edgeserve.processing.steps.softmax import Softmax
from edgeserve.processing.steps.waveform import Waveform
from edgeserve.tasks.classification import Classification
from edgeserve.tasks.embedding import Embedding
from edgeserve.types.base import decode
from edgeserve.types.processing import InputProcessing, Processing
from edgeserve.types.tensors import Signature, TensorSpec

PREDICT, INFER = "/v2/models/words/predict", "/v2/models/words/infer"


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The Wrapper's text model; PyTorch and the library tokenizers know its answers."""
    path = Path(__file__).parents[1] / "wrapper/text/textmodel.py"
    module = load(path, "serve_textmodel")
    return module.TextMake(tmp_path_factory.mktemp("texts"))


@pytest.fixture(scope="module")
def root(text: Any) -> str:
    return str(text.workspace())


@pytest.fixture(scope="module")
def app(root: str, bare_app: Callable[..., Any]) -> Iterator[Any]:
    one = bare_app(root)
    yield one
    one.close()


def test_a_text_s_bytes_become_its_vector(app: Any, text: Any, root: str) -> None:
    """By the oracle, and to the last bit as the Wrapper has it on the device."""
    with Wrapper(root, threads=1) as device:
        for each in text.texts:
            reply = app.call("POST", PREDICT, each.encode())
            assert reply.status == 200, reply.body
            answer = decode(json.dumps(reply.json["answer"]), Embedding)
            np.testing.assert_allclose(answer.vector, text.vector(each), atol=1e-5)
            here = device.predict(each)
            np.testing.assert_array_equal(answer.vector, here.vector)
            assert reply.json["model_id"] == device.manifest.model_id


def test_texts_packed_and_by_the_protocol_alone(app: Any, text: Any) -> None:
    packed = gzip.compress(text.texts[2].encode())
    reply = app.call("POST", PREDICT, packed, {"content-encoding": "gzip"})
    vector = decode(json.dumps(reply.json["answer"]), Embedding).vector
    np.testing.assert_allclose(vector, text.vector(text.texts[2]), atol=1e-5)
    said = {"name": "raw", "shape": [len(text.texts)], "datatype": "BYTES", "data": text.texts}
    reply = app.call("POST", INFER, json.dumps({"inputs": [said]}).encode())
    assert reply.status == 200, reply.body
    for item, each in zip(reply.json["outputs"][0]["data"], text.texts, strict=True):
        found = decode(item, Embedding)
        np.testing.assert_allclose(found.vector, text.vector(each), atol=1e-5)


def test_tokens_as_tensors(app: Any, text: Any) -> None:
    ids = np.array([text.ids(text.texts[0])])
    tensors = [oip.Tensor("ids", ids), oip.Tensor("mask", np.ones_like(ids))]
    body, head = oip.write_request(tensors)
    reply = app.call("POST", INFER, body, {"inference-header-content-length": str(head)})
    assert reply.status == 200, reply.body
    length = int(reply.headers["inference-header-content-length"])
    [vectors] = oip.read_response(reply.body, length).outputs
    np.testing.assert_allclose(vectors.array[0], text.tokens(text.texts[0]), atol=1e-5)


@pytest.mark.parametrize(
    "data", [b"\xff\xfe", b"\xc3\x28", b"\x89PNG\r\n\x1a\n\0\0", b"a\xed\xa0\x80"]
)
def test_bytes_that_are_no_text(app: Any, data: bytes) -> None:
    reply = app.call("POST", PREDICT, data)
    assert reply.status == 400
    assert reply.json["code"].startswith("EDGE-INPUT-")
    assert '"fault"' not in app.log.getvalue()


def test_a_text_beyond_all_length_is_cut_as_the_oracle_cuts_it(app: Any, text: Any) -> None:
    long = "the birds over the sea " * 20_000
    reply = app.call("POST", PREDICT, long.encode())
    assert reply.status == 200
    vector = decode(json.dumps(reply.json["answer"]), Embedding).vector
    np.testing.assert_allclose(vector, text.vector(long), atol=1e-5)


EARS = "/v2/models/tagger/predict"
_PITCHES = np.random.default_rng(3).normal(size=(400, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def ears(models: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model of sounds: 400 samples at 8000 Hz times a matrix; scipy knows its answers."""
    specs = (
        TensorSpec(name=name, dtype="float32", shape=("batch", *shape))
        for name, shape in (("wave", (1, 400)), ("logits", (3,)))
    )
    wave, logits = specs
    signature = Signature(inputs=(wave,), outputs=(logits,), dims={"batch": (1, 8)})
    nodes = [
        onnx.helper.make_node("Flatten", ["wave"], ["flat"]),
        onnx.helper.make_node("MatMul", ["flat", "w"], ["logits"]),
    ]
    data = models.model(nodes, signature, {"w": _PITCHES})
    made = models.Make(tmp_path_factory.mktemp("ears"), lambda workspace: None, signature, [])
    steps = (Waveform(rate=8000, length=400),)
    processing = Processing(
        inputs=(InputProcessing(name="wave", steps=steps),), outputs=(Softmax(output="logits"),)
    )
    words = {"task": "audio-classification", "labels": ("a", "b", "c"), "processing": processing}
    return str(made.workspace(models.Made("onnx-fp32", data), golden=False, **words))


def heard(raw: bytes) -> np.ndarray:
    """Probabilities, by scipy and numpy: float64 [3]."""
    rate, read = wavfile.read(io.BytesIO(raw))
    x = (read / 32_768).reshape(len(read), -1).mean(axis=1)
    x = resample_poly(x, 8000 // math.gcd(rate, 8000), rate // math.gcd(rate, 8000))[:400]
    e = np.exp(np.pad(x, (0, 400 - len(x))) @ _PITCHES)
    return np.asarray(e / e.sum())


def recording(seed: int, rate: int, count: int, channels: int = 1) -> bytes:
    rng = np.random.default_rng(seed)
    out = io.BytesIO()
    wavfile.write(out, rate, rng.integers(-20_000, 20_000, (count, channels)).astype(np.int16))
    return out.getvalue()


def test_a_sound_s_bytes_become_its_class(ears: str, bare_app: Callable[..., Any]) -> None:
    """By the oracle, and as the Wrapper has it; packed, and by the protocol alone."""
    app = bare_app(ears)
    sounds = [
        recording(1, 8000, 400),
        recording(2, 8000, 150),
        recording(3, 44_100, 9000, 2),
        recording(4, 11_025, 70),
    ]
    try:
        with Wrapper(ears, threads=1) as device:
            for raw in sounds:
                reply = app.call("POST", EARS, gzip.compress(raw), {"content-encoding": "gzip"})
                assert reply.status == 200, reply.body
                answer = decode(json.dumps(reply.json["answer"]), Classification)
                scores = dict(answer.top)
                np.testing.assert_allclose([scores[c] for c in "abc"], heard(raw), atol=1e-5)
                assert answer.top == device.predict(raw).top
        raws = np.empty(len(sounds), object)
        raws[:] = sounds
        body, head = oip.write_request([oip.Tensor("raw", raws)])
        length = {"inference-header-content-length": str(head)}
        reply = app.call("POST", "/v2/models/tagger/infer", body, length)
        assert reply.status == 200, reply.body
        said = reply.headers.get("inference-header-content-length")
        [tensor] = oip.read_response(reply.body, int(said) if said else None).outputs
        for item, raw in zip(tensor.array.reshape(-1), sounds, strict=True):
            found = decode(item, Classification)
            assert found.index == int(heard(raw).argmax())
        metadata = app.call("GET", "/v2/models/tagger").json
        assert "audio" in json.dumps(metadata)
    finally:
        app.close()


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"", "EDGE-INPUT-030"),
        (b"fLaC" + bytes(40), "EDGE-INPUT-030"),
        (b"the cat sat", "EDGE-INPUT-030"),
        (recording(1, 8000, 99)[:-1], "EDGE-INPUT-031"),
        (recording(1, 8000, 99)[:43], "EDGE-INPUT-031"),
        (recording(1, 500, 99), "EDGE-INPUT-033"),
    ],
)
def test_bytes_that_are_no_sound(
    ears: str, bare_app: Callable[..., Any], raw: bytes, code: str
) -> None:
    app = bare_app(ears)
    try:
        reply = app.call("POST", EARS, raw)
        assert (reply.status, reply.json["code"]) == (400, code)
        assert '"fault"' not in app.log.getvalue()
    finally:
        app.close()
