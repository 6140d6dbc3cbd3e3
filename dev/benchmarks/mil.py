"""Figure: whole Core ML packages, run by the interpreter, against eager PyTorch: values and times.

    python -m dev.benchmarks.mil [--once] [--json]

Each model is exported and converted to a float32 and a float16 package, which the interpreter runs.
The worst difference is relative to the output's scale, its largest absolute value. Times are
medians of runs of eager PyTorch and the interpreter in turn, on one thread. EfficientNet-Lite0 is
run with compressed weights as well, against the same package with its weights decompressed by
coremltools.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import coremltools as ct
import coremltools.optimize.coreml as cto
import numpy as np
import torch
from coremltools.converters.mil.mil import Builder

from dev.benchmarks.mil_zoo import MODELS, Model
from edgeserve import backends
from edgeserve.backends.coreml.interpreter import Interpreter
from edgeserve.backends.torch.export.export import ExportOptions, export_module
from edgeserve.backends.torch.program.inspect import graph_sha256, weights_of
from edgeserve.backends.torch.program.io import log_warnings, write_program
from edgeserve.types.source import Exported, Source

_RUNS = 15
_COMPRESSED = "EfficientNet-Lite0"
_DETECTOR = "detector with NMS"
#: Boxes that overlap by more are dropped.
_OVERLAP = 0.4
Row = dict[str, Any]


def converted(name: str, model: Model, folder: Path) -> dict[str, Path]:
    """The packages of a model, by precision."""
    module, examples = model
    program = export_module(module, examples, ExportOptions(), folder)
    entry, kept = write_program(program, folder)
    exported = Exported(
        source=Source(kind="factory", location=f"zoo:{name}", folder=str(folder)),
        program=entry,
        examples=kept,
        signature=program.signature,
        notes=program.notes,
        weights=weights_of(program.program),
        graph_sha256=graph_sha256(program.program),
    )
    found = {}
    for precision in ("fp32", "fp16"):
        out = folder / precision
        artifact = backends.get("coreml").export(exported, folder, out, precision=precision)
        found[precision] = out / artifact.entry
    return found


def suppressed(package: Path, out: Path) -> Path:
    """A detector's package with non-maximum suppression behind its two outputs."""
    from coremltools.converters.mil.frontend.milproto.load import load

    model = ct.models.MLModel(str(package), skip_model_load=True)
    spec = model.get_spec()
    program = load(spec, spec.specificationVersion, model.weights_dir)
    function = program.functions["main"]
    boxes, scores = function.outputs
    with function:
        kept = Builder.non_maximum_suppression(
            boxes=boxes,
            scores=scores,
            iou_threshold=np.float32(_OVERLAP),
            score_threshold=np.float32(0),
            max_boxes=40,
        )
        function.set_outputs(list(kept))
    made = ct.convert(
        program,
        convert_to="mlprogram",
        skip_model_load=True,
        compute_precision=ct.precision.FLOAT32,
        minimum_deployment_target=ct.target(spec.specificationVersion),
    )
    made.save(str(out))
    return out


def by_hand(boxes: np.ndarray, scores: np.ndarray, iou: float, most: int) -> list[int]:
    """Greedy suppression over all classes, written out: the indices that stay."""
    corners = np.concatenate([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2], 1)
    kept: list[int] = []
    for i in sorted(range(len(boxes)), key=lambda i: -scores[i].max()):
        low = np.maximum(corners[i, :2], corners[kept, :2])
        high = np.minimum(corners[i, 2:], corners[kept, 2:])
        common = np.clip(high - low, 0, None).prod(1)
        union = boxes[i, 2:].prod() + boxes[kept, 2:].prod(1) - common
        if not (common / union > iou).any():
            kept.append(i)
    return kept[:most]


def feed_of(interpreter: Interpreter, examples: tuple[torch.Tensor, ...]) -> dict[str, np.ndarray]:
    """The examples as the package takes them."""
    return {
        spec.name: example.numpy().astype(spec.dtype)
        for spec, example in zip(interpreter.inputs, examples, strict=True)
    }


def worst(found: list[np.ndarray], wanted: list[np.ndarray]) -> float:
    """The largest difference, relative to each output's scale."""
    return max(
        float(np.abs(got.astype(np.float64) - right).max() / np.abs(right).max())
        for got, right in zip(found, wanted, strict=True)
    )


