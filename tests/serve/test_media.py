"""Raw inputs other than photos: what the app sends goes through the bundle's own processing."""

from __future__ import annotations

import gzip
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeserve import Wrapper, oip
from edgeserve.types.base import decode
from edgeserve.types.records import Embedding

PREDICT, INFER = "/v2/models/words/predict", "/v2/models/words/infer"


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The Wrapper's text model; PyTorch and the library tokenizers know its answers."""
    path = Path(__file__).parents[1] / "wrapper/text/textmodel.py"
    spec = importlib.util.spec_from_file_location("serve_textmodel", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
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
    [vectors] = oip.read_answer(reply.body, length).outputs
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
