"""log_mel/1 against the feature extractors of transformers and against its own definition."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

from edgeserve.processing import Sound
from edgeserve.processing.steps.log_mel import LogMel
from edgeserve.processing.steps.waveform import Waveform

#: What the pages of `spec/processing.md` give for the two.
WHISPER: dict[str, Any] = {"high": 8000.0, "below_max": 8.0, "mean": -4.0, "std": 4.0}
AST: dict[str, Any] = {
    "mels": 128,
    "n_fft": 512,
    "frame_length": 400,
    "window": "hann-symmetric",
    "center": False,
    "remove_dc": True,
    "preemphasis": 0.97,
    "scale": "kaldi",
    "norm": "none",
    "low": 20.0,
    "log": "ln",
    "floor": 1.192092955078125e-07,
    "mean": -4.2677393,
    "std": 2 * 4.5689974,
    "layout": "frames-mels",
}


def sounds(wavs: ModuleType) -> list[np.ndarray]:
    """Loud, faint, with silence in it, silent, clicks, and a bare tone."""
    click = np.zeros(9000)
    click[[0, 4000, 8999]] = 1, -1, 0.5
    gap = wavs.tone(12_000, 16_000, 1)
    gap[4000:8000] = 0
    bare = 0.8 * np.sin(2 * np.pi * 440 * np.arange(16_000) / 16_000)
    wide = [wavs.tone(16_000, 16_000), 1e-4 * wavs.tone(7001, 16_000, 2), gap, np.zeros(2000)]
    return [x.astype(np.float32) for x in (*wide, click, bare)]


def made(runner: ModuleType, x: np.ndarray, length: int | None, **fields: Any) -> np.ndarray:
    steps = (Waveform(rate=16_000, length=length), LogMel(**fields))
    return np.asarray(runner.sound_processor(steps).prepare(Sound(x, 16_000))["x"])


@pytest.mark.parametrize("mels", [80, 128])
def test_whisper_s(runner: ModuleType, wavs: ModuleType, mels: int) -> None:
    """Its PyTorch road runs in float32, which tells on what lies 80 dB below the loudest."""
    from transformers import WhisperFeatureExtractor

    theirs = WhisperFeatureExtractor(feature_size=mels, chunk_length=2)
    for x in sounds(wavs):
        asked = theirs(x, sampling_rate=16_000, return_tensors="np").input_features[0]
        by_numpy = theirs._np_extract_fbank_features(np.pad(x, (0, 32_000 - len(x)))[None], "cpu")[
            0
        ]
        found = made(runner, x, 32_000, mels=mels, frames=200, **WHISPER)
        assert found.shape == asked.shape == (mels, 200)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, by_numpy, atol=1e-5)
        np.testing.assert_allclose(found, asked, atol=1e-4)


def test_ast_s(runner: ModuleType, wavs: ModuleType) -> None:
    from transformers import ASTFeatureExtractor

    with pytest.warns(UserWarning, match="all zero values"):  # its own bands are that narrow
        theirs = ASTFeatureExtractor(max_length=80)
    for x in sounds(wavs):
        asked = theirs(x, sampling_rate=16_000, return_tensors="np").input_values[0]
        found = made(runner, x, None, frames=80, **AST)
        assert found.shape == asked.shape == (80, 128)
        np.testing.assert_allclose(found, asked, atol=1e-4)


def test_a_tone_lies_in_the_band_of_its_pitch(runner: ModuleType) -> None:
    """By hand: band k of n on the HTK scale is centred on mel (k + 1) / (n + 1) of the highest."""
    for pitch in (300.0, 1000.0, 4000.0):
        x = np.sin(2 * np.pi * pitch * np.arange(8000) / 16_000).astype(np.float32)
        found = made(runner, x, 8000, mels=40, n_fft=1024, scale="htk", norm="none")
        mel = 2595 * np.log10(1 + np.array([pitch, 8000.0]) / 700)
        assert abs(found.mean(axis=1).argmax() - (mel[0] / mel[1] * 41 - 1)) <= 0.75


def test_a_block_more_or_less_changes_nothing(runner: ModuleType, wavs: ModuleType) -> None:
    """Frames are transformed in blocks of 512: one of 1300 is what it is alone."""
    x = wavs.tone(1300 * 40, 16_000, 5).astype(np.float32)
    whole = made(runner, x, None, n_fft=256, hop=40, mels=12, center=False)
    at = 1100
    alone = made(runner, x[at * 40 :][:256], None, n_fft=256, hop=40, mels=12, center=False)
    np.testing.assert_allclose(whole[:, at], alone[:, 0], atol=1e-6)


def test_layouts_are_one_another_s_turn(runner: ModuleType, wavs: ModuleType) -> None:
    x = wavs.tone(4000, 16_000).astype(np.float32)
    one, other = (made(runner, x, 4000, layout=w) for w in ("mels-frames", "frames-mels"))
    np.testing.assert_array_equal(one, other.T)
    assert one.flags.c_contiguous
    assert other.flags.c_contiguous


@pytest.mark.parametrize(
    "fields",
    [
        {"mels": 0},
        {"hop": 0},
        {"n_fft": 1},
        {"frame_length": 401},
        {"frame_length": 1},
        {"preemphasis": 1.0},
        {"floor": 0.0},
        {"std": 0.0},
        {"below_max": 0.0},
        {"low": -1.0},
        {"low": 100.0, "high": 100.0},
        {"mean": float("nan")},
        {"frames": 0},
    ],
)
def test_parameters_that_mean_nothing(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"outside|fit|above|normalise|bands"):
        LogMel(**fields)