def timed(calls: dict[str, Callable[[], Any]], runs: int) -> dict[str, float]:
    """Median milliseconds of each call, all in turn."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(runs):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            taken[name].append((time.perf_counter() - start) * 1e3)
    return {name: statistics.median(each) for name, each in taken.items()}


def measure(name: str, folder: Path, runs: int) -> Row:
    """One model's row."""
    model = MODELS[name]()
    module, examples = model
    with log_warnings():
        packages = converted(name, model, folder)
        if name == _DETECTOR:
            packages["nms"] = suppressed(packages["fp32"], folder / "nms.mlpackage")

    def eager() -> Any:
        with torch.inference_mode():
            return module(*examples)

    answer = eager()
    wanted = [each.numpy() for each in (answer if isinstance(answer, tuple) else (answer,))]
    exact, half = (Interpreter(packages[precision]) for precision in ("fp32", "fp16"))
    feed, half_feed = feed_of(exact, examples), feed_of(half, examples)
    row: Row = {
        "model": name,
        "ops": len(exact.ops),
        "kinds": sorted({op.type for op in exact.ops}),
        "fp32": worst(list(exact.run(feed).values()), wanted),
        "fp16": worst(list(half.run(half_feed).values()), wanted),
    }
    if name == _DETECTOR:
        row |= _boxes(Interpreter(packages["nms"]), feed, wanted)
    if name == _COMPRESSED:
        row["compressed"] = _compressed(packages["fp32"], folder, feed)
    if runs:
        row["ms"] = timed(
            {"eager": eager, "fp32": lambda: exact.run(feed), "fp16": lambda: half.run(half_feed)},
            runs,
        )
    return row


def _boxes(interpreter: Interpreter, feed: dict[str, np.ndarray], wanted: list[np.ndarray]) -> Row:
    """Whether suppression keeps the boxes that it keeps by hand."""
    boxes, _, indices, _ = interpreter.run(feed).values()
    right = by_hand(wanted[0][0], wanted[1][0], _OVERLAP, indices.shape[1])
    same = indices[0, : len(right)].tolist() == right
    difference = np.abs(boxes[0, : len(right)] - wanted[0][0, right]).max()
    kinds = sorted({op.type for op in interpreter.ops})
    return {"nms_same": bool(same), "nms_boxes": float(difference), "kinds": kinds}


def _compressed(package: Path, folder: Path, feed: dict[str, np.ndarray]) -> dict[str, float]:
    """Compressed packages against themselves with coremltools' decompressed weights."""
    palette = cto.OpPalettizerConfig(mode="uniform", nbits=6)
    pruner = cto.OpMagnitudePrunerConfig(target_sparsity=0.5)
    eight = cto.OpLinearQuantizerConfig(mode="linear_symmetric")
    found = {}
    with log_warnings():
        model = ct.models.MLModel(str(package), skip_model_load=True)
        for name, change, config in (
            ("palettized", cto.palettize_weights, palette),
            ("sparse", cto.prune_weights, pruner),
            ("8 bit", cto.linear_quantize_weights, eight),
        ):
            packed = change(model, cto.OptimizationConfig(config))
            packed.save(str(folder / f"{name}.mlpackage"))
            cto.decompress_weights(packed).save(str(folder / f"{name}-plain.mlpackage"))
            answers = [
                list(Interpreter(folder / f"{name}{suffix}.mlpackage").run(feed).values())
                for suffix in ("", "-plain")
            ]
            found[name] = worst(*answers)
    return found


def shown(row: Row) -> str:
    """A row as a line of text."""
    line = f"{row['model']:<20} {row['ops']:>4} ops  fp32 {row['fp32']:.1e}  fp16 {row['fp16']:.1e}"
    if "ms" in row:
        eager, exact, half = (row["ms"][key] for key in ("eager", "fp32", "fp16"))
        line += f"  eager {eager:7.1f} ms  fp32 x{exact / eager:.2f}  fp16 x{half / eager:.2f}"
    if "nms_same" in row:
        line += f"  boxes kept as by hand: {row['nms_same']}, {row['nms_boxes']:.1e}"
    for name, difference in row.get("compressed", {}).items():
        line += f"  {name} {difference:.1e}"
    return line


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--once", action="store_true", help="values only, no times")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--only", nargs="*", help="models whose name holds one of these words")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    kinds: set[str] = set()
    for name in MODELS:
        if options.only and not any(word in name for word in options.only):
            continue
        # What exporting says of its way goes elsewhere: standard output holds rows alone.
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
            row = measure(name, Path(folder), 0 if options.once else _RUNS)
        kinds |= set(row["kinds"])
        print(json.dumps(row) if options.json else shown(row), flush=True)
    if not options.json:
        print(f"{len(kinds)} kinds of op: {', '.join(sorted(kinds))}")


if __name__ == "__main__":
    main()
