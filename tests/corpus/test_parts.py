"""The numbers of a file: found in every format, changed, and nothing else changed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dev.corpus import case_builder
from dev.corpus.damage import public_quantizers
from dev.corpus.damage.file_parts import damaged, open_file
from dev.corpus.damage.files import EDITS
from dev.corpus.nets import Net
from dev.corpus.oracle.runtimes import outputs
from dev.corpus.paths import OUT
from edgeserve.types.artifact import Artifact

NET = Net("digits", 0, 12)
FORMATS = ("onnx", "tflite", "coreml")


def made(format: str, precision: str) -> tuple[Artifact, Path]:
    home = OUT / "nets" / NET.name
    home.mkdir(parents=True, exist_ok=True)
    source = case_builder._source(NET, home / "source")
    return case_builder._converted(home / "artifacts", source, format, precision, NET)


def pictures() -> np.ndarray:
    return np.random.default_rng(3).normal(0, 1, (6, 3, 28, 28)).astype(np.float32)


def answers(artifact: Artifact, root: Path, x: np.ndarray) -> np.ndarray:
    return outputs(artifact, root, {"image": x})[0]


def edited(
    format: str, kind: str, value: float, out: Path, precision: str = "fp32"
) -> tuple[Artifact, Path]:
    artifact, root = made(format, precision)
    opened = open_file(artifact, root)
    if kind:
        EDITS[kind](opened, value, np.random.default_rng(0))
    return damaged(artifact, root, opened, out), out


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
def test_damage_in_a_file_does_what_it_says(format: str, tmp_path: Path) -> None:
    x = pictures()
    honest = answers(*made(format, "fp32"), x)
    same = answers(*edited(format, "", 0, tmp_path / "same"), x)
    assert np.array_equal(same, honest)
    swapped = answers(*edited(format, "classes-swapped", 10, tmp_path / "swapped"), x)
    np.testing.assert_allclose(swapped, np.roll(honest, 1, axis=1), atol=1e-5)
    blue = answers(*edited(format, "red-blue", 1.0, tmp_path / "blue"), x)
    turned = answers(*made(format, "fp32"), np.ascontiguousarray(x[:, ::-1]))
    np.testing.assert_allclose(blue, turned, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
def test_scales_of_8_bit_weights_are_found(format: str, tmp_path: Path) -> None:
    x = pictures()
    honest = answers(*made(format, "w8"), x)
    artifact, root = edited(format, "one-scale-wrong", 10.0, tmp_path / "scale", "w8")
    assert np.abs(answers(artifact, root, x) - honest).max() > 0.1
    before, _ = made(format, "w8")
    changed = [
        new.path for new, old in zip(artifact.files, before.files, strict=True) if new != old
    ]
    assert len(changed) in (1, 2)
    assert artifact.sha256 != before.sha256


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "format"), [("by-onnxruntime", "onnx"), ("by-ai-edge", "tflite")])
def test_public_quantizers_make_8_bits_of_the_same_network(
    kind: str, format: str, tmp_path: Path
) -> None:
    x = pictures()
    honest, root = made(format, "fp32")
    artifact = public_quantizers.quantized(
        kind, 0, honest, root, [{"image": row[None]} for row in x], tmp_path
    )
    assert artifact.precision == "w8a8"
    assert artifact.files[0].size < honest.files[0].size
    got, right = answers(artifact, tmp_path, x), answers(honest, root, x)
    assert np.abs(got - right).max() > 0
    assert np.corrcoef(got.ravel(), right.ravel())[0, 1] > 0.95
