"""Manifests for KServe: a runtime that opens bundles, and a service that uses it."""

from __future__ import annotations

from typing import Any

from edgeserve.serve.emit.deployment import Subject, arguments
from edgeserve.serve.emit.kubernetes import container, labels, volumes
from edgeserve.serve.emit.yaml import document

__all__ = ["kserve"]

#: What KServe calls the container that it sends requests to.
_CONTAINER = "kserve-container"


def kserve(subject: Subject) -> dict[str, bytes]:
    """Files by name."""
    needed = f"Image: docker build -t {subject.image} . (files: --emit docker)"
    return {
        "servingruntime.yaml": document(_runtime(subject), needed),
        "inferenceservice.yaml": document(_service(subject)),
    }


def _runtime(subject: Subject) -> dict[str, Any]:
    words = arguments(subject, fetched=bool(subject.said.storage))
    versions = ["v2", *(["grpc-v2"] if subject.said.grpc_port else [])]
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


def _service(subject: Subject) -> dict[str, Any]:
    said = subject.said
    model: dict[str, Any] = {
        "modelFormat": {"name": "edgeserve", "version": "1"},
        "runtime": f"{subject.name}-edgeserve",
        "protocolVersion": "v2",
    }
    if said.storage:
        model["storageUri"] = said.storage
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": subject.name, "labels": labels(subject)},
        "spec": {
            "predictor": {
                "minReplicas": said.replicas,
                "maxReplicas": said.max_replicas,
                "scaleMetric": "concurrency",
                "scaleTarget": max(1, 2 * (said.workers or int(said.cpus) or 1)),
                "timeout": max(1, round(said.deadline_ms / 1e3)),
                "terminationGracePeriodSeconds": int(said.drain_s) + 65,
                "model": model,
            }
        },
    }
