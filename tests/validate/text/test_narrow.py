"""A file that takes less than its source: one text at a time, one length, int32. A real one."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from edgeserve import backends
from edgeserve.backends.batching import BatchRunner
from edgeserve.files import describe
from edgeserve.types.artifact import Artifact
from edgeserve.types.tensors import IO, TensorSpec


def narrowed(model: Any, tmp_path: Any, length: int) -> tuple[Artifact, Any]:
    """The embedder's ONNX file, fixed to one text of one length and int32: a real narrow file."""
    proto = onnx.load(model.onnx)
    graph = proto.graph
    for node in graph.node:
        node.input[:] = [f"{n}_wide" if n in ("ids", "mask") else n for n in node.input]
    for value in graph.input:
        value.CopyFrom(helper.make_tensor_value_info(value.name, TensorProto.INT32, [1, length]))
        cast = helper.make_node("Cast", [value.name], [f"{value.name}_wide"], to=TensorProto.INT64)
        graph.node.insert(0, cast)
    graph.output[0].CopyFrom(
        helper.make_tensor_value_info("tokens", TensorProto.FLOAT, [1, length, 24])
    )
    del graph.value_info[:]
    onnx.save(proto, tmp_path / "model.onnx")
    ids, mask = (TensorSpec(name=n, dtype="int32", shape=(1, length)) for n in ("ids", "mask"))
    out = TensorSpec(name="tokens", dtype="float32", shape=(1, length, 24))
    made = Artifact(
        format="onnx",
        precision="fp32",
        entry="model.onnx",
        files=(describe(tmp_path, "model.onnx"),),
        io=IO(inputs=(ids, mask), outputs=(out,)),
    )
    return made, tmp_path


def test_a_narrow_file_passes_as_the_wide_one_does(embedder: Any, tmp_path: Any) -> None:
    made, root = narrowed(embedder, tmp_path, 48)
    narrow = type(embedder)(embedder.root, embedder.exported, made)
    report = narrow.judged(root / "model.onnx")
    assert report.judgement.verdict == "pass", report.judgement
    checks = {check.name: check.detail for check in report.checks}
    assert checks["batch"] == "static: the batch is fixed"
    assert any("fixed to 48 in this file" in note for note in report.notes)
    assert report.decisions is not None
    assert report.decisions.raw.count == 0


def test_a_narrow_file_takes_what_fits(embedder: Any, tmp_path: Any) -> None:
    made, root = narrowed(embedder, tmp_path, 20)
    known = embedder.exported
    with backends.get("onnx").load(made, root) as session:
        runner = BatchRunner(session, known.signature, known.processing.padding)
        assert (runner.largest, runner.fixed) == (1, True)
        feeds = {n: {k: np.ones((1, n), np.int64) for k in ("ids", "mask")} for n in (3, 20, 21)}
        assert [runner.takes(feed) for feed in feeds.values()] == [True, True, False]
        outputs = runner.run([feeds[3], feeds[20], feeds[3]])
        assert [out["tokens"].shape for out in outputs] == [(1, 3, 24), (1, 20, 24), (1, 3, 24)]
        bare = BatchRunner(session, known.signature)
        assert [bare.takes(feed) for feed in feeds.values()] == [False, True, False]
