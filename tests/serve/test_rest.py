"""REST: each route, in JSON and binary, packed or not, and its answers against the oracle."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from edgeserve import oip
from edgeserve.tasks.classification import Classification
from edgeserve.types.base import decode

INFER = "/v2/models/tagger/infer"


@pytest.fixture
def app(asgi: Callable[..., Any], tagger: str) -> Any:
    return asgi(tagger)


def question(x: np.ndarray, binary: bool, **more: Any) -> tuple[bytes, dict[str, str]]:
    body, head = oip.write_request([oip.Tensor("image", x)], binary=binary)
    if more:
        said = json.loads(body[:head]) | more
        text = json.dumps(said).encode()
        body, head = text + (body[head:] if head else b""), len(text) if head else None
    return body, {"inference-header-content-length": str(head)} if head else {}


def logits(reply: Any) -> np.ndarray:
    head = reply.headers.get("inference-header-content-length")
    return oip.read_response(reply.body, int(head) if head else None).outputs[0].array


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("packing", ["", "gzip", "deflate"])
def test_infer_answers_as_numpy_does(
    app: Any, models: Any, tagger: str, binary: bool, packing: str
) -> None:
    x = np.concatenate([models.oracle_tensor(models.pixels(i)) for i in (1, 2, 3)])
    body, headers = question(x, binary, id="abc")
    pack = {"gzip": gzip.compress, "deflate": zlib.compress, "": lambda b: b}[packing]
    if packing:
        headers["content-encoding"] = packing
    reply = app.call("POST", INFER, pack(body), headers)
    assert reply.status == 200, reply.body
    expected = x.reshape(3, -1) @ models.W + models.B
    np.testing.assert_allclose(logits(reply), expected, rtol=1e-5, atol=1e-5)
    said = json.loads(
        reply.body[: int(reply.headers.get("inference-header-content-length", 0)) or None]
    )
    model_id = json.loads(Path(tagger, "manifest.json").read_text())["model_id"]
    assert said["parameters"]["model_id"] == reply.headers["x-model-id"] == model_id
    assert (said["model_name"], said["model_version"], said["id"]) == ("tagger", "1", "abc")


def test_the_documented_request_is_one(app: Any, models: Any) -> None:
    """The words of docs/guide/serve.md, with the name, shape and numbers of this model's input."""
    text = (Path(__file__).parents[2] / "docs" / "guide" / "serve.md").read_text("utf-8")
    asked, answered = re.findall(r"curl -d '(.+)' .*\n.*\n    (\{.+\})\n", text)[0]
    said = json.loads(asked)
    assert len(said["inputs"][0]["data"]) == int(np.prod(said["inputs"][0]["shape"]))
    x = models.oracle_tensor(models.pixels(1))
    said["inputs"][0] |= {"name": "image", "shape": list(x.shape), "data": x.ravel().tolist()}
    reply = app.call("POST", INFER, json.dumps(said).encode())
    assert reply.status == 200, reply.body
    shown = json.loads(answered.replace("...,", ""))
    assert reply.json.keys() >= shown.keys()
    assert reply.json["outputs"][0].keys() >= shown["outputs"][0].keys()
    expected = x.reshape(1, -1) @ models.W + models.B
    np.testing.assert_allclose(
        reply.json["outputs"][0]["data"], expected.ravel(), rtol=1e-4, atol=1e-4
    )


def test_answers_are_packed_for_who_asks(app: Any) -> None:
    plain = app.call("GET", "/openapi.json", headers={"accept-encoding": "gzip, deflate, br"})
    assert "content-encoding" not in plain.headers
    for name, unpack in (("gzip", gzip.decompress), ("deflate", zlib.decompress)):
        reply = app.call("GET", "/openapi.json", headers={"accept-encoding": name})
        assert reply.headers["content-encoding"] == name
        assert unpack(reply.body) == plain.body


def test_outputs_can_be_chosen(app: Any, models: Any) -> None:
    x = models.oracle_tensor(models.pixels(1))
    body, headers = question(
        x, True, outputs=[{"name": "logits", "parameters": {"binary_data": False}}]
    )
    reply = app.call("POST", INFER, body, headers)
    assert reply.json["outputs"][0]["data"] == pytest.approx(
        (x.reshape(-1) @ models.W).tolist(), 1e-4
    )
    body, headers = question(x, True, outputs=[{"name": "scores"}])
    reply = app.call("POST", INFER, body, headers)
    assert (reply.status, reply.json["code"]) == (400, "EDGE-SERVE-011")


