"""Manifests for Kubernetes (Deployment, Service, autoscaler) and KServe (serving runtime).

They are written in plain YAML: maps, lists, text, numbers, nothing that two readers could take
apart.
"""

from __future__ import annotations

import json
import re
from typing import Any

from edgeserve.serve.emit.deployment import DeploymentSubject, arguments

_USER = 10001


def kubernetes(subject: DeploymentSubject) -> dict[str, bytes]:
    """Files by name."""
    return {
        "deployment.yaml": yaml_document(_deployment(subject), _prerequisites(subject)),
        "service.yaml": yaml_document(_service(subject)),
        "hpa.yaml": yaml_document(_autoscaler(subject)),
    }


def _ports(subject: DeploymentSubject) -> list[tuple[str, int]]:
    """Names and numbers of the ports that are listened on."""
    rest, grpc = subject.options.port, subject.options.grpc_port
    return [("http", rest), ("grpc", grpc)] if grpc else [("http", rest)]


def _container(subject: DeploymentSubject, name: str, words: list[str]) -> dict[str, Any]:
    """The container of a pod: non-root, read-only, with probes and limits."""
    ports = [{"name": n, "containerPort": p, "protocol": "TCP"} for n, p in _ports(subject)]
    mounts: list[dict[str, Any]] = [{"name": "tmp", "mountPath": "/tmp"}]
    mounts += [
        {"name": secret, "mountPath": path, "readOnly": True}
        for secret, path in subject.secrets.items()
    ]
    return {
        "name": name,
        "image": subject.image,
        # Kubernetes replaces $(NAME) in them; $$ stands for one dollar.
        "args": [word.replace("$", "$$") for word in words],
        "ports": ports,
        # A model is opened, proven and warmed up before it is ready: minutes for a large one.
        "startupProbe": _probe(subject, "ready", periodSeconds=2, failureThreshold=150),
        "readinessProbe": _probe(subject, "ready", periodSeconds=2, failureThreshold=1),
        "livenessProbe": _probe(subject, "live", periodSeconds=10, failureThreshold=3),
        "resources": _resources(subject),
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": mounts,
    }


def _volumes(subject: DeploymentSubject) -> list[dict[str, Any]]:
    """What the container mounts."""
    secrets = [{"name": name, "secret": {"secretName": name}} for name in subject.secrets]
    return [{"name": "tmp", "emptyDir": {}}, *secrets]


def _labels(subject: DeploymentSubject) -> dict[str, str]:
    """On every object."""
    return {"app.kubernetes.io/name": subject.name, "app.kubernetes.io/managed-by": "edgeserve"}


def _object(
    version: str, kind: str, subject: DeploymentSubject, spec: dict[str, Any], suffix: str = ""
) -> dict[str, Any]:
    """An object of the cluster, called by the deployment's name."""
    metadata = {"name": f"{subject.name}{suffix}", "labels": _labels(subject)}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def _deployment(subject: DeploymentSubject) -> dict[str, Any]:
    one = {"app.kubernetes.io/name": subject.name}
    scraped = {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": str(subject.options.port),
        "prometheus.io/path": "/metrics",
        "prometheus.io/scheme": subject.scheme.lower(),
    }
    models = {f"edgeserve/model-{i}": m.model_id for i, m in enumerate(subject.manifests)}
    pod = {
        "automountServiceAccountToken": False,
        # The endpoint ends within two seconds after drain_s, whatever runs.
        "terminationGracePeriodSeconds": int(subject.options.drain_s) + 5,
        "securityContext": {"fsGroup": _USER},
        "containers": [_container(subject, "edgeserve", arguments(subject))],
        "volumes": _volumes(subject),
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": one},
            }
        ],
    }
    metadata = {"labels": _labels(subject), "annotations": scraped | models}
    rolling = {"maxUnavailable": 0, "maxSurge": 1}
    spec = {
        "replicas": subject.options.replicas,
        "selector": {"matchLabels": one},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": rolling},
        "template": {"metadata": metadata, "spec": pod},
    }
    return _object("apps/v1", "Deployment", subject, spec)


def _service(subject: DeploymentSubject) -> dict[str, Any]:
    ports = [
        {"name": name, "port": port, "targetPort": name, "protocol": "TCP"}
        for name, port in _ports(subject)
    ]
    selector = {"app.kubernetes.io/name": subject.name}
    spec = {"type": "ClusterIP", "selector": selector, "ports": ports}
    return _object("v1", "Service", subject, spec)


def _autoscaler(subject: DeploymentSubject) -> dict[str, Any]:
    """By processor time; down slowly, because a new pod has to load its models first."""
    busy = {"type": "Utilization", "averageUtilization": 70}
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": subject.name},
        "minReplicas": subject.options.replicas,
        "maxReplicas": subject.options.max_replicas,
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": busy}}],
        "behavior": {
            "scaleUp": {"stabilizationWindowSeconds": 0},
            "scaleDown": {"stabilizationWindowSeconds": 300},
        },
    }
    return _object("autoscaling/v2", "HorizontalPodAutoscaler", subject, spec)


