"""A small text model in PyTorch, exported, in workspaces of the artifacts a test asks for.

The oracle is PyTorch, the library tokenizers and numpy; nothing of edgeserve computes an expected
value. Exporting takes seconds, so each file is made once a process.
"""

from __future__ import annotations

import functools
import io
import shutil
import subprocess
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import tokenizers
import torch

from edgeserve.bundle.rules import Identity
from edgeserve.files import describe, sha256_bytes
from edgeserve.processing.steps.l2_normalize import L2Normalize
from edgeserve.processing.steps.pool import Pool
from edgeserve.processing.steps.tokenize import Tokenize
from edgeserve.tasks.embedding import Embedding
from edgeserve.types.artifact import Artifact, FileEntry, Judgement
from edgeserve.types.base import decode, encode
from edgeserve.types.manifest import FORMAT_VERSION, Manifest
from edgeserve.types.processing import InputProcessing, Processing
from edgeserve.types.samples import Golden, GoldenCase
from edgeserve.types.tensors import IO, Signature, TensorSpec

__all__ = ["TextMake"]

_TOKENIZER = Path(__file__).parents[3] / "spec/conformance/processing/text/wordpiece.json"
_ASSET = "assets/tokenizer.json"
_LENGTH = 32
_D = 16
TEXTS = (
    "The small cat sat on the warm stone wall.",
    "A cat is sitting on a wall.",
    "She wrote a letter to her brother: the house is quiet, the garden is green.",
    "Le café était fermé 🙂",
    "小猫在温暖的墙上睡觉",
    "",
)


class Words(torch.nn.Module):
    """Each token's vector from those of all tokens: padding that is not masked shows."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.embed = torch.nn.Embedding(620, _D)
        self.mix = torch.nn.Linear(_D, _D)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        held = self.embed(ids)
        seen = (mask.to(held.dtype)[:, None, :] - 1) * 1e4
        scores = held @ held.transpose(1, 2) / 8 + seen
        return torch.tanh(self.mix(torch.softmax(scores, dim=-1) @ held))


def _specs(dtype: Any, *shape: int | str) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(name=name, dtype=dtype, shape=shape) for name in ("ids", "mask"))


def _vectors(*shape: int | str) -> tuple[TensorSpec, ...]:
    return (TensorSpec(name="vectors", dtype="float32", shape=(*shape, _D)),)


SIGNATURE = Signature(
    inputs=_specs("int64", "n", "tokens"),
    outputs=_vectors("n", "tokens"),
    dims={"n": (1, 16), "tokens": (2, _LENGTH)},
)
FIXED = IO(inputs=_specs("int32", 1, _LENGTH), outputs=_vectors(1, _LENGTH))


@functools.cache
def exported(fixed: bool) -> bytes:
    """The model as an ONNX file: dynamic and int64, or int32 for one text of 32 tokens."""
    dtype, shape = (torch.int32, (1, _LENGTH)) if fixed else (torch.int64, (2, 7))
    example = torch.ones(shape, dtype=dtype)
    free = {0: torch.export.Dim("n", max=16), 1: torch.export.Dim("tokens", min=2, max=_LENGTH)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            Words().eval(),
            (example, example.clone()),
            dynamo=True,
            verbose=False,
            input_names=["ids", "mask"],
            output_names=["vectors"],
            dynamic_shapes=None if fixed else {"ids": free, "mask": free},
        )
    assert program is not None
    out = io.BytesIO()
    onnx.save(program.model_proto, out)
    return out.getvalue()


def factory() -> tuple[torch.nn.Module, tuple[torch.Tensor, torch.Tensor], dict[str, Any]]:
    """The model as a source that edgeserve exports; its lengths become buckets in TFLite."""
    ones = torch.ones(2, 7, dtype=torch.int64)
    free = {0: ("n", 1, 16), 1: ("tokens", 2, _LENGTH)}
    options = {
        "input_names": ["ids", "mask"],
        "output_names": ["vectors"],
        "dynamic_shapes": {"ids": free, "mask": free},
        "task": "feature-extraction",
        "assets": {_ASSET: _TOKENIZER.read_bytes()},
        "processing": _processing(
            FileEntry(
                path=_ASSET,
                size=_TOKENIZER.stat().st_size,
                sha256=sha256_bytes(_TOKENIZER.read_bytes()),
            )
        ),
    }
    return Words().eval(), (ones, ones.clone()), options


_CONVERT = """
import sys
from pathlib import Path
from edgeserve import backends
from edgeserve.convert import ExportRequest, parse_source
from edgeserve.convert.source import export_source
from edgeserve.types.base import encode

