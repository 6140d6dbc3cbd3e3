"""An endpoint as the reference: edgeserve's own, and strangers that speak the protocol, or do not.

The strangers are written by hand over `http.server`: nothing of edgeserve's codec is in them.
"""

from __future__ import annotations

import contextlib
import io
import json
import struct
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from testkit.modules import load
from torch import nn

from edgeserve.data import Feed
from edgeserve.errors import ValidateError
from edgeserve.types.processing import Processing
from edgeserve.validate.reference.endpoint import KEY_VARIABLE, EndpointReference, endpoint_key


def _models() -> Any:
    path = Path(__file__).parents[2] / "wrapper" / "conftest.py"
    return load(path, "endpoint_models")


MODELS = _models()
THREE = [f"picture {i}" for i in range(3)]
PICTURES = [MODELS.pixels(i) for i in range(3)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return MODELS.Make(tmp_path_factory.mktemp("served"), lambda workspace: None)


@pytest.fixture(scope="module")
def tagger(build: Callable[..., Any]) -> Any:
    """The same classifier in PyTorch, exported and converted."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(*MODELS.W.shape))
    with torch.no_grad():
        net[1].weight.copy_(torch.from_numpy(MODELS.W.T))  # type: ignore[union-attr]
        net[1].bias.copy_(torch.from_numpy(MODELS.B))  # type: ignore[union-attr]
    return build(
        net,
        torch.from_numpy(MODELS.oracle_tensor(PICTURES[0])),
        dynamic_shapes=({0: "batch"},),
        input_names=("image",),
        output_names=("logits",),
        task="image-classification",
        processing=MODELS.PROCESSING,
        labels=MODELS.LABELS,
    )


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    for i in range(60):
        (folder / f"{i}.png").write_bytes(MODELS.png(MODELS.pixels(i)))
    return folder


Answer = tuple[int, dict[str, str], bytes]


class Stranger(BaseHTTPRequestHandler):
    """A server of another make. What it says is set by the tests."""

    said: dict[str, Any]
    asked: list[tuple[str, dict[str, str], bytes]]
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.answer(b"")

    def do_POST(self) -> None:
        self.answer(self.rfile.read(int(self.headers.get("content-length", 0))))

    def answer(self, body: bytes) -> None:
        self.asked.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
        found = self.said.get(self.path, (404, {}, b'{"error": "unknown"}'))
        status, headers, data = found(self, body) if callable(found) else found
        self.send_response(status)
        for name, value in {"content-length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def stranger() -> Iterator[Callable[..., tuple[str, type[Stranger]]]]:
    """``stranger(said)``: the address of a server with these answers, and what it was asked."""
    servers: list[ThreadingHTTPServer] = []

    def start(said: dict[str, Any]) -> tuple[str, type[Stranger]]:
        kind = type("One", (Stranger,), {"said": said, "asked": []})
        server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}", kind

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def plain(value: object, status: int = 200) -> Answer:
    return status, {"content-type": "application/json"}, json.dumps(value).encode()


def port(name: str, datatype: str, *shape: int) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": list(shape)}


def metadata(inputs: list[Any], outputs: list[Any], *extensions: str) -> dict[str, Any]:
    """What a stranger says of itself and of a model ``net``."""
    return {
        "/v2": plain({"name": "triton", "version": "2.50", "extensions": extensions}),
        "/v2/models/net": plain(
            {"name": "net", "versions": ["1", "3"], "inputs": inputs, "outputs": outputs}
        ),
    }


IMAGE = port("image", "FP32", -1, 3, MODELS.SIDE, MODELS.SIDE)
LOGITS = port("logits", "FP32", -1, len(MODELS.LABELS))


def logits_of(x: np.ndarray) -> np.ndarray:
    return x.reshape(len(x), -1) @ MODELS.W + MODELS.B


def infer(handler: Any, body: bytes) -> Answer:
    """Tensors in JSON, as the protocol's REST has them without any extension."""
    (given,) = json.loads(body)["inputs"]
    x = np.asarray(given["data"], np.float32).reshape(given["shape"])
    y = logits_of(x)
    data = {
        "name": "logits",
        "datatype": "FP32",
        "shape": list(y.shape),
        "data": y.ravel().tolist(),
    }
    return plain({"model_name": "net", "outputs": [data]})


def infer_bytes(handler: Any, body: bytes) -> Answer:
    """One BYTES element behind the JSON: a photo, which this server prepares by Pillow."""
    length = int(handler.headers["inference-header-content-length"])
    (given,) = json.loads(body[:length])["inputs"]
    assert (given["name"], given["datatype"]) == ("photo", "BYTES")
    (size,) = struct.unpack("<I", body[length : length + 4])
    assert size == len(body) - length - 4 == given["parameters"]["binary_data_size"] - 4
    picture = np.asarray(Image.open(io.BytesIO(body[length + 4 :])).convert("RGB"))
    record = MODELS.oracle(picture)
    words = json.dumps({"label": record.label, "score": record.score, "top": record.top})
    said = {"name": "answer", "datatype": "BYTES", "shape": [1], "data": [words]}
    return plain({"model_name": "net", "outputs": [said]})


def feeds(tagger: Any) -> list[Feed]:
    return [{"image": MODELS.oracle_tensor(picture)} for picture in PICTURES]


def raws() -> list[bytes]:
    return [MODELS.png(picture) for picture in PICTURES]


def code_of(call: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(ValidateError) as caught:
        call()
    return caught.value.code, str(caught.value.message)


def test_our_own_endpoint_gets_raw_inputs(
    tagger: Any, made: Any, live: Callable[..., str], photos: Path
) -> None:
    url = live(made.workspace())
    asked = {"data": str(photos), "reference": url, "out": "live"}
    answers = tagger.answers(**asked)
    report = tagger.judged(out="live")
    assert report.judgement.verdict == "pass"
    assert report.preprocessing == "compared (through the reference's decisions)"
    assert report.reference == url
    assert any("model_id" in note and "raw inputs" in note for note in report.notes)
    first = answers.answers[0]
    name = Path(answers.samples[0].path).stem
    expected = MODELS.oracle(MODELS.pixels(int(name)))
    assert first.record.label == expected.label
    assert first.record.score == pytest.approx(expected.score, abs=1e-5)
    assert first.scored
    assert tagger.answers(**asked).cached, "the same model at the same address"


def test_an_endpoint_that_prepares_otherwise_is_seen(
    tagger: Any, made: Any, live: Callable[..., str], photos: Path
) -> None:
    """The exported program and the file agree to the last bit; only the server tells."""
    steps = MODELS.PROCESSING.inputs[0].steps
    darker = MODELS.Normalize(scale=(1 / 200,) * 3, bias=(-1.0,) * 3)
    changed = Processing(
        inputs=(MODELS.InputProcessing(name="image", steps=(*steps[:2], darker, steps[3])),),
        outputs=MODELS.PROCESSING.outputs,
    )
    url = live(made.workspace(golden=False, processing=changed))
    tagger.answers(data=str(photos), reference=url, out="darker")
    report = tagger.judged(out="darker")
    assert float(report.outputs[0].relative) < 1e-5
    assert report.judgement.verdict != "pass"
    assert any("too much" in note for note in report.notes)


def test_an_endpoint_without_processing_gets_tensors(
    tagger: Any, made: Any, live: Callable[..., str], photos: Path
) -> None:
    bare = made.workspace(golden=False, task="tensors", processing=Processing(), labels=())
    url = live(bare)
    tagger.answers(data=str(photos), reference=url, out="bare")
    report = tagger.judged(out="bare")
    assert report.judgement.verdict == "pass"
    assert report.preprocessing.startswith("declared, not compared: the packaged processing")
    assert any("it was sent tensors" in note for note in report.notes)
    with EndpointReference(url, tagger.exported.signature, "image") as endpoint:
        found: Any = endpoint.ask(raws(), feeds(tagger), THREE)
    for each, picture in zip(found, PICTURES, strict=True):
        np.testing.assert_allclose(
            each["logits"], logits_of(MODELS.oracle_tensor(picture)), rtol=1e-5, atol=1e-5
        )


def test_a_stranger_that_takes_tensors_in_json(tagger: Any, stranger: Any) -> None:
    said = metadata([IMAGE], [LOGITS]) | {"/v2/models/net/infer": infer}
    url, kind = stranger(said)
    with EndpointReference(f"{url}/v2/models/net", tagger.exported.signature, "image") as endpoint:
        assert endpoint.input_mode == "tensors"
        assert "'net' version 3 (triton 2.50), which declares no model_id" in endpoint.description
        found: Any = endpoint.ask(raws(), feeds(tagger), THREE)
    for each, feed in zip(found, feeds(tagger), strict=True):
        np.testing.assert_allclose(each["logits"], logits_of(feed["image"]), rtol=1e-6)
    assert kind.asked[-1][1]["content-type"] == "application/json"


def test_a_stranger_that_takes_bytes(tagger: Any, stranger: Any, photos: Path) -> None:
    inputs, outputs = [port("photo", "BYTES", -1)], [port("answer", "BYTES", 1)]
    said = metadata(inputs, outputs, "binary_tensor_data")
    url, _ = stranger(said | {"/v2/models/net/infer": infer_bytes})
    reference = f"{url}/v2/models/net"
    with EndpointReference(reference, tagger.exported.signature, "image") as endpoint:
        assert endpoint.input_mode == "bytes"
        found: Any = endpoint.ask(raws(), feeds(tagger), THREE)
    assert [each["label"] for each in found] == [MODELS.oracle(p).label for p in PICTURES]
    tagger.answers(data=str(photos), reference=reference, out="bytes")
    report = tagger.judged(out="bytes")
    assert report.judgement.verdict == "pass"
    assert report.preprocessing == "compared (through the reference's decisions)"


def test_the_key_of_answers_follows_the_model(
    stranger: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "secret")
    said = metadata([IMAGE], [LOGITS])
    url, kind = stranger(said)
    first = endpoint_key(f"{url}/v2/models/net")
    assert kind.asked[0][1]["authorization"] == "Bearer secret"
    assert endpoint_key(f"{url}/v2/models/net/") == first
    other = json.loads(said["/v2/models/net"][2]) | {"versions": ["4"]}
    said["/v2/models/net"] = plain(other)
    assert endpoint_key(f"{url}/v2/models/net") != first


def test_a_busy_endpoint_is_asked_again(tagger: Any, stranger: Any) -> None:
    turns = iter([503, 429])

    def busy(handler: Any, body: bytes) -> Answer:
        status = next(turns, 200)
        return infer(handler, body) if status == 200 else plain({"error": "busy"}, status)

    url, _ = stranger(metadata([IMAGE], [LOGITS]) | {"/v2/models/net/infer": busy})
    with EndpointReference(f"{url}/v2/models/net", tagger.exported.signature, "image") as endpoint:
        assert len(endpoint.ask(raws()[:1], feeds(tagger)[:1], THREE[:1])) == 1


def dripping(handler: Any, body: bytes) -> Answer:
    """A byte now and then: no single read is ever late."""
    handler.send_response(200)
    handler.send_header("content-length", "1000")
    handler.end_headers()
    with contextlib.suppress(OSError):
        for _ in range(60):
            handler.wfile.write(b" ")
            time.sleep(0.05)
    handler.close_connection = True
    return 200, {}, b""


ANSWER = {"name": "logits", "datatype": "FP32", "shape": [1, 5], "data": [0, 0, 0, 0, 0]}


@pytest.mark.parametrize(
    ("said", "code", "text"),
    [
        ({}, "EDGE-VALIDATE-042", "metadata at /v2"),
        ({"/v2": (200, {}, b"<html>")}, "EDGE-VALIDATE-042", "metadata at /v2"),
        ({"/v2": plain({}, 401)}, "EDGE-VALIDATE-045", "status 401"),
        ({"/v2": plain({"name": "x"})}, "EDGE-VALIDATE-043", "'net'"),
        (metadata([IMAGE | {"name": "x"}], [LOGITS]), "EDGE-VALIDATE-044", "input 'image'"),
        (metadata([IMAGE | {"datatype": "FP16"}], [LOGITS]), "EDGE-VALIDATE-044", "FP16"),
        (metadata([IMAGE | {"shape": [-1, 3, 9, 9]}], [LOGITS]), "EDGE-VALIDATE-044", "9"),
        (metadata([IMAGE, port("y", "FP32", 1)], [LOGITS]), "EDGE-VALIDATE-044", "'y'"),
        (metadata([IMAGE], [port("scores", "FP32", -1, 5)]), "EDGE-VALIDATE-044", "'logits'"),
        (metadata([IMAGE], [LOGITS | {"datatype": "INT64"}]), "EDGE-VALIDATE-044", "INT64"),
        ({"infer": plain({"error": "no GPU"}, 500)}, "EDGE-VALIDATE-045", "500 no GPU"),
        ({"infer": (200, {}, b"what")}, "EDGE-VALIDATE-042", "got not the JSON"),
        ({"infer": plain({"outputs": []})}, "EDGE-VALIDATE-044", "output 'logits'"),
        ({"infer": plain({"outputs": [ANSWER | {"shape": [5]}]})}, "EDGE-VALIDATE-044", "[5]"),
        ({"infer": dripping}, "EDGE-VALIDATE-041", "0.5 seconds, each time"),
    ],
)
def test_what_cannot_be_a_reference(
    tagger: Any, stranger: Any, said: dict[str, Any], code: str, text: str
) -> None:
    if "infer" in said:
        said = metadata([IMAGE], [LOGITS]) | {"/v2/models/net/infer": said["infer"]}
    url, _ = stranger(said)

    def ask() -> None:
        signature = tagger.exported.signature
        with EndpointReference(f"{url}/v2/models/net", signature, "image", timeout=0.5) as endpoint:
            endpoint.ask(raws()[:1], feeds(tagger)[:1], THREE[:1])

    found, message = code_of(ask)
    assert found == code
    assert text in message


def test_raw_bytes_do_not_go_into_json(tagger: Any, stranger: Any) -> None:
    """An endpoint of BYTES without the binary extension is told what it lacks."""
    url, _ = stranger(metadata([port("raw", "BYTES", 1)], [LOGITS]))

    def ask() -> None:
        with EndpointReference(
            f"{url}/v2/models/net", tagger.exported.signature, "image"
        ) as endpoint:
            endpoint.ask([b"\x89PNG\xff"], feeds(tagger)[:1], THREE[:1])

    found, message = code_of(ask)
    assert found == "EDGE-VALIDATE-044"
    assert "binary_tensor_data" in message


def test_another_model_in_the_middle(tagger: Any, stranger: Any) -> None:
    said = metadata([IMAGE], [LOGITS])
    told = json.loads(said["/v2/models/net"][2]) | {"parameters": {"model_id": "a" * 64}}
    answer = {"model_name": "net", "parameters": {"model_id": "b" * 64}, "outputs": [ANSWER]}
    said |= {"/v2/models/net": plain(told), "/v2/models/net/infer": plain(answer)}
    url, _ = stranger(said)
    with EndpointReference(f"{url}/v2/models/net", tagger.exported.signature, "image") as endpoint:
        found, _ = code_of(lambda: endpoint.ask(raws()[:1], feeds(tagger)[:1], THREE[:1]))
    assert found == "EDGE-VALIDATE-047"


def test_the_only_model_is_found_and_one_of_several_is_not(stranger: Any) -> None:
    said = metadata([IMAGE], [LOGITS])
    said["/v2/repository/index"] = plain([{"name": "net", "state": "READY"}])
    url, _ = stranger(said)
    assert b'"net"' in endpoint_key(url)
    said["/v2/repository/index"] = plain([{"name": "net"}, {"name": "other"}])
    code, message = code_of(lambda: endpoint_key(url))
    assert code == "EDGE-VALIDATE-043"
    assert "net, other" in message


def test_nobody_there(tagger: Any, stranger: Any, tmp_path: Path) -> None:
    """Stored answers are used without asking; an endpoint that is named is asked."""
    said = metadata([IMAGE], [LOGITS]) | {"/v2/models/net/infer": infer}
    url, _ = stranger(said)
    tagger.answers(reference=f"{url}/v2/models/net", out="gone")
    said.clear()
    assert tagger.answers(out="gone").cached
    code, _ = code_of(lambda: endpoint_key("http://127.0.0.1:9/v2/models/net", timeout=5))
    assert code == "EDGE-VALIDATE-040"
