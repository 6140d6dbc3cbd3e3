"""Inputs of the operator modules: small, of every dtype, the batch first."""

from __future__ import annotations

from dev.zoo.model_helpers import ids, noise

X, Y = noise(2, 3, 4), noise(2, 3, 4, seed=2)
ABOVE = noise(2, 3, 4).abs() + 0.1  # positive
WITHIN = noise(2, 3, 4).tanh() * 0.9  # within -1 and 1
INTEGERS, MORE = ids(9, 2, 3, 4, low=-8), ids(5, 2, 3, 4, low=1)
TRUE, OTHER = noise(2, 3, 4) > 0, noise(2, 3, 4, seed=2) > 0
KERNEL = noise(5, 4, 4)
IMAGE, WAVE, VOLUME = noise(2, 4, 8, 10), noise(2, 4, 12), noise(2, 4, 5, 6, 7)