def _probe(subject: DeploymentSubject, what: str, **fields: int) -> dict[str, Any]:
    get = {"path": f"/v2/health/{what}", "port": "http", "scheme": subject.scheme}
    return {"httpGet": get, "timeoutSeconds": 2, **fields}


def _resources(subject: DeploymentSubject) -> dict[str, Any]:
    asked = {"cpu": f"{int(1000 * subject.options.cpus)}m", "memory": f"{subject.memory_mb}Mi"}
    most: dict[str, Any] = {"memory": f"{2 * subject.memory_mb}Mi"}
    if subject.options.gpus:
        most["nvidia.com/gpu"] = int(subject.options.gpus)
    return {"requests": asked, "limits": most}


def _prerequisites(subject: DeploymentSubject) -> str:
    """What has to be there before, as comment."""
    steps = [f"Image: docker build -t {subject.image} . (files: --emit docker)"]
    for name in subject.secrets:
        given = f"generic {name} --from-file=keys"
        if name.endswith("-tls"):
            given = f"tls {name} --cert=tls.crt --key=tls.key"
        steps.append(f"Secret: kubectl create secret {given}")
    return "\n".join(steps)


#: What KServe calls the container that it sends requests to.
_CONTAINER = "kserve-container"


def kserve(subject: DeploymentSubject) -> dict[str, bytes]:
    """Files by name."""
    needed = f"Image: docker build -t {subject.image} . (files: --emit docker)"
    return {
        "servingruntime.yaml": yaml_document(_serving_runtime(subject), needed),
        "inferenceservice.yaml": yaml_document(_inference_service(subject)),
    }


def _serving_runtime(subject: DeploymentSubject) -> dict[str, Any]:
    words = arguments(subject, fetched=bool(subject.options.storage))
    versions = ["v2", *(["grpc-v2"] if subject.options.grpc_port else [])]
    spec = {
        "supportedModelFormats": [{"name": "edgeserve", "version": "1", "autoSelect": False}],
        "protocolVersions": versions,
        "containers": [_container(subject, _CONTAINER, words)],
        "volumes": _volumes(subject),
    }
    return _object("serving.kserve.io/v1alpha1", "ServingRuntime", subject, spec, "-edgeserve")


def _inference_service(subject: DeploymentSubject) -> dict[str, Any]:
    options = subject.options
    model: dict[str, Any] = {
        "modelFormat": {"name": "edgeserve", "version": "1"},
        "runtime": f"{subject.name}-edgeserve",
        "protocolVersion": "v2",
    }
    if options.storage:
        model["storageUri"] = options.storage
    predictor = {
        "minReplicas": options.replicas,
        "maxReplicas": options.max_replicas,
        "scaleMetric": "concurrency",
        "scaleTarget": max(1, 2 * (options.workers or int(options.cpus) or 1)),
        "timeout": max(1, round(options.deadline_ms / 1e3)),
        "terminationGracePeriodSeconds": int(options.drain_s) + 5,
        "model": model,
    }
    version, kind = "serving.kserve.io/v1beta1", "InferenceService"
    return _object(version, kind, subject, {"predictor": predictor})


#: Text that every reader of YAML takes as text without quotes.
_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9._/-]*")
#: ... but for what some take as a truth value or nothing.
_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null", "inf", "nan"}


def yaml_document(value: dict[str, Any], comment: str = "") -> bytes:
    """One document.

    Args:
        value: Maps, lists, str, int and bool, nested.
        comment: Lines to stand above it.
    """
    above = [f"# {line}".rstrip() for line in comment.splitlines()]
    return ("\n".join([*above, *_lines(value, 0)]) + "\n").encode()


def _lines(value: Any, depth: int) -> list[str]:
    pad = "  " * depth
    found: list[str] = []
    if isinstance(value, dict):
        for key, inner in value.items():
            found += _entry(f"{pad}{_scalar(key)}:", inner, depth + 1)
        return found
    for item in value:
        if isinstance(item, dict) and item:
            first, *rest = _lines(item, depth + 1)
            found += [f"{pad}- {first.lstrip()}", *rest]
        else:
            found += _entry(f"{pad}-", item, depth + 1)
    return found


def _entry(start: str, value: Any, depth: int) -> list[str]:
    if isinstance(value, dict | list) and value:
        return [start, *_lines(value, depth)]
    empty = "{}" if isinstance(value, dict) else "[]"
    return [f"{start} {empty if isinstance(value, dict | list) else _scalar(value)}"]


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return str(value)
    return json.dumps(value)
