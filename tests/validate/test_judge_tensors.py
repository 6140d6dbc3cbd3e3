"""The gate on models that give tensors: names, places, scales, and outputs that prove nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnxruntime
import pytest
import torch
from onnx import helper
from testkit.judging import codes
from torch import nn

from edgeserve import backends
from edgeserve.backends.batching import BatchRunner
from edgeserve.files import describe
from edgeserve.types.artifact import Artifact
from edgeserve.types.reports import Limits
from edgeserve.types.tensors import IO
from edgeserve.validate.checks.declared_io import check_declared_io
from edgeserve.validate.checks.invariants import CheckLog, SelfConsistency


def swapped_outputs(graph: Any) -> None:
    graph.rename({"a": "b", "b": "a"})


def swapped_inputs(graph: Any) -> None:
    graph.rename({"left": "right", "right": "left"})


def test_a_good_pair_passes(pair: Any) -> None:
    report = pair.judged()
    assert (report.judgement.verdict, codes(report)) == ("pass", [])
    assert report.decisions is None
    assert report.judgement.minimum_harm is None
    assert report.preprocessing == "none: the model takes tensors"
    assert [d.output for d in report.outputs] == ["a", "b"]
    assert float(report.error) == max(
        float(d.relative) for d in (*report.outputs, *report.generated)
    )


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        (swapped_outputs, "EDGE-CHECK-010", ("'a'", "'b'")),
        (swapped_inputs, "EDGE-CHECK-011", ("'left'", "'right'")),
    ],
)
def test_tensors_that_changed_places(
    pair: Any, sabotaged: Any, change: Any, code: str, words: tuple[str, ...]
) -> None:
    report = pair.judged(sabotaged(pair, change))
    assert report.judgement.verdict == "fail"
    assert codes(report)[0] == code
    assert all(word in report.judgement.reasons[0].message for word in words)


def nudged(level: float) -> Any:
    def change(graph: Any) -> None:
        graph.put({n: a * (1 + level) for n, a in graph.weights().items() if a.ndim == 2})

    return change


@pytest.mark.parametrize("level", [1e-5, 1e-4, 3e-4, 3e-3, 0.1])
def test_fp32_tensors_are_held_to_their_own_scale(pair: Any, sabotaged: Any, level: float) -> None:
    path = sabotaged(pair, nudged(level))
    report = pair.judged(path)
    rng = np.random.default_rng(0)
    feed = {n: rng.standard_normal((4096, 5)).astype(np.float32) for n in ("left", "right")}
    program = torch.export.load(pair.source / "model.pt2").module()
    wanted = program(*(torch.from_numpy(feed[n]) for n in ("left", "right")))
    got = onnxruntime.InferenceSession(path).run(["a", "b"], feed)
    worst = max(
        float(np.abs(w.detach().numpy() - g).max() / w.abs().max())
        for w, g in zip(wanted, got, strict=True)
    )
    assert report.judgement.verdict == ("pass" if worst <= 1e-3 else "fail")
    if worst > 1e-3:
        assert codes(report) == ["EDGE-CHECK-030"]


class Scales(nn.Module):
    """One output a million times the other: a common scale would hide the small one."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.inner = nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.inner(x)
        return y * 1e6, torch.tanh(y)


def test_each_output_has_its_own_scale(build: Any, sabotaged: Any) -> None:
    made = build(Scales(), torch.randn(1, 6), output_names=("big", "small"))
    made.answers()
    assert made.judged().judgement.verdict == "pass"

    def change(graph: Any) -> None:
        graph.put({"off": np.float32([0.02])})
        graph.after("small", helper.make_node("Add", ["inner", "off"], ["small"]))

    report = made.judged(sabotaged(made, change))
    assert report.judgement.verdict == "fail"
    assert "'small'" in report.judgement.reasons[0].message
    by_name = {d.output: d for d in report.outputs}
    assert float(by_name["big"].relative) < 1e-5
    assert float(by_name["small"].max_abs) == pytest.approx(0.02, rel=1e-4)


class Tiny(nn.Module):
    """Outputs of 1e-30, as a batch-norm net at default initialisation gives them."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 1e-30


class Still(nn.Module):
    """Outputs that do not follow the input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(x) + 2.0


@pytest.mark.parametrize(("net", "code"), [(Tiny(), "EDGE-CHECK-020"), (Still(), "EDGE-CHECK-021")])
def test_outputs_that_prove_nothing(build: Any, net: nn.Module, code: str) -> None:
    made = build(net, torch.randn(1, 6))
    made.answers()
    report = made.judged()
    assert report.judgement.verdict == "unproven"
    assert codes(report)[0] == code
    assert all(check.ok for check in report.checks)
    assert any(check.name == "evidence" for check in report.checks)
    lower = made.judged(limits=Limits(scale_floor=1e-32))
    assert lower.judgement.verdict == ("pass" if code == "EDGE-CHECK-020" else "unproven")


