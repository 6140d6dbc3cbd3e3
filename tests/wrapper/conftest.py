"""A small classifier, right by construction, in workspaces of the artifacts a test asks for.

The oracle is Pillow's resize and numpy's matrix product; nothing of edgeserve computes an expected
value.
"""

from __future__ import annotations

import io
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image
from testkit.modules import load

from edgeserve import backends
from edgeserve.backends.onnx import OnnxBackend
from edgeserve.bundle.rules import Identity
from edgeserve.files import describe, sha256_bytes
from edgeserve.package import package
from edgeserve.processing.steps.decode import Decode
from edgeserve.processing.steps.layout import Layout
from edgeserve.processing.steps.normalize import Normalize
from edgeserve.processing.steps.resize import Resize
from edgeserve.processing.steps.softmax import Softmax
from edgeserve.processing.steps.top_k import TopK
from edgeserve.tasks.classification import Classification
from edgeserve.types.artifact import Artifact, Judgement, Reason
from edgeserve.types.base import encode
from edgeserve.types.manifest import FORMAT_VERSION, Manifest
from edgeserve.types.options import PackageOptions
from edgeserve.types.processing import InputProcessing, Processing
from edgeserve.types.samples import Golden, GoldenCase
from edgeserve.types.tensors import IO, Signature, TensorSpec

LABELS = ("cat", "dog", "espresso", "zebra", "moon")
SIDE = 8
SCALE, BIAS = (1 / 64, 1 / 64, 1 / 64), (-2.0, -2.0, -2.0)
PROCESSING = Processing(
    inputs=(
        InputProcessing(
            name="image",
            steps=(
                Decode(),
                Resize(height=SIDE, width=SIDE),
                Normalize(scale=SCALE, bias=BIAS),
                Layout(order="CHW"),
            ),
        ),
    ),
    outputs=(Softmax(output="logits"), TopK(output="logits", k=3)),
)
_FIELDS: dict[str, Any] = {
    "name": "tagger",
    "task": "image-classification",
    "processing": PROCESSING,
    "labels": LABELS,
    "min_wrapper": "0.1.0",
}
_RNG = np.random.default_rng(7)
W = (_RNG.normal(size=(3 * SIDE * SIDE, len(LABELS))) / 4).astype(np.float32)
B = np.zeros(len(LABELS), np.float32)


def signature_of(batch: tuple[int, int] | int = (1, 8)) -> Signature:
    dims = {} if isinstance(batch, int) else {"batch": batch}
    first: int | str = batch if isinstance(batch, int) else "batch"
    return Signature(
        inputs=(TensorSpec(name="image", dtype="float32", shape=(first, 3, SIDE, SIDE)),),
        outputs=(TensorSpec(name="logits", dtype="float32", shape=(first, len(LABELS))),),
        dims=dims,
    )


