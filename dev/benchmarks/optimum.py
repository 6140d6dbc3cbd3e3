"""Figure: edgeserve's ONNX files and those of optimum-onnx, both against PyTorch.

Models of the zoo are saved as Hugging Face folders; optimum-onnx converts the folder in its own
environment (``edgeserve env create optimum``), edgeserve the module. Both files answer the same
inputs, of the traced size and of others.

    python -m dev.benchmarks.optimum bert vit
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
#: Factories of the zoo: text encoders, then pictures.
MODELS = (
    "bert",
    "distilbert",
    "roberta",
    "albert",
    "electra",
    "mobilebert",
    "deberta_v2",
    "mpnet",
    "xlm_roberta",
    "vit",
    "deit",
    "beit",
    "convnext",
    "resnet",
    "mobilenet_v2",
    "swin",
)


def _factory(name: str) -> Any:
    from dev.zoo import encoders, pictures

    return getattr(encoders, name, None) or getattr(pictures, name)


def _exported(name: str, root: Path) -> tuple[Any, Any, list[np.ndarray]]:
    """A model's module, its export whose source is its folder, and its example inputs."""
    from edgeserve.backends.torch.export.export import ExportOptions, export_module
    from edgeserve.backends.torch.program.inspect import graph_sha256, weights_of
    from edgeserve.backends.torch.program.io import write_program
    from edgeserve.types.source import Exported, Source

    module, examples, options = _factory(name)()
    folder = root / "folder"
    module.model.save_pretrained(folder)
    wishes = ExportOptions(
        options.get("dynamic_shapes"), tuple(options["input_names"]), tuple(options["output_names"])
    )
    program = export_module(module, examples, wishes, root)
    entry, kept = write_program(program, root)
    exported = Exported(
        source=Source(kind="huggingface", location=str(folder), folder=str(root)),
        program=entry,
        examples=kept,
        signature=program.signature,
        weights=weights_of(program.program),
        graph_sha256=graph_sha256(program.program),
    )
    return module, exported, [tensor.numpy() for tensor in examples]


def _worst(module: Any, exported: Any, artifact: Any, root: Path, feeds: Sequence[Any]) -> float:
    """The largest difference from PyTorch over some feeds, relative to each output's scale."""
    import torch

    from edgeserve import backends

    worst = 0.0
    with backends.get("onnx").load(artifact, root, threads=1) as session:
        for feed in feeds:
            given = dict(zip((s.name for s in exported.signature.inputs), feed, strict=True))
            with torch.no_grad():
                right = module(*(torch.from_numpy(array) for array in feed))
            for tensor, array in zip(right, session.run(given).values(), strict=True):
                scale = float(tensor.abs().max())
                worst = max(worst, float(np.abs(tensor.numpy() - array).max()) / scale)
    return worst


def _feeds(examples: Sequence[np.ndarray]) -> list[list[np.ndarray]]:
    """The examples, others like them, and two of them at once."""
    rng = np.random.default_rng(0)

    def like(array: np.ndarray) -> np.ndarray:
        if array.dtype.kind == "f":
            return rng.standard_normal(array.shape).astype(array.dtype)
        return (
            array if array.max() <= 1 else rng.permutation(array.reshape(-1)).reshape(array.shape)
        )

    other = [like(array) for array in examples]
    both = [np.concatenate(pair) for pair in zip(examples, other, strict=True)]
    return [list(examples), other, both]


def compare(name: str, root: Path) -> dict[str, str]:
    """One row: for each way its worst difference, or its code."""
    from edgeserve import backends
    from edgeserve.errors import EdgeError

    module, exported, examples = _exported(name, root)
    row = {}
    for route in ("optimum", "dynamo"):
        out = root / route
        try:
            artifact = backends.get("onnx").export(exported, root, out, route)
            row[route] = f"{_worst(module, exported, artifact, out, _feeds(examples)):.1e}"
        except EdgeError as error:
            print(f"{name} by {route}: {error.code} {error.message}", file=sys.stderr)
            row[route] = error.code
    return row


def main() -> None:
    """Print the table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=list(MODELS))
    arguments = parser.parse_args()
    sys.path.insert(0, str(ROOT / "tests"))
    print("| model | optimum-onnx | edgeserve |\n|---|---|---|")
    for name in arguments.models:
        with tempfile.TemporaryDirectory() as folder:
            row = compare(name, Path(folder))
        print(f"| {name} | {row['optimum']} | {row['dynamo']} |", flush=True)


if __name__ == "__main__":
    main()
