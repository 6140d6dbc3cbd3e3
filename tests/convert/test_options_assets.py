"""Assets of a factory: files by name and path, whose hashes enter the processing."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from tokenizers import models, pre_tokenizers

from edgeserve.convert import ExportRequest, parse_source
from edgeserve.convert.source import export_source
from edgeserve.errors import ConvertError
from edgeserve.files import describe
from edgeserve.processing import Processor
from edgeserve.types.source import Exported

Write = Callable[[str, str], None]
Export = Callable[[str], Exported]

FACTORY = """
    from pathlib import Path
    import torch

    class Bag(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Embedding(4, 3)

        def forward(self, ids, mask):
            return {{"tokens": self.table(ids) * mask.unsqueeze(-1)}}

    def factory():
        ids = torch.tensor([[1, 2]])
        row = lambda name, part: {{"name": name, "steps": [{{
            "step": "tokenize/1", "tokenizer": "assets/words.json", "part": part,
            "max_length": 9}}]}}
        sizes = {{0: ("batch", 1, 4), 1: ("tokens", 1, 9)}}
        return Bag(), {{"ids": ids, "mask": torch.ones_like(ids)}}, {{
            "dynamic_shapes": {{"ids": sizes, "mask": sizes}},
            "task": "feature-extraction",
            "assets": {assets},
            "processing": {{
                "inputs": [row("ids", "ids"), row("mask", "attention_mask")],
                "outputs": [{{"step": "pool/1", "output": "tokens", "mask": "mask"}}],
            }},
        }}
    """

GOOD = '{"assets/words.json": Path(__file__).parent / "words.json"}'


@pytest.fixture
def words(user: Path) -> Path:
    """A tokenizer in the user's folder."""
    vocabulary = {"[UNK]": 0, "cat": 1, "dog": 2, "fox": 3}
    made = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.save(str(user / "words.json"))
    return user / "words.json"


def test_a_factory_brings_its_tokenizer(
    write: Write, export: Export, words: Path, tmp_path: Path
) -> None:
    write("bag", FACTORY.format(assets=GOOD))
    exported = export("bag:factory")
    out = tmp_path / "out"
    assert (out / "assets/words.json").read_bytes() == words.read_bytes()
    assert exported.assets == (describe(out, "assets/words.json"),) == exported.processing.assets
    processor = Processor(
        exported.processing,
        exported.signature,
        exported.task,
        (),
        lambda name: (out / name).read_bytes(),
    )
    assert processor.prepare("dog cat dog")["ids"].tolist() == [2, 1, 2]


def test_a_workspace_keeps_them(
    write: Write, export: Export, words: Path, user: Path, tmp_path: Path
) -> None:
    write("bag", FACTORY.format(assets=GOOD))
    exported = export("bag:factory")
    shutil.copytree(tmp_path / "out", user / "ws" / "source")
    out = tmp_path / "again"
    request = ExportRequest(source=parse_source("ws", user), out=str(out))
    assert export_source(request) == exported
    assert (out / "assets/words.json").read_bytes() == words.read_bytes()
    (user / "ws" / "source" / "assets" / "words.json").write_text("{}")
    with pytest.raises(ConvertError) as error:
        export_source(request)
    assert error.value.code == "EDGE-CONVERT-024"


def test_the_same_weights_with_another_tokenizer_are_another_model(
    write: Write, export: Export, words: Path
) -> None:
    from edgeserve.bundle.rules import identity_bytes

    write("bag", FACTORY.format(assets=GOOD))
    first = export("bag:factory")
    words.write_text(words.read_text().replace('"fox"', '"cow"'))
    again = export("bag:factory")
    assert first.weights == again.weights
    assert identity_bytes(first) != identity_bytes(again)


@pytest.mark.parametrize(
    ("assets", "said"),
    [
        ('{"assets/words.json": "gone.json"}', "gone.json"),
        ('{"words.json": b"{}"}', "assets/"),
        ('{"assets/../x": b"{}"}', "'assets/../x'"),
        ('{"assets/other.json": b"{}"}', "no asset 'assets/words.json'"),
        ('{"assets/words.json": b"{}", "assets/more.json": b""}', "['assets/more.json']"),
        ('{"assets/words.json": 7}', "int"),
        ('["assets/words.json"]', "list"),
    ],
)
def test_assets_that_cannot_be_used_are_refused(
    write: Write, export: Export, assets: str, said: str
) -> None:
    write("bag", FACTORY.format(assets=assets))
    with pytest.raises(ConvertError) as error:
        export("bag:factory")
    assert error.value.code == "EDGE-CONVERT-010"
    assert said in error.value.message


def test_an_asset_that_is_no_tokenizer_is_refused(write: Write, export: Export) -> None:
    from edgeserve.errors import ProcessingError

    write("bag", FACTORY.format(assets='{"assets/words.json": b"{}"}'))
    with pytest.raises(ProcessingError) as error:
        export("bag:factory")
    assert error.value.code == "EDGE-PROCESS-022"


def test_bytes_are_written_as_they_are(tmp_path: Path) -> None:
    from edgeserve.convert.options import write_assets

    data: dict[str, Any] = {f"assets/{n}": np.arange(n, dtype=np.uint8).tobytes() for n in (3, 1)}
    entries = write_assets(data, tmp_path)
    assert [entry.path for entry in entries] == ["assets/1", "assets/3"]
    assert (tmp_path / "assets/3").read_bytes() == b"\x00\x01\x02"
