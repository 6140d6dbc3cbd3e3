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


def container(subject: DeploymentSubject, name: str, words: list[str]) -> dict[str, Any]:
    """The container of a pod: non-root, read-only, with probes and limits."""
    options = subject.options
    ports = [{"name": "http", "containerPort": options.port, "protocol": "TCP"}]
    if options.grpc_port:
        ports.append({"name": "grpc", "containerPort": options.grpc_port, "protocol": "TCP"})
    mounts: list[dict[str, Any]] = [{"name": "tmp", "mountPath": "/tmp"}]
    mounts += [
        {"name": secret, "mountPath": path, "readOnly": True}
        for secret, path in subject.secrets.items()
    ]
    return {
        "name": name,
        "image": subject.image,
        "args": words,
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


def volumes(subject: DeploymentSubject) -> list[dict[str, Any]]:
    """What the container mounts."""
    secrets = [{"name": name, "secret": {"secretName": name}} for name in subject.secrets]
    return [{"name": "tmp", "emptyDir": {}}, *secrets]


def labels(subject: DeploymentSubject) -> dict[str, str]:
    """On every object."""
    return {"app.kubernetes.io/name": subject.name, "app.kubernetes.io/managed-by": "edgeserve"}


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
        # Still answering for drain_s, then what runs; the endpoint itself waits a minute at most.
        "terminationGracePeriodSeconds": int(subject.options.drain_s) + 65,
        "securityContext": {"fsGroup": _USER},
        "containers": [container(subject, "edgeserve", arguments(subject))],
        "volumes": volumes(subject),
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": one},
            }
        ],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": subject.name, "labels": labels(subject)},
        "spec": {
            "replicas": subject.options.replicas,
            "selector": {"matchLabels": one},
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1},
            },
            "template": {
                "metadata": {"labels": labels(subject), "annotations": scraped | models},
                "spec": pod,
            },
        },
    }


def _service(subject: DeploymentSubject) -> dict[str, Any]:
    ports = [
        {"name": "http", "port": subject.options.port, "targetPort": "http", "protocol": "TCP"}
    ]
    if grpc := subject.options.grpc_port:
        ports.append({"name": "grpc", "port": grpc, "targetPort": "grpc", "protocol": "TCP"})
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": subject.name, "labels": labels(subject)},
        "spec": {
            "type": "ClusterIP",
            "selector": {"app.kubernetes.io/name": subject.name},
            "ports": ports,
        },
    }


def _autoscaler(subject: DeploymentSubject) -> dict[str, Any]:
    """By processor time; down slowly, because a new pod has to load its models first."""
    busy = {"type": "Utilization", "averageUtilization": 70}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": subject.name, "labels": labels(subject)},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": subject.name},
            "minReplicas": subject.options.replicas,
            "maxReplicas": subject.options.max_replicas,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": busy}}],
            "behavior": {
                "scaleUp": {"stabilizationWindowSeconds": 0},
                "scaleDown": {"stabilizationWindowSeconds": 300},
            },
        },
    }


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
        kind = (
            "tls NAME --cert=tls.crt --key=tls.key"
            if name.endswith("-tls")
            else ("generic NAME --from-file=keys")
        )
        steps.append(f"Secret: kubectl create secret {kind.replace('NAME', name)}")
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
    return {
        "apiVersion": "serving.kserve.io/v1alpha1",
        "kind": "ServingRuntime",
        "metadata": {"name": f"{subject.name}-edgeserve", "labels": labels(subject)},
        "spec": {
            "supportedModelFormats": [{"name": "edgeserve", "version": "1", "autoSelect": False}],
            "protocolVersions": versions,
            "containers": [container(subject, _CONTAINER, words)],
            "volumes": volumes(subject),
        },
    }


def _inference_service(subject: DeploymentSubject) -> dict[str, Any]:
    options = subject.options
    model: dict[str, Any] = {
        "modelFormat": {"name": "edgeserve", "version": "1"},
        "runtime": f"{subject.name}-edgeserve",
        "protocolVersion": "v2",
    }
    if options.storage:
        model["storageUri"] = options.storage
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": subject.name, "labels": labels(subject)},
        "spec": {
            "predictor": {
                "minReplicas": options.replicas,
                "maxReplicas": options.max_replicas,
                "scaleMetric": "concurrency",
                "scaleTarget": max(1, 2 * (options.workers or int(options.cpus) or 1)),
                "timeout": max(1, round(options.deadline_ms / 1e3)),
                "terminationGracePeriodSeconds": int(options.drain_s) + 65,
                "model": model,
            }
        },
    }


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
