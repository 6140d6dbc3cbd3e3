"""What a task is: a network trained in seconds, its inputs, and the server that answers them."""

from __future__ import annotations

import functools
import io
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dev.corpus.paths import OUT, write_atomic

#: One raw input: an encoded picture, a text, or named arrays.
Raw = bytes | str | dict[str, np.ndarray]

#: Groups in ``--data``: the half that is judged on has half of them. Fewer for tests: CORPUS_DATA.
DATA = int(os.environ.get("CORPUS_DATA", "2000"))
#: Independent inputs of the oracle; never seen by training, calibration or gate.
ORACLE = 1200
#: Share of the training inputs that is used; less for tests: CORPUS_TRAIN.
_TRAIN = float(os.environ.get("CORPUS_TRAIN", "1"))
TRAIN_SEED, DATA_SEED, ORACLE_SEED = 1, 2, 3


@dataclass(frozen=True)
class Task:
    """One task.

    Attributes:
        name: Its module's name.
        kind: The task's name in edgeserve.
        medium: "image", "text" or "tensors".
        build: A network of a width, untrained.
        loss: What training brings down, of a network and training inputs [n].
        tensors: Training inputs and truths, by seed and number: arrays with the same first axis.
        example: What forward takes, batch of two.
        options: What the factory declares.
        inputs: Raw inputs with their group and label, by seed and number of groups.
        answer: The server: a network's decision on one raw input, by code of its own.
        epochs: Passes over the training inputs.
        examples: How many training inputs.
    """

    name: str
    kind: str
    medium: str
    build: Callable[[int], torch.nn.Module]
    loss: Callable[..., torch.Tensor]
    tensors: Callable[[int, int], tuple[torch.Tensor, ...]]
    example: Callable[[], tuple[torch.Tensor, ...]]
    options: Callable[[], dict[str, Any]]
    inputs: Callable[[int, int], list[tuple[Raw, int, str | None]]]
    answer: Callable[[torch.nn.Module, Raw], Any]
    epochs: int = 6
    examples: int = 5000


@functools.cache
def _training(task: Task) -> tuple[torch.Tensor, ...]:
    """Training tensors, kept on disk: drawing them takes longer than training."""
    path = OUT / "training" / f"{task.name}.npz"
    if not path.is_file():
        made = task.tensors(TRAIN_SEED, round(_TRAIN * task.examples))
        held = io.BytesIO()
        np.savez(held, *(each.numpy() for each in made))
        write_atomic(path, held.getvalue())
    with np.load(path) as stored:
        return tuple(torch.from_numpy(stored[name]) for name in stored.files)


def fit(task: Task, seed: int, width: int, epochs: int) -> torch.nn.Module:
    """Train a network; the same numbers give the same weights on one machine."""
    tensors = _training(task)
    torch.manual_seed(seed)
    module = task.build(width).train()
    steps = max(1, len(tensors[0]) // 64) * epochs
    optimizer = torch.optim.AdamW(module.parameters(), lr=4e-3, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 8e-3, total_steps=steps + 1)
    for _ in range(epochs):
        for rows in torch.split(torch.randperm(len(tensors[0])), 64):
            if len(rows) == 64:
                optimizer.zero_grad()
                task.loss(module, *(each[rows] for each in tensors)).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                schedule.step()
    return module.eval()


@functools.cache
def trained(task: Task, seed: int, width: int, epochs: int | None = None) -> torch.nn.Module:
    """A trained network in eval mode, its weights cached under ``corpus-out/weights``.

    Args:
        task: Which.
        seed: Of initialisation and order.
        width: Of the layers.
        epochs: Fewer than the task's own: what an older checkpoint would hold.
    """
    count = task.epochs if epochs is None else epochs
    path = OUT / "weights" / f"{task.name}-s{seed}-w{width}-e{count}.pt"
    if not path.is_file():
        held = io.BytesIO()
        torch.save(fit(task, seed, width, count).state_dict(), held)
        write_atomic(path, held.getvalue())
    module = task.build(width)
    module.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    return module.eval()


def write_data(task: Task, groups: int = DATA) -> Path:
    """What ``--data`` names: ``data.jsonl`` beside its files, or one ``.npz``; made once."""
    folder = OUT / "data" / f"{task.name}-{groups}"
    path = folder / ("data.npz" if task.medium == "tensors" else "data.jsonl")
    if not path.is_file():
        made = task.inputs(DATA_SEED, groups)
        if task.medium == "tensors":
            write_atomic(path, _packed(made))
        else:
            write_atomic(path, "".join(_lines(made, folder)).encode())
    return path


def _packed(made: Sequence[tuple[Raw, int, str | None]]) -> bytes:
    held = io.BytesIO()
    first = made[0][0]
    assert isinstance(first, dict)
    raws: list[Any] = [raw for raw, _, _ in made]
    arrays: dict[str, Any] = {name: np.stack([raw[name] for raw in raws]) for name in first}
    np.savez(held, group=np.array([group for _, group, _ in made]), **arrays)
    return held.getvalue()


def _lines(made: Sequence[tuple[Raw, int, str | None]], folder: Path) -> list[str]:
    lines = []
    for i, (raw, group, label) in enumerate(made):
        given = raw
        if isinstance(raw, bytes):
            given = (
                write_atomic(folder / "files" / f"{i:05}.png", raw).relative_to(folder).as_posix()
            )
        line = {"input": given, "group": str(group), "label": label}
        lines.append(json.dumps({k: v for k, v in line.items() if v is not None}) + "\n")
    return lines