def model(
    nodes: Sequence[onnx.NodeProto], sign: Signature, weights: Mapping[str, np.ndarray]
) -> bytes:
    """An ONNX file of these nodes, with the inputs and outputs of ``sign``."""
    kinds = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64}

    def ports(specs: Sequence[TensorSpec]) -> list[onnx.ValueInfoProto]:
        return [helper.make_tensor_value_info(s.name, kinds[s.dtype], s.shape) for s in specs]

    graph = helper.make_graph(
        list(nodes),
        "g",
        ports(sign.inputs),
        ports(sign.outputs),
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opset = [helper.make_opsetid("", 18)]
    data: bytes = helper.make_model(graph, opset_imports=opset, ir_version=10).SerializeToString()
    return data


def classifier(sign: Signature | None = None, sign_of_w: float = 1.0) -> bytes:
    """The classifier; with ``sign_of_w`` -1 one that is wrong about everything."""
    nodes = [
        helper.make_node("Flatten", ["image"], ["flat"]),
        helper.make_node("Gemm", ["flat", "w", "b"], ["logits"]),
    ]
    return model(nodes, sign or signature_of(), {"w": W * np.float32(sign_of_w), "b": B})


def endless(sign: Signature | None = None) -> bytes:
    """A file that loads, and whose run never ends."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["go_on"]),
            helper.make_node("Identity", ["v"], ["u"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("go_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("u", TensorProto.FLOAT, None),
        ],
    )
    nodes = [
        helper.make_node("Loop", ["", "yes", "image"], ["looped"], body=body),
        helper.make_node("Flatten", ["looped"], ["flat"]),
        helper.make_node("Gemm", ["flat", "w", "b"], ["logits"]),
    ]
    return model(nodes, sign or signature_of(), {"w": W, "b": B, "yes": np.array(True)})


def pixels(seed: int, height: int = 24, width: int = 32) -> np.ndarray:
    """A smooth random picture, HWC uint8 RGB."""
    rng = np.random.default_rng(seed)
    small = rng.integers(0, 256, (4, 4, 3), dtype=np.uint8)
    picture = Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)
    return np.asarray(picture)


def png(picture: np.ndarray) -> bytes:
    out = io.BytesIO()
    Image.fromarray(picture).save(out, "PNG")
    return out.getvalue()


def oracle_tensor(picture: np.ndarray) -> np.ndarray:
    """float32 [1, 3, SIDE, SIDE]."""
    small = Image.fromarray(picture).resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    x = np.asarray(small).astype(np.float32) * np.float32(SCALE[0]) + np.float32(BIAS[0])
    return x.transpose(2, 0, 1)[None]


def oracle_scores(picture: np.ndarray) -> np.ndarray:
    """Probabilities, float64 [classes]."""
    logits = oracle_tensor(picture).reshape(-1).astype(np.float64) @ W.astype(np.float64) + B
    e: np.ndarray = np.exp(logits - logits.max())
    return np.asarray(e / e.sum())


def oracle(picture: np.ndarray) -> Classification:
    scores = oracle_scores(picture)
    order = np.argsort(-scores)[:3]
    return Classification(
        label=LABELS[order[0]],
        score=float(scores[order[0]]),
        index=int(order[0]),
        top=tuple((LABELS[i], float(scores[i])) for i in order),
    )


def agrees(answer: object, picture: np.ndarray) -> bool:
    """Whether an answer is the oracle's, with ``ran_on`` on it."""
    expected = oracle(picture)
    assert isinstance(answer, Classification)
    assert (answer.label, answer.index) == (expected.label, expected.index)
    assert [label for label, _ in answer.top] == [label for label, _ in expected.top]
    assert [s for _, s in answer.top] == pytest.approx([s for _, s in expected.top], abs=1e-5)
    return answer.ran_on is not None


def sure(count: int, start: int = 0) -> list[np.ndarray]:
    """The first pictures on whose best class the oracle is sure."""
    found: list[np.ndarray] = []
    seed = start
    while len(found) < count:
        picture = pixels(seed)
        first, second = np.sort(oracle_scores(picture))[::-1][:2]
        if first - second > 0.3:
            found.append(picture)
        seed += 1
    return found


@dataclass
class Made:
    """What `Make` writes: an artifact's name, its bytes, file name and verdict."""

    name: str
    data: bytes
    verdict: Any = "pass"
    entry: str = "model.onnx"


@dataclass
class Make:
    """Writes workspaces."""

    folder: Path
    write_reports: Callable[[Path], None]
    signature: Signature = field(default_factory=signature_of)
    pictures: list[np.ndarray] = field(default_factory=lambda: sure(4))

    # What tests need of this module, which they cannot import.
    made = Made
    labels = LABELS
    w, b = W, B
    batch = staticmethod(signature_of)
    model = staticmethod(model)
    classifier = staticmethod(classifier)
    endless = staticmethod(endless)
    pixels = staticmethod(pixels)
    png = staticmethod(png)
    agrees = staticmethod(agrees)
    oracle = staticmethod(oracle)
    oracle_tensor = staticmethod(oracle_tensor)
    oracle_scores = staticmethod(oracle_scores)

    def golden(self, root: Path, tolerance: float = 1e-4, flip: bool = False) -> Golden:
        (root / "golden").mkdir(parents=True, exist_ok=True)
        cases = []
        for i, picture in enumerate(self.pictures):
            path = f"golden/{i:03}.png"
            (root / path).write_bytes(png(picture))
            record = oracle(picture)
            if flip and i == 1:
                (label, score), (other, rest), *tail = record.top
                record = Classification(
                    label=other,
                    score=score,
                    index=LABELS.index(other),
                    top=((other, score), (label, rest), *tail),
                )
            cases.append(
                GoldenCase(
                    input=describe(root, path), medium="image", record=record, tolerance=tolerance
                )
            )
        return Golden(origin="generated", cases=tuple(cases))

    def artifact(self, root: Path, made: Made) -> Artifact:
        path = f"artifacts/{made.name}/{made.entry}"
        (root / path).parent.mkdir(parents=True)
        (root / path).write_bytes(made.data)
        words: Any = made.name.split("-")
        format_, precision = words
        reasons = (
            () if made.verdict == "pass" else (Reason(code="EDGE-CHECK-000", message="made so"),)
        )
        return Artifact(
            format=format_,
            precision=precision,
            entry=path,
            files=(describe(root, path),),
            io=IO(inputs=self.signature.inputs, outputs=self.signature.outputs),
            judgement=Judgement(verdict=made.verdict, reasons=reasons),
        )

    def workspace(self, *made: Made, golden: Golden | bool = True, **fields: Any) -> Path:
        """A workspace of these artifacts (one good ONNX file if none is named)."""
        root = self.folder / f"ws{len(list(self.folder.iterdir()))}"
        root.mkdir()
        if isinstance(golden, bool):
            proof = self.golden(root) if golden else None
        else:
            proof = golden
            shutil.copytree(self.folder / "given", root, dirs_exist_ok=True)
        made = made or (Made("onnx-fp32", classifier(self.signature)),)
        artifacts = tuple(self.artifact(root, each) for each in made)
        said = _FIELDS | fields
        identity = encode(
            Identity(
                weights=(),
                graph_sha256="0" * 64,
                processing=said["processing"],
                labels=said["labels"],
                task=said["task"],
            )
        )
        (root / "identity.json").write_bytes(identity)
        files = [describe(root, "identity.json"), *(f for a in artifacts for f in a.files)]
        for case in proof.cases if proof else ():
            files += [f for f in (case.input, case.outputs) if f]
        manifest = Manifest(
            edgeserve=FORMAT_VERSION,
            version=1,
            model_id=sha256_bytes(identity),
            signature=self.signature,
            golden=proof,
            artifacts=artifacts,
            files=tuple(sorted(files, key=lambda f: f.path)),
            **said,
        )
        (root / "manifest.json").write_bytes(encode(manifest))
        return root

    def bundle(self, workspace: Path) -> Path:
        """The workspace, sealed."""
        out = self.folder.parent / f"{workspace.name}.edge"
        self.write_reports(workspace)
        package(PackageOptions(out=str(workspace), bundle=str(out)))
        return out


@pytest.fixture
def make(tmp_path: Path, write_reports: Callable[[Path], None]) -> Make:
    folder = tmp_path / "workspaces"
    folder.mkdir()
    return Make(folder, write_reports)


@pytest.fixture
def app(tmp_path: Path) -> Callable[..., str]:
    """``app("numpy", ...)``: the Python of an environment with these distributions alone."""
    path = Path(__file__).with_name("apps.py")
    module = load(path, "wrapper_apps")
    return lambda *names: str(module.make_app(tmp_path, names))


class _Absent(OnnxBackend):
    """A backend whose runtime is not installed."""

    def missing(self) -> str:
        return "pip install a-runtime"


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """``without("tflite")``: the runtime of a format is not here."""

    def take(format: str) -> None:
        monkeypatch.setitem(backends._made, format, _Absent())

    return take


@pytest.fixture
def npu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Made]:
    """Put the faulty accelerator in the place of tflite, and an interpreter in that of coreml.

    The value makes artifacts for them. Child processes are told by a ``sitecustomize``.
    """
    site = tmp_path / "site"
    site.mkdir()
    places = {"tflite": "npu:NpuBackend", "coreml": "npu:ProofBackend"}
    told = f"from edgeserve import backends\n\nbackends._BUILT_IN |= {places!r}\n"
    (site / "sitecustomize.py").write_text(told)
    shutil.copy(Path(__file__).with_name("npu.py"), site)
    monkeypatch.setattr("edgeserve.backends._BUILT_IN", backends._BUILT_IN | places)
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")]))
    # Backends are made once a process: other tests must not see this one.
    monkeypatch.setattr("edgeserve.backends._made", {})
    monkeypatch.delitem(sys.modules, "npu", raising=False)

    def artifact(
        fault: str, precision: str = "fp32", verdict: str = "pass", format: str = "tflite"
    ) -> Made:
        out = io.BytesIO()
        np.savez(out, w=W, b=B, fault=fault)
        return Made(f"{format}-{precision}", out.getvalue(), verdict, "model.npz")

    return artifact