def test_predict_decides_as_the_oracle(app: Any, models: Any) -> None:
    for i in range(6):
        reply = app.call("POST", "/v2/models/tagger/predict", models.png(models.pixels(i)))
        assert reply.status == 200
        said = reply.json
        answer = decode(json.dumps(said["answer"]), Classification)
        expected = models.oracle(models.pixels(i))
        assert (answer.label, answer.index) == (expected.label, expected.index)
        assert answer.score == pytest.approx(expected.score, abs=1e-5)
        assert said["model_id"] == reply.headers["x-model-id"]
        assert said["ran_on"]["proof"] == "golden"


def test_raw_inputs_go_through_infer_too(app: Any, models: Any) -> None:
    """A BYTES input called raw: for clients that know nothing but the protocol."""
    raws = np.empty(3, object)
    raws[:] = [models.png(models.pixels(i)) for i in range(3)]
    body, head = oip.write_request([oip.Tensor("raw", raws)])
    reply = app.call("POST", INFER, body, {"inference-header-content-length": str(head)})
    assert reply.status == 200, reply.body
    answers = [decode(item, Classification) for item in logits(reply)]
    assert [a.label for a in answers] == [models.oracle(models.pixels(i)).label for i in range(3)]


def test_what_a_photo_is_not(app: Any) -> None:
    reply = app.call("POST", "/v2/models/tagger/predict", b"no photo at all")
    assert reply.status == 400
    assert reply.json["code"].startswith("EDGE-INPUT-")
    assert app.log.getvalue().count('"fault"') == 0


def test_metadata_and_the_index(app: Any) -> None:
    assert app.call("GET", "/v2").json["name"] == "edgeserve"
    said = app.call("GET", "/v2/models/tagger").json
    assert said["inputs"] == [{"name": "image", "datatype": "FP32", "shape": [-1, 3, 8, 8]}]
    assert said == app.call("GET", "/v2/models/tagger/versions/1").json
    assert app.call("GET", "/v2/models/tagger/versions/2").status == 404
    index = app.call("POST", "/v2/repository/index").json
    assert index == [{"name": "tagger", "version": "1", "state": "READY", "reason": ""}]
    assert app.call("GET", "/v2/models/tagger/config").json["max_batch_size"] == 8


def test_unload_and_load(app: Any, models: Any) -> None:
    body, headers = question(models.oracle_tensor(models.pixels(1)), True)
    assert app.call("POST", "/v2/repository/models/tagger/unload").status == 200
    assert app.call("GET", "/v2/models/tagger/ready").status == 503
    reply = app.call("POST", INFER, body, headers)
    assert (reply.status, reply.json["code"]) == (503, "EDGE-SERVE-018")
    assert app.call("POST", "/v2/repository/models/tagger/load").status == 200
    assert app.call("POST", INFER, body, headers).status == 200
    reply = app.call("POST", "/v2/repository/models/tagger/load", b'{"parameters":{"config":"{}"}}')
    assert (reply.status, reply.json["code"]) == (400, "EDGE-SERVE-025")


def test_control_is_off_where_others_can_reach_it(asgi: Callable[..., Any], tagger: str) -> None:
    app = asgi(tagger, host="0.0.0.0", start=False)
    reply = app.call("POST", "/v2/repository/models/tagger/unload")
    assert (reply.status, reply.json["code"]) == (403, "EDGE-SERVE-024")


def test_statistics_add_up(app: Any, models: Any) -> None:
    for count in (1, 3):
        x = np.concatenate([models.oracle_tensor(models.pixels(i)) for i in range(count)])
        app.call("POST", INFER, *question(x, True))
    app.call("POST", INFER, *question(np.zeros((1, 3, 4, 4), np.float32), True))
    [said] = app.call("GET", "/v2/models/tagger/stats").json["model_stats"]
    assert (said["inference_count"], said["execution_count"]) == (4, 2)
    spent = said["inference_stats"]
    assert (spent["success"]["count"], spent["fail"]["count"]) == (2, 1)
    parts = sum(
        spent[p]["ns"] for p in ("queue", "compute_input", "compute_infer", "compute_output")
    )
    assert parts == pytest.approx(spent["success"]["ns"], rel=1e-3)


def test_metrics_count_what_happened(app: Any, models: Any) -> None:
    app.call("POST", INFER, *question(models.oracle_tensor(models.pixels(1)), True))
    app.call(
        "POST",
        INFER,
        *question(models.oracle_tensor(models.pixels(1)), True)[:1],
        {"x-request-deadline-ms": "0"},
    )
    text = app.call("GET", "/metrics").body.decode()
    assert 'edgeserve_requests_total{model="tagger",route="infer",status="200"} 1.0' in text
    assert 'edgeserve_sheds_total{code="EDGE-SERVE-020",model="tagger"} 1.0' in text
    assert re.search(r'edgeserve_seconds_count\{model="tagger",part="run"\} 1\.0', text)


