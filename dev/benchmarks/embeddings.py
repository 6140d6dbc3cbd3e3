"""Figure: the packaged text encoder's files against transformers, at many lengths and on sentences.

An independent oracle: files come out of the bundle with Python's zipfile and run by their own
runtimes, tokens and reference come from transformers, padding and pooling are written out here.

    python -m dev.benchmarks.embeddings demo-out/minilm.edge demo-out/sentences
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from ai_edge_litert.interpreter import Interpreter
from transformers import AutoModel, AutoTokenizer

from dev.benchmarks.agreement import taken_out
from dev.demo.sentences import model_folder

#: The shortest, a few between of which some are primes, one that fills a bucket, the longest.
_LENGTHS = (2, 3, 17, 31, 64, 127, 256)
_NAMES = ("input_ids", "attention_mask", "token_type_ids")
_PRECISIONS = ("fp32", "fp16", "w8", "w8a8")
_DECIDED = 0.01

Feed = dict[str, np.ndarray]
#: Token states float32 [1, length, 384] of one unpadded row.
Run = Callable[[Feed], np.ndarray]


def _onnx(file: bytes) -> Run:
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    wanted = [value.name for value in session.get_inputs()]
    return lambda feed: session.run(None, {name: feed[name] for name in wanted})[0]


def _tflite(file: bytes) -> Run:
    interpreter = Interpreter(model_content=file, num_threads=2)
    runners = {int(re.sub(r"\D", "", key)): key for key in interpreter.get_signature_list()}

    def run(feed: Feed) -> np.ndarray:
        length = feed["input_ids"].shape[1]
        size = next(size for size in sorted(runners) if size >= length)
        runner = interpreter.get_signature_runner(runners[size])
        padded = {
            name: np.pad(feed[name], ((0, 0), (0, size - length))).astype(np.int32)
            for name in runner.get_input_details()
        }
        states: np.ndarray = next(iter(runner(**padded).values())).copy()
        return states[:, :length]

    return run


def _pooled(states: np.ndarray) -> np.ndarray:
    """Mean over the tokens of an unpadded row, of length 1."""
    vector: np.ndarray = states[0].mean(0)
    return vector / np.linalg.norm(vector)


def _neighbours(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each row its nearest other row by cosine, and by how much it is nearer than the next."""
    cosine = vectors @ vectors.T
    np.fill_diagonal(cosine, -np.inf)
    order = np.sort(cosine, 1)
    return cosine.argmax(1), order[:, -1] - order[:, -2]


class _Reference:
    """transformers' own tokenizer and network."""

    def __init__(self) -> None:
        folder = model_folder()
        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        self._module: Any = AutoModel.from_pretrained(folder, local_files_only=True).eval()

    def feed(self, text: str) -> Feed:
        """One row of tokens."""
        found = self._tokenizer(text, truncation=True, max_length=256, return_tensors="np")
        return {name: found[name].astype(np.int64) for name in _NAMES}

    def row(self, length: int) -> Feed:
        """A seeded row of exactly this length."""
        ids = np.random.default_rng(length).integers(1000, 30_000, (1, length))
        ids[0, 0], ids[0, -1] = 101, 102
        return {"input_ids": ids, "attention_mask": ids * 0 + 1, "token_type_ids": ids * 0}

    def states(self, feed: Feed) -> np.ndarray:
        """Token states of one row."""
        with torch.inference_mode():
            found = self._module(**{name: torch.from_numpy(x) for name, x in feed.items()})
        states: np.ndarray = found.last_hidden_state.numpy()
        return states


def measure(bundle: Path, texts: list[str]) -> dict[str, dict[str, float]]:
    """Figures by artifact: largest difference over the lengths, neighbours kept on the texts."""
    reference = _Reference()
    rows = {length: reference.row(length) for length in _LENGTHS}
    states = {length: reference.states(row) for length, row in rows.items()}
    feeds = [reference.feed(text) for text in texts]
    nearest, margin = _neighbours(np.stack([_pooled(reference.states(f)) for f in feeds]))
    sure, found = margin >= _DECIDED, {}
    for format, open_file in (("onnx", _onnx), ("tflite", _tflite)):
        for precision in _PRECISIONS:
            file = taken_out(bundle, f"{format}-{precision}")
            if file is None:
                continue
            run = open_file(file)
            worst = max(float(np.abs(run(rows[n]) - states[n]).max()) for n in _LENGTHS)
            other = _neighbours(np.stack([_pooled(run(f)) for f in feeds]))[0] != nearest
            found[f"{format}-{precision}"] = {
                "max_abs": worst,
                "sentences": len(texts),
                "changed": int(other.sum()),
                "decided": int(sure.sum()),
                "decided_changed": int((other & sure).sum()),
            }
    return found


def main() -> None:
    """Print the figures, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle", type=Path, nargs="?", default=Path("demo-out/minilm.edge"))
    parser.add_argument("data", type=Path, nargs="?", default=Path("demo-out/sentences"))
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    lines = (arguments.data / "data.jsonl").read_text().splitlines()
    found = measure(arguments.bundle, [json.loads(line)["input"] for line in lines])
    if arguments.json:
        print(json.dumps(found))
        return
    print(f"token states at lengths {', '.join(map(str, _LENGTHS))} against transformers:")
    for name, figures in found.items():
        print(
            f"  {name}: max abs {figures['max_abs']:.2e}; another nearest neighbour for "
            f"{figures['changed']} of {figures['sentences']} texts, "
            f"{figures['decided_changed']} of {figures['decided']} decided ones"
        )


if __name__ == "__main__":
    main()
