"""What a cell of the table rests on: the code and the tools it was measured with.

Each format has a revision of its own, so that a change in one format's folder leaves the others'
cells as they are.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FORMATS = ("onnx", "tflite", "coreml")

#: Modules of the zoo that measure; the rest are models, or only read rows.
_MEASURING = ("fp16", "inputs", "measure", "model_helpers", "packs")

#: Modules that only say what a refusal means.
_WORDS = frozenset({"unsupported_op.py"})

_TOOLS: dict[str, tuple[str, ...]] = {
    "onnx": ("torch", "onnxscript", "onnx-ir", "onnxruntime"),
    "tflite": ("torch", "litert-torch", "ai-edge-litert", "ai-edge-quantizer"),
    "coreml": ("torch", "coremltools"),
}


@cache
def revision(module: str, format: str) -> str:
    """Twelve digits of the sha256 over everything that can change a cell.

    Args:
        module: The zoo's, before the colon: ``plain``, ``encoders``; or ``fuzz``.
        format: ``onnx``, ``tflite`` or ``coreml``.
    """
    folders = [ROOT / "backends" / "torch", ROOT / "backends" / format]
    files = [p for folder in folders for p in folder.rglob("*.py") if p.name not in _WORDS]
    files += (ROOT / "backends").glob("*.py")
    files += [HERE / f"{name}.py" for name in _MEASURING]
    files += (
        (ROOT / "dev" / "fuzz").glob("*.py") if module == "fuzz" else HERE.glob(f"{module}*.py")
    )
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(f"{path.relative_to(ROOT)}\0".encode())
        digest.update(path.read_bytes())
    tools = [*_TOOLS[format], *([] if module in ("plain", "ops", "fuzz") else ["transformers"])]
    for name in tools:
        digest.update(f"{name} {importlib.metadata.version(name)}".encode())
    return digest.hexdigest()[:12]


def stale(row: dict[str, object] | None, name: str) -> tuple[str, ...]:
    """Formats whose cells are missing, or were measured with other code."""
    module = name.partition(":")[0]
    held = {} if row is None else row.get("revisions", {})
    assert isinstance(held, dict)
    return tuple(each for each in FORMATS if held.get(each) != revision(module, each))
