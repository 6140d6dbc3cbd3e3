"""The examples of docs/guide/sources.md work."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import torch

from edgeserve.backends.torch.export.dynamic_shapes import parse_dynamic_shapes
from edgeserve.backends.torch.export.pytree import Leaf
from edgeserve.convert.options import OPTION_KEYS
from edgeserve.types.source import Exported

PAGE = (Path(__file__).parents[2] / "docs" / "guide" / "sources.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_factory_on_the_page_is_exported(
    write: Callable[[str, str], None], export: Callable[[str], Exported]
) -> None:
    write("colours", BLOCKS[0])
    exported = export("colours:factory")
    assert exported.signature.inputs[0].shape == ("batch", 3, 32, 32)
    assert exported.signature.dims == {"batch": (1, 8)}
    assert exported.task == "image-classification"
    assert exported.labels == ("red", "green", "blue", "grey")
    assert len(exported.processing.inputs[0].steps) == 5


def test_every_way_to_write_dynamic_shapes_is_read() -> None:
    lines = [line.split("#")[0] for line in BLOCKS[1].splitlines() if line.strip()]
    assert len(lines) == 4
    names = ["image", "ids", "mask"]
    leaves = [Leaf((name,), torch.zeros(2, 3)) for name in names]
    for line in lines:
        shapes = eval(line, {"torch": torch})
        found = parse_dynamic_shapes(shapes, leaves, names)
        assert [bool(axes) for axes in found] == [name in shapes for name in names]
        assert all(isinstance(dim, torch.export.Dim) for axes in found for dim in axes.values())


def test_the_text_factory_on_the_page_is_exported(
    write: Callable[[str, str], None], export: Callable[[str], Exported], user: Path
) -> None:
    import tokenizers

    (text,) = [block for block in BLOCKS if "tokenize/1" in block]
    words = tokenizers.models.WordLevel({"[UNK]": 0, "cat": 1}, unk_token="[UNK]")
    tokenizers.Tokenizer(words).save(str(user / "tokenizer.json"))
    write(
        "encoder_of_mine",
        """
        import torch
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.table = torch.nn.Embedding(3000, 4)
            def forward(self, input_ids, attention_mask):
                return self.table(input_ids) * attention_mask.unsqueeze(-1)
        load = Net
        """,
    )
    write("texts", text.replace("my_models.encoder", "encoder_of_mine"))
    exported = export("texts:encoder")
    assert exported.signature.dims == {"batch": (1, 64), "sequence": (2, 128)}
    assert [entry.path for entry in exported.assets] == ["assets/tokenizer.json"]
    assert len(exported.processing.outputs) == 2


def test_every_option_is_on_the_page() -> None:
    table = PAGE.split("## Options")[1].split("### ")[0]
    assert set(re.findall(r"`(\w+)`", table)) >= set(OPTION_KEYS)
