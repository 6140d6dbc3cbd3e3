"""Weights that are damaged, random or elsewhere: nothing is loaded but what the folder holds."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from edgeserve.convert import parse_source
from edgeserve.convert.huggingface import load_folder
from edgeserve.errors import ConvertError

Change = Callable[[Path, dict[str, Any]], None]


def refused(folder: Path, task: Any = None) -> ConvertError:
    with pytest.raises(ConvertError) as error:
        load_folder(folder, task)
    assert "\n" not in error.value.message + error.value.hint
    return error.value


# weights


def shorter(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def longer_header(path: Path) -> None:
    path.write_bytes(struct.pack("<Q", 1 << 62) + path.read_bytes()[8:])


def wrong_place(path: Path) -> None:
    size = struct.unpack("<Q", path.read_bytes()[:8])[0]
    header = json.loads(path.read_bytes()[8 : 8 + size])
    name = next(key for key in header if key != "__metadata__")
    header[name]["data_offsets"][1] += 4
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + path.read_bytes()[8 + size :])


@pytest.mark.parametrize(
    "damage", [shorter, longer_header, wrong_place, lambda p: p.write_bytes(b""), Path.unlink]
)
def test_damaged_weights_are_refused(bert: Path, damage: Callable[[Path], None]) -> None:
    damage(bert / "model.safetensors")
    error = refused(bert)
    assert error.code == "EDGE-CONVERT-064"
    assert "again" in error.hint


def changed_weights(folder: Path, changes: dict[str, torch.Tensor | None]) -> None:
    from safetensors.torch import load_file, save_file

    held = load_file(folder / "model.safetensors") | changes
    kept = {name: tensor for name, tensor in held.items() if tensor is not None}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"encoder.layer.1.output.dense.weight": None}, "1 missing (encoder.layer.1.output.dense"),
        ({"embeddings.word_embeddings.weight": torch.zeros(7, 16)}, "1 of another shape"),
    ],
)
def test_weights_that_would_be_drawn_at_random_are_refused(
    bert: Path, changes: dict[str, torch.Tensor | None], said: str
) -> None:
    changed_weights(bert, changes)
    error = refused(bert)
    assert error.code == "EDGE-CONVERT-066"
    assert said in error.message


def test_a_head_that_was_never_trained_is_refused(bert: Path, change: Change) -> None:
    """By itself transformers loads it with a warning, and answers at random."""
    change(bert / "config.json", {"architectures": ["BertForSequenceClassification"]})
    error = refused(bert)
    assert error.code == "EDGE-CONVERT-066"
    assert "classifier.bias" in error.message
    assert "feature-extraction" in error.hint
    load_folder(bert, "feature-extraction")


def test_spare_weights_are_noted(bert: Path) -> None:
    changed_weights(bert, {"cls.extra": torch.zeros(2)})
    assert "cls.extra" in " ".join(load_folder(bert).notes)


def test_half_precision_is_noted_and_becomes_float32(bert: Path) -> None:
    network = transformers.BertModel.from_pretrained(bert)
    network.to(torch.bfloat16).save_pretrained(bert)
    made = load_folder(bert)
    assert {p.dtype for p in made.module.parameters()} == {torch.float32}
    assert "weights in bfloat16: exported in float32" in made.notes


# shards and links


@pytest.fixture
def shards(bert: Path) -> Path:
    network = transformers.BertModel.from_pretrained(bert)
    (bert / "model.safetensors").unlink()
    network.save_pretrained(bert, max_shard_size="10KB")
    assert len(list(bert.glob("model-*.safetensors"))) > 2
    return bert


def same_weights(folder: Path, other: Path) -> bool:
    ours = load_folder(folder).module.state_dict()
    theirs = transformers.BertModel.from_pretrained(other).state_dict()
    return all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items())


def test_shards_are_read(shards: Path, saved_bert: Path) -> None:
    assert same_weights(shards, saved_bert)


@pytest.mark.parametrize("name", ["../stolen.safetensors", "/etc/passwd", "a\\..\\b", "", 7])
def test_an_index_that_leads_out_is_refused(shards: Path, change: Change, name: object) -> None:
    shutil.copyfile(next(shards.glob("model-*.safetensors")), shards.parent / "stolen.safetensors")
    path = shards / "model.safetensors.index.json"
    placed = json.loads(path.read_text())["weight_map"]
    change(path, {"weight_map": placed | {"pooler.dense.bias": name}})
    error = refused(shards)
    assert error.code == ("EDGE-CONVERT-064" if name == 7 else "EDGE-CONVERT-065")


def test_an_index_of_missing_or_moved_tensors_is_refused(shards: Path, change: Change) -> None:
    path = shards / "model.safetensors.index.json"
    placed = json.loads(path.read_text())["weight_map"]
    change(path, {"weight_map": placed | {"made.up": sorted(placed.values())[0]}})
    error = refused(shards)
    assert (error.code, "made.up" in error.message) == ("EDGE-CONVERT-064", True)
    next(shards.glob("model-*.safetensors")).unlink()
    assert refused(shards).code == "EDGE-CONVERT-064"
    path.write_text("{}")
    assert refused(shards).code == "EDGE-CONVERT-064"


def test_the_cache_of_the_hub_links_to_its_blobs(shards: Path, saved_bert: Path) -> None:
    """As huggingface_hub lays a model out: snapshots/REVISION/name -> ../../blobs/HASH."""
    entry = shards.parent / "models--a--bert"
    snapshot = entry / "snapshots" / "0f1e"
    (entry / "blobs").mkdir(parents=True)
    snapshot.mkdir(parents=True)
    for number, path in enumerate(sorted(shards.iterdir())):
        path.rename(entry / "blobs" / f"{number:040x}")
        (snapshot / path.name).symlink_to(f"../../blobs/{number:040x}")
    assert same_weights(snapshot, saved_bert)
    with pytest.raises(ConvertError) as error:
        parse_source(str(entry), shards.parent)
    assert error.value.hint.endswith("models--a--bert/snapshots/0f1e")


@pytest.mark.parametrize("name", ["tokenizer.json", "extra/notes.txt", "model.safetensors"])
def test_links_that_lead_out_are_refused(bert: Path, name: str) -> None:
    """A tokenizer's file would lie in every package."""
    secret = bert.parent / "secret"
    secret.write_text("{}")
    (bert / name).parent.mkdir(exist_ok=True)
    (bert / name).unlink(missing_ok=True)
    (bert / name).symlink_to(secret)
    error = refused(bert)
    assert error.code == "EDGE-CONVERT-065"
    assert name in error.message


def test_links_inside_the_folder_are_followed(bert: Path) -> None:
    (bert / "model.safetensors").rename(bert / "real")
    (bert / "model.safetensors").symlink_to("real")
    load_folder(bert)
