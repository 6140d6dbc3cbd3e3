"""Attention masks in every form and format, rows that see nothing included: as eager PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from edgeserve import backends
from edgeserve.backends.adapter import Adapter
from edgeserve.backends.torch.export.export import ExportOptions
from edgeserve.types.artifact import Recipe

N, WIDTH, WINDOW = 12, 16, 4
LEAST = torch.finfo(torch.float32).min


class Masked(nn.Module):
    """Attention with each form of mask."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.relative = nn.Parameter(torch.randn(N, N))
        with torch.no_grad():
            self.q.weight *= 8  # scores of ten and more, as language models have them

    def forward(self, x: Tensor, mask: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
        i = torch.arange(x.shape[1])
        window = (i[None, :] <= i[:, None]) & (i[None, :] > i[:, None] - WINDOW)
        seen = window & mask.bool()[:, None, None, :]
        padding = (1.0 - mask[:, None, None, :].to(torch.float32)) * LEAST
        causal = torch.full((N, N), LEAST).triu(1)
        far = -0.5 * (i[:, None] - i[None, :]).abs()
        added = (
            torch.where(seen, 0.0, LEAST),
            padding,
            padding + causal,
            padding + far,
            self.relative + padding,
            torch.zeros(1).masked_fill(~seen, -1e9),
            torch.zeros(1).masked_fill(~seen, -1e4),
            bias[:, None],
        )
        q, k, v = (each(x)[:, None] for each in (self.q, self.k, self.v))
        scores = q @ k.mT / WIDTH**0.5
        masked = (
            *(scores + each for each in added),
            scores.masked_fill(~seen, LEAST),
            (scores + padding) / 8,
            (scores + padding) * 0.1,
        )
        attend = nn.functional.scaled_dot_product_attention
        return (
            *(torch.softmax(each, -1) @ v for each in masked),
            attend(q, k, v, torch.where(seen, 0.0, LEAST)),
            attend(q, k, v, seen),
            attend(q, k, v, is_causal=True),
        )


def masks() -> dict[str, list[int]]:
    return {
        "all": [1] * N,
        "right": [1] * 3 + [0] * 9,
        "left": [0] * 5 + [1] * 7,
        "inside": [1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1],
        "one": [0] * 6 + [1] + [0] * 5,
        "none": [0] * N,
    }


@pytest.fixture(scope="module")
def net(zoo: Any) -> Any:
    torch.manual_seed(0)
    examples = (torch.randn(1, N, WIDTH), torch.ones(1, N).long(), torch.zeros(1, N, N))
    return zoo.export("masked", Masked().eval(), examples, ExportOptions())


def feeds() -> dict[str, dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    return {
        name: {
            "x": rng.normal(size=(1, N, WIDTH)).astype(np.float32),
            "mask": np.array([mask]),
            "bias": np.where(np.array(mask)[None, None] * np.tri(N) > 0, 0.0, LEAST).astype(
                np.float32
            ),
        }
        for name, mask in masks().items()
    }


#: Rounding of float16, of weights of 8 bits, and of activations of 8 bits as well.
LIMITS = {"fp32": 1e-4, "fp16": 2e-2, "w8": 0.1, "w8a8": 0.2}


@pytest.mark.parametrize(
    ("format", "precisions"),
    [("onnx", "fp32 fp16"), ("coreml", "fp32 fp16 w8 w8a8"), ("tflite", "fp32 w8a8")],
)
def test_every_mask_in_every_precision(
    net: Any, format: str, precisions: str, tmp_path: Any
) -> None:
    backend, right = backends.get(format), {n: net.oracle(f) for n, f in feeds().items()}
    whole = backend.export(net.exported, net.root, tmp_path / "fp32")
    wrong = []
    for precision in precisions.split():
        artifact, out = whole, tmp_path / precision
        if precision == "fp16" and format == "coreml":
            artifact = backend.export(net.exported, net.root, out, precision=precision)
        elif precision != "fp32":
            samples = list(feeds().values())[:3]
            artifact = backend.quantize(whole, tmp_path / "fp32", Recipe(precision), samples, out)
        with backend.load(artifact, out) as session:
            for name, feed in feeds().items():
                got = Adapter(session, net.exported.signature, {}).run(feed)
                for i, (output, wanted) in enumerate(right[name].items()):
                    finite = np.isfinite(wanted)
                    scale = np.abs(wanted[finite]).max(initial=1e-3)
                    off = np.abs(got[output] - wanted)[finite].max(initial=0.0) / scale
                    if not off <= LIMITS[precision]:
                        wrong.append((precision, name, i, float(off)))
    assert not wrong
