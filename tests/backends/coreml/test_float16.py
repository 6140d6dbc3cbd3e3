"""What of a float16 package stays in float32, read from the file: what large masks are added to."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from edgeserve.backends.coreml.spec import block_of, dtype_of, operations_of


class Thrice(nn.Module):
    """Attention that is causal, with truth values, and with a large number added."""

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        attend, hidden = nn.functional.scaled_dot_product_attention, 1.0 - mask.float()
        heads = x[:, None]
        seen = (mask[:, None, None, :] > 0).expand(-1, 1, x.shape[1], -1)
        added = torch.softmax(x @ x.mT + hidden[:, None] * -1e9, -1) @ x
        causal = attend(heads, heads, heads, is_causal=True)
        return causal, attend(heads, heads, heads, seen), added


def test_only_the_softmax_of_a_large_mask_stays_in_float32(packages: Any) -> None:
    net = packages.export(Thrice(), (torch.randn(1, 6, 8), torch.ones(1, 6)))
    package = packages.make(net, "fp16")
    operations = operations_of(block_of(package.spec.mlProgram.functions["main"]))
    found = [
        dtype_of(operation.outputs[0].type.tensorType)
        for operation in operations
        if operation.type == "softmax"
    ]
    assert sorted(found) == ["FLOAT16", "FLOAT16", "FLOAT32"]
    assert package.error() <= 3e-3
