"""Damage in networks and in descriptions: it changes something, and less of it changes less."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dev.corpus.damage import network, processing
from dev.corpus.damage.files import EDITS
from dev.corpus.kinds import KINDS
from dev.corpus.nets import Net
from dev.corpus.tasks import NAMES, task
from edgeserve.types.processing import Processing


def test_every_kind_can_be_done_and_says_what_it_does() -> None:
    for kind in KINDS.values():
        if kind.place == "file":
            assert EDITS[kind.name].__doc__
        if kind.place == "network":
            assert network.CHANGES[kind.name].__doc__
        if kind.place == "processing":
            assert processing.REPACKAGINGS[kind.name].__doc__
        assert set(kind.tasks) <= set(NAMES)


@pytest.fixture
def untrained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks as they are born: what damage does to them shows as well, and takes no training."""

    def born(of: Any, seed: int, width: int, epochs: int | None = None) -> torch.nn.Module:
        torch.manual_seed(seed + 10 * (epochs or 0) + (epochs is None))
        module = of.build(width).train()
        for _ in range(3):  # so that batch norms have seen something
            module(*of.example())
        found: torch.nn.Module = module.eval()
        return found

    monkeypatch.setattr(network, "trained", born)


@pytest.mark.parametrize("kind", sorted(network.SWEEPS))
@pytest.mark.usefixtures("untrained")
def test_a_changed_network_answers_otherwise(kind: str) -> None:
    name = network.FITS[kind][0]
    width = {"topics": 16, "pairs": 16}.get(name, 8)
    net = Net(name, 0, width)
    example = [torch.cat([each] * 2) for each in task(name).example()]
    with torch.inference_mode():
        right = network.trained(net.of, 0, width)(*example)
        wrong = [network.change(kind, net, i)(*example) for i in range(len(network.SWEEPS[kind]))]
    off = [float((each - right).abs().max()) for each in wrong]
    assert all(each.shape == right.shape for each in wrong)
    if kind in ("half-overflow", "mask-extreme"):  # equal in float32: that is the point
        assert max(off) < 1e-3
    else:
        assert off[0] > 1e-3
        if network.SWEEPS[kind][-1] < 0.2:  # a share, not a number of pixels or epochs
            assert off[-1] <= off[0]


@pytest.mark.parametrize("kind", sorted(processing.SWEEPS))
def test_a_changed_description_is_one_that_edgeserve_reads(kind: str, tmp_path: Path) -> None:
    from edgeserve.types.base import decode, encode

    options = task(processing.FITS[kind][0]).options()
    said: dict[str, Any] = {"processing": options["processing"], "labels": options.get("labels")}
    for value in processing.SWEEPS[kind]:
        held = json.loads(json.dumps(said))
        processing.REPACKAGINGS[kind](held, value, tmp_path)
        assert held != json.loads(json.dumps(said))
        for each in held["processing"][
            "inputs"
        ]:  # a factory names the file, a package describes it
            for step in each["steps"]:
                if isinstance(step.get("tokenizer"), str):
                    step["tokenizer"] = {"path": step["tokenizer"], "size": 1, "sha256": "0" * 64}
        read = decode(json.dumps(held["processing"]).encode(), Processing)
        assert decode(encode(read), Processing) == read


def test_normalising_twice_is_what_it_says() -> None:
    level = np.arange(256)
    options = task("digits").options()
    said = json.loads(json.dumps({"processing": options["processing"]}))
    once = processing._step(json.loads(json.dumps(said)), "normalize/1")
    processing.REPACKAGINGS["normalized-twice"](said, 1.0, Path())
    twice = processing._step(said, "normalize/1")
    for s, b, s2, b2 in zip(
        once["scale"], once["bias"], twice["scale"], twice["bias"], strict=True
    ):
        first = level * s + b  # (level / 255 - mean) / std
        np.testing.assert_allclose(level * s2 + b2, first * (s * 255) + b)