def test_an_unused_output_may_stand_still(build: Any) -> None:
    class Anchors(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return torch.tanh(x), torch.zeros_like(x) + 5.0

    made = build(Anchors(), torch.randn(1, 6))
    made.answers()
    assert made.judged().judgement.verdict == "pass"


class Masked(nn.Module):
    """Logits masked with the largest float, which must not become the scale."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.inner = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tensor([False, True, False, False, True, False])
        return self.inner(x).masked_fill(hidden, torch.finfo(torch.float32).min)


def test_masks_do_not_hide_differences(build: Any, sabotaged: Any) -> None:
    made = build(Masked(), torch.randn(1, 6))
    made.answers()
    assert made.judged().judgement.verdict == "pass"
    report = made.judged(sabotaged(made, nudged(0.05)))
    assert report.judgement.verdict == "fail"
    assert float(report.outputs[0].scale) < 100


class Best(nn.Module):
    """An integer output: the index of the best class."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.argmax(-1)


def test_integers_are_equal_or_not(build: Any, sabotaged: Any) -> None:
    made = build(Best(), torch.randn(1, 500))
    made.answers()
    assert made.judged().judgement.verdict == "pass"

    def change(graph: Any) -> None:
        name = graph.proto.graph.output[0].name
        graph.put({"one": np.array(1)})
        graph.after(name, helper.make_node("Add", ["inner", "one"], [name]))

    assert made.judged(sabotaged(made, change)).judgement.verdict == "fail"


def test_rows_are_compared_and_the_worst_named(pair: Any, sabotaged: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    rows = {n: rng.standard_normal((40, 5)).astype(np.float32) * 0.1 for n in ("left", "right")}
    rows["left"][13] *= 30
    rows["right"][13] *= 30
    np.savez(tmp_path / "rows.npz", **rows, group=np.arange(40) // 2)
    for seed in range(9):
        answers = pair.answers(data=str(tmp_path / "rows.npz"), out="rows", seed=seed)
        if any(sample.row == 13 for sample in answers.samples):
            break
    report = pair.judged(sabotaged(pair, nudged(0.01)), out="rows")
    assert report.judgement.verdict == "fail"
    assert report.inputs == (
        f"20 inputs (10 of them independent); {len(answers.fillers)} generated"
    )
    assert report.worst[0].id == "row 13"
    assert len(report.worst) == 12
    assert report.outputs[0].worst == "row 13"


def test_quantized_tensors_are_judged_by_their_noise(pair: Any, sabotaged: Any) -> None:
    report = pair.judged(pair.onnx, precision="w8")
    assert (report.judgement.verdict, codes(report)) == ("pass", [])
    rng = np.random.default_rng(0)

    def noisy(graph: Any) -> None:
        weights = graph.weights()
        for array in weights.values():
            array += 2 * array.std() * rng.standard_normal(array.shape).astype(np.float32)
        graph.put(weights)

    report = pair.judged(sabotaged(pair, noisy), precision="w8")
    assert (report.judgement.verdict, codes(report)[0]) == ("fail", "EDGE-CHECK-063")


def test_an_optimiser_that_changes_answers(pair: Any, sabotaged: Any) -> None:
    """No optimiser at hand does so on purpose: another file stands for the unoptimised one."""
    path = sabotaged(pair, nudged(0.1))
    other = Artifact(
        format="onnx",
        precision="fp32",
        entry=path.name,
        files=(describe(path.parent, path.name),),
        io=pair.artifact.io,
    )
    onnx_ = backends.get("onnx")
    feed = {n: np.ones((1, 5), np.float32) for n in ("left", "right")}
    signature = pair.exported.signature
    for artifact, root, scales, ok in (
        (other, path.parent, {}, False),
        (other, path.parent, {"a": 1e3, "b": 1e3}, True),  # of answers to other inputs
        (pair.artifact, pair.root / "candidate", {}, True),
    ):
        findings = CheckLog()
        with onnx_.load(pair.artifact, pair.root / "candidate") as session:
            runner = BatchRunner(session, signature)
            SelfConsistency(runner, [feed], findings, 1e-3, 1e-3, scales).check_optimizer(
                lambda a=artifact, r=root: onnx_.load(a, r),
                lambda opened: BatchRunner(opened, signature),
            )
        assert findings.checks[0].ok == ok
        assert [reason.code for reason in findings.broken] == ([] if ok else ["EDGE-CHECK-008"])


def test_fewer_outputs_than_the_source(pair: Any, sabotaged: Any) -> None:
    findings = CheckLog()
    io = IO(inputs=pair.artifact.io.inputs, outputs=pair.artifact.io.outputs[:1])
    less = msgspec.structs.replace(pair.artifact, io=io)
    assert not check_declared_io(less, pair.exported.signature, findings)
    assert findings.broken[0].code == "EDGE-CHECK-004"
    assert "1 outputs instead of 2" in findings.broken[0].message


class Fixed(nn.Module):
    """A batch written into the program."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x.reshape(3, 4)).reshape(3, 2, 2)


def test_a_fixed_batch_is_said(build: Any) -> None:
    made = build(Fixed(), torch.randn(3, 4))
    made.answers()
    report = made.judged()
    assert report.judgement.verdict == "pass"
    (check,) = [c for c in report.checks if c.name == "batch"]
    assert check.detail == "static: the batch is fixed"
