"""The choice of a plan and the probe journal: ``selection/*.json``."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from filelock import FileLock

from edgeserve.errors import BackendError, EdgeError
from edgeserve.types.artifact import Artifact, FileEntry, Judgement
from edgeserve.types.manifest import Manifest
from edgeserve.types.processing import Processing
from edgeserve.types.profile import DeviceProfile
from edgeserve.types.samples import Golden, GoldenCase
from edgeserve.types.tensors import IO, Signature
from edgeserve.wrapper import plans, probe, prober
from edgeserve.wrapper.engine import ProbeOutcome
from edgeserve.wrapper.plans import Constraints, ExecutionPlan, PlanTiers, SkippedArtifact
from edgeserve.wrapper.selector import select

__all__ = ["check_choice", "check_journal", "check_plans"]

Json = dict[str, Any]
_BYTES = FileEntry(path="golden/0", size=0, sha256="0" * 64)


def _artifact(text: str) -> Artifact:
    """An artifact out of "onnx-fp32 pass", features after it."""
    name, verdict, *features = text.split()
    format_, precision = name.split("-")
    file = FileEntry(path=f"artifacts/{name}/model", size=0, sha256="0" * 64)
    more: Json = {"requires": tuple(features)} if features else {}
    return Artifact(
        format=format_,
        precision=precision,
        entry=file.path,
        files=(file,),
        io=IO(inputs=(), outputs=()),
        judgement=Judgement(verdict=verdict),
        **more,
    )


def _manifest(artifacts: Sequence[str], golden: bool) -> Manifest:
    cases = (GoldenCase(input=_BYTES, medium="tensors"),) if golden else ()
    return Manifest(
        edgeserve="1.0",
        name="case",
        version=1,
        min_wrapper="0.1.0",
        model_id="0" * 64,
        task="tensors",
        signature=Signature(inputs=(), outputs=()),
        processing=Processing(),
        artifacts=tuple(map(_artifact, artifacts)),
        golden=Golden(origin="given", cases=cases),
    )


def _profile(given: Json) -> DeviceProfile:
    rest = {"name": "case", "title": "t", "kind": "linux", "chip": "c", "features": ()}
    lists = {key: tuple(given[key]) for key in ("formats", "precisions")}
    return DeviceProfile(
        **rest,
        **lists,
        cores=given["cores"],
        memory_mb=1,
        delegates={name: tuple(words) for name, words in given["delegates"].items()},
        int8_activations="u8",
        source="s",
    )


def check_plans(case: Json, *_: object) -> str | None:
    """Which plans there are, in which tiers, and which artifacts are passed over."""

    def backend(name: str) -> Any:
        delegates = case["runtimes"][name]
        return SimpleNamespace(
            format=name,
            precisions=(),
            packages=(),
            simulated=tuple(case.get("proof_only", ())),
            missing=lambda: "a runtime" if delegates is None else None,
            delegates=lambda: tuple(delegates or ()),
            delegate=lambda word: word,
        )

    wanted = dict(case["wanted"])
    profile = wanted.pop("profile", None)
    constraints = Constraints(**wanted, device=_profile(profile) if profile else None)
    with (
        mock.patch.object(plans, "usable_cores", return_value=case["cores"]),
        mock.patch.object(plans.backends, "registered", case["runtimes"].__contains__),
    ):
        manifest = _manifest(case["artifacts"], case["golden"])
        found = plans.plan_tiers(manifest, constraints, backend, "digest")
    told = {
        "tiers": [[[p.artifact.name, p.delegate, p.threads] for p in tier] for tier in found.tiers],
        "passed_over": sorted(left.what for left in found.passed_over),
        "missed": sorted(left.what for left in found.missed),
    }
    if not all(left.why for left in found.passed_over):
        return "an artifact is passed over without a reason"
    expected = case["expected"] | {key: sorted(case["expected"][key]) for key in list(told)[1:]}
    wrong = [key for key in told if told[key] != expected[key]]
    return f"{wrong[0]}: gave {told[wrong[0]]}" if wrong else None


class _Outcomes:
    """A prober that knows the outcomes beforehand."""

    isolated = False

    def __init__(self, case: Json) -> None:
        self._case = case

    def outcomes(
        self, candidates: Sequence[ExecutionPlan], *, again: bool = False
    ) -> dict[str, ProbeOutcome]:
        known = self._case["outcomes"] | (self._case.get("again", {}) if again else {})
        return {
            plan.key: ProbeOutcome(
                key=plan.key,
                name=plan.key,
                state=known[plan.key][0],
                run_ms=known[plan.key][1],
                reason=f"<{plan.key}>",
            )
            for plan in candidates
        }

    def open(self, plan: ExecutionPlan) -> Any:
        if plan.key in self._case.get("closed", []):
            raise BackendError("EDGE-BACKEND-012", f"<{plan.key}>", got="refused", hint="none")
        return object()


def check_choice(case: Json, *_: object) -> str | None:
    """Which plan is taken, given how the probes ended."""
    artifact = _artifact("onnx-fp32 pass")
    tiers = tuple(
        tuple(ExecutionPlan(artifact=artifact, delegate="cpu", threads=1, key=k) for k in tier)
        for tier in case["tiers"]
    )
    missed = tuple(SkippedArtifact(name, f"<{name}>") for name in case.get("missed", []))
    manifest = _manifest([], case.get("golden", True))
    wanted = case["expected"]
    try:
        taken = select(
            manifest,
            PlanTiers(tiers, missed, missed),
            _Outcomes(case),  # type: ignore[arg-type]
            case.get("strict", False),
        )
    except EdgeError as error:
        return None if error.code == wanted.get("error") else f"raised {error}"
    if "error" in wanted:
        return f"chose {taken.candidate.key} instead of {wanted['error']}"
    if (taken.candidate.key, taken.proof) != (wanted["chosen"], wanted["proof"]):
        return f"chose {taken.candidate.key}, proof {taken.proof}"
    named = sorted(set(re.findall("<(.*?)>", taken.note)))
    return None if named == wanted["note"] else f"note: names {named}"


class _Died(BaseException):
    """The process ended in the middle of a probe."""


def check_journal(case: Json, *_: object) -> str | None:
    """Several starts of an app, one after another, with one plan."""
    plan = ExecutionPlan(
        artifact=_artifact("onnx-fp32 pass"), delegate="cpu", threads=1, key="plan"
    )
    with tempfile.TemporaryDirectory(prefix="edgeserve-") as cache, ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ, {"EDGESERVE_CACHE": cache}))
        children = case.get("children", True)
        stack.enter_context(mock.patch.object(prober, "_has_children", return_value=children))
        # Where no child can be started, the probe is made in this process.
        stack.enter_context(mock.patch.object(prober.Prober, "_apart", return_value={}))
        clock = [time.time()]
        for module in (prober, plans):
            patched = SimpleNamespace(time=lambda: clock[0], monotonic=time.monotonic)
            stack.enter_context(mock.patch.object(module, "time", patched))
        for number, start in enumerate(case["starts"]):
            clock[0] += start.get("later_s", 0)
            if told := _start(start, plan, Path(cache, "wrapper")):
                return f"start {number}: {told}"
    return None


def _start(start: Json, plan: ExecutionPlan, folder: Path) -> str | None:
    entry = folder / "plan.trying"
    if "leaves" in start:
        folder.mkdir(parents=True, exist_ok=True)
        entry.write_text(start["leaves"])
    probed: list[str] = []

    def probe_plan(
        plan: ExecutionPlan, _: object, __: object, tries: int, ___: object
    ) -> tuple[Any, None]:
        if not entry.exists():
            raise AssertionError("a probe without an entry in the journal")
        probed.append(entry.read_text())
        if start["ends"] == "crash":
            raise _Died
        more = 0 if start["ends"] == "accepted" else tries + 1
        return plan.outcome(start["ends"], "", tries=more), None

    model: Any = SimpleNamespace()
    with mock.patch.object(probe, "probe_plan", probe_plan), _held(start, folder):
        tried = prober.Prober(model, 0.05, around=model)
        try:
            found = tried.outcomes([plan], again=start.get("again", False))[plan.key]
        except _Died:
            entry.write_text(probed[0])
            return None if "expected" not in start else "the process died"
        finally:
            tried.close()
    if entry.exists():
        return "an entry is left in the journal"
    got = {"probed": bool(probed), "state": found.state, "tries": found.tries}
    wrong = [key for key, value in start["expected"].items() if got[key] != value]
    return f"{wrong[0]}: gave {got[wrong[0]]}" if wrong else None


@contextmanager
def _held(start: Json, folder: Path) -> Iterator[None]:
    """Another process at the same probe, where the case has one."""
    if not start.get("held"):
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / "plan.lock"):
        yield
