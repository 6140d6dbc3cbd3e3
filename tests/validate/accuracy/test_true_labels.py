"""True labels in the data reach the report: reference and artifact, counted by hand here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from edgeserve.types.reports import Report


def labelled(folder: Path, photos: Path, labels: tuple[str, ...]) -> Path:
    """The photos with the classes that they were drawn for; one in three unknown to the model."""
    lines = []
    for i in range(60):
        label = "no such class" if i % 3 == 0 else labels[i % 6]
        line = {"input": str(photos / f"card-{i}.png"), "label": label}
        lines.append(json.dumps(line))
    path = folder / "data.jsonl"
    path.write_text("\n".join(lines))
    return path


def test_who_is_right_is_counted(classifier: Any, photos: Path, tmp_path: Path) -> None:
    labels = classifier.exported.labels
    data = labelled(tmp_path, photos, labels)
    answers = classifier.answers(data=str(data), out="labelled", seed=3)
    report: Report = classifier.judged(out="labelled")
    known = [
        (sample.label, answer.record.label)
        for sample, answer in zip(answers.samples, answers.answers, strict=True)
        if sample.label in labels
    ]
    assert report.labels is not None
    assert report.labels.inputs == len(known) > 10
    right = np.mean([label == said for label, said in known])
    assert float(report.labels.reference) == right
    assert float(report.labels.artifact) == right, "an fp32 file decides as its reference does"
    assert (report.labels.lost, report.labels.won) == (0, 0)


def test_without_labels_nothing_is_said(classifier: Any) -> None:
    assert classifier.judged().labels is None
