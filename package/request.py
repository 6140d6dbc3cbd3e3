"""What `package` is asked and what it answers."""

from __future__ import annotations

from edgeserve.types.base import Value

__all__ = ["TARGETS", "PackageRequest", "Packaged"]

#: The formats that run on each target.
TARGETS: dict[str, tuple[str, ...]] = {
    "android": ("onnx", "tflite"),
    "ios": ("coreml", "onnx"),
    "linux": ("onnx", "tflite"),
    "web": ("onnx", "tflite"),
}


class PackageRequest(Value, frozen=True):
    """Which bundle to write.

    Attributes:
        workspace: The workspace's folder.
        out: The file to write, e.g. "model.edge"; an older one is replaced once this one is whole.
        name: Name of the model; None: the workspace's.
        version: Version of the model, for updates; None: the workspace's.
        license: SPDX expression; None: the workspace's.
        target: A key of `TARGETS`: only formats that run there; None: all.
        artifacts: Names of artifacts (``onnx-fp32``); empty: all.
    """

    workspace: str
    out: str
    name: str | None = None
    version: int | None = None
    license: str | None = None
    target: str | None = None
    artifacts: tuple[str, ...] = ()


class Packaged(Value, frozen=True):
    """The bundle that was written.

    Attributes:
        path: Where it lies.
        size: Its bytes.
        sha256: Of the whole file: what to publish beside it.
        model_id: Which model it holds.
        artifacts: Names of the artifacts in it.
    """

    path: str
    size: int
    sha256: str
    model_id: str
    artifacts: tuple[str, ...]
