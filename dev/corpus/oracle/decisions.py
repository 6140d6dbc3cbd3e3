"""From a model's outputs to decisions, as the package's output steps say, and how decisions differ.

A decision set is a dict of arrays over inputs; `flips` gives for each group the share of what the
reference was sure of and the other answers differently (``docs/explanation/corpus.md``), NaN where
it was sure of nothing, and the same over all.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dev.corpus.oracle.overlap import answered_boxes, box_flips, found_boxes, probable

Said = dict[str, Any]
Set = dict[str, np.ndarray]

_SURE, _SURE_COSINE = 0.05, 0.01


def decisions(said: Said, found: list[np.ndarray], feeds: dict[str, np.ndarray], task: str) -> Set:
    """Outputs [n, ...] to the decisions of a task."""
    names = [spec["name"] for spec in said["signature"]["outputs"]]
    held = dict(zip(names, (each.astype(np.float64) for each in found), strict=True))
    for step in said["processing"]["outputs"]:
        name, kind = step.get("output", names[0]), step["step"]
        if kind == "softmax/1":
            held[name] = _softmax(held[name], step.get("axis", -1))
        elif kind == "pool/1":
            held[name] = _pooled(held[name], feeds[step["mask"]], step.get("mode", "mean"))
        elif kind == "l2_normalize/1":
            norm = np.linalg.norm(held[name], axis=-1, keepdims=True)
            held[name] = held[name] / np.maximum(norm, 1e-12)
    first = held[names[0]]
    if task == "feature-extraction":
        return {"vectors": first}
    if task == "voice-activity":
        return {"prob": np.where(probable(first).all(1, keepdims=True), first, np.nan)}
    if task == "image-segmentation":
        broken = ~np.isfinite(first).all(1)
        return {"mask": np.where(broken, -1, first.argmax(1))}
    if task == "object-detection":
        return found_boxes(first, said["processing"]["outputs"][0], said["labels"])
    labels = np.array(said["labels"])
    best = np.where(np.isfinite(first).all(1), first.argmax(1), -1)
    return {"label": np.where(best < 0, "nothing", labels[best])}


def of_answers(task: str, answers: list[Any]) -> Set:
    """What the reference itself answered, as decisions; with how sure it was of each."""
    if task == "feature-extraction":
        return {"vectors": np.array(answers, np.float64)}
    if task == "voice-activity":
        return {"prob": np.stack([a["prob"] for a in answers])}
    if task == "image-segmentation":
        return {name: np.stack([a[name] for a in answers]) for name in ("mask", "margin")}
    if task == "object-detection":
        return answered_boxes(answers)
    margins = [a["top"][0][1] - a["top"][1][1] for a in answers]
    return {"label": np.array([a["label"] for a in answers]), "margin": np.array(margins)}


def flips(task: str, reference: Set, other: Set) -> tuple[np.ndarray, np.ndarray]:
    """Harm of each independent group: the share of its decided units that differ, and of all."""
    if task == "feature-extraction":
        return _neighbours(reference["vectors"], other["vectors"])
    if task == "object-detection":
        return box_flips(reference, other)
    if task == "voice-activity":
        mine, theirs = reference["prob"], other["prob"]
        differ = ((mine >= 0.5) != (theirs >= 0.5)) | ~np.isfinite(theirs)
        return _shares(differ, np.abs(2 * mine - 1) >= _SURE)
    if task == "image-segmentation":
        return _shares(reference["mask"] != other["mask"], reference["margin"] >= _SURE)
    raw = (reference["label"] != other["label"]).astype(np.float64)
    return np.where(reference["margin"] >= _SURE, raw, np.nan), raw


def _shares(differ: np.ndarray, sure: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Units of each input [n, ...]: the share of the sure ones that differ, and of all."""
    differ, sure = differ.reshape(len(differ), -1), sure.reshape(len(sure), -1)
    count = sure.sum(1)
    harmed = (differ & sure).sum(1) / np.maximum(count, 1)
    return np.where(count > 0, harmed, np.nan), differ.mean(1)


def _neighbours(reference: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of each pair the first text asks; all other texts may answer."""
    asks = np.arange(0, len(reference), 2)
    mine, theirs = _cosines(reference, asks), _cosines(other, asks)
    ordered = np.sort(mine, axis=1)
    sure = ordered[:, -1] - ordered[:, -2] >= _SURE_COSINE
    broken = ~np.isfinite(other).all(1) | (np.linalg.norm(np.nan_to_num(other), axis=1) == 0)
    raw = (mine.argmax(1) != theirs.argmax(1)) | broken[asks]
    return np.where(sure, raw.astype(np.float64), np.nan), raw.astype(np.float64)


def _cosines(vectors: np.ndarray, asks: np.ndarray) -> np.ndarray:
    clean = np.nan_to_num(vectors, posinf=0.0, neginf=0.0)
    unit = clean / np.maximum(np.linalg.norm(clean, axis=1, keepdims=True), 1e-12)
    found: np.ndarray = unit[asks] @ unit.T
    found[np.arange(len(asks)), asks] = -2.0
    return found


def _softmax(x: np.ndarray, axis: int) -> np.ndarray:
    with np.errstate(invalid="ignore", over="ignore"):
        e = np.exp(x - x.max(axis=axis, keepdims=True))
        made: np.ndarray = e / e.sum(axis=axis, keepdims=True)
    return made


def _pooled(x: np.ndarray, mask: np.ndarray, mode: str) -> np.ndarray:
    kept = mask.astype(bool)
    found: np.ndarray
    if mode in ("cls", "last"):
        place = kept.argmax(1) if mode == "cls" else kept.shape[1] - 1 - kept[:, ::-1].argmax(1)
        return np.asarray(x[np.arange(len(x)), place])
    if mode == "max":
        found = np.where(kept[..., None], x, -np.inf).max(1)
    else:
        found = np.where(kept[..., None], x, 0.0).sum(1) / np.maximum(kept.sum(1), 1)[:, None]
    return found
