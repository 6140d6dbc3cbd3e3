"""waveform/1 against scipy's reader and resampler, and everything that a WAV may lie about."""

from __future__ import annotations

import io
import tracemalloc
import wave
from math import gcd
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.io import wavfile
from scipy.signal import resample_poly

from edgeserve.errors import EdgeError, InputError, ProcessingError
from edgeserve.processing import Processor, Sound
from edgeserve.processing.audio.source import read_wav, write_wav
from edgeserve.processing.steps.decode import Decode
from edgeserve.processing.steps.log_mel import LogMel
from edgeserve.processing.steps.waveform import Waveform, resample, resampled_length, samples_needed
from edgeserve.types.processing import InputProcessing, Processing
from edgeserve.types.steps import InputStep
from edgeserve.types.tensors import Signature, TensorSpec

RATES = (8000, 11_025, 16_000, 22_050, 32_000, 44_100, 48_000, 96_000, 44_101)


def made(runner: ModuleType, raw: Any, *steps: InputStep) -> np.ndarray:
    """What steps make of a sound."""
    return np.asarray(runner.sound_processor(steps).prepare(raw)["x"])


def processor(
    shape: tuple[int | str, ...], *steps: InputStep, dtype: str = "float32", task: Any = "tensors"
) -> Processor:
    """One for a signature of this shape."""
    spec = TensorSpec(name="x", dtype=dtype, shape=shape)  # type: ignore[arg-type]
    dims = {dim: (400, 32_000) for dim in shape if isinstance(dim, str)}
    processing = Processing(inputs=(InputProcessing(name="x", steps=steps),))
    scores = TensorSpec(name="y", dtype="float32", shape=("n", 2))
    signature = Signature(inputs=(spec,), outputs=(scores,), dims={**dims, "n": (1, 8)})
    return Processor(processing, signature, task)


@pytest.mark.parametrize("bits", [8, 16, 24, 32, -32, -64])
@pytest.mark.parametrize("channels", [1, 2, 6])
def test_samples_are_scipy_s(
    wavs: ModuleType, runner: ModuleType, bits: int, channels: int
) -> None:
    grid = np.stack([wavs.tone(500, 16_000, seed) for seed in range(channels)], axis=1)
    data = wavs.wav(grid, 16_000, bits)
    rate, read = wavfile.read(io.BytesIO(data))
    full = {"uint8": 128, "int16": 1 << 15, "int32": 1 << 31}.get(read.dtype.name, 1)
    wanted = (read.astype(np.float64) - (128 if bits == 8 else 0)) / full
    found = made(runner, data, Waveform(rate=rate))
    np.testing.assert_array_equal(found, wanted.reshape(500, -1).mean(axis=1).astype(np.float32))