def test_names_of_strangers_are_no_labels(app: Any) -> None:
    for i in range(50):
        app.call("POST", f"/v2/models/m{i}/infer", b"{}")
    text = app.call("GET", "/metrics").body.decode()
    assert "m7" not in text


def test_every_request_is_told_with_its_id(app: Any) -> None:
    reply = app.call("GET", "/v2", headers={"x-request-id": "my-id.7"})
    assert reply.headers["x-request-id"] == "my-id.7"
    reply = app.call("GET", "/v2", headers={"x-request-id": 'bad"\n{}'})
    assert re.fullmatch(r"[0-9a-f]{16}", reply.headers["x-request-id"])
    lines = [json.loads(line) for line in app.log.getvalue().splitlines()]
    told = [line for line in lines if line["event"] == "request"]
    assert [line["route"] for line in told] == ["server", "server"]
    assert told[0]["request_id"] == "my-id.7"


def test_keys(asgi: Callable[..., Any], tagger: str, tmp_path: Any) -> None:
    file = tmp_path / "keys"
    file.write_text("# mine\nphone abcdefghijklmnop\nkiosk ponmlkjihgfedcba 1\n")
    app = asgi(tagger, keys=str(file))
    assert app.call("GET", "/v2/health/live").status == 200
    for headers in ({}, {"authorization": "Bearer wrong"}, {"x-api-key": "abcdefghijklmno"}):
        reply = app.call("GET", "/v2", headers=headers)
        assert (reply.status, reply.json["code"]) == (401, "EDGE-SERVE-023")
    assert (
        app.call("GET", "/v2", headers={"authorization": "Bearer abcdefghijklmnop"}).status == 200
    )
    kiosk = {"x-api-key": "ponmlkjihgfedcba"}
    assert app.call("GET", "/v2", headers=kiosk).status == 200
    reply = app.call("GET", "/v2", headers=kiosk)
    assert (reply.status, reply.json["code"]) == (429, "EDGE-SERVE-022")
    assert int(reply.headers["retry-after"]) >= 1
    assert "abcdefghijklmnop" not in app.log.getvalue()
    assert '"key":"phone"' in app.log.getvalue()


def test_a_model_that_fails_tells_the_log_and_not_the_caller(
    app: Any, models: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("/secret/path: engine burst")

    monkeypatch.setattr("edgeserve.serve.inference.answer_request", fail)
    reply = app.call("POST", INFER, *question(models.oracle_tensor(models.pixels(1)), True))
    assert (reply.status, reply.json["code"]) == (500, "EDGE-SERVE-026")
    assert b"secret" not in reply.body
    assert "/secret/path" in app.log.getvalue()


def test_nan_is_told_in_json_and_given_in_binary(app: Any) -> None:
    x = np.full((1, 3, 8, 8), np.nan, np.float32)
    body, headers = question(
        x, True, outputs=[{"name": "logits", "parameters": {"binary_data": False}}]
    )
    reply = app.call("POST", INFER, body, headers)
    assert (reply.status, reply.json["code"]) == (400, "EDGE-SERVE-010")
    assert np.isnan(logits(app.call("POST", INFER, *question(x, True)))).all()


def test_a_model_without_processing_takes_no_raw_inputs(
    asgi: Callable[..., Any], raw_only: str
) -> None:
    app = asgi(raw_only)
    reply = app.call("POST", "/v2/models/tagger/predict", b"abc")
    assert (reply.status, reply.json["code"]) == (400, "EDGE-SERVE-019")
    x = np.zeros((1, 3, 8, 8), np.float32)
    assert app.call("POST", INFER, *question(x, True)).status == 200


def test_the_description_is_sound_and_names_every_route(app: Any) -> None:
    from edgeserve.serve.app import _TABLE

    said = app.call("GET", "/openapi.json").json
    paths = {
        (
            method.upper(),
            re.sub(r"\{(\w+)\}", lambda m: {"model": "NAME", "version": "VERSION"}[m[1]], path),
        )
        for path, methods in said["paths"].items()
        for method in methods
    }
    assert paths == {(method, f"/{path}") for method, path, _ in _TABLE}
    for path, methods in said["paths"].items():
        assert said["info"]["title"] == "edgeserve", path
        for what in methods.values():
            for given in what.get("parameters", []):
                assert given["$ref"].rpartition("/")[2] in said["components"]["parameters"]
    store = said["components"]["schemas"]
    reply = app.call("GET", "/v2/models/tagger").json
    jsonschema.validate(
        reply, {"$ref": "#/components/schemas/Model", "components": {"schemas": store}}
    )


def test_two_models_of_one_name_are_refused(
    asgi: Callable[..., Any], tagger: str, raw_only: str
) -> None:
    from edgeserve.errors import ServeError

    with pytest.raises(ServeError, match="two") as error:
        asgi(tagger, raw_only)
    assert error.value.code == "EDGE-SERVE-003"
