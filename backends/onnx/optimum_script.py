"""Run by the Python of another environment: ``optimum_script.py FOLDER OUT TASK``.

Imports nothing of edgeserve. Weights come from safetensors only: loading a pickle fails.
"""

from __future__ import annotations

import importlib
import json
import sys
from importlib import metadata
from pathlib import Path

#: Endings of architecture names, and optimum's names of their tasks.
_TASKS = {
    "ForSequenceClassification": "text-classification",
    "ForImageClassification": "image-classification",
    "ForTokenClassification": "token-classification",
    "ForQuestionAnswering": "question-answering",
    "ForMaskedLM": "fill-mask",
    "ForCausalLM": "text-generation",
    "ForSemanticSegmentation": "semantic-segmentation",
    "ForObjectDetection": "object-detection",
}
#: Tasks with the same name in optimum.
_SAME = set(
    "feature-extraction text-classification image-classification token-classification object- "
    "detection".split()
)


def _task(folder: Path, asked: str) -> str:
    if asked in _SAME:
        return asked
    names = json.loads((folder / "config.json").read_text()).get("architectures") or [""]
    found = (task for end, task in _TASKS.items() if names[0].endswith(end))
    return next(found, "feature-extraction")


def _no_pickles(*_: object, **__: object) -> object:
    raise RuntimeError("pickled weights are not loaded, only safetensors")


def main(folder: Path, out: Path, asked: str) -> None:
    """Convert, and record the versions of the packages."""
    import torch

    torch.load = _no_pickles
    main_export = importlib.import_module("optimum.exporters.onnx").main_export

    main_export(
        str(folder),
        output=str(out),
        task=_task(folder, asked),
        framework="pt",
        library_name="transformers",
        local_files_only=True,
        trust_remote_code=False,
        device="cpu",
        do_validation=False,
        no_post_process=True,
    )
    names = ("optimum-onnx", "optimum", "transformers", "torch", "onnx")
    lines = [f"{name}=={metadata.version(name)}" for name in names]
    (out / "versions.txt").write_text("\n".join(lines))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
