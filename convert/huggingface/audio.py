"""A network of one sound: its feature extractor as steps, proven number by number.

Three kinds of extractors are known. The steps are written from the settings, then both make tensors
of probe sounds: an extractor with code of its own, or another version's, is carried over exactly or
refused.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from edgeserve.convert.huggingface.folder import (
    ModelFolder,
    load_preprocessor,
    steps_output,
    unsupported_setting,
)
from edgeserve.convert.huggingface.model import NetworkPlan, load_with_steps
from edgeserve.convert.torch_source import SourceModule
from edgeserve.processing import Sound
from edgeserve.processing.steps.log_mel import LogMel
from edgeserve.processing.steps.waveform import Waveform
from edgeserve.types.steps import InputStep
from edgeserve.user_lines import one_line

_BATCH = 8
_KIND = "feature extractor"
#: Samples of a sound where the network takes any number: the fewest where it does not say how many
#: its convolutions need, and half a minute, which is what servers hear at once.
_MIN_SAMPLES, _MAX_SAMPLES, _EXAMPLE_SAMPLES = 1600, 480_000, 16_000
#: How far the two may be apart: what float32 leaves of a sum, and no more.
_TOLERANCE = 1e-4


def load_audio_model(folder: ModelFolder, planned: NetworkPlan) -> SourceModule:
    """Load a network of one sound with its feature extractor.

    Raises:
        ConvertError: EDGE-CONVERT-061 to -069.
    """
    name = planned.network.main_input_name
    steps = audio_steps(load_feature_extractor(folder.network), name)

    def axes(config: Any) -> dict[int, Any]:
        batch = {0: ("batch", 1, _BATCH)}
        samples = {1: ("samples", _min_samples(config), _MAX_SAMPLES)}
        return batch | samples if isinstance(steps[-1], Waveform) else batch

    return load_with_steps(folder, planned, steps, axes, _example(steps, name))


def _min_samples(config: Any) -> int:
    """Samples that become two frames: one frame is a size of its own to an exporter."""
    kernels, strides = getattr(config, "conv_kernel", ()), getattr(config, "conv_stride", ())
    samples = 2
    for kernel, stride in zip(reversed(kernels), reversed(strides), strict=True):
        samples = (samples - 1) * stride + kernel
    return samples if kernels else _MIN_SAMPLES


def load_feature_extractor(folder: Path) -> Any:
    """The folder's feature extractor.

    Raises:
        ConvertError: EDGE-CONVERT-069.
    """
    import transformers

    return load_preprocessor(transformers.AutoFeatureExtractor, folder, _KIND)


def audio_steps(extractor: Any, name: str) -> tuple[InputStep, ...]:
    """The steps of a feature extractor, compared with it on the probes.

    Args:
        extractor: Of transformers.
        name: The network's input.

    Raises:
        ConvertError: EDGE-CONVERT-069, naming the extractor or setting that no step expresses.
    """
    kind = type(extractor).__name__
    make = _KNOWN.get(kind)
    if make is None:
        raise unsupported_setting(
            _KIND, "preprocessor_config.json", f"one of {', '.join(_KNOWN)}", kind
        )
    try:
        steps = make(extractor)
    except ValueError as error:
        raise unsupported_setting(_KIND, kind, "settings that steps express", str(error)) from error
    for probe in _probes(extractor.sampling_rate):
        if difference := _difference(steps, name, extractor, probe):
            wanted = f"what its settings say of {len(probe)} samples"
            raise unsupported_setting(_KIND, kind, wanted, f"{difference}: it has steps of its own")
    return steps


def _of_wav2vec2(given: Any) -> tuple[InputStep, ...]:
    waveform = Waveform(
        rate=given.sampling_rate,
        max_length=_MAX_SAMPLES,
        normalize="zero-mean-unit-variance" if given.do_normalize else "none",
    )
    return (waveform,)


def _of_whisper(given: Any) -> tuple[InputStep, ...]:
    if given.dither:
        raise ValueError(f"dither {given.dither}, which is random")
    mel = LogMel(
        mels=given.feature_size,
        n_fft=given.n_fft,
        hop=given.hop_length,
        high=8000.0,
        frames=given.nb_max_frames,
        below_max=8.0,
        mean=-4.0,
        std=4.0,
    )
    return Waveform(rate=given.sampling_rate, length=given.n_samples), mel


def _of_ast(given: Any) -> tuple[InputStep, ...]:
    mean, std = (given.mean, 2 * given.std) if given.do_normalize else (0.0, 1.0)
    mel = LogMel(
        mels=given.num_mel_bins,
        n_fft=512,
        frame_length=400,
        hop=160,
        window="hann-symmetric",
        center=False,
        remove_dc=True,
        preemphasis=0.97,
        scale="kaldi",
        norm="none",
        low=20.0,
        log="ln",
        floor=1.192092955078125e-07,
        frames=given.max_length,
        mean=mean,
        std=std,
        layout="frames-mels",
    )
    return Waveform(rate=given.sampling_rate), mel  # which cuts by frames


_KNOWN: dict[str, Callable[[Any], tuple[InputStep, ...]]] = {
    "Wav2Vec2FeatureExtractor": _of_wav2vec2,
    "WhisperFeatureExtractor": _of_whisper,
    "ASTFeatureExtractor": _of_ast,
}


def _probes(rate: int) -> list[np.ndarray]:
    """Noise over a sweep: a second, an odd length, something faint, and silence around a click."""
    rng = np.random.default_rng(rate)
    probes = []
    for count, level in ((rate, 0.5), (7919, 0.05), (rate // 3, 1e-3)):
        sweep = np.sin(2e-4 * np.arange(count) ** 1.6)
        probes.append(level * (0.8 * sweep + 0.2 * rng.uniform(-1, 1, count)))
    click = np.zeros(rate)
    click[rate // 2] = 0.9
    return [probe.astype(np.float32) for probe in (*probes, click)]


def _difference(steps: tuple[InputStep, ...], name: str, extractor: Any, probe: np.ndarray) -> str:
    """How far the two tensors are apart; empty where only rounding differs."""
    rate = extractor.sampling_rate
    try:
        made = extractor(probe, sampling_rate=rate, return_tensors="np")
        theirs = np.asarray(made[name][0], np.float64)
    except Exception as error:  # transformers raises many kinds here
        return one_line(error)
    if spare := sorted(set(made) - {name, "attention_mask"}):
        return f"further inputs {spare}"
    ours = _steps_output(steps, name, Sound(probe, rate))
    if ours.shape != theirs.shape:
        return f"shape {list(theirs.shape)} instead of {list(ours.shape)}"
    worst = float(np.abs(theirs - ours).max())
    return f"numbers up to {worst:.2g} apart" if not worst < _TOLERANCE else ""


def _steps_output(steps: tuple[InputStep, ...], name: str, sound: Sound) -> np.ndarray:
    """What the steps make of a sound."""
    axes = ("samples",) if isinstance(steps[-1], Waveform) else ("rows", "columns")
    return steps_output(steps, name, axes, sound)


def _example(steps: tuple[InputStep, ...], name: str) -> np.ndarray:
    first = steps[0]
    assert isinstance(first, Waveform)
    probe = np.resize(_probes(first.rate)[0], _EXAMPLE_SAMPLES)
    return _steps_output(steps, name, Sound(probe, first.rate))
