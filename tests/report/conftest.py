"""Workspaces as the stages leave them, built through the value types."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from PIL import Image

from edgeserve.bundle.manifest import write_manifest
from edgeserve.files import describe, sha256_bytes
from edgeserve.measure.stats import spread
from edgeserve.report.html import render_report
from edgeserve.report.request import ReportRequest
from edgeserve.types.artifact import Artifact, Judgement, Provenance, Reason, Refused
from edgeserve.types.base import Number, encode, number, plain
from edgeserve.types.manifest import Manifest
from edgeserve.types.processing import Processing
from edgeserve.types.records import Runtime
from edgeserve.types.reports import (
    Check,
    DecisionStats,
    Environment,
    Limits,
    Measurement,
    OutputDiff,
    Rate,
    Report,
    Timing,
    WorstInput,
)
from edgeserve.types.tensors import IO, Signature, TensorSpec
from edgeserve.types.vocabulary import Format, Precision, Verdict

RUNTIME = Runtime(name="onnxruntime", version="1.32.0", delegate="cpu")
ENVIRONMENT = Environment(
    machine="x86_64",
    processor="Intel(R) Xeon(R) Processor",
    cores=2,
    system="Linux 6.1.0 (Debian GNU/Linux 12)",
    python="CPython 3.11.7",
    packages={"numpy": "2.4.6", "onnxruntime": "1.32.0", "edgeserve": "0.1.0"},
    features=("avx2", "avx512f", "avx512_vnni"),
)
SIGNATURE = Signature(
    inputs=(TensorSpec("image", "float32", ("batch", 3, 224, 224)),),
    outputs=(TensorSpec("logits", "float32", ("batch", 1000)),),
    dims={"batch": (1, 8)},
)
IO_ = IO(inputs=SIGNATURE.inputs, outputs=SIGNATURE.outputs)


def rate(count: int, n: int, n_eff: float) -> Rate:
    """Plausible bounds: the exact zero-event bound, else a normal interval."""
    share = count / n if n else 0.0
    half = 1.96 * float(np.sqrt(max(share * (1 - share), 1e-6) / n_eff))
    upper = 1 - 0.05 ** (1 / n_eff) if count == 0 else min(1.0, share + half)
    return Rate(
        count=count,
        n=n,
        rate=share,
        lower=max(0.0, share - half) if count else 0.0,
        upper=upper,
        n_eff=n_eff,
    )


def decisions(flips: int, n: int = 412, groups: int = 330, **more: Any) -> DecisionStats:
    decided = n - 24
    return DecisionStats(
        task="image-classification",
        inputs=n,
        groups=groups,
        raw=rate(flips + (flips > 0), n, groups),
        decided=rate(flips, decided, 0.94 * groups),
        top5=rate(flips, n, groups),
        minimum_harm=1 - 0.05 ** (1 / (0.94 * groups)),
        **more,
    )


def outputs(relative: Number, name: str = "logits") -> tuple[OutputDiff, ...]:
    largest = number(12.5 * plain(relative))
    return (
        OutputDiff(
            output=name,
            scale=12.5,
            max_abs=largest,
            mean_abs=relative,
            relative=relative,
            worst="cat-07.png",
        ),
    )


CHECKS = (
    Check("loads", True, "onnxruntime 1.32.0 on cpu"),
    Check("runs", True, "batch 1, 2 and 8"),
    Check("finite", True, "no NaN or infinity in 8 fillers and 412 inputs"),
    Check("not-constant", True, "outputs vary over the inputs"),
    Check("batch", True, "batch 8 answers as 8 times batch 1", 2.1e-6, 1e-3),
    Check("optimizer", True, "on and off agree", 1.4e-6, 1e-3),
    Check("repeatable", True, "two runs give the same bits", 0.0, 0.0),
)


class Desk:
    """Builds a workspace step by step; `write` puts the manifest last."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "reports").mkdir(parents=True)
        (root / "identity.json").write_bytes(b"{}")
        self.artifacts: list[Artifact] = []
        self.refused: list[Refused] = []
        self.more: dict[str, Any] = {}

    def artifact(
        self,
        verdict: Verdict = "pass",
        format: Format = "onnx",
        precision: Precision = "fp32",
        size: int = 18 << 20,
        reasons: tuple[Reason, ...] = (),
    ) -> Artifact:
        name = f"artifacts/{format}-{precision}/model.onnx"
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(f"{format} {precision}".encode())
        entry = msgspec.structs.replace(describe(self.root, name), size=size)
        made = Artifact(
            format=format,
            precision=precision,
            entry=name,
            files=(entry,),
            io=IO_,
            provenance=Provenance(route="dynamo", tools={"torch": "2.13.0", "onnx": "1.23.2"}),
            judgement=Judgement(
                verdict=verdict,
                reasons=reasons,
                minimum_harm=0.0096,
                executed_by="onnxruntime 1.32.0 (cpu)",
            ),
        )
        self.artifacts.append(made)
        return made

    @staticmethod
    def ran_by(one: Artifact, engine: str) -> Artifact:
        """The artifact, its proof made by an engine; an 8-bit one with its weights counted."""
        assert one.judgement is not None
        absent = any(r.code == "EDGE-CHECK-002" for r in one.judgement.reasons)
        judgement = msgspec.structs.replace(one.judgement, executed_by="" if absent else engine)
        weights = {"int8": 970, "float32": 30} if one.precision in ("w8", "w8a8") else {}
        made = msgspec.structs.replace(one.provenance, weights=weights)
        return msgspec.structs.replace(one, judgement=judgement, provenance=made)

    def refuse(self, precision: Precision = "w8", **fields: Any) -> Refused:
        made = Refused(
            **{
                "format": "onnx",
                "verdict": "fail",
                "code": "EDGE-CHECK-004",
                "message": "output 'logits' is the same for every input",
                "hint": "keep the last layer in float",
                "path": f"failed/onnx-{precision}",
            }
            | fields,
            precision=precision,
        )
        self.refused.append(made)
        return made

    def report(self, one: Artifact | Refused, **fields: Any) -> Report:
        verdict = one.verdict or "unproven"
        reasons = one.judgement.reasons if isinstance(one, Artifact) and one.judgement else ()
        made = Report(
            **{
                "artifact_sha256": one.sha256 if isinstance(one, Artifact) else "0" * 64,
                "format": one.format,
                "precision": one.precision,
                "runtime": RUNTIME,
                "reference": "pt2",
                "preprocessing": "declared, not compared",
                "inputs": "412 crops of 23 photos; 8 fillers",
                "limits": Limits(),
                "checks": CHECKS,
                "outputs": outputs(3.1e-6),
                "decisions": decisions(0),
                "worst": (),
                "judgement": Judgement(verdict=verdict, reasons=reasons),
                "environment": ENVIRONMENT,
                "seconds": 31.4,
            }
            | fields
        )
        self.put(f"{one.format}-{one.precision}.validate.json", made)
        return made

    def measure(
        self, one: Artifact, centre: float = 9.5, wait: float = 0.02, **fields: Any
    ) -> Measurement:
        rng = np.random.default_rng(len(one.name))
        cpu = centre * rng.lognormal(0.0, 0.012, 240)
        wall = cpu * (1 + wait * rng.exponential(1.0, 240))
        run = Timing(wall=spread(list(wall)), cpu=spread(list(cpu)))
        steps = {
            "decode": 7.2,
            "resize": 6.7,
            "normalize+layout": 0.1,
            "batch": 0.05,
            "run": centre,
            "finish": 0.06,
        }
        split = {
            name: _timing(ms, rng) for name, ms in (steps | {"total": sum(steps.values())}).items()
        }
        made = Measurement(
            **{
                "artifact_sha256": one.sha256,
                "format": one.format,
                "precision": one.precision,
                "target": "host",
                "runtime": RUNTIME,
                "threads": 1,
                "batch": 1,
                "load_ms": 84.0,
                "first_ms": 14.2,
                "warmup": 10,
                "run": run,
                "split": split,
                "rss_mb": 142.0,
                "rss_before_mb": 91.0,
                "size_bytes": one.size,
                "noisy": None,
                "environment": ENVIRONMENT,
                "wall_ms": tuple(float(v) for v in wall),
                "cpu_ms": tuple(float(v) for v in cpu),
                "input": "cat.jpg",
                "notes": ("load average before the runs: 0.21",),
                "seconds": 8.3,
            }
            | fields
        )
        self.put(f"{one.name}.measure.json", made)
        return made

    def picture(self, name: str, mode: str = "RGB", size: tuple[int, int] = (320, 240)) -> str:
        """A picture with something to see; returns its absolute path."""
        y, x = np.mgrid[0 : size[1], 0 : size[0]]
        seed = sum(name.encode())
        pixels = np.stack(
            [(x * 255) // size[0], (y * 255) // size[1], (x + y + seed * 37) % 256], -1
        )
        path = self.root.parent / "photos" / name
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(pixels.astype(np.uint8)).convert(mode).save(path)
        return str(path)

    def put(self, name: str, value: object) -> None:
        (self.root / "reports" / name).write_bytes(encode(value))

    def write(self, **fields: Any) -> Path:
        identity = describe(self.root, "identity.json")
        files = [identity, *(f for a in self.artifacts for f in a.files)]
        manifest = Manifest(
            **{
                "edgeserve": "1.0",
                "name": "tagger",
                "version": 1,
                "min_wrapper": "0.1.0",
                "model_id": sha256_bytes(b"{}"),
                "task": "image-classification",
                "signature": SIGNATURE,
                "processing": Processing(),
                "files": tuple(sorted(files, key=lambda f: f.path)),
                "artifacts": tuple(self.artifacts),
                "refused": tuple(self.refused),
                "reference": "pt2",
            }
            | fields
        )
        (self.root / "manifest.json").write_bytes(write_manifest(manifest))
        return self.root


def _timing(centre: float, rng: np.random.Generator) -> Timing:
    times = [float(v) for v in centre * rng.lognormal(0.0, 0.02, 60)]
    return Timing(wall=spread(times), cpu=spread(times))


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """An empty workspace that can be filled."""
    return Desk(tmp_path / "OUT")


@pytest.fixture
def full(desk: Desk) -> Desk:
    """One artifact of each verdict, measured and judged, and one refused with its report."""
    return fill(desk)


def fill(desk: Desk) -> Desk:
    """See the fixture ``full``."""
    worst = tuple(
        WorstInput(
            id=f"cat-{i:02}.png",
            path=desk.picture(f"cat-{i:02}.png"),
            reference=reference,
            answer=answer,
            margin=margin,
            difference=difference,
            flipped=flipped,
        )
        for i, (reference, answer, margin, difference, flipped) in enumerate(
            [
                ("Egyptian cat 0.41", "tabby 0.44", 0.08, 0.031, True),
                ("espresso 0.83", "espresso 0.80", 0.74, 0.022, False),
                ("lakeside 0.36", "lakeside 0.35", 0.02, 0.019, False),
            ]
        )
    )
    fp32 = desk.artifact()
    desk.report(
        fp32,
        worst=tuple(
            msgspec.structs.replace(w, flipped=False, answer=w.reference, difference=3.1e-6)
            for w in worst
        ),
    )
    desk.measure(fp32)
    w8a8 = desk.artifact(
        "degraded",
        precision="w8a8",
        size=5 << 20,
        reasons=(Reason("EDGE-CHECK-011", "2.1 % of decided answers flip, at most 4.0 % (95 %)"),),
    )
    desk.report(w8a8, decisions=decisions(8), outputs=outputs(0.031), worst=worst)
    desk.measure(w8a8, 4.6, noisy="half of the runs had to wait: p50 is 36 ms wall but 4.6 ms CPU")
    fp16 = desk.artifact(
        "unproven",
        precision="fp16",
        size=9 << 20,
        reasons=(Reason("EDGE-CHECK-012", "the evidence allows a flip rate up to 3.1 %"),),
    )
    desk.report(fp16, decisions=decisions(0, 97, 60, more_groups=90), outputs=outputs(8e-4))
    w8 = desk.refuse("w8")
    desk.report(
        w8,
        decisions=decisions(60),
        outputs=outputs(0.6),
        checks=(
            *CHECKS[:3],
            Check("not-constant", False, "'logits' is the same for every input", 0.0),
        ),
    )
    desk.write()
    return desk


@pytest.fixture
def grid(desk: Desk) -> Desk:
    """Three formats by four precisions: judged, measured, refused, not run, not asked for."""
    sizes = {"fp32": 18 << 20, "fp16": 9 << 20, "w8": 5 << 20, "w8a8": 5 << 20}
    flips = {"fp32": 0, "fp16": 0, "w8": 3, "w8a8": 8}
    times = {("onnx", "w8a8"): 4.6, ("tflite", "fp32"): 9.0}
    formats: tuple[Format, ...] = ("onnx", "tflite", "coreml")
    precisions: tuple[Precision, ...] = ("fp32", "fp16", "w8", "w8a8")
    for format in formats:
        for precision in precisions:
            if (format, precision) == ("tflite", "w8a8"):
                gone = desk.refuse("w8a8", format="tflite")
                desk.report(gone, decisions=decisions(60))
            elif (format, precision) == ("coreml", "w8"):
                desk.artifact(
                    "unproven",
                    "coreml",
                    "w8",
                    5 << 20,
                    (Reason("EDGE-CHECK-002", "not run here: its packages are missing"),),
                )
            elif (format, precision) != ("coreml", "w8a8"):
                verdict: Verdict = "degraded" if flips[precision] else "pass"
                made = desk.artifact(verdict, format, precision, sizes[precision])
                desk.report(made, decisions=decisions(flips[precision]))
                if format != "coreml":
                    desk.measure(made, times.get((format, precision), 9.5))
    engines = {
        "onnx": "onnxruntime 1.32.0 (cpu)",
        "tflite": "litert 2.3.0 (cpu)",
        "coreml": "interpreter 1 (torch); fp16 rounding; not on Apple hardware",
    }
    desk.artifacts[:] = [desk.ran_by(a, engines[a.format]) for a in desk.artifacts]
    desk.write()
    return desk


VOID = {"meta", "link", "img", "br", "hr", "input"}


class Tree(HTMLParser):
    """Parses a report and complains about what is not well formed.

    Attributes:
        tags: How often each tag occurs.
        elements: (tag, attributes) in document order.
        text: All text outside <style>.
    """

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.parts: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == [], f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> has an attribute twice: {names}"
        self.tags[tag] += 1
        self.elements.append((tag, {k: v or "" for k, v in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open[-1] == tag, f"</{tag}> closes <{self.open[-1]}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.parts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.parts).split())

    def find(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture
def show(tmp_path: Path) -> Callable[[Desk], Tree]:
    """Render a workspace and parse the result."""

    def rendered(desk: Desk) -> Tree:
        out = tmp_path / "report.html"
        done = render_report(ReportRequest(workspace=str(desk.root), out=str(out)))
        assert done.size == out.stat().st_size < 2_000_000
        return Tree(out.read_text("utf-8"))

    return rendered


@pytest.fixture
def figures() -> SimpleNamespace:
    """Makers of plausible figures."""
    return SimpleNamespace(decisions=decisions, outputs=outputs, rate=rate)
