"""Manifests for Kubernetes: a Deployment, its Service, and how many pods it has."""

from __future__ import annotations

from typing import Any

from edgeserve.serve.emit.deployment import Subject, arguments
from edgeserve.serve.emit.yaml import document

__all__ = ["container", "kubernetes", "labels", "volumes"]

_USER = 10001


def kubernetes(subject: Subject) -> dict[str, bytes]:
    """Files by name."""
    return {
        "deployment.yaml": document(_deployment(subject), _needed(subject)),
        "service.yaml": document(_service(subject)),
        "hpa.yaml": document(_autoscaler(subject)),
    }


def container(subject: Subject, name: str, words: list[str]) -> dict[str, Any]:
    """The container of a pod: non-root, read-only, with probes and limits."""
    said = subject.said
    ports = [{"name": "http", "containerPort": said.port, "protocol": "TCP"}]
    if said.grpc_port:
        ports.append({"name": "grpc", "containerPort": said.grpc_port, "protocol": "TCP"})
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


def volumes(subject: Subject) -> list[dict[str, Any]]:
    """What the container mounts."""
    secrets = [{"name": name, "secret": {"secretName": name}} for name in subject.secrets]
    return [{"name": "tmp", "emptyDir": {}}, *secrets]


def labels(subject: Subject) -> dict[str, str]:
    """On every object."""
    return {"app.kubernetes.io/name": subject.name, "app.kubernetes.io/managed-by": "edgeserve"}


def _deployment(subject: Subject) -> dict[str, Any]:
    one = {"app.kubernetes.io/name": subject.name}
    scraped = {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": str(subject.said.port),
        "prometheus.io/path": "/metrics",
        "prometheus.io/scheme": subject.scheme.lower(),
    }
    models = {f"edgeserve/model-{i}": m.model_id for i, m in enumerate(subject.manifests)}
    pod = {
        "automountServiceAccountToken": False,
        # Still answering for drain_s, then what runs; the endpoint itself waits a minute at most.
        "terminationGracePeriodSeconds": int(subject.said.drain_s) + 65,
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
            "replicas": subject.said.replicas,
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


def _service(subject: Subject) -> dict[str, Any]:
    ports = [{"name": "http", "port": subject.said.port, "targetPort": "http", "protocol": "TCP"}]
    if grpc := subject.said.grpc_port:
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


def _autoscaler(subject: Subject) -> dict[str, Any]:
    """By processor time; down slowly, because a new pod has to load its models first."""
    busy = {"type": "Utilization", "averageUtilization": 70}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": subject.name, "labels": labels(subject)},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": subject.name},
            "minReplicas": subject.said.replicas,
            "maxReplicas": subject.said.max_replicas,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": busy}}],
            "behavior": {
                "scaleUp": {"stabilizationWindowSeconds": 0},
                "scaleDown": {"stabilizationWindowSeconds": 300},
            },
        },
    }


def _probe(subject: Subject, what: str, **fields: int) -> dict[str, Any]:
    get = {"path": f"/v2/health/{what}", "port": "http", "scheme": subject.scheme}
    return {"httpGet": get, "timeoutSeconds": 2, **fields}


def _resources(subject: Subject) -> dict[str, Any]:
    asked = {"cpu": f"{int(1000 * subject.said.cpus)}m", "memory": f"{subject.memory_mb}Mi"}
    most: dict[str, Any] = {"memory": f"{2 * subject.memory_mb}Mi"}
    if subject.said.gpus:
        most["nvidia.com/gpu"] = subject.said.gpus
    return {"requests": asked, "limits": most}


def _needed(subject: Subject) -> str:
    """What has to be there before, as comment."""
    told = [f"Image: docker build -t {subject.image} . (files: --emit docker)"]
    for name in subject.secrets:
        kind = (
            "tls NAME --cert=tls.crt --key=tls.key"
            if name.endswith("-tls")
            else ("generic NAME --from-file=keys")
        )
        told.append(f"Secret: kubectl create secret {kind.replace('NAME', name)}")
    return "\n".join(told)
