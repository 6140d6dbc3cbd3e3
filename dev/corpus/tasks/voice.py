"""voice-activity: is there speech in each frame of a clip? From waveforms, as named tensors.

The network begins with a windowed Fourier transform written as a convolution, so that the window
is a constant of the file. Speech is a hum of harmonics that comes and goes; noise and clicks are
not. Loudness varies from clip to clip.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from dev.corpus.tasks.base import Raw, Task

_SAMPLES, _FRAME, _HOP, _BINS, _RATE = 1024, 64, 32, 24, 4000
_FRAMES = (_SAMPLES - _FRAME) // _HOP + 1


def window(share: float = 0.0) -> torch.Tensor:
    """The Hann window, or a share of the rectangular one, float32 [64]."""
    hann = 0.5 - 0.5 * torch.cos(2 * math.pi * torch.arange(_FRAME) / _FRAME)
    return (1 - share) * hann + share


def basis(share: float = 0.0) -> torch.Tensor:
    """Cosines and sines under the window, float32 [48, 1, 64]."""
    angle = 2 * math.pi / _FRAME * torch.arange(1, _BINS + 1)[:, None] * torch.arange(_FRAME)[None]
    return (torch.cat([angle.cos(), angle.sin()]) * window(share))[:, None]


class Net(torch.nn.Module):
    """Log power of each frame's spectrum, two convolutions over time, one probability a frame."""

    basis: torch.Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("basis", basis())
        self.one = torch.nn.Conv1d(_BINS, width, 3, padding=1)
        self.norm = torch.nn.BatchNorm1d(width)
        self.two = torch.nn.Conv1d(width, width, 3, padding=1)
        self.head = torch.nn.Conv1d(width, 1, 1)
        self.floor = 1e-3

    def spectrum(self, wave: torch.Tensor) -> torch.Tensor:
        """Waves [n, 1, 1024] to log powers [n, 24, 31]."""
        parts = torch.nn.functional.conv1d(wave, self.basis, stride=_HOP)
        power = parts[:, :_BINS] ** 2 + parts[:, _BINS:] ** 2
        return (power + self.floor).log()

    def forward(self, wave: torch.Tensor) -> torch.Tensor:
        """Waves [n, 1, 1024] to probabilities [n, 31]."""
        x = torch.relu(self.norm(self.one(self.spectrum(wave) * 0.3)))
        return torch.sigmoid(self.head(torch.relu(self.two(x))))[:, 0]


def _clip(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A wave float32 [1, 1024] and what is spoken in each sample, bool [1024]."""
    time = np.arange(_SAMPLES) / _RATE
    spoken = np.zeros(_SAMPLES, bool)
    for _ in range(int(rng.integers(0, 3))):
        start = int(rng.integers(0, _SAMPLES - 200))
        spoken[start : start + int(rng.integers(200, 600))] = True
    pitch = rng.uniform(130, 280) * (1 + 0.05 * np.sin(2 * np.pi * rng.uniform(2, 5) * time))
    phase = 2 * np.pi * np.cumsum(pitch) / _RATE
    hum = sum(
        rng.uniform(0.3, 1.0) / k * np.sin(k * phase + rng.uniform(0, 6)) for k in range(1, 6)
    )
    wave = np.asarray(hum) * spoken * rng.uniform(0.15, 0.8)
    wave += rng.normal(0, rng.uniform(0.02, 0.12), _SAMPLES)
    if rng.random() < 0.5:  # a steady tone is no speech
        wave += rng.uniform(0.1, 0.4) * np.sin(2 * np.pi * rng.uniform(600, 1400) * time)
    return wave.astype(np.float32)[None], spoken


def _inputs(seed: int, count: int) -> list[tuple[Raw, int, str | None]]:
    rng = np.random.default_rng([seed, 104])
    return [({"wave": _clip(rng)[0]}, i, None) for i in range(count)]


def _tensors(seed: int, count: int) -> tuple[torch.Tensor, ...]:
    rng = np.random.default_rng([seed, 104])
    made = [_clip(rng) for _ in range(count)]
    middle = np.arange(_FRAMES) * _HOP + _FRAME // 2
    truth = np.stack([spoken[middle] for _, spoken in made])
    return torch.from_numpy(np.stack([w for w, _ in made])), torch.from_numpy(truth).float()


def _loss(module: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.binary_cross_entropy(module(x).clamp(1e-6, 1 - 1e-6), y)


def _answer(module: torch.nn.Module, raw: Raw) -> dict[str, Any]:
    assert isinstance(raw, dict)
    wave = torch.from_numpy(np.asarray(raw["wave"], np.float32).reshape(1, 1, _SAMPLES))
    with torch.inference_mode():
        return {"prob": module(wave)[0].numpy(), "step_s": _HOP / _RATE}


def _options() -> dict[str, Any]:
    return {
        "input_names": ["wave"],
        "output_names": ["speech"],
        "dynamic_shapes": {"wave": {0: ("batch", 1, 8)}},
        "task": "voice-activity",
        "processing": {
            "outputs": [{"step": "frames/1", "output": "speech", "step_s": _HOP / _RATE}]
        },
    }


TASK = Task(
    name="voice",
    kind="voice-activity",
    medium="tensors",
    build=Net,
    loss=_loss,
    tensors=_tensors,
    example=lambda: (torch.randn(1, 1, _SAMPLES),),
    options=_options,
    inputs=_inputs,
    answer=_answer,
    epochs=2,
    examples=4000,
)
