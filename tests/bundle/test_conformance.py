"""Other programs' opinion on the good cases: zipfile, unzip, ONNX Runtime, tokenizers."""

from __future__ import annotations

import io
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeserve.bundle import Bundle


def test_other_programs_see_the_same_members(
    good_case: dict[str, Any], write_case: Callable[[dict[str, Any]], Path]
) -> None:
    path = write_case(good_case)
    with zipfile.ZipFile(path) as archive, Bundle(path) as bundle:
        assert [(i.filename, i.file_size, i.CRC, i.header_offset) for i in archive.infolist()] == [
            (e.name, e.size, e.crc, e.offset) for e in bundle.members.values()
        ]
        if not good_case.get("big"):
            assert archive.testzip() is None
            for name in archive.namelist()[1:]:
                assert archive.read(name) == bundle.read(name)
            _unzip_agrees(path)


def _unzip_agrees(path: Path) -> None:
    """Info-ZIP, where it is installed, finds no fault and warns of nothing."""
    if unzip := shutil.which("unzip"):
        done = subprocess.run([unzip, "-tqq", path], capture_output=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_the_base_decides_as_its_golden_case_says(colour: Path) -> None:
    """The base holds a real model: ONNX Runtime answers the golden picture as the record says."""
    import onnxruntime
    from PIL import Image

    with Bundle(colour) as bundle:
        case = bundle.manifest.golden.cases[0]  # type: ignore[union-attr]
        artifact = bundle.manifest.artifacts[0]
        model = bundle.local(artifact) / artifact.entry
        picture = np.asarray(Image.open(io.BytesIO(bundle.read(case.input.path))).convert("RGB"))
    feed = (picture.astype(np.float32) / 128 - 1).transpose(2, 0, 1)[None]
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    scores = session.run(None, {"image": feed})[0][0]
    powers = np.exp(scores) / np.exp(scores).sum()
    assert case.record is not None
    assert case.record.label == ["red", "green", "blue"][int(powers.argmax())]  # type: ignore[union-attr]
    assert case.record.score == pytest.approx(powers.max(), abs=1e-5)  # type: ignore[union-attr]


def test_the_text_base_decides_as_its_golden_case_says(
    bases: dict[str, bytes], tmp_path: Path
) -> None:
    """Its asset is a real tokenizer, its model gives the vectors that the record is made of."""
    import onnxruntime
    import tokenizers

    path = tmp_path / "text.edge"
    path.write_bytes(bases["text"])
    with Bundle(path) as bundle:
        case = bundle.manifest.golden.cases[0]  # type: ignore[union-attr]
        artifact = bundle.manifest.artifacts[0]
        model = bundle.local(artifact) / artifact.entry
        [asset] = bundle.manifest.processing.assets
        tokenizer = tokenizers.Tokenizer.from_str(bundle.read(asset.path).decode())
        encoded = tokenizer.encode(bundle.read(case.input.path).decode())
    assert encoded.ids == [1, 1, 3]
    feed = {"ids": np.array([encoded.ids]), "mask": np.array([encoded.attention_mask])}
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    mean = session.run(None, feed)[0][0].mean(axis=0)
    assert case.record is not None
    np.testing.assert_allclose(
        case.record.vector,  # type: ignore[union-attr]
        mean / np.linalg.norm(mean),
        atol=1e-6,
    )
