"""The endpoint on real sockets, asked by tritonclient: others' code, unchanged."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.filterwarnings("ignore:Protobuf gencode version:UserWarning")

MODEL = "tagger"


@pytest.fixture(scope="module")
def x(models: Any) -> np.ndarray:
    return np.concatenate([models.oracle_tensor(models.pixels(i)) for i in (1, 2)])


@pytest.fixture(scope="module")
def expected(models: Any, x: np.ndarray) -> np.ndarray:
    return np.asarray(x.reshape(2, -1) @ models.W + models.B)


@pytest.fixture
def end(live: Callable[..., Any], tagger: str) -> Any:
    return live(tagger, grpc_port=0)


@pytest.fixture
def http_client(end: Any) -> Iterator[Any]:
    tritonhttp = pytest.importorskip("tritonclient.http")
    with tritonhttp.InferenceServerClient(end.address) as client:
        yield client


@pytest.fixture
def grpc_client(end: Any) -> Iterator[Any]:
    tritongrpc = pytest.importorskip("tritonclient.grpc")
    with tritongrpc.InferenceServerClient(end.grpc_address) as client:
        yield client


def asked(module: Any, x: np.ndarray, **how: Any) -> Any:
    given = module.InferInput("image", x.shape, "FP32")
    given.set_data_from_numpy(x, **how)
    return [given]


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("packing", [None, "gzip", "deflate"])
def test_tritonclient_http(
    http_client: Any, x: np.ndarray, expected: np.ndarray, binary: bool, packing: str | None
) -> None:
    import tritonclient.http as module

    wanted = [module.InferRequestedOutput("logits", binary_data=binary)]
    found = http_client.infer(
        MODEL,
        asked(module, x, binary_data=binary),
        outputs=wanted,
        request_id="7",
        request_compression_algorithm=packing,
        response_compression_algorithm=packing,
    )
    np.testing.assert_allclose(found.as_numpy("logits"), expected, rtol=1e-5, atol=1e-5)
    assert found.get_response()["id"] == "7"
    later = http_client.async_infer(MODEL, asked(module, x, binary_data=binary))
    np.testing.assert_allclose(
        later.get_result().as_numpy("logits"), expected, rtol=1e-5, atol=1e-5
    )


def test_tritonclient_http_asks_everything_else(http_client: Any) -> None:
    assert http_client.is_server_live()
    assert http_client.is_server_ready()
    assert http_client.is_model_ready(MODEL)
    assert http_client.is_model_ready(MODEL, "1")
    assert http_client.get_server_metadata()["name"] == "edgeserve"
    assert http_client.get_model_metadata(MODEL)["inputs"][0]["name"] == "image"
    assert http_client.get_model_config(MODEL)["max_batch_size"] == 8
    assert http_client.get_inference_statistics()["model_stats"][0]["name"] == MODEL
    assert http_client.get_model_repository_index()[0]["state"] == "READY"
    http_client.unload_model(MODEL)
    assert not http_client.is_model_ready(MODEL)
    http_client.load_model(MODEL)
    assert http_client.is_model_ready(MODEL)


def test_tritonclient_http_with_asyncio(end: Any, x: np.ndarray, expected: np.ndarray) -> None:
    module = pytest.importorskip("tritonclient.http.aio")

    async def go() -> list[Any]:
        async with module.InferenceServerClient(end.address) as client:
            inputs = asked(module, x)
            return await asyncio.gather(*(client.infer(MODEL, inputs) for _ in range(20)))

    for found in asyncio.run(go()):
        np.testing.assert_allclose(found.as_numpy("logits"), expected, rtol=1e-5, atol=1e-5)


def test_tritonclient_grpc(grpc_client: Any, x: np.ndarray, expected: np.ndarray) -> None:
    import tritonclient.grpc as module

    found = grpc_client.infer(MODEL, asked(module, x), request_id="7")
    np.testing.assert_allclose(found.as_numpy("logits"), expected, rtol=1e-5, atol=1e-5)
    assert found.get_response().id == "7"
    assert len(found.get_response().parameters["model_id"].string_param) == 64
    done: list[Any] = []
    ended = threading.Event()

    def on_done(result: Any, error: Any) -> None:
        done.append(error or result)
        ended.set()

    grpc_client.async_infer(MODEL, asked(module, x), on_done)
    assert ended.wait(10)
    np.testing.assert_allclose(done[0].as_numpy("logits"), expected, rtol=1e-5, atol=1e-5)


def test_tritonclient_grpc_asks_everything_else(grpc_client: Any) -> None:
    assert grpc_client.is_server_live()
    assert grpc_client.is_server_ready()
    assert grpc_client.is_model_ready(MODEL)
    assert grpc_client.get_server_metadata().name == "edgeserve"
    assert list(grpc_client.get_model_metadata(MODEL).inputs[0].shape) == [-1, 3, 8, 8]
    assert grpc_client.get_inference_statistics(MODEL).model_stats[0].name == MODEL
    assert grpc_client.get_model_repository_index().models[0].state == "READY"
    grpc_client.unload_model(MODEL)
    assert not grpc_client.is_model_ready(MODEL)
    grpc_client.load_model(MODEL)
    assert grpc_client.is_model_ready(MODEL)


def test_grpc_refuses_with_codes(grpc_client: Any, x: np.ndarray) -> None:
    import tritonclient.grpc as module
    from tritonclient.utils import InferenceServerException

    def code(*args: Any, **named: Any) -> str:
        with pytest.raises(InferenceServerException) as error:
            grpc_client.infer(*args, **named)
        return f"{error.value.status()} {error.value.message()}"

    assert code("nobody", asked(module, x)).startswith("StatusCode.NOT_FOUND EDGE-SERVE-017")
    wrong = asked(module, x.astype(np.float32)[:, :, :4])
    assert code(MODEL, wrong).startswith("StatusCode.INVALID_ARGUMENT EDGE-INPUT-")
    nameless = module.InferInput("nothing", x.shape, "FP32")
    nameless.set_data_from_numpy(x)
    assert code(MODEL, [nameless]).startswith("StatusCode.INVALID_ARGUMENT EDGE-SERVE-010")


def test_grpc_reads_numbers_that_do_not_lie_in_raw_bytes(
    end: Any, x: np.ndarray, expected: np.ndarray
) -> None:
    """By messages that protoc made for tritonclient, not by ours."""
    import grpc
    from tritonclient.grpc import service_pb2, service_pb2_grpc

    tensor = service_pb2.ModelInferRequest.InferInputTensor(
        name="image", datatype="FP32", shape=x.shape, contents={"fp32_contents": x.reshape(-1)}
    )
    with grpc.insecure_channel(end.grpc_address) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        found = stub.ModelInfer(service_pb2.ModelInferRequest(model_name=MODEL, inputs=[tensor]))
        logits = np.frombuffer(found.raw_output_contents[0], np.float32).reshape(2, 5)
        np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-5)
        short = service_pb2.ModelInferRequest(
            model_name=MODEL, inputs=[tensor], raw_input_contents=[b"\0" * 4]
        )
        with pytest.raises(grpc.RpcError) as error:
            stub.ModelInfer(short)
        assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        empty = service_pb2.ModelInferRequest(model_name=MODEL)
        with pytest.raises(grpc.RpcError) as error:
            stub.ModelInfer(empty)
        assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_keys_hold_for_grpc_too(live: Callable[..., Any], tagger: str, tmp_path: Path) -> None:
    module = pytest.importorskip("tritonclient.grpc")
    from tritonclient.utils import InferenceServerException

    (tmp_path / "keys").write_text("phone abcdefghijklmnop\n")
    end = live(tagger, grpc_port=0, keys=str(tmp_path / "keys"))
    with module.InferenceServerClient(end.grpc_address) as client:
        assert client.is_server_live()
        with pytest.raises(InferenceServerException, match="EDGE-SERVE-023"):
            client.get_server_metadata()
        given = {"authorization": "Bearer abcdefghijklmnop"}
        assert client.get_server_metadata(headers=given).name == "edgeserve"


def ask(end: Any, path: str, body: bytes = b"", method: str = "POST") -> tuple[int, Any, bytes]:
    """One request over a connection of its own."""
    with contextlib.closing(
        http.client.HTTPConnection("127.0.0.1", end.running.port, timeout=60)
    ) as link:
        link.request(method, path, body)
        reply = link.getresponse()
        return reply.status, reply.headers, reply.read()


class Load:
    """Threads that ask without a pause, each over a connection of its own.

    As a load balancer does, each leaves an endpoint that asks for its connection to be closed.
    """

    def __init__(self, port: int, body: bytes, threads: int = 4) -> None:
        self._port, self._body = port, body
        self.answers: list[str] = []
        self.failed: list[str] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def _work(self) -> None:
        link = http.client.HTTPConnection("127.0.0.1", self._port, timeout=20)
        with contextlib.closing(link):
            self._ask(link)

    def _ask(self, link: http.client.HTTPConnection) -> None:
        while not self._stop.is_set():
            try:
                link.request("POST", f"/v2/models/{MODEL}/predict", self._body)
                reply = link.getresponse()
                body = reply.read()
                if reply.status != 200:
                    self.failed.append(f"{reply.status} {body[:200]!r}")
                else:
                    said = json.loads(body)
                    assert said["model_id"] == reply.headers["x-model-id"]
                    assert said["model_id"] == said["ran_on"]["model_id"]
                    self.answers.append(said["model_id"])
                if reply.headers["connection"] == "close":
                    return
            except (OSError, http.client.HTTPException) as error:
                self.failed.append(repr(error))
                link.close()

    def until(self, count: int) -> None:
        end = time.monotonic() + 60
        while len(self.answers) < count and time.monotonic() < end and not self.failed:
            time.sleep(0.01)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)


def test_a_hot_swap_under_load_fails_nobody(
    live: Callable[..., Any], models: Any, maker: Any, tmp_path: Path
) -> None:
    """The bundle at the path is replaced and loaded: each answer is of one of the two models."""
    served = tmp_path / "served"
    shutil.copytree(maker.workspace(), served)
    end = live(str(served))
    load = Load(end.running.port, models.png(models.pixels(1)))
    load.until(200)
    other = maker.workspace(labels=("a", "b", "c", "d", "e"), golden=False)
    new = tmp_path / "new"
    shutil.copytree(other, new)
    served.rename(tmp_path / "old")
    new.rename(served)
    assert ask(end, f"/v2/repository/models/{MODEL}/load", b"{}")[2] == b"{}"
    load.until(len(load.answers) + 1000)
    load.stop()
    assert load.failed == []
    assert len(load.answers) >= 1000
    assert len(set(load.answers)) == 2
    assert load.answers[-1] != load.answers[0]


def test_an_end_under_load_fails_nobody(live: Callable[..., Any], tagger: str, models: Any) -> None:
    end = live(tagger, drain_s=0.5)
    load = Load(end.running.port, models.png(models.pixels(1)))
    load.until(1000)
    end.end()
    load.stop()
    assert load.failed == []
    assert len(load.answers) >= 1000


def test_on_its_way_out_it_is_no_longer_ready_and_still_answers(
    live: Callable[..., Any], tagger: str, models: Any
) -> None:
    end = live(tagger, drain_s=1.5)
    threading.Thread(target=end.end).start()
    time.sleep(0.3)
    status, headers, _ = ask(end, "/v2/health/ready", method="GET")
    assert (status, headers["connection"]) == (503, "close")
    assert ask(end, f"/v2/models/{MODEL}/predict", models.png(models.pixels(1)))[0] == 200


def test_the_budget_puts_out_who_was_not_used_longest(
    live: Callable[..., Any], maker: Any, models: Any, tmp_path: Path
) -> None:
    paths = []
    for name in ("one", "two", "three"):
        path = tmp_path / name
        shutil.copytree(maker.workspace(), path)
        manifest = json.loads((path / "manifest.json").read_text()) | {"name": name}
        (path / "manifest.json").write_text(json.dumps(manifest, separators=(",", ":")))
        paths.append(str(path))
    end = live(*paths, lazy=True, memory_mb=1, pinned=("one",))
    places = end.running.app.service.repository.places
    photo = models.png(models.pixels(1))

    def load(name: str) -> Any:
        status, headers, _ = ask(end, f"/v2/models/{name}/predict", photo)
        assert status == 200
        places[name].hosted.memory = 600 << 10  # by the test's own account
        return headers["x-cold-start-ms"]

    assert int(load("one")) > 0
    assert load("one") is None
    assert load("two")
    assert load("three")
    assert {name for name, place in places.items() if place.hosted} == {"one", "three"}
    text = ask(end, "/metrics", method="GET")[2].decode()
    assert 'edgeserve_evictions_total{model="two"} 1.0' in text


def test_batches_share_runs_and_give_each_its_own(
    live: Callable[..., Any], tagger: str, models: Any
) -> None:
    module = pytest.importorskip("tritonclient.http")
    end = live(tagger, batch=8, batch_delay_ms=30.0)
    tensors = [models.oracle_tensor(models.pixels(i)) for i in range(24)]
    with module.InferenceServerClient(end.address, concurrency=24) as client:
        waits = [client.async_infer(MODEL, asked(module, t)) for t in tensors]
        found = [w.get_result().as_numpy("logits") for w in waits]
        [stats] = client.get_inference_statistics(MODEL)["model_stats"]
    for tensor, logits in zip(tensors, found, strict=True):
        np.testing.assert_allclose(logits, tensor.reshape(1, -1) @ models.W, rtol=1e-4, atol=1e-4)
    assert stats["inference_count"] == 24
    assert stats["execution_count"] < 24


def test_a_bad_request_does_not_spoil_its_batch(
    live: Callable[..., Any], tagger: str, models: Any
) -> None:
    module = pytest.importorskip("tritonclient.http")
    end = live(tagger, batch=8, batch_delay_ms=30.0)
    good = models.oracle_tensor(models.pixels(1))
    bad = np.zeros((1, 3, 8, 7), np.float32)
    with module.InferenceServerClient(end.address, concurrency=4) as client:
        waits = [client.async_infer(MODEL, asked(module, t)) for t in (good, bad, good)]
        first, last = waits[0].get_result(), waits[2].get_result()
        with pytest.raises(Exception, match="EDGE-"):
            waits[1].get_result()
    np.testing.assert_allclose(first.as_numpy("logits"), last.as_numpy("logits"), rtol=1e-5)


def test_an_address_that_is_taken(live: Callable[..., Any], tagger: str) -> None:
    from edgeserve.errors import ServeError

    end = live(tagger)
    with pytest.raises(ServeError) as error:
        live(tagger, port=end.running.port)
    assert error.value.code == "EDGE-SERVE-001"
