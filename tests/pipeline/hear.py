"""Two small models of sounds, and the server that runs them: its preprocessing is scipy's.

``build`` tells by pitch what is played, from samples; ``voice`` says in which frames something is
heard, from a mel spectrum. Their weights are written down or seeded, nothing is trained.
"""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
import torch
from scipy.io import wavfile
from scipy.signal import ShortTimeFFT, resample_poly
from scipy.signal.windows import hann

RATE, LENGTH = 8000, 4000
LABELS = ["low", "middle", "high"]
PITCHES = (350.0, 900.0, 2200.0)
MELS, FFT, HOP, FRAMES = 24, 256, 160, 49
VOICE_LENGTH = (FRAMES - 1) * HOP + FFT


class Listener(torch.nn.Module):
    """Energies around three pitches, then a head: waves [n, 1, 4000] to logits [n, 3]."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        time = torch.arange(64) / RATE
        window = 0.5 - 0.5 * torch.cos(2 * math.pi * torch.arange(64) / 64)
        angles = [2 * math.pi * p * f * time for p in PITCHES for f in (0.8, 1.0, 1.25)]
        waves = torch.stack([wave for a in angles for wave in (a.cos(), a.sin())])
        self.conv = torch.nn.Conv1d(1, 18, 64, stride=32, bias=False)
        self.mix = torch.nn.Conv1d(18, 3, 1)
        self.head = torch.nn.Linear(3, 3)
        with torch.no_grad():
            self.conv.weight.copy_((waves * window / 32)[:, None])
            self.mix.weight.copy_(torch.eye(3).repeat_interleave(6, 1)[..., None] / 6)
            self.mix.bias.fill_(1e-3)
            self.head.weight.copy_(torch.eye(3) * 1.5 + 0.02 * torch.randn(3, 3))

    def forward(self, wave: torch.Tensor) -> torch.Tensor:
        return self.head(self.mix(self.conv(wave) ** 2).log().mean(dim=2))


class Voice(torch.nn.Module):
    """Loudness of the bands over time: mel spectra [n, 24, 49] to probabilities [n, 49]."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.conv = torch.nn.Conv1d(MELS, 1, 3, padding=1)
        with torch.no_grad():
            self.conv.weight.copy_(1 / MELS / 3 + 0.002 * torch.randn(1, MELS, 3))
            self.conv.bias.fill_(2.6)

    def forward(self, mel: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(4 * self.conv(mel))[:, 0]


def build() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...], dict[str, Any]]:
    """The classifier."""
    wave = {
        "step": "waveform/1",
        "rate": RATE,
        "length": LENGTH,
        "normalize": "zero-mean-unit-variance",
    }
    options = {
        "input_names": ["wave"],
        "output_names": ["logits"],
        "dynamic_shapes": ({0: torch.export.Dim("batch", min=1, max=8)},),
        "task": "audio-classification",
        "labels": LABELS,
        "processing": {
            "inputs": [{"name": "wave", "steps": [wave]}],
            "outputs": [
                {"step": "softmax/1", "output": "logits"},
                {"step": "top_k/1", "output": "logits", "k": 3},
            ],
        },
    }
    return Listener().eval(), (torch.randn(2, 1, LENGTH),), options


def voice() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...], dict[str, Any]]:
    """What is heard when."""
    mel = {
        "step": "log_mel/1",
        "mels": MELS,
        "n_fft": FFT,
        "hop": HOP,
        "center": False,
        "scale": "htk",
        "norm": "none",
        "floor": 1e-5,
    }
    wave = {"step": "waveform/1", "rate": RATE, "length": VOICE_LENGTH}
    options = {
        "input_names": ["mel"],
        "output_names": ["speech"],
        "dynamic_shapes": ({0: torch.export.Dim("batch", min=1, max=8)},),
        "task": "voice-activity",
        "processing": {
            "inputs": [{"name": "mel", "steps": [wave, mel]}],
            "outputs": [{"step": "frames/1", "output": "speech", "step_s": HOP / RATE}],
        },
    }
    return Voice().eval(), (torch.randn(2, MELS, FRAMES),), options


