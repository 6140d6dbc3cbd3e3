"""Words that must not blur: formats, precisions, tasks and verdicts, each a closed set."""

from __future__ import annotations

from typing import Literal, get_args

__all__ = [
    "FORMATS",
    "FORMAT_SPELLINGS",
    "PRECISIONS",
    "TASKS",
    "VERDICTS",
    "Format",
    "Precision",
    "Task",
    "Verdict",
]

#: "torch" is the reference's own format (the exported .pt2); it never enters a bundle.
Format = Literal["onnx", "tflite", "coreml", "torch"]
Precision = Literal["fp32", "fp16", "w8", "w8a8", "w8a16", "w4"]
Verdict = Literal["pass", "degraded", "fail", "unproven"]
Task = Literal[
    "image-classification",
    "text-classification",
    "audio-classification",
    "object-detection",
    "image-segmentation",
    "depth-estimation",
    "feature-extraction",
    "token-classification",
    "automatic-speech-recognition",
    "voice-activity",
    "text-generation",
    "tensors",
]

FORMATS: tuple[str, ...] = tuple(f for f in get_args(Format) if f != "torch")
PRECISIONS: tuple[str, ...] = get_args(Precision)
TASKS: tuple[str, ...] = get_args(Task)
VERDICTS: tuple[str, ...] = get_args(Verdict)

#: Other names that people type for a format.
FORMAT_SPELLINGS: dict[str, str] = {
    "ort": "onnx",
    "onnxruntime": "onnx",
    "litert": "tflite",
    "ai-edge-torch": "tflite",
    "litert-torch": "tflite",
    "tensorflow-lite": "tflite",
    "core-ml": "coreml",
    "mlpackage": "coreml",
}
