"""Files for images, Kubernetes and KServe: valid by others' rules, and what they say runs."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kubernetes_validate
import msgspec
import pytest
import yaml

from edgeserve.errors import ServeError
from edgeserve.installation import DISTRIBUTION
from edgeserve.serve.emit import Deployment, emit
from edgeserve.serve.emit.kubernetes import yaml_document

#: Fields of KServe's API, as its Python package lists them.
FIELDS = json.loads((Path(__file__).parent / "kserve_fields.json").read_text("utf-8"))


@pytest.fixture
def sealed(maker: Any, tmp_path_factory: Any, write_reports: Callable[[Path], None]) -> str:
    """The classifier, sealed."""
    maker.write_reports = write_reports
    target = tmp_path_factory.mktemp("sealed") / "tagger.edge"
    shutil.move(maker.bundle(maker.workspace()), target)
    return str(target)


def read(folder: Path, name: str) -> Any:
    [one] = list(yaml.safe_load_all((folder / name).read_text("utf-8")))
    return one


def lint(path: Path) -> str:
    command = [str(Path(sys.executable).parent / "hadolint"), "--no-color", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr


def instructions(path: Path) -> list[tuple[str, str]]:
    text = path.read_text("utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in lines]


@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.cuda"])
def test_an_image_is_pinned_small_and_nobodys_root(sealed: str, tmp_path: Path, name: str) -> None:
    emit("docker", Deployment(bundles=(sealed,)), tmp_path)
    assert lint(tmp_path / name) == ""
    said = instructions(tmp_path / name)
    words = [word for word, _ in said]
    bases = {rest.split()[0] for word, rest in said if word == "FROM"}
    assert all(re.search(r":\d+\.\d+\.\d+", base) for base in bases)
    assert "ADD" not in words
    assert words.index("USER") > words.index("COPY")
    assert not dict(said)["USER"].startswith(("0", "root"))
    listed = "requirements-cuda.txt" if name.endswith("cuda") else "requirements.txt"
    lines = (tmp_path / listed).read_text("utf-8").split()
    assert all(re.fullmatch(r"[\w.-]+(\[[\w,]+\])?==[\w.]+", line) for line in lines)
    names = {re.split(r"[\[=]", line)[0] for line in lines}
    assert {DISTRIBUTION, "numpy", "pillow", "uvicorn", "httptools", "msgspec"} <= names
    gpu = name.endswith("cuda")
    assert ("onnxruntime-gpu" in names, "onnxruntime" in names) == (gpu, not gpu)
    assert not names & {"torch", "onnx", "transformers", "pytest", "ray"}


def test_a_linter_finds_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM python\nRUN cd /x && sudo true\nCMD a\n")
    assert "DL3006" in lint(tmp_path / "Dockerfile")


def test_what_a_container_runs_runs_and_its_health_check_sees_it(
    sealed: str, tmp_path: Path
) -> None:
    """The very words of the image, but for where its files lie."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    out = tmp_path / "image"
    emit("docker", Deployment(bundles=(sealed,), port=port, queue=7, threads=1, workers=1), out)
    said = dict(instructions(out / "Dockerfile"))
    words = [*json.loads(said["ENTRYPOINT"]), *json.loads(said["CMD"])]
    assert tuple(words[words.index("--queue") :][:2]) == ("--queue", "7")
    words = [word.replace("/bundles", str(out / "bundles")) for word in words]
    words[words.index("0.0.0.0")] = "127.0.0.1"
    check = json.loads(said["HEALTHCHECK"].partition("CMD ")[2])
    check[0] = sys.executable
    assert subprocess.run(check, capture_output=True, timeout=30).returncode != 0
    command = [sys.executable, "-P", "-m", *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        events = [json.loads(process.stderr.readline())["event"] for _ in range(2)]
        healthy = subprocess.run(check, capture_output=True, timeout=30)
        process.terminate()
        process.stderr.read()
        assert process.wait(30) == 0
    assert events == ["load", "serving"]
    assert healthy.returncode == 0, healthy.stderr


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"grpc_port": 8081, "keys": "here", "gpus": 1, "image": "registry.example.com/t@sha256:0"},
        {"tls_cert": "c", "tls_key": "k", "cpus": 0.5, "drain_s": 20.0, "batch": 4, "lazy": True},
    ],
)
def test_manifests_are_what_kubernetes_takes(
    sealed: str, tmp_path: Path, fields: dict[str, Any]
) -> None:
    names = emit("kubernetes", Deployment(bundles=(sealed,), **fields), tmp_path)
    assert names == ["deployment.yaml", "hpa.yaml", "service.yaml"]
    for name in names:
        kubernetes_validate.validate(read(tmp_path, name), "1.31", strict=True)
    deployment = read(tmp_path, "deployment.yaml")
    pod = deployment["spec"]["template"]
    [container] = pod["spec"]["containers"]
    assert (
        deployment["spec"]["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    )
    service, scaler = read(tmp_path, "service.yaml"), read(tmp_path, "hpa.yaml")
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert all(port["targetPort"] in ports for port in service["spec"]["ports"])
    assert scaler["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    assert ports.get("grpc") == fields.get("grpc_port")
    assert container["securityContext"]["runAsNonRoot"]
    scheme = "HTTPS" if "tls_cert" in fields else "HTTP"
    assert container["readinessProbe"]["httpGet"]["scheme"] == scheme
    assert pod["spec"]["terminationGracePeriodSeconds"] > fields.get("drain_s", 1)
    mounted = {m["mountPath"] for m in container["volumeMounts"]}
    assert {m["name"] for m in container["volumeMounts"]} == {
        v["name"] for v in pod["spec"]["volumes"]
    }
    for word in container["args"]:
        if word.startswith("/etc/"):
            assert str(Path(word).parent) in mounted
    assert container["resources"]["limits"].get("nvidia.com/gpu") == fields.get("gpus")


def test_a_slip_in_a_manifest_is_found(sealed: str, tmp_path: Path) -> None:
    emit("kubernetes", Deployment(bundles=(sealed,)), tmp_path)
    deployment = read(tmp_path, "deployment.yaml")
    deployment["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, "1.31", strict=True)


def kserve_misfits(kind: str, value: Any, where: str = "") -> list[str]:
    """Where a value is not of a type of KServe's API; Kubernetes' own types are tried as such."""
    if (inner := re.fullmatch(r"list\[(.+)\]", kind)) is not None:
        found = [] if isinstance(value, list) else [f"{where}: no list"]
        return found + [
            m for i, v in enumerate(value) for m in kserve_misfits(inner[1], v, f"{where}[{i}]")
        ]
    if kind in ("str", "int", "bool"):
        right = type(value).__name__ == kind
        return [] if right else [f"{where}: {value!r} is no {kind}"]
    if kind == "V1Container":
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}}
        kubernetes_validate.validate(pod | {"spec": {"containers": [value]}}, "1.31", strict=True)
    if kind not in FIELDS:
        return []
    known = FIELDS[kind]
    return [f"{where}.{name}: unknown" for name in value if name not in known] + [
        m
        for name, inner_value in value.items()
        if name in known
        for m in kserve_misfits(known[name], inner_value, f"{where}.{name}")
    ]


@pytest.mark.parametrize("storage", ["", "s3://models/tagger.edge"])
def test_manifests_are_what_kserve_takes(sealed: str, tmp_path: Path, storage: str) -> None:
    said = Deployment(bundles=(sealed,), storage=storage, grpc_port=9000, deadline_ms=2000)
    emit("kserve", said, tmp_path)
    runtime, service = (
        read(tmp_path, "servingruntime.yaml"),
        read(tmp_path, "inferenceservice.yaml"),
    )
    assert kserve_misfits("V1alpha1ServingRuntime", runtime) == []
    assert kserve_misfits("V1beta1InferenceService", service) == []
    assert (runtime["apiVersion"], service["apiVersion"]) == (
        "serving.kserve.io/v1alpha1",
        "serving.kserve.io/v1beta1",
    )
    model = service["spec"]["predictor"]["model"]
    assert model["runtime"] == runtime["metadata"]["name"]
    assert model["protocolVersion"] in runtime["spec"]["protocolVersions"]
    formats = [one["name"] for one in runtime["spec"]["supportedModelFormats"]]
    assert model["modelFormat"]["name"] in formats
    [container] = runtime["spec"]["containers"]
    assert container["name"] == "kserve-container"
    place = "/mnt/models" if storage else "/bundles"
    assert container["args"][:2] == ["serve", f"{place}/tagger.edge"]
    assert model.get("storageUri", "") == storage


def test_a_slip_for_kserve_is_found() -> None:
    slip = {"spec": {"predictor": {"model": {"modelFormat": {"nam": "x"}, "runtime": 7}}}}
    assert kserve_misfits("V1beta1InferenceService", slip) == [
        ".spec.predictor.model.modelFormat.nam: unknown",
        ".spec.predictor.model.runtime: 7 is no str",
    ]


def test_nobodys_file_is_overwritten(sealed: str, tmp_path: Path) -> None:
    said = Deployment(bundles=(sealed,))
    emit("docker", said, tmp_path)
    assert emit("docker", said, tmp_path), "the very same files may be written again"
    (tmp_path / "Dockerfile").write_text("mine")
    (tmp_path / "requirements.txt").unlink()
    with pytest.raises(ServeError, match="Dockerfile") as error:
        emit("docker", Deployment(bundles=(sealed,), queue=9), tmp_path)
    assert error.value.code == "EDGE-SERVE-050"
    assert (tmp_path / "Dockerfile").read_text() == "mine"
    assert not (tmp_path / "requirements.txt").exists(), "nothing is written where one is refused"
    emit("docker", said, tmp_path, force=True)
    assert "FROM" in (tmp_path / "Dockerfile").read_text()


def test_a_file_is_no_folder(sealed: str, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(ServeError, match="a file") as error:
        emit("docker", Deployment(bundles=(sealed,)), tmp_path / "mine", force=True)
    assert error.value.code == "EDGE-SERVE-050"
    assert (tmp_path / "mine").read_text() == "mine"


def test_too_few_at_the_most_names_both_numbers(sealed: str) -> None:
    with pytest.raises(ServeError, match=r"max_replicas: wanted 3 or more.* got 2"):
        Deployment(bundles=(sealed,), replicas=3, max_replicas=2)
    with pytest.raises(ServeError, match="nope"):
        emit("docker", Deployment(bundles=(sealed,), pinned=("nope",)), "never")


def test_a_link_is_not_followed(sealed: str, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "Dockerfile").symlink_to(tmp_path / "mine")
    with pytest.raises(ServeError):
        emit("docker", Deployment(bundles=(sealed,)), tmp_path / "out")
    emit("docker", Deployment(bundles=(sealed,)), tmp_path / "out", force=True)
    assert (tmp_path / "mine").read_text() == "mine"


@pytest.mark.parametrize(
    "fields",
    [
        {"replicas": 0},
        {"replicas": 7},
        {"cpus": 0.0},
        {"image": "Not An Image"},
        {"storage": "models/tagger"},
        {"gpus": -1},
        {"gpus": 0.5},
        {"cpus": float("nan")},
        {"cpus": float("inf")},
        {"port": 0},
    ],
)
def test_what_cannot_be_is_refused(sealed: str, fields: dict[str, Any]) -> None:
    with pytest.raises(ServeError) as error:
        Deployment(bundles=(sealed,), **fields)
    assert error.value.code == "EDGE-SERVE-051"


def test_a_workspace_is_never_put_into_an_image(sealed: str, tagger: str, tmp_path: Path) -> None:
    for bundles in ((tagger,), (sealed, sealed)):
        with pytest.raises(ServeError) as error:
            emit("docker", Deployment(bundles=bundles), tmp_path)
        assert error.value.code == "EDGE-SERVE-051"
    with pytest.raises(ServeError):
        emit("helm", Deployment(bundles=(sealed,)), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_command_writes_them(sealed: str, tmp_path: Path) -> None:
    words = ["serve", sealed, "--emit", "kserve", "-o", "out dir", "--replicas", "3"]
    command = [sys.executable, "-P", "-m", "edgeserve", *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        os.path.join("out dir", name) for name in ("inferenceservice.yaml", "servingruntime.yaml")
    ]
    assert (
        read(tmp_path / "out dir", "inferenceservice.yaml")["spec"]["predictor"]["minReplicas"] == 3
    )
    (tmp_path / "out dir" / "servingruntime.yaml").write_text("mine")
    again = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert again.returncode == 3
    assert "EDGE-SERVE-050" in again.stderr
    assert (tmp_path / "out dir" / "servingruntime.yaml").read_text() == "mine"


@pytest.mark.parametrize(
    "value",
    [
        {"a": {"b": [1, {"c": "no", "d": [[], {}]}, "x: y", ["p", ["q"]]], "e": ""}, "8": "08"},
        {"text": 'quote " back \\ # hash', "yes": "1e3", "t": "true", "f": 0.5, "n": "null"},
        {"list": [{"a": [{"b": {"c": 1}}]}, {"d": True}], "u": "ü 漢\n tab\t"},
    ],
)
def test_yaml_comes_back_as_it_was(value: dict[str, Any]) -> None:
    assert yaml.safe_load(yaml_document(value, "a comment\nof two lines")) == value


def test_options_are_all_told(sealed: str, tmp_path: Path) -> None:
    """An option that is set here and not said in the container would not hold there."""
    from edgeserve.serve.options import ServeOptions

    other: dict[str, Any] = {
        "grpc_port": 9,
        "threads": 3,
        "workers": 2,
        "deadline_ms": 7.0,
        "queue": 5,
        "batch": 3,
        "batch_delay_ms": 1.0,
        "body_mb": 2,
        "inflight_mb": 3,
        "body_s": 4.0,
        "lazy": True,
        "pinned": ("tagger",),
        "keys": "k",
        "control": True,
        "tls_cert": "c",
        "tls_key": "k",
        "drain_s": 9.0,
        "price": 2.0,
        "memory_mb": 900,
        "max_deadline_ms": 8.0,
        "grpc_body_mb": 1,
        "cors_origins": ("https://app.example",),
        "no_keys": True,
        "port": 81,
        "host": "127.0.0.1",
    }
    names = {field.name for field in dataclasses.fields(ServeOptions)} - {"bundles"}
    assert names <= other.keys(), "an option that this test does not know"
    emit("kubernetes", Deployment(bundles=(sealed,), **other), tmp_path)
    [container] = read(tmp_path, "deployment.yaml")["spec"]["template"]["spec"]["containers"]
    said = {word for word in container["args"] if word.startswith("--")}
    spelled = {"pinned": "pin", "cors_origins": "cors-origin"}
    apart = {"memory_mb"}  # the pod's own limit
    wanted = {f"--{spelled.get(n, n).replace('_', '-')}" for n in names - apart}
    assert said >= wanted, wanted - said
    assert msgspec.json.encode(container["resources"]).count(b"900Mi") == 1


@pytest.mark.parametrize("kind", ["kubernetes", "kserve"])
def test_a_dollar_in_a_name_stays_one(sealed: str, tmp_path: Path, kind: str) -> None:
    """Kubernetes replaces $(NAME) by a variable or leaves it, and $$ by one dollar."""
    name = "$(HOME)$$(HOME)$x$.edge"
    bundle = shutil.copy(sealed, tmp_path / name)
    emit(kind, Deployment(bundles=(str(bundle),)), tmp_path / "out")
    text = "".join(path.read_text("utf-8") for path in (tmp_path / "out").glob("*.yaml"))
    found = [
        re.sub(r"\$\$|\$\(HOME\)", lambda one: "$" if one[0] == "$$" else "/root", word)
        for word in re.findall(r"/\w+/(?:\w+/)*[^\s\"']*\.edge", text)
    ]
    assert found
    assert all(word.endswith(f"/{name}") for word in found), found
