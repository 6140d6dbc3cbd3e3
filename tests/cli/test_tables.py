"""What a command prints of an answer that holds many decisions."""

from __future__ import annotations

import numpy as np
import pytest

from edgeserve.cli.tables import fixed_sizes, print_answers
from edgeserve.tasks.classification import Classification
from edgeserve.tasks.detection import Detection
from edgeserve.tasks.token_classification import Span, Tokens
from edgeserve.types.artifact import Artifact, FileEntry
from edgeserve.types.manifest import FORMAT_VERSION, Manifest
from edgeserve.types.processing import Processing
from edgeserve.types.tensors import IO, Shape, Signature, TensorSpec


def test_boxes_are_printed_with_label_and_corners(capsys: pytest.CaptureFixture[str]) -> None:
    answer = Detection(
        boxes=np.array([[1.2, 2.0, 30.0, 40.4], [5, 6, 7, 8]]),
        scores=np.array([0.91, 0.5]),
        labels=("cat", "dog"),
    )
    print_answers(["a.jpg"], [answer])
    first, *boxes = capsys.readouterr().out.splitlines()
    assert first.startswith("a.jpg\t")
    assert [line.split() for line in boxes] == [
        ["0.910", "cat", "1", "2", "30", "40"],
        ["0.500", "dog", "5", "6", "7", "8"],
    ]


def test_a_foreign_label_cannot_drive_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    evil = "cat\x1b[2J\n\u202eowl"
    answer = Classification(label=evil, score=0.5, top=((evil, 0.5), (evil, 0.4)))
    print_answers(["a\x1b.jpg"], [answer])
    out = capsys.readouterr().out
    assert not set(out) & {"\x1b", "\u202e"}
    assert len(out.splitlines()) == 2
    assert r"cat\x1b[2J\n\u202eowl" in out


def test_spans_are_printed_and_many_are_cut(capsys: pytest.CaptureFixture[str]) -> None:
    spans = tuple(Span(start=i, end=i + 1, label="PER", score=0.75) for i in range(30))
    print_answers(["text"], [Tokens(spans=spans)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["0.750", "PER", "0-1"]
    assert lines[-1].strip() == "and 10 more: --json lists all"
    assert len(lines) == 22


def _said(padded: tuple[str, ...], *shapes: Shape) -> list[str]:
    """What is said of a file with these shapes of x, whose source leaves all of it free."""

    def io(shape: Shape) -> IO:
        spec = TensorSpec(name="x", dtype="float32", shape=shape)
        return IO(inputs=(spec,), outputs=(spec,), signature=f"of_{shape[1]}")

    source = io(("batch", "n", 4))
    signature = Signature(
        inputs=source.inputs,
        outputs=source.outputs,
        dims={"batch": (1, 8), "n": (2, 16)},
        padded=padded,
    )
    ios = tuple(map(io, shapes))
    file = FileEntry(path="artifacts/tflite-fp32/model.tflite", size=1, sha256="0" * 64)
    artifact = Artifact(
        format="tflite",
        precision="fp32",
        entry=file.path,
        files=(file,),
        io=ios[-1],
        buckets=ios if len(ios) > 1 else (),
    )
    manifest = Manifest(
        edgeserve=FORMAT_VERSION,
        name="m",
        version=1,
        min_wrapper="0.1.0",
        model_id="0" * 64,
        task="tensors",
        signature=signature,
        processing=Processing(),
        files=(file,),
    )
    return list(fixed_sizes(artifact, manifest))


def test_sizes_that_a_file_could_not_keep_are_said() -> None:
    assert _said((), (1, 6, 4)) == ["'n' is fixed at 6 (declared 2 to 16)"]
    assert _said((), ("batch", "n", 4)) == []
    assert _said((), (1, 6, 4), (1, 12, 4)) == ["'n' is fixed at 6, 12 (declared 2 to 16)"]
    assert _said(("n",), (1, 8, 4), (1, 16, 4)) == []
    assert _said(("n",), (1, 8, 4)) == ["'n' is padded to 8, longer inputs fail (declared 2 to 16)"]
