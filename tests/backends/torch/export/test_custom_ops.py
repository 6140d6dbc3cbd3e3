"""Operators of libraries: replaced by their bodies, or refused by name; experts of transformers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from testkit.nets import Calling
from torch import Tensor

from edgeserve.backends.torch.export.export import ExportOptions, export_module
from edgeserve.errors import UnsupportedOp

HERE = Path(__file__)
X = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))


@torch.library.custom_op("held::traceable", mutates_args=())
def traceable(x: Tensor) -> Tensor:
    return torch.relu(x) * 2


@torch.library.custom_op("held::opaque", mutates_args=())
def opaque(x: Tensor) -> Tensor:
    return torch.from_numpy(x.numpy() * 2)


@traceable.register_fake
@opaque.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


LIBRARY = torch.library.Library("held_library", "DEF")
LIBRARY.define("composite(Tensor x) -> Tensor")
LIBRARY.impl("composite", lambda x: torch.relu(x) * 2, "CompositeImplicitAutograd")
LIBRARY.define("kernel(Tensor x) -> Tensor")
LIBRARY.impl("kernel", lambda x: x * 3, "CPU")
torch.library.register_fake("held_library::kernel", lambda x: torch.empty_like(x))


@pytest.mark.parametrize("operator", ["held.traceable", "held_library.composite"])
def test_an_operator_with_a_body_is_that_body(operator: str) -> None:
    library, name = operator.split(".")
    call = getattr(getattr(torch.ops, library), name)
    made = export_module(Calling(lambda x: call(x) + 1), (X,), ExportOptions(), HERE.parent)
    targets = {str(node.target) for node in made.program.graph.nodes}
    assert not [target for target in targets if target.startswith("held")]
    torch.testing.assert_close(made.program.module()(X)[0], torch.relu(X) * 2 + 1)


@pytest.mark.parametrize("operator", ["held.opaque", "held_library.kernel"])
def test_an_operator_without_one_is_named_with_its_line(operator: str) -> None:
    library, name = operator.split(".")
    call = getattr(getattr(torch.ops, library), name)
    module = Calling(lambda x: call(x) + 1)  # the call
    with pytest.raises(UnsupportedOp) as error:
        export_module(module, (X,), ExportOptions(), HERE.parent)
    assert error.value.code == "EDGE-OP-040"
    assert error.value.thing == f"op {operator}.default"
    lines = HERE.read_text("utf-8").splitlines()
    line = next(i for i, text in enumerate(lines, 1) if text.endswith("  # the call"))
    assert error.value.source_line == f"{HERE.name}:{line}"


def test_experts_of_transformers_are_exported_as_they_come() -> None:
    """In its default form such a model loops over numbers that it reads from a tensor."""
    from transformers import MixtralConfig, MixtralForCausalLM

    sizes = {"hidden_size": 16, "intermediate_size": 24, "vocab_size": 40}
    layers = {"num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2}
    torch.manual_seed(0)
    model = MixtralForCausalLM(MixtralConfig(**sizes, **layers, num_local_experts=4)).eval()
    ids = torch.randint(0, 40, (1, 6))
    right = model(input_ids=ids, use_cache=False).logits
    calling = Calling(lambda ids: model(input_ids=ids, use_cache=False).logits)
    calling.model = model
    made = export_module(calling, (ids,), ExportOptions(), HERE.parent)
    targets = {str(node.target) for node in made.program.graph.nodes}
    assert not [target for target in targets if target.startswith("transformers")]
    torch.testing.assert_close(made.program.module()(ids)[0], right, rtol=1e-4, atol=1e-5)
