"""Made sounds: seeded, of the lengths that a model takes, and of several kinds."""

from __future__ import annotations

import io

import numpy as np
import pytest
from scipy.io import wavfile

from edgeserve.processing import Processor
from edgeserve.processing.steps.log_mel import LogMel
from edgeserve.processing.steps.waveform import Waveform
from edgeserve.types.artifact import FileEntry
from edgeserve.types.processing import InputProcessing, Processing
from edgeserve.types.source import Exported, Source
from edgeserve.types.steps import InputStep
from edgeserve.types.tensors import Shape, Signature, TensorSpec
from edgeserve.validate.inputs.generate import MEDIA_INPUTS, media_inputs
from edgeserve.validate.inputs.media import (
    AudioRange,
    audio_edge_cases,
    audio_range,
    audio_samples,
    synthetic_audio,
)

RATE = 16_000
FREE = {"s": (800, 40_000)}
MEL = LogMel(mels=40, n_fft=400, hop=160, center=False)


def exported(
    shape: Shape, *steps: InputStep, dims: dict[str, tuple[int, int]] | None = None
) -> Exported:
    """A source whose only input is made by these steps."""
    spec = TensorSpec(name="x", dtype="float32", shape=("n", *shape))
    file = FileEntry(path="a", size=1, sha256="0" * 64)
    return Exported(
        source=Source(kind="factory", location="a:b"),
        program=file,
        examples=file,
        weights=(),
        graph_sha256="0" * 64,
        signature=Signature(inputs=(spec,), outputs=(), dims={"n": (1, 8)} | (dims or {})),
        processing=Processing(inputs=(InputProcessing(name="x", steps=steps),)),
    )


CASES = {
    "fixed": exported((1, 16_000), Waveform(rate=RATE, length=16_000)),
    "free": exported((1, "s"), Waveform(rate=RATE), dims=FREE),
    "narrow": exported(("s",), Waveform(rate=RATE), dims={"s": (500, 600)}),
    "endless": exported(("s",), Waveform(rate=RATE, max_length=90_000), dims={"s": (1, 1 << 28)}),
    "mel": exported((40, 98), Waveform(rate=RATE, length=16_000), MEL),
    "frames": exported((40, "s"), Waveform(rate=RATE), MEL, dims={"s": (10, 200)}),
    "centred": exported((80, "s"), Waveform(rate=RATE), LogMel(), dims={"s": (10, 200)}),
    "cut": exported((80, 300), Waveform(rate=RATE), LogMel(frames=300)),
}


@pytest.mark.parametrize("name", CASES)
def test_sounds_fit_the_model_whatever_it_takes(name: str) -> None:
    source = CASES[name]
    processor = Processor(source.processing, source.signature, "tensors")
    made = list(media_inputs(source, processor, 0))
    natural = [each for each in made if each.natural]
    assert len(natural) == MEDIA_INPUTS
    assert {each.name for each in made} >= {"silence", "clipped"}
    assert sum(each.of_length for each in made) == 2
    for each in natural:
        assert isinstance(each.raw, bytes)
        rate, read = wavfile.read(io.BytesIO(each.raw))
        assert (rate, read.dtype, read.ndim) == (RATE, np.int16, 1)
    assert all(np.isfinite(each.feed["x"]).all() for each in made)


def test_lengths_reach_both_ends() -> None:
    low, high = (audio_range(CASES["narrow"]).low, audio_range(CASES["narrow"]).high)
    assert (low, high) == (500, 600)
    sizes = [len(audio_samples(i, 0, audio_range(CASES["narrow"]))) for i in range(60)]
    assert min(sizes) < 515
    assert max(sizes) > 585
    fixed = [len(audio_samples(i, 0, audio_range(CASES["fixed"]))) for i in range(60)]
    assert min(fixed) < 16_000 < max(fixed), "some are filled up, some are cut"
    assert [
        len(read(raw))
        for _, raw, of_length in audio_edge_cases(audio_range(CASES["free"]))
        if of_length
    ] == [800, 40_000]


def read(raw: bytes) -> np.ndarray:
    return np.asarray(wavfile.read(io.BytesIO(raw))[1])


def test_the_same_numbers_give_the_same_sounds_and_others_give_others() -> None:
    of = AudioRange(RATE, 8000, 9000, True)
    assert synthetic_audio(3, 1, of) == synthetic_audio(3, 1, of)
    assert len({synthetic_audio(i, seed, of) for i in range(7) for seed in range(2)}) == 14


def test_sounds_differ_in_loudness_and_in_where_their_power_lies() -> None:
    of = AudioRange(RATE, 16_000, 16_000, False)
    waves = [audio_samples(i, 0, of) / 32_768 for i in range(28)]
    loud = [float(np.sqrt((x * x).mean())) for x in waves]
    assert max(loud) > 5 * min(loud)
    middles = []
    for x in waves:
        power = np.abs(np.fft.rfft(x)) ** 2
        middles.append(float((power * np.arange(len(power))).sum() / power.sum()) / 1.0)
    assert min(middles) < 600
    assert max(middles) > 3000
