"""What the base bundles hold: a model that names the colour of a picture, and one of several files.

The decision and its scores are worked out here with the standard library alone.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import struct
import zlib
from pathlib import Path
from typing import Any

__all__ = [
    "COLOURS",
    "Json",
    "artifact",
    "colour_files",
    "colour_manifest",
    "dump",
    "entry",
    "folder_files",
    "folder_manifest",
    "identity",
    "picture",
    "sha256",
    "write_workspace",
]

Json = dict[str, Any]
COLOURS = ["red", "green", "blue"]
_ASSETS = Path(__file__).resolve().parents[1] / "assets"
_PIXEL = (200, 40, 40)

PROCESSING: Json = {
    "inputs": [
        {
            "name": "image",
            "steps": [
                {
                    "step": "decode/1",
                    "exif": True,
                    "background": [255, 255, 255],
                    "max_pixels": 1048576,
                },
                {"step": "resize/1", "height": 8, "width": 8},
                {"step": "normalize/1", "scale": [0.0078125] * 3, "bias": [-1.0, -1.0, -1.0]},
                {"step": "layout/1", "order": "CHW"},
            ],
        }
    ],
    "outputs": [
        {"step": "softmax/1", "output": "scores", "axis": -1},
        {"step": "top_k/1", "output": "scores", "k": 3},
    ],
}


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def dump(value: Any) -> bytes:
    """Compact JSON in UTF-8, keys in the order they stand in."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def entry(path: str, data: bytes) -> Json:
    return {"path": path, "size": len(data), "sha256": sha256(data)}


def identity() -> bytes:
    """``identity.json``; the model has no weights."""
    return dump(
        {
            "weights": [],
            "graph_sha256": sha256(b"mean over height and width"),
            "processing": PROCESSING,
            "labels": COLOURS,
            "task": "image-classification",
        }
    )


def picture() -> bytes:
    """An 8 x 8 PNG of one colour, its pixels in a stored deflate block."""
    rows = b"".join(b"\0" + bytes(_PIXEL) * 8 for _ in range(8))
    stored = b"\x78\x01\x01" + struct.pack("<HH", len(rows), len(rows) ^ 0xFFFF) + rows
    body = stored + struct.pack(">I", zlib.adler32(rows))
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0)),
        (b"IDAT", body),
        (b"IEND", b""),
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    crc = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", crc)


def _decision() -> Json:
    """Softmax of the colour's channel means, after (x / 128) - 1."""
    powers = [math.exp(value / 128 - 1) for value in _PIXEL]
    scores = [round(power / sum(powers), 6) for power in powers]
    order = sorted(range(3), key=lambda i: -scores[i])
    return {
        "record": "classification",
        "label": COLOURS[order[0]],
        "score": scores[order[0]],
        "top": [[COLOURS[i], scores[i]] for i in order],
        "index": order[0],
    }


def colour_files() -> dict[str, bytes]:
    """Members of the small base, manifest aside, sorted by path."""
    return {
        "artifacts/onnx-fp32/model.onnx": (_ASSETS / "colour.onnx").read_bytes(),
        "golden/000.png": picture(),
        "identity.json": identity(),
    }


def _tensor(name: str, shape: list[Any]) -> Json:
    return {"name": name, "dtype": "float32", "shape": shape}


def artifact(format_: str, precision: str, entry_: str, files: list[Json]) -> Json:
    io = {"inputs": [_tensor("image", ["n", 3, 8, 8])], "outputs": [_tensor("scores", ["n", 3])]}
    judgement = {"verdict": "pass", "reasons": [], "executed_by": "onnxruntime 1.32.0 (cpu)"}
    return {
        "format": format_,
        "precision": precision,
        "entry": entry_,
        "files": files,
        "io": io,
        "judgement": judgement,
    }


def colour_manifest(files: dict[str, bytes] | None = None) -> Json:
    """The manifest of the small base."""
    files = files or colour_files()
    listed = {path: entry(path, data) for path, data in files.items()}
    model, photo = "artifacts/onnx-fp32/model.onnx", "golden/000.png"
    record = _decision()
    case = {
        "input": listed[photo],
        "medium": "image",
        "record": record,
        "margin": round(record["top"][0][1] - record["top"][1][1], 6),
        "tolerance": 0.001,
    }
    return {
        "edgeserve": "1.0",
        "name": "colour",
        "version": 1,
        "min_wrapper": "0.1.0",
        "model_id": sha256(files["identity.json"]),
        "task": "image-classification",
        "signature": {
            "inputs": [_tensor("image", ["n", 3, 8, 8])],
            "outputs": [_tensor("scores", ["n", 3])],
            "dims": {"n": [1, 8]},
        },
        "processing": copy.deepcopy(PROCESSING),
        "labels": COLOURS,
        "files": list(listed.values()),
        "artifacts": [artifact("onnx", "fp32", model, [copy.deepcopy(listed[model])])],
        "refused": [],
        "golden": {"origin": "generated", "cases": [copy.deepcopy(case)]},
        "reports": [
            {
                "format": "onnx",
                "precision": "fp32",
                "verdict": "pass",
                "figures": {"max_relative": 0.0, "p50_ms": "nan"},
            }
        ],
        "tools": {"edgeserve": "0.1.0"},
        "license": "Apache-2.0",
    }


def folder_files() -> dict[str, bytes]:
    """Members of the second base: an entry that is a folder, data beside a model, an empty file."""
    package = "artifacts/coreml-fp16/colour.mlpackage"
    return {
        f"{package}/Data/com.apple.CoreML/model.mlmodel": bytes(range(256)) * 3,
        f"{package}/Data/com.apple.CoreML/weights/weight.bin": b"",
        f"{package}/Manifest.json": b'{"fileFormatVersion": "1.0.0"}',
        "artifacts/onnx-fp32/model.onnx": (_ASSETS / "colour.onnx").read_bytes(),
        "artifacts/onnx-fp32/model.onnx.data": b"weights" * 3000,
        "golden/000.png": picture(),
        "identity.json": identity(),
    }


def folder_manifest() -> Json:
    """The manifest of the second base: a newer minor version, and fields under ``x``."""
    files = folder_files()
    listed = [entry(path, data) for path, data in files.items()]
    manifest = colour_manifest(files)
    onnx = "artifacts/onnx-fp32/model.onnx"
    core = "artifacts/coreml-fp16/colour.mlpackage"
    manifest["edgeserve"] = "1.7"
    manifest["artifacts"] = [
        artifact("onnx", "fp32", onnx, listed[3:5]),
        artifact("coreml", "fp16", core, listed[0:3]),
    ]
    manifest["refused"] = [
        {
            "format": "tflite",
            "precision": "w8a8",
            "verdict": "fail",
            "code": "EDGE-CHECK-001",
            "message": "does not load",
            "hint": "try fp32",
        }
    ]
    manifest["x"] = {"example.org": {"nested": [1, 2.5, None, True, "é"]}}
    return manifest


def write_workspace(folder: Path, manifest: Json, files: dict[str, bytes]) -> Path:
    """Lay files and manifest out as a workspace, beside what a workspace keeps to itself."""
    private = {
        "samples/photo.png": picture(),
        "source/model.pt2": b"exported",
        "logs/log.txt": b"log",
    }
    for path, data in (files | private | {"manifest.json": dump(manifest)}).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return folder