def test_a_file_of_python_s_own_module(runner: ModuleType, tmp_path: Path) -> None:
    levels = np.arange(-300, 300, dtype="<i2") * 100
    with wave.open(str(tmp_path / "own.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(levels.tobytes())
    wanted = levels.astype(np.float32) / 32768
    path = tmp_path / "own.wav"
    with path.open("rb") as opened:
        for raw in (path, str(path), path.read_bytes(), bytearray(path.read_bytes()), opened):
            np.testing.assert_array_equal(made(runner, raw, Waveform(rate=8000)), wanted)


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("wanted", [8000, 16_000, 22_050])
def test_resampled_is_scipy_s(wavs: ModuleType, rate: int, wanted: int) -> None:
    common = gcd(rate, wanted)
    for count in (1, 2, 37, 3001):
        x = wavs.tone(count, rate, count).astype(np.float32)
        y = resample(x, rate, wanted)
        z = resample_poly(x.astype(np.float64), wanted // common, rate // common)
        assert y.shape == z.shape == (resampled_length(count, rate, wanted),)
        np.testing.assert_allclose(y, z, atol=3e-7)
        some = max(1, len(y) // 3)
        part = resample(x[: samples_needed(some, rate, wanted)], rate, wanted, some)
        np.testing.assert_allclose(part, z[:some], atol=3e-7)


def test_a_tone_keeps_its_pitch_and_what_lies_too_high_goes(runner: ModuleType) -> None:
    """By physics rather than by a library: 1 kHz stays, 10 kHz cannot exist at 16 kHz."""
    time = np.arange(48_000) / 48_000
    both = 0.5 * np.sin(2 * np.pi * 1000 * time) + 0.5 * np.sin(2 * np.pi * 10_000 * time)
    found = made(runner, Sound(both.astype(np.float32), 48_000), Waveform(rate=16_000))
    alone = 0.5 * np.sin(2 * np.pi * 1000 * np.arange(16_000) / 16_000)
    assert np.abs(found - alone)[100:-100].max() < 0.002


def test_only_what_is_used_of_a_long_sound_is_decoded(runner: ModuleType, wavs: ModuleType) -> None:
    levels = np.tile(wavs.levels(wavs.tone(48_000, 48_000), 16).astype("<i2"), 300)
    data = write_wav(levels, 48_000)
    step = Waveform(rate=16_000, length=16_000)
    short = made(runner, write_wav(levels[:96_000], 48_000), step)
    tracemalloc.start()
    found = made(runner, data, step)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_array_equal(found, short)
    assert most < len(data) / 4, "five minutes took their memory for one second of them"


def test_normalized_as_wav2vec2_does(runner: ModuleType, wavs: ModuleType) -> None:
    from transformers import Wav2Vec2FeatureExtractor

    theirs = Wav2Vec2FeatureExtractor(do_normalize=True, return_attention_mask=True)
    for count, level in ((4000, 1.0), (1601, 1e-3), (800, 0.0)):
        x = (wavs.tone(count, 16_000, count) * level + 0.1 * level).astype(np.float32)
        step = Waveform(rate=16_000, normalize="zero-mean-unit-variance")
        asked = theirs(x, sampling_rate=16_000, return_tensors="np").input_values[0]
        np.testing.assert_allclose(made(runner, Sound(x, 16_000), step), asked, atol=1e-5)
        padded = theirs(
            x,
            sampling_rate=16_000,
            padding="max_length",
            max_length=3000,
            truncation=True,
            return_tensors="np",
        ).input_values[0]
        fixed = Waveform(rate=16_000, length=3000, normalize="zero-mean-unit-variance")
        np.testing.assert_allclose(made(runner, Sound(x, 16_000), fixed), padded, atol=1e-5)


@pytest.mark.parametrize(
    ("raw", "code", "word"),
    [
        (np.zeros(8, np.float32), "EDGE-INPUT-035", "rate=16000"),
        (Sound(np.zeros(8, np.float32), 0), "EDGE-INPUT-035", "rate=16000"),
        (Sound(np.zeros(8, np.float32), 1.6e4), "EDGE-INPUT-035", "rate=16000"),  # type: ignore[arg-type]
        (Sound(np.zeros(8, np.int16), 8000), "EDGE-INPUT-034", "32768"),
        (Sound(np.zeros(8), 8000), "EDGE-INPUT-034", "astype"),
        (Sound(np.zeros((8, 2), np.float32), 8000), "EDGE-INPUT-034", "channel"),
        (Sound(np.zeros(0, np.float32), 8000), "EDGE-INPUT-034", "float32"),
        (Sound(np.array([0, np.nan], np.float32), 8000), "EDGE-INPUT-034", "NaN"),
        (Sound([0.0], 8000), "EDGE-INPUT-034", "asarray"),  # type: ignore[arg-type]
        (Sound(np.zeros(8, np.float32), 999), "EDGE-INPUT-033", "8000 Hz"),
        (io.StringIO("RIFF"), "EDGE-INPUT-007", "'rb'"),
        (7, "EDGE-INPUT-007", "convert"),
        ("no/such.wav", "EDGE-INPUT-001", "bytes"),
        (Path("/dev/zero"), "EDGE-INPUT-001", "bytes"),
        (b"OggS" + bytes(60), "EDGE-INPUT-030", "ffmpeg"),
    ],
)
def test_what_is_no_sound(runner: ModuleType, raw: object, code: str, word: str) -> None:
    with pytest.raises(InputError) as caught:
        made(runner, raw, Waveform(rate=8000))
    assert caught.value.code == code
    assert word in str(caught.value.hint)


def answered(act: Any, raw: bytes) -> tuple[str, np.ndarray]:
    """The code of the refusal, or what was made."""
    try:
        return "", act(raw)["x"]
    except EdgeError as error:
        return error.code, np.zeros(0)


def test_a_damaged_file_is_refused_or_read_and_never_a_surprise(
    wavs: ModuleType, runner: ModuleType
) -> None:
    good = wavs.wav(wavs.tone(64, 8000), 8000, 16, extensible=True)
    act = runner.sound_processor((Waveform(rate=16_000, length=200),)).prepare

    @settings(max_examples=400, deadline=None, database=None)
    @given(st.data())
    def damaged(data: st.DataObject) -> None:
        raw = bytearray(good[: data.draw(st.integers(0, len(good)))])
        for _ in range(data.draw(st.integers(0, 6))):
            if raw:
                place = data.draw(st.integers(0, min(79, len(raw) - 1)))
                raw[place] = data.draw(st.integers(0, 255))
        code, found = answered(act, bytes(raw))
        assert code.startswith("EDGE-INPUT-03") or found.shape == (200,)
        assert np.isfinite(found).all()

    damaged()


def test_what_is_written_is_what_scipy_reads(wavs: ModuleType) -> None:
    wide = wavs.tone(333, 16_000).astype(np.float32)
    for samples in (wide, (wide * 32_000).astype(np.int16)):
        rate, read = wavfile.read(io.BytesIO(write_wav(samples, 22_050)))
        assert rate == 22_050
        np.testing.assert_array_equal(read, samples)
    np.testing.assert_array_equal(read_wav(Sound(wide, 8000).wav()).mono(), wide)


def test_axes_of_one_are_put_where_the_signature_has_them(wavs: ModuleType) -> None:
    x = Sound(wavs.tone(1000, 8000).astype(np.float32), 8000)
    step = Waveform(rate=8000, length=1000)
    for shape in ((1, 1000), (1000, 1), (1, 1000, 1), (1000,)):
        found = processor(("n", *shape), step).prepare(x)["x"]
        assert found.shape == shape
        np.testing.assert_array_equal(found.ravel(), x.samples)
    free = processor(("n", 1, "samples"), Waveform(rate=8000))
    assert free.prepare(x)["x"].shape == (1, 1000)
    for count in (399, 32_001):
        with pytest.raises(InputError, match=r"400 to 32000.*'x'") as caught:
            free.prepare(Sound(np.zeros(count, np.float32), 8000))
        assert caught.value.code == "EDGE-INPUT-036"


@pytest.mark.parametrize(
    ("made_by", "code"),
    [
        (lambda: processor(("n", 999), Waveform(rate=8000, length=1000)), "EDGE-PROCESS-003"),
        (lambda: processor(("n", 2, 500), Waveform(rate=8000, length=1000)), "EDGE-PROCESS-003"),
        (lambda: processor(("n",), Waveform(rate=8000)), "EDGE-PROCESS-003"),
        (
            lambda: processor(("n", 1000), Waveform(rate=8000, length=1000), dtype="int64"),
            "EDGE-PROCESS-003",
        ),
        (lambda: processor(("n", "s"), LogMel()), "EDGE-PROCESS-001"),
        (lambda: processor(("n", "s"), Waveform(rate=8000), Decode()), "EDGE-PROCESS-001"),
        (
            lambda: processor(("n", 80, "s"), Waveform(rate=8000, length=9), LogMel()),
            "EDGE-PROCESS-004",
        ),
        (
            lambda: processor(("n", "s"), Waveform(rate=8000), task="image-classification"),
            "EDGE-PROCESS-005",
        ),
    ],
)
def test_steps_that_do_not_fit(made_by: Any, code: str) -> None:
    with pytest.raises(ProcessingError) as caught:
        made_by()
    assert caught.value.code == code


def test_two_media_are_refused() -> None:
    specs = tuple(TensorSpec(name=n, dtype="float32", shape=("n", "s")) for n in "ab")
    inputs = (
        InputProcessing(name="a", steps=(Waveform(rate=8000),)),
        InputProcessing(name="b", steps=(Decode(),)),
    )
    signature = Signature(inputs=specs, outputs=(), dims={"n": (1, 8), "s": (1, 9)})
    with pytest.raises(ProcessingError, match="audio for 'a', image for 'b'") as caught:
        Processor(Processing(inputs=inputs), signature, "tensors")
    assert caught.value.code == "EDGE-PROCESS-024"


@pytest.mark.parametrize("fields", [{"rate": 999}, {"rate": 192_001}, {"rate": 8000, "length": 0}])
def test_parameters_that_mean_nothing(fields: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="is outside"):
        Waveform(**fields)


def test_a_sound_that_takes_too_much_memory_is_refused_from_its_header() -> None:
    """2 MB of a telephone's sound would become half a gigabyte; without a mean it may."""
    data = write_wav(np.zeros(1_750_000, np.int16), 1000)
    step = Waveform(rate=16_000, normalize="zero-mean-unit-variance")
    long = Signature(
        inputs=(TensorSpec(name="x", dtype="float32", shape=("n", "samples")),),
        outputs=(TensorSpec(name="y", dtype="float32", shape=("n", 2)),),
        dims={"n": (1, 4), "samples": (1, 1 << 30)},
    )
    processing = Processing(inputs=(InputProcessing(name="x", steps=(step,)),))
    with pytest.raises(InputError, match="MiB") as caught:
        Processor(processing, long, "tensors").prepare(data)
    assert caught.value.code == "EDGE-INPUT-036"


def test_channels_are_mixed_in_blocks_as_they_are_at_once() -> None:
    """Numpy's mean of two channels in float64, rounded once, over more samples than a block has."""
    rng = np.random.default_rng(3)
    stereo = rng.integers(-(1 << 15), 1 << 15, (600_001, 2), np.int16)
    out = io.BytesIO()
    wavfile.write(out, 8000, stereo)
    found = read_wav(out.getvalue()).mono()
    expected = (stereo.astype(np.float64).sum(axis=1) / (2 * 32768.0)).astype(np.float32)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(read_wav(out.getvalue()).mono(300_000), expected[:300_000])
