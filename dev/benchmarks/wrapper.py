"""Figures: what `Wrapper.predict` costs over the bare runtime, for tensors and for a photo.

The bare side is written out here with onnxruntime and Pillow alone: for tensors the session's own
run, for a photo the decoding, the resize and the run, each with the same file and number of
threads. Both sides alternate in random order, and CPU time stands beside wall time, for busy
machines.

    python -m dev.benchmarks.wrapper [demo-out/tagger.edge] [--json]
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
from onnx import TensorProto, helper
from PIL import Image

from edgeserve import Wrapper
from edgeserve.bundle import open_model
from edgeserve.files import describe
from edgeserve.measure.ab import Comparison, compare
from edgeserve.processing.steps.resize import Resize
from edgeserve.types.artifact import Artifact, Judgement
from edgeserve.types.base import encode, plain
from edgeserve.types.manifest import FORMAT_VERSION, Manifest
from edgeserve.types.processing import Processing
from edgeserve.types.tensors import IO, Signature, TensorSpec

_TENSORS_LIMIT_US = 100.0
_PHOTO_LIMIT = 1.15
_WIDTH, _HEIGHT = 1920, 1080


def identity(folder: Path) -> Path:
    """A workspace whose model gives back the tensor that it is given, float32 [n, 16]."""
    specs = [TensorSpec(name=name, dtype="float32", shape=("n", 16)) for name in "xy"]
    ports = [helper.make_tensor_value_info(s.name, TensorProto.FLOAT, s.shape) for s in specs]
    node = helper.make_node("Identity", ["x"], ["y"])
    graph = helper.make_graph([node], "identity", ports[:1], ports[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    entry = "artifacts/onnx-fp32/model.onnx"
    (folder / entry).parent.mkdir(parents=True)
    (folder / entry).write_bytes(model.SerializeToString())
    shared = {"processing": Processing(), "labels": (), "task": "tensors"}
    (folder / "identity.json").write_bytes(encode(shared))
    signature = Signature(inputs=(specs[0],), outputs=(specs[1],), dims={"n": (1, 64)})
    artifact = Artifact(
        format="onnx",
        precision="fp32",
        entry=entry,
        files=(describe(folder, entry),),
        io=IO(inputs=signature.inputs, outputs=signature.outputs),
        judgement=Judgement(verdict="pass"),
    )
    member = describe(folder, "identity.json")
    manifest = Manifest(
        edgeserve=FORMAT_VERSION,
        name="identity",
        version=1,
        min_wrapper="0.1.0",
        model_id=member.sha256,
        task="tensors",
        signature=signature,
        processing=Processing(),
        files=(*artifact.files, member),
        artifacts=(artifact,),
    )
    (folder / "manifest.json").write_bytes(encode(manifest))
    return folder


def photo() -> bytes:
    """A 1080p photo as JPEG: scikit-image's cat where that is installed, else smooth noise."""
    found = importlib.util.find_spec("skimage")
    if found and found.origin:
        picture = Image.open(Path(found.origin).with_name("data") / "chelsea.png").convert("RGB")
    else:
        noise = np.random.default_rng(0).integers(0, 256, (54, 96, 3), dtype=np.uint8)
        picture = Image.fromarray(noise)
    out = io.BytesIO()
    picture.resize((_WIDTH, _HEIGHT), Image.Resampling.BICUBIC).save(out, "JPEG", quality=90)
    return out.getvalue()


def bare_session(path: Path, threads: int) -> onnxruntime.InferenceSession:
    """The runtime's own session on the same file."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def bare_photo(
    manifest: Manifest, session: onnxruntime.InferenceSession
) -> Callable[[bytes], object]:
    """Decode, resize, run: the resize's own size and filter, a tensor that was made before."""
    [each] = manifest.processing.inputs
    resize = next(step for step in each.steps if isinstance(step, Resize))
    kernel = Image.Resampling[resize.filter.upper()]
    shape = [
        dim if isinstance(dim, int) else 1 for dim in manifest.signature.input(each.name).shape
    ]
    feed = {each.name: np.zeros(shape, np.float32)}
    edge = min(resize.height, resize.width)
    size = (resize.width, resize.height)
    if resize.fit == "shortest-edge":
        size = (edge * _WIDTH // _HEIGHT, edge)

    def go(data: bytes) -> object:
        Image.open(io.BytesIO(data)).convert("RGB").resize(size, kernel)
        return session.run(None, feed)

    return go


def tensors_figure(seconds: float) -> Comparison:
    """`predict` on a dict of tensors against the bare session's run."""
    feed = {"x": np.zeros((1, 16), np.float32)}
    with tempfile.TemporaryDirectory() as folder, Wrapper(identity(Path(folder))) as model:
        entry = model.manifest.artifacts[0].entry
        bare = bare_session(Path(folder) / entry, 1)
        return compare(
            lambda: model.predict(feed),
            lambda: bare.run(None, feed),
            seconds=seconds,
            max_pairs=20_000,
        )


def photo_figure(bundle: Path, seconds: float) -> Comparison:
    """`predict` on a 1080p JPEG against decode + resize + run."""
    data = photo()
    with open_model(bundle) as opened, Wrapper(bundle) as model:
        artifact = next(a for a in opened.manifest.artifacts if a.sha256 == model.ran_on.sha256)
        threads = model.threads
        session = bare_session(opened.local(artifact) / artifact.entry, threads)
        bare = bare_photo(opened.manifest, session)
        return compare(lambda: model.predict(data), lambda: bare(data), seconds=seconds)


def _say(name: str, found: Comparison, figure: str, holds: bool) -> None:
    print(f"{name}: {figure} ({'holds' if holds else 'DOES NOT HOLD'})")
    print(f"  {found.summary()}")


def main() -> int:
    """Print both figures, or JSON; 1 when one does not hold by CPU time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle", type=Path, nargs="?", default=Path("demo-out/tagger.edge"))
    parser.add_argument("--seconds", type=float, default=8.0, help="for each figure")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        os.environ["EDGESERVE_CACHE"] = cache
        tensors = tensors_figure(arguments.seconds)
        pictures = (
            photo_figure(arguments.bundle, arguments.seconds) if arguments.bundle.exists() else None
        )
    extra_us = plain(tensors.extra_cpu_ms) * 1e3
    holds = extra_us <= _TENSORS_LIMIT_US
    told = {"tensors": json.loads(encode(tensors)), "photo": None}
    if not arguments.json:
        _say(
            "tensors",
            tensors,
            f"{extra_us:.1f} us over the bare run, limit {_TENSORS_LIMIT_US:g}",
            holds,
        )
    if pictures is not None:
        ratio = plain(pictures.cpu.value)
        holds &= ratio <= _PHOTO_LIMIT
        told["photo"] = json.loads(encode(pictures))
        if not arguments.json:
            figure = f"{ratio:.3f} of decode + resize + run, limit {_PHOTO_LIMIT:g}"
            _say("photo", pictures, figure, ratio <= _PHOTO_LIMIT)
    elif not arguments.json:
        print(f"photo: {arguments.bundle} is not there (make demo makes it)")
    if arguments.json:
        print(json.dumps(told | {"holds": holds}))
    return 0 if holds else 1


if __name__ == "__main__":
    raise SystemExit(main())
