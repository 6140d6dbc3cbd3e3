"""What is tried before a dimension is filled up: values of all kinds, and masks of all kinds."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from edgeserve.backends.torch.export.padding_probe import nonempty_inputs, paddable_dims
from edgeserve.processing.steps.tokenize import Tokenize
from edgeserve.types.artifact import FileEntry
from edgeserve.types.tensors import Signature, TensorSpec

IDS = torch.arange(1, 15).reshape(2, 7)


class _Least(nn.Module):
    """Attention under a mask of the least number, as most text encoders have it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(20, 8)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        scores = x @ x.transpose(1, 2)
        hidden = mask[:, None, :] == 0
        return scores.masked_fill(hidden, torch.finfo(scores.dtype).min).softmax(-1) @ x


class _Zeroed(_Least):
    """Likewise, but a row without a token is answered with zeros."""

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return super().forward(ids, mask) * mask[:, :, None]


class _Both(_Least):
    """Two masks, both of which must show a place: they may have none in common."""

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return super().forward(ids, mask * (ids != 0))


class _Last(_Least):
    """The last token's state, found by counting the mask: right only where that has no gap."""

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        y = self.embed(ids) * mask[..., None]
        return y[:, -1] + mask.sum(1, keepdim=True)


class _Flat(nn.Module):
    """A net whose answers are a list, as exports are."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> list[torch.Tensor]:
        return [self.net(ids, mask)]


def _program(net: nn.Module, ends: tuple[str, ...] = ("batch", "length")) -> Any:
    dims = ({0: torch.export.Dim("batch", max=8), 1: torch.export.Dim("length", max=32)},) * 2
    program = torch.export.export(
        _Flat(net).eval(), (IDS, torch.ones_like(IDS)), dynamic_shapes=dims
    )
    signature = Signature(
        inputs=tuple(
            TensorSpec(name=name, dtype="int64", shape=("batch", "length"))
            for name in ("ids", "mask")
        ),
        outputs=(TensorSpec(name="output", dtype="float32", shape=(*ends, 8)),),
        dims={"batch": (1, 8), "length": (1, 32)},
    )
    return program, signature, (IDS, torch.ones_like(IDS))


def test_only_a_mask_of_zeros_lets_the_padding_in() -> None:
    program, signature, examples = _program(_Least())
    assert paddable_dims(program, signature, examples, ["length"]) == ("length",)
    assert nonempty_inputs(program, signature, examples, ["length"], {}) == ("mask",)


def test_zeros_that_change_nothing_are_no_exception() -> None:
    program, signature, examples = _program(_Zeroed())
    assert paddable_dims(program, signature, examples, ["length"]) == ("length",)
    assert nonempty_inputs(program, signature, examples, ["length"], {}) == ()


def test_masks_with_no_place_in_common_are_tried() -> None:
    program, signature, examples = _program(_Both())
    assert paddable_dims(program, signature, examples, ["length"]) == ()


def test_what_looks_at_the_last_place_is_not_padded() -> None:
    program, signature, examples = _program(_Last(), ("batch",))
    assert paddable_dims(program, signature, examples, ["length"]) == ()


@pytest.mark.parametrize("side", ["right", "left"])
def test_what_a_tokenizer_pads_is_tried_for_empty_rows_too(side: Any) -> None:
    program, signature, examples = _program(_Least())
    entry = FileEntry(path="assets/tokenizer.json", size=1, sha256="0" * 64)
    steps = {
        "ids": Tokenize(entry, "ids", 16, pad_id=9, padding=side),
        "mask": Tokenize(entry, "attention_mask", 16, padding=side),
    }
    assert nonempty_inputs(program, signature, examples, ["length"], steps) == ("mask",)
