"""``rate=`` beside arrays, and what leaves a device for an endpoint."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from scipy.io import wavfile

from edgeserve.errors import InputError
from edgeserve.processing import Sound
from edgeserve.wrapper.fallback.remote_model import encode_input
from edgeserve.wrapper.wrapper import with_sample_rate

WAVE = np.linspace(-1, 1, 50, dtype=np.float32)


def test_arrays_learn_their_rate() -> None:
    assert with_sample_rate("a.wav", None, "audio") == "a.wav"
    one = with_sample_rate(WAVE, 8000, "audio")
    assert isinstance(one, Sound)
    assert one.rate == 8000
    assert one.samples is WAVE
    assert [each.rate for each in with_sample_rate((WAVE, WAVE), 9000, "audio")] == [9000, 9000]


@pytest.mark.parametrize(
    ("x", "medium"),
    [
        ("a.wav", "audio"),
        (b"RIFF", "audio"),
        ([b"RIFF"], "audio"),
        ({"x": WAVE}, "audio"),
        (WAVE, "image"),
        ("hello", "text"),
        ({"x": WAVE}, "tensors"),
    ],
)
def test_a_rate_of_nothing_is_refused(x: Any, medium: str) -> None:
    with pytest.raises(InputError, match="rate") as caught:
        with_sample_rate(x, 8000, medium)
    assert caught.value.code == "EDGE-INPUT-035"


def test_samples_leave_as_a_wav_that_loses_nothing() -> None:
    rate, read = wavfile.read(io.BytesIO(encode_input(Sound(WAVE, 11_025), "audio")))
    assert rate == 11_025
    np.testing.assert_array_equal(read, WAVE)
    wrong = {"EDGE-INPUT-035": WAVE, "EDGE-INPUT-034": Sound(WAVE.astype(float), 8000)}
    for code, raw in wrong.items():
        with pytest.raises(InputError) as caught:
            encode_input(raw, "audio")
        assert caught.value.code == code