def heard(raw: bytes, length: int) -> np.ndarray:
    """A WAV by scipy: mono at the models' rate, cut at ``length``, float64."""
    rate, read = wavfile.read(io.BytesIO(raw))
    full = {np.dtype(np.uint8): 128, np.dtype(np.int16): 1 << 15, np.dtype(np.int32): 1 << 31}
    x = (read - (128.0 if read.dtype == np.uint8 else 0.0)) / full.get(read.dtype, 1)
    x = x.reshape(len(x), -1).mean(axis=1)
    common = math.gcd(rate, RATE)
    return resample_poly(x, RATE // common, rate // common)[:length]


def pitch(raw: bytes) -> dict[str, Any]:
    """The server of ``build``."""
    x = unit(heard(raw, LENGTH))
    return _answer(np.pad(x, (0, LENGTH - len(x))))


def unit(x: np.ndarray) -> np.ndarray:
    """Zero mean, unit variance."""
    return (x - x.mean()) / np.sqrt(x.var() + 1e-7)


def _answer(x: np.ndarray) -> dict[str, Any]:
    x = x.astype(np.float32)
    with torch.inference_mode():
        scores = Listener().eval()(torch.from_numpy(x)[None, None]).softmax(1)[0].tolist()
    top = sorted(zip(LABELS, scores, strict=True), key=lambda pair: -pair[1])
    return {"label": top[0][0], "score": top[0][1], "top": top}


def pitch_of_all(raw: bytes) -> dict[str, Any]:
    """The server of ``any_length``."""
    return _answer(unit(heard(raw, 16_000)))


def deaf(raw: bytes) -> dict[str, Any]:
    """A server that forgets to resample: other rates than its own are heard too low or too high."""
    _, read = wavfile.read(io.BytesIO(raw))
    out = io.BytesIO()
    wavfile.write(out, RATE, read)
    return pitch(out.getvalue())


def mel_of(x: np.ndarray) -> np.ndarray:
    """The logarithm of the mel spectrum by scipy and by hand: [mels, frames]."""
    window = hann(FFT, sym=False)
    stft = ShortTimeFFT(window, HOP, RATE, fft_mode="onesided", phase_shift=None)
    power = np.abs(stft.stft(x, p0=1, p1=1 + FRAMES, k_offset=FFT // 2 - HOP)) ** 2
    corners = 700 * (10 ** (np.linspace(0, math.log10(1 + RATE / 1400), MELS + 2)) - 1)
    bins = np.arange(FFT // 2 + 1) * RATE / FFT
    bank = [np.interp(bins, corners[k : k + 3], [0, 1, 0]) for k in range(MELS)]
    return np.log10(np.maximum(np.array(bank) @ power, 1e-5))


def speech(raw: bytes) -> dict[str, Any]:
    """The server of ``voice``."""
    x = heard(raw, VOICE_LENGTH)
    x = np.pad(x, (0, VOICE_LENGTH - len(x))).astype(np.float32)
    mel = torch.from_numpy(mel_of(x.astype(np.float64)).astype(np.float32))[None]
    with torch.inference_mode():
        return {"prob": Voice().eval()(mel)[0].numpy(), "step_s": HOP / RATE}


def any_length() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...], dict[str, Any]]:
    """The classifier for sounds of any length, with nothing cut off or filled up."""
    module, examples, options = build()
    wave = {"step": "waveform/1", "rate": RATE, "max_length": 16_000}
    wave["normalize"] = "zero-mean-unit-variance"
    options["processing"]["inputs"] = [{"name": "wave", "steps": [wave]}]
    batch = torch.export.Dim("batch", min=1, max=8)
    samples = torch.export.Dim("samples", min=800, max=16_000)
    options["dynamic_shapes"] = ({0: batch, 2: samples},)
    return module, examples, options
