"""The endpoint inside Ray Serve: a real cluster of two nodes on this machine, one of them killed.

What must come out is the Wrapper's answer and Pillow's crop; requests come over HTTP, as others
send them.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import numpy as np
import pytest
import tritonclient.http as triton
from testkit.modules import load

from edgeserve import Wrapper, oip
from edgeserve.errors import BundleError, EdgeError, ServeError
from edgeserve.serve.ray import Cascade, RayOptions, build, ray_options
from edgeserve.serve.ray.ingress import IngressApp
from edgeserve.serve.ray.replica import call_app
from edgeserve.types.base import decode, encode
from edgeserve.types.manifest import Manifest

# Ray's own threads and sockets end when they like.
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(180)]


@dataclass
class Ray:
    """A cluster of two nodes of two processors each, and where its proxy listens."""

    cluster: Any
    second: Any
    port: int

    def kill_second(self) -> None:
        """End all that runs on the second node, at one moment."""
        [raylet] = self.second.all_processes["raylet"]
        for pid in (*below(raylet.process.pid), raylet.process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.cluster.remove_node(self.second, allow_graceful=False)

    @contextmanager
    def deployed(self, path: str, **args: Any) -> Iterator[str]:
        """An application below a path while the block runs; gives its URL."""
        from ray import serve

        name = path.strip("/") or "root"
        serve.run(build(args), name=name, route_prefix=path)
        try:
            yield f"http://127.0.0.1:{self.port}{path.rstrip('/')}"
        finally:
            serve.delete(name)


def below(pid: int) -> list[int]:
    """Processes that a process has started, and theirs."""
    found = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *below(child)]
    return found


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture(scope="module")
def ray_nodes() -> Iterator[Ray]:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray
    from ray import serve
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 2, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        second = cluster.add_node(num_cpus=2)
        ray.init(address=cluster.address, log_to_driver=False)
        one = Ray(cluster, second, free_port())
        options = {"host": "127.0.0.1", "port": one.port}
        serve.start(proxy_location="HeadOnly", http_options=options)
        yield one
        serve.shutdown()
    finally:
        ray.shutdown()
        cluster.shutdown()


def named(root: Path, name: str) -> str:
    """A workspace under another model name."""
    manifest = decode((root / "manifest.json").read_bytes(), Manifest)
    (root / "manifest.json").write_bytes(encode(msgspec.structs.replace(manifest, name=name)))
    return str(root)


@pytest.fixture(scope="module")
def grids() -> ModuleType:
    """The detector of coloured squares."""
    path = Path(__file__).parents[1] / "wrapper" / "test_many.py"
    return load(path, "ray_grids")


@pytest.fixture(scope="module")
def detector(maker: Any, grids: Any, models: Any) -> str:
    from edgeserve.types.processing import Processing

    sign, maker.signature = maker.signature, grids.signature(6, 4, 4)
    try:
        root = maker.workspace(
            models.Made("onnx-fp32", grids.grid(maker)),
            golden=False,
            labels=grids.LABELS,
            processing=Processing(inputs=(grids.READ,), outputs=(grids.DETECT,)),
            task="object-detection",
        )
    finally:
        maker.signature = sign
    return named(root, "squares")


@pytest.fixture(scope="module")
def second(maker: Any, models: Any) -> str:
    """A classifier of another opinion, and another model_id."""
    wrong = models.Made("onnx-fp32", models.classifier(sign_of_w=-1.0))
    labels = ("a", "b", "c", "d", "e")
    return named(maker.workspace(wrong, golden=False, labels=labels), "second")


def model_id(root: str) -> str:
    return decode((Path(root) / "manifest.json").read_bytes(), Manifest).model_id


def post(url: str, body: bytes, **headers: str) -> tuple[int, dict[str, str], Any]:
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, body, headers), timeout=60
        ) as reply:
            return reply.status, dict(reply.headers), json.loads(reply.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers), json.loads(error.read())


@pytest.fixture(scope="module")
def many(
    ray_nodes: Ray,
    tagger: str,
    second: str,
    detector: str,
    models: Any,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[..., Any]]:
    """``many(path, body)``: asks an application of three models, two of them loaded at a time."""
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text("phone abcdefghijklmnop\n")
    first = models.oracle(models.pixels(3)).label
    chains = [
        {"name": "squares-tagged", "first": "squares", "crop": "tagger"},
        {"name": "picked", "first": "tagger", "pick": {first: "second"}},
    ]
    with ray_nodes.deployed(
        "/many",
        bundles=[tagger, second, detector],
        models_per_replica=2,
        cpus=0.5,
        keys=str(keys),
        deadline_ms=60_000,
        chains=chains,
    ) as url:

        def ask(path: str, body: bytes, key: str = "abcdefghijklmnop") -> Any:
            return post(f"{url}/v2/{path}", body, Authorization=f"Bearer {key}")

        yield ask


@pytest.mark.slow
def test_any_replica_answers_for_any_model_as_the_wrapper_does(
    many: Any, tagger: str, second: str, detector: str, grids: Any, models: Any
) -> None:
    for _ in range(2):
        for name, root in (("tagger", tagger), ("second", second), ("squares", detector)):
            photo = models.png(grids.PHOTOS[1] if name == "squares" else models.pixels(3))
            status, headers, said = many(f"models/{name}/predict", photo)
            assert status == 200, said
            with Wrapper(root) as wrapper:
                right = json.loads(encode(wrapper.predict(photo)))
                assert headers["x-model-id"] == said["model_id"] == wrapper.manifest.model_id
            for answer in (said["answer"], right):
                answer.pop("ran_on", None)
            assert said["answer"] == right


def test_each_box_of_a_photo_is_seen_by_the_next_model(
    many: Any, tagger: str, detector: str, grids: Any, models: Any
) -> None:
    photo = grids.PHOTOS[1]
    status, headers, said = many("models/squares-tagged/predict", models.png(photo))
    assert status == 200, said
    found, *crops = said["steps"]
    assert len(crops) == len(found["answer"]["boxes"]) == 2
    for crop in crops:
        x0, y0, x1, y1 = (int(v) for v in crop["box"])
        right = models.oracle(photo[y0:y1, x0:x1])
        assert crop["answer"]["label"] == right.label
        assert crop["answer"]["score"] == pytest.approx(right.score, abs=1e-5)
    ids = [model_id(detector), model_id(tagger)]
    assert [step["model_id"] for step in said["steps"]] == [ids[0], ids[1], ids[1]]
    assert headers["x-model-id"] == ", ".join(ids)
    assert len(many("models/squares-tagged/predict", models.png(photo * 0))[2]["steps"]) == 1


def test_a_label_picks_the_next_model(many: Any, tagger: str, second: str, models: Any) -> None:
    label = models.oracle(models.pixels(3)).label
    other = next(i for i in range(99) if models.oracle(models.pixels(i)).label != label)
    for seed, roots in ((3, (tagger, second)), (other, (tagger,))):
        said = many("models/picked/predict", models.png(models.pixels(seed)))[2]
        assert [step["model_id"] for step in said["steps"]] == [model_id(r) for r in roots]


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("models/none/predict", "EDGE-SERVE-017"),
        ("models/tagger/predict", "EDGE-INPUT-"),
        ("models/squares-tagged/predict", "EDGE-INPUT-"),
        ("repository/models/tagger/unload", "EDGE-SERVE-024"),
        ("models/tagger/infer", "EDGE-SERVE-010"),
    ],
)
def test_refusals_are_the_endpoints_own(many: Any, path: str, code: str) -> None:
    assert many(path, b"{}")[2]["code"].startswith(code)
    assert many(path, b"", key="another key")[2]["code"] == "EDGE-SERVE-023"


@pytest.mark.slow
def test_a_node_that_is_killed_fails_nobody(ray_nodes: Ray, tagger: str, models: Any) -> None:
    """Each node holds one replica; the second one goes as by a power cut."""
    # Of 1.5 processors each, so that no node has room for both.
    with ray_nodes.deployed("/", bundles=[tagger], replicas=2, cpus=1.5, deadline_ms=60_000) as url:
        _killed(ray_nodes, url, models)


def _killed(ray_nodes: Ray, url: str, models: Any) -> None:
    from ray import serve

    client = triton.InferenceServerClient(url.removeprefix("http://"), network_timeout=60.0)
    assert client.is_server_ready()
    assert client.is_model_ready("tagger")
    feed = models.oracle_tensor(models.pixels(5))
    asked = triton.InferInput("image", list(feed.shape), "FP32")
    asked.set_data_from_numpy(feed, binary_data=True)
    wanted = triton.InferRequestedOutput("logits", binary_data=True)
    reply = client.infer("tagger", [asked], outputs=[wanted])
    client.close()
    right = feed.reshape(1, -1) @ models.W
    np.testing.assert_allclose(reply.as_numpy("logits"), right, rtol=1e-4, atol=1e-4)

    def ask(seed: int) -> tuple[int, bool]:
        x = models.oracle_tensor(models.pixels(seed))
        body, _ = oip.write_request([oip.Tensor("image", x)], binary=False)
        status, _, said = post(f"{url}/v2/models/tagger/infer", body)
        if status != 200:
            return status, False
        right = x.reshape(1, -1) @ models.W
        return status, np.allclose(said["outputs"][0]["data"], right, rtol=1e-4, atol=1e-4)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(ask, seed) for seed in range(150)]
        concurrent.futures.wait(answers[:30])
        ray_nodes.kill_second()
        told = [one.result() for one in answers]
    assert told == [(200, True)] * 150
    for _ in range(300):  # until Ray has noticed
        states = serve.status().applications["root"].deployments["tagger"].replica_states
        if sum(n for state, n in states.items() if str(state).endswith("RUNNING")) == 1:
            break
        time.sleep(0.2)
    else:
        pytest.fail(f"no replica was on the node that was killed: {states}")


@pytest.mark.slow
def test_the_command_serves_on_ray(tagger: str, models: Any) -> None:
    port = free_port()
    command = [sys.executable, "-P", "-m", "edgeserve", "serve", tagger, "--engine", "ray"]
    command += ["--port", str(port), "--cpus", "0.5"]
    env = {k: v for k, v in os.environ.items() if not k.startswith("RAY_ADDRESS")}
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=env
    ) as process:
        assert process.stderr
        try:
            events = iter(line for line in process.stderr if line.startswith('{"at"'))
            assert json.loads(next(events))["event"] == "serving"
            photo = models.png(models.pixels(3))
            said = post(f"http://127.0.0.1:{port}/v2/models/tagger/predict", photo)[2]
            assert said["answer"]["label"] == models.oracle(models.pixels(3)).label
        finally:
            process.send_signal(signal.SIGTERM)
        assert [json.loads(line)["event"] for line in events] == ["draining", "ended"]
        assert process.wait(60) == 0


def test_what_serve_run_hands_over() -> None:
    """All text, as its command line has it."""
    scale = ray_options({"bundles": "a.edge,b.edge", "replicas": "2", "cpus": "0.5", "queue": "9"})
    assert [Path(path).name for path in scale.bundles] == ["a.edge", "b.edge"]
    assert all(Path(path).is_absolute() for path in scale.bundles)
    assert (scale.replicas, scale.cpus, scale.queue) == (2, 0.5, 9)
    assert ray_options(scale) is scale


@pytest.mark.parametrize(
    "fields",
    [
        {"replica": 2},
        {"replicas": 0},
        {"replicas": 3, "max_replicas": 2},
        {"cpus": 0},
        {"models_per_replica": -1},
        {"grpc_port": 8081},
        {"lazy": True},
        {"memory_mb": 100},
        {"replicas": "many"},
        {"target": 0},
        {"cpus": "nan"},
        {"gpus": "inf"},
        {"chains": [{"name": "x", "first": "a"}]},
        {"chains": [{"name": "x", "first": "a", "crop": "b", "pick": {"l": "c"}}]},
        {"chains": [{"name": "x", "first": "a", "crop": "b", "most": 0}]},
    ],
)
def test_fields_that_cannot_be(fields: dict[str, Any]) -> None:
    with pytest.raises(ServeError) as error:
        ray_options({"bundles": ["a.edge"], **fields})
    assert error.value.code == "EDGE-SERVE-041"


@pytest.mark.parametrize(
    ("chain", "told"),
    [
        (Cascade(name="c", first="tagger", crop="tagger"), "object-detection"),
        (Cascade(name="c", first="tagger", pick={"cat": "dogs"}), "dogs"),
        (Cascade(name="tagger", first="tagger", pick={"cat": "tagger"}), "name of its own"),
    ],
)
def test_chains_are_tried_against_the_bundles(tagger: str, chain: Cascade, told: str) -> None:
    with pytest.raises(ServeError, match=told) as error:
        build(RayOptions(bundles=(tagger,), chains=(chain,)))
    assert error.value.code == "EDGE-SERVE-041"


def test_what_is_left_to_ray_is_not_sent_to_an_option_that_it_refuses(tagger: str) -> None:
    front = IngressApp(RayOptions(bundles=(tagger,)), {"tagger": object()})
    path = b"/v2/repository/models/tagger/load"
    reply = asyncio.run(call_app(front, "POST", path, (), b""))
    assert reply.status == 403
    assert b"EDGE-SERVE-024" in reply.body
    assert b"--control" not in reply.body
    assert b"deploy again" in reply.body


def test_bundles_are_read_before_anything_starts(tagger: str, maker: Any, tmp_path: Path) -> None:
    with pytest.raises(ServeError) as error:
        build({"bundles": [tagger, tagger]})
    assert error.value.code == "EDGE-SERVE-003"
    with pytest.raises(ServeError):
        build({"bundles": [named(maker.workspace(), "front")]})
    with pytest.raises((BundleError, EdgeError)):
        build({"bundles": [str(tmp_path / "no.edge")]})