here, out = map(Path, sys.argv[1:])
request = ExportRequest(source=parse_source("textmodel:factory", here), out=str(out / "source"))
exported = export_source(request)
artifact = backends.get("tflite").export(exported, out / "source", out, "litert-torch")
(out / "artifact.json").write_bytes(encode(artifact))
"""


def convert_to_tflite(out: Path) -> Artifact:
    """Convert the model in a process of its own, as the converter is no guest for this one."""
    (out / "source").mkdir(parents=True)
    command = [sys.executable, "-P", "-c", _CONVERT, str(Path(__file__).parent), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stderr
    return decode((out / "artifact.json").read_bytes(), Artifact)


def spoiled(data: bytes) -> bytes:
    """The same file with other weights."""
    proto = onnx.load_from_string(data)
    bias = next(each for each in proto.graph.initializer if each.name == "mix.bias")
    other = onnx.numpy_helper.from_array(1 - onnx.numpy_helper.to_array(bias), bias.name)
    bias.CopyFrom(other)
    changed: bytes = proto.SerializeToString()
    return changed


class TextMake:
    """Writes workspaces of the text model, and knows its answers."""

    texts = TEXTS
    signature = SIGNATURE
    #: The folder of the converted file, and what it is; where it was converted.
    tflite: tuple[Path, Artifact] | None = None

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tokenizer = tokenizers.Tokenizer.from_str(_TOKENIZER.read_text())
        self._tokenizer.enable_truncation(_LENGTH)
        self._module = Words().eval()

    def ids(self, text: str) -> list[int]:
        """Token ids of a text, special tokens included."""
        ids: list[int] = self._tokenizer.encode(text).ids
        return ids

    def tokens(self, text: str) -> np.ndarray:
        """The model's vectors of a text's tokens, alone: float32 [tokens, d]."""
        ids = torch.tensor([self.ids(text)])
        with torch.no_grad():
            vectors: np.ndarray = self._module(ids, torch.ones_like(ids))[0].numpy()
        return vectors

    def vector(self, text: str) -> np.ndarray:
        """The embedding of a text: float64 [d], of length 1."""
        mean = self.tokens(text).astype(np.float64).mean(axis=0)
        unit: np.ndarray = mean / np.linalg.norm(mean)
        return unit

    def agrees(self, answer: object, text: str) -> bool:
        """Whether an answer is the oracle's, with ``ran_on`` on it."""
        assert isinstance(answer, Embedding)
        np.testing.assert_allclose(answer.vector, self.vector(text), atol=1e-5)
        return answer.ran_on is not None

    def golden(
        self, root: Path, texts: Sequence[str], answers: Sequence[str], tolerance: float
    ) -> Golden:
        """Cases of texts, each with the vector of the text in ``answers``."""
        (root / "golden").mkdir()
        cases = []
        for i, (text, answer) in enumerate(zip(texts, answers, strict=True)):
            path = f"golden/{i:03}.txt"
            (root / path).write_text(text, encoding="utf-8")
            record = Embedding(vector=self.vector(answer).astype(np.float32))
            cases.append(
                GoldenCase(
                    input=describe(root, path), medium="text", record=record, tolerance=tolerance
                )
            )
        return Golden(origin="generated", cases=tuple(cases))

    def artifact(self, root: Path, name: str, right: bool) -> Artifact:
        """One artifact; of precision fp16 it is the fixed file, else the dynamic one.

        Of the format tflite it is the one that was converted, with its buckets.
        """
        if name == "tflite-fp32":
            assert self.tflite, "the fixture converted makes it"
            shutil.copytree(self.tflite[0], root / "artifacts" / name)
            moved = self.tflite[1].moved(f"artifacts/{name}")
            return msgspec.structs.replace(moved, judgement=Judgement(verdict="pass"))
        fixed = name.endswith("fp16")
        path = f"artifacts/{name}/model.onnx"
        (root / path).parent.mkdir(parents=True)
        data = exported(fixed)
        (root / path).write_bytes(data if right else spoiled(data))
        words: Any = name.split("-")
        format_, precision = words
        io = FIXED if fixed else IO(inputs=SIGNATURE.inputs, outputs=SIGNATURE.outputs)
        return Artifact(
            format=format_,
            precision=precision,
            entry=path,
            files=(describe(root, path),),
            io=io,
            judgement=Judgement(verdict="pass"),
        )

    def workspace(
        self,
        *artifacts: str,
        golden: bool = True,
        answers: Sequence[str] = TEXTS,
        tolerance: float = 1e-6,
        right: bool = True,
    ) -> Path:
        """A workspace of these artifacts ("onnx-fp32" if none is named)."""
        root = self._folder / f"text{len(list(self._folder.iterdir()))}"
        (root / "assets").mkdir(parents=True)
        (root / _ASSET).write_bytes(_TOKENIZER.read_bytes())
        asset = describe(root, _ASSET)
        proof = self.golden(root, TEXTS, answers, tolerance) if golden else None
        made = tuple(self.artifact(root, name, right) for name in artifacts or ("onnx-fp32",))
        files = [asset, *(f for a in made for f in a.files)]
        files += [case.input for case in proof.cases] if proof else []
        self._write(root, made, proof, files, _processing(asset))
        return root

    def _write(
        self,
        root: Path,
        artifacts: tuple[Artifact, ...],
        golden: Golden | None,
        files: list[FileEntry],
        processing: Processing,
    ) -> None:
        identity = encode(
            Identity(
                weights=(),
                graph_sha256="0" * 64,
                processing=processing,
                labels=(),
                task="feature-extraction",
            )
        )
        (root / "identity.json").write_bytes(identity)
        files.append(describe(root, "identity.json"))
        manifest = Manifest(
            edgeserve=FORMAT_VERSION,
            name="words",
            version=1,
            min_wrapper="0.1.0",
            model_id=sha256_bytes(identity),
            task="feature-extraction",
            signature=SIGNATURE,
            processing=processing,
            files=tuple(sorted(files, key=lambda f: f.path)),
            artifacts=artifacts,
            golden=golden,
        )
        (root / "manifest.json").write_bytes(encode(manifest))


def _processing(asset: FileEntry) -> Processing:
    def made(name: str, part: Any) -> InputProcessing:
        step = Tokenize(tokenizer=asset, part=part, max_length=_LENGTH)
        return InputProcessing(name=name, steps=(step,))

    return Processing(
        inputs=(made("ids", "ids"), made("mask", "attention_mask")),
        outputs=(Pool(output="vectors", mask="mask"), L2Normalize(output="vectors")),
    )
