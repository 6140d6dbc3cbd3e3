"""One artifact being tried: every input through its session, and what came out compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from edgeserve import jobs
from edgeserve.backends.base import Session
from edgeserve.data import Feed, Reader, fingerprint
from edgeserve.decisions import DECIDED_MARGIN
from edgeserve.errors import BackendError, DataError, ProcessingError
from edgeserve.processing import Processor
from edgeserve.types.records import Record
from edgeserve.types.reports import Limits
from edgeserve.types.samples import Sample
from edgeserve.types.source import Exported
from edgeserve.validate.difference import Difference
from edgeserve.validate.feeds import Runner, feed_of, in_batches
from edgeserve.validate.findings import Findings
from edgeserve.validate.invariants import check_outputs
from edgeserve.validate.oracle import decision
from edgeserve.validate.request import Answers, JudgeRequest
from edgeserve.validate.store import FillerTensors, TensorReader, read_fillers
from edgeserve.validate.tally import Tally, score_gap

__all__ = ["Case", "Stopped", "Trial"]

#: Inputs that are kept for comparing the artifact with itself.
_PROBES = 3


class Stopped(Exception):
    """The artifact failed in a way that makes going on pointless; its finding is noted."""


@dataclass(frozen=True)
class Case:
    """What an artifact is judged on.

    Attributes:
        request: What was asked.
        exported: The source.
        answers: What the reference answered.
        processor: The packaged processing.
    """

    request: JudgeRequest
    exported: Exported
    answers: Answers
    processor: Processor

    @property
    def decides(self) -> bool:
        """The task has decisions."""
        return self.exported.task in DECIDED_MARGIN

    @property
    def limits(self) -> Limits:
        """What harm is allowed."""
        return self.request.limits


@dataclass
class Trial:
    """The trial of one session.

    Attributes:
        case: What it is tried on.
        findings: Checks so far.
        difference: Tensors compared.
        tally: Decisions on the user's inputs compared.
        synthetic: Decisions on generated inputs compared.
        by_id: Largest relative tensor difference by sample id; filled by `run`.
        probes: A few feeds, and the reference's outputs for them.
        error: Largest difference of a score.
    """

    case: Case
    findings: Findings
    difference: Difference
    tally: Tally
    synthetic: Tally
    by_id: dict[str, float] = field(default_factory=dict)
    probes: list[FillerTensors] = field(default_factory=list)
    error: float = 0.0

    @classmethod
    def of(cls, case: Case, findings: Findings) -> Trial:
        """A trial that has seen nothing yet."""
        task = case.exported.task
        floor = case.limits.scale_floor
        return cls(case, findings, Difference(floor), Tally(task), Tally(task))

    def run(self, session: Session) -> Runner:
        """Run everything.

        Raises:
            Stopped: the artifact failed to run, or does not give what it declares.
            DataError: the data has changed since the reference saw it.
        """
        runner = Runner(session, self.case.exported.signature)
        self._over_fillers(runner)
        self._over_data(runner)
        self.findings.check("runs", True, f"answered {len(self.case.answers.samples)} inputs")
        return runner

    @property
    def _name(self) -> str:
        return self.case.request.artifact.name

    def _over_fillers(self, runner: Runner) -> None:
        answers = self.case.answers
        folder = Path(self.case.request.samples)
        stored = read_fillers(folder, answers, self.case.exported.signature)
        for filler, tensors in zip(answers.fillers, stored, strict=True):
            if not runner.takes(tensors.feed):
                self.findings.notes.append(f"generated input {filler.name!r} does not fit the file")
                continue
            (outputs,) = self._outputs(runner, [filler.name], [tensors.feed])
            self._check_shapes(filler.name, tensors.outputs, outputs)
            natural = filler.natural and not answers.samples
            self.difference.add(filler.name, natural, tensors.outputs, outputs)
            if filler.natural:
                self._probe(tensors)
            if self.case.decides:
                record = self._decide(filler.name, outputs)
                self._note_error(self._reference(tensors.outputs), record)
                if filler.answer is not None:
                    sample = Sample(id=filler.name, group=filler.name)
                    self.synthetic.add(sample, filler.answer, record)

    def _over_data(self, runner: Runner) -> None:
        case, answers = self.case, self.case.answers
        reader = TensorReader(Path(case.request.samples), answers.chunks, case.exported.signature)
        compared: list[str] = []
        with Reader(case.exported.signature) as data:
            for batch in in_batches(len(answers.samples)):
                samples = [answers.samples[i] for i in batch]
                feeds = [self._feed(data, i) for i in batch]
                outputs = self._outputs(runner, [s.id for s in samples], feeds)
                for i, feed, each in zip(batch, feeds, outputs, strict=True):
                    compared += self._compare(i, feed, each, reader.next())
                jobs.progress(f"judging {self._name}", batch.stop, len(answers.samples))
        self.by_id = {name: self.difference.of(i) for i, name in enumerate(compared)}

    def _feed(self, data: Reader, index: int) -> Feed:
        """A sample prepared; it must be the one that the reference saw."""
        sample = self.case.answers.samples[index]
        raw = data.read(sample)
        if fingerprint(raw) != self.case.answers.answers[index].input_sha256:
            raise DataError(
                "EDGE-DATA-021", sample.id, wanted="the input that the reference answered",
                got="other bytes", hint="run validate again with --data",
            )  # fmt: skip
        return feed_of(self.case.processor, raw, sample.id)

    def _compare(
        self, index: int, feed: Feed, outputs: Feed, reference: Feed | None
    ) -> Sequence[str]:
        """Compare one sample; returns its id where its tensors were compared."""
        sample, stored = self.case.answers.samples[index], self.case.answers.answers[index]
        if self.case.decides:
            record = self._decide(sample.id, outputs)
            self.tally.add(sample, stored, record)
            own = self.case.answers.own_tensors or reference is None
            self._note_error(stored.record if own else self._reference(reference or {}), record)
        if reference is None:
            return ()
        self._check_shapes(sample.id, reference, outputs)
        self.difference.add(sample.id, True, reference, outputs)
        self._probe(FillerTensors(feed=feed, outputs=reference), first=index < _PROBES)
        return (sample.id,)

    def _probe(self, tensors: FillerTensors, first: bool = True) -> None:
        if first and len(self.probes) < _PROBES:
            self.probes.append(tensors)

    def _outputs(self, runner: Runner, things: Sequence[str], feeds: Sequence[Feed]) -> list[Feed]:
        try:
            outputs = runner.run(feeds)
        except BackendError as error:
            thing = things[0] if len(things) == 1 else f"a batch with {things[0]}"
            self.findings.check("runs", False, f"fails on {thing}: {error.got}")
            raise Stopped from error
        for thing, each in zip(things, outputs, strict=True):
            artifact, signature = self.case.request.artifact, self.case.exported.signature
            if broken := check_outputs(artifact, each, signature):
                self.findings.check("declared", False, f"{broken} (on {thing})")
                raise Stopped
        return outputs

    def _check_shapes(self, thing: str, reference: Feed, outputs: Feed) -> None:
        for name, wanted in reference.items():
            if outputs[name].shape != wanted.shape:
                said = f"{list(outputs[name].shape)} instead of {list(wanted.shape)}"
                self.findings.check("declared", False, f"output {name!r} is {said} (on {thing})")
                raise Stopped

    def _decide(self, thing: str, outputs: Feed) -> Record | None:
        """The artifact's decision; None where its scores are none."""
        try:
            return decision(self.case.processor, outputs)
        except ProcessingError as error:
            if not any(check.name == "decides" for check in self.findings.checks):
                self.findings.check("decides", False, f"on {thing}: {error.message}")
            return None

    def _reference(self, outputs: Feed) -> Record | None:
        return decision(self.case.processor, outputs)

    def _note_error(self, reference: Record | None, answer: Record | None) -> None:
        self.error = max(self.error, score_gap(reference, answer))
