"""One artifact run on every input, and what came out compared with the reference.

Beside the comparison stands the error that golden cases must be far from: how far the artifact
moves decisions. It is measured against the exported program, whose tensors the file should give;
how far the reference itself is from that program is another question, which `FlipCounter.drift`
answers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import msgspec

from edgeserve import jobs, tasks
from edgeserve.backends.batching import BatchRunner, in_batches
from edgeserve.backends.session import Session
from edgeserve.data import Feed, Reader, input_sha256
from edgeserve.errors import BackendError, DataError, ProcessingError
from edgeserve.processing import Processor
from edgeserve.tasks import DecisionRule, decision_rule
from edgeserve.tasks.embedding import Embedding
from edgeserve.types.base import number, plain
from edgeserve.types.records import Record
from edgeserve.types.reports import DecisionStats, Limits
from edgeserve.types.samples import Sample, StoredAnswer
from edgeserve.types.source import Exported
from edgeserve.validate.accuracy.evaluators import GroundTruthEvaluator, TokenDistributionEvaluator
from edgeserve.validate.checks.activations import ACTIVATION_INPUTS
from edgeserve.validate.checks.declared_io import check_outputs
from edgeserve.validate.checks.invariants import CheckLog
from edgeserve.validate.checks.reference_sanity import (
    ConstantReferenceCheck,
    batch_split_note,
    rule_for_reference,
)
from edgeserve.validate.compare.output_fields import SAMPLED_ANSWERS, field_layouts, natural_outputs
from edgeserve.validate.compare.tensors import TensorComparison
from edgeserve.validate.flips.counter import (
    FlipCounter,
    MultiDecisionCounter,
    SingleDecisionCounter,
)
from edgeserve.validate.flips.embeddings import NeighbourFlipCounter, VectorPairs
from edgeserve.validate.inference import decision, prepare_feed
from edgeserve.validate.reference_store import SyntheticTensors, TensorReader, read_synthetic
from edgeserve.validate.requests import Answers, JudgeRequest

#: Inputs that are kept for comparing the artifact with itself.
_PROBES = 3


class RunAborted(Exception):
    """The artifact failed in a way that makes going on pointless; its finding is noted."""


@dataclass(frozen=True)
class ValidationCase:
    """What an artifact is judged on.

    Attributes:
        request: What was asked.
        exported: The source.
        answers: What the reference answered.
        stored: Its answers to the samples, with their records.
        processor: The packaged processing.
    """

    request: JudgeRequest
    exported: Exported
    answers: Answers
    stored: tuple[StoredAnswer, ...]
    processor: Processor

    @property
    def decides(self) -> bool:
        """The task has decisions."""
        return tasks.decides(self.exported.task)

    @property
    def split(self) -> str:
        """Why a file that takes fewer rows at a time than the source cannot be right; or empty."""
        if not self.answers.mixes:
            return ""
        return batch_split_note(self.request.artifact.io, self.exported.signature)

    @property
    def limits(self) -> Limits:
        """The accuracy loss that is allowed."""
        return self.request.limits


@dataclass
class ArtifactRun:
    """The run of one session of the artifact.

    Attributes:
        case: The inputs, the reference's answers and the limits.
        findings: Checks so far.
        difference: Tensors compared.
        tally: Decisions on the user's inputs compared.
        synthetic: Decisions on generated inputs compared.
        error: How far decisions moved from the exported program's.
        likelihood: Distributions over a vocabulary compared.
        truths: Both sides held against true boxes, masks, spans or segments.
        by_id: Largest relative tensor difference by sample id; filled by `run`.
        probes: A few feeds, and the reference's outputs for them.
        first: The first natural inputs: those whose inner tensors the reference noted.
        apart_seconds: CPU seconds that the invariants took.
        steady: Whether a server that gives decisions always gives the same.
    """

    case: ValidationCase
    findings: CheckLog
    difference: TensorComparison
    tally: FlipCounter
    synthetic: FlipCounter
    error: DecisionError
    likelihood: TokenDistributionEvaluator
    truths: GroundTruthEvaluator
    by_id: dict[str, float] = field(default_factory=dict)
    probes: list[SyntheticTensors] = field(default_factory=list)
    first: list[Feed] = field(default_factory=list)
    apart_seconds: float = 0.0
    steady: ConstantReferenceCheck = field(default_factory=ConstantReferenceCheck)

    @cached_property
    def decisions(self) -> DecisionStats | None:
        """All figures of the decisions, once there are any; not before the last was added."""
        if not len(self.tally):
            return None
        stats = self.tally.stats(self.case.limits)
        known = self.likelihood.figures() or self._divergence()
        figures = stats.figures | {name: number(value) for name, value in known.items()}
        return msgspec.structs.replace(stats, figures=figures)

    def _divergence(self) -> dict[str, float]:
        """Of the logits that decisions are read from, where the output is all logits."""
        read = {name for step in self.case.exported.processing.outputs for name in step.outputs}
        found = [d for d in self.difference.natural() if d.kl is not None and d.output in read]
        if len(found) != 1:
            return {}
        return {"kl": plain(found[0].kl or 0.0), "kl_worst": plain(found[0].kl_worst or 0.0)}

    @classmethod
    def of(cls, case: ValidationCase, findings: CheckLog) -> ArtifactRun:
        """A run before its first input."""
        exported = case.exported
        rule = decision_rule(exported.task, exported.processing)
        rule = rule_for_reference(case.answers, rule)
        return cls(
            case,
            findings,
            TensorComparison(case.limits.scale_floor),
            tally=flip_counter(rule),
            synthetic=flip_counter(rule),
            error=DecisionError(rule),
            likelihood=TokenDistributionEvaluator(exported),
            truths=GroundTruthEvaluator(exported.task, exported.labels, exported.processing),
        )

    def run(self, session: Session) -> BatchRunner:
        """Run everything.

        Raises:
            Stopped: the artifact failed to run, or does not give what it declares.
            DataError: the data has changed since the reference saw it.
        """
        runner = self.runner(session)
        with self.apart():
            self._over_fillers(runner)
        self._over_data(runner)
        self.findings.check("runs", True, f"answered {len(self.case.answers.samples)} inputs")
        return runner

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Count the CPU time of what is done inside as that of the invariants."""
        started = time.process_time()
        try:
            yield
        finally:
            self.apart_seconds += time.process_time() - started

    def runner(self, session: Session) -> BatchRunner:
        """Runs a session of the artifact with feeds of the source."""
        exported = self.case.exported
        return BatchRunner(session, exported.signature, exported.processing.padding)

    def feed_of(self, name: str) -> Feed | None:
        """The input of that name, generated or of the data; None where there is none."""
        answers, folder = self.case.answers, Path(self.case.request.samples)
        stored = read_synthetic(folder, answers, self.case.exported.signature)
        for filler, tensors in zip(answers.fillers, stored, strict=True):
            if filler.name == name:
                return tensors.feed
        ids = [sample.id for sample in answers.samples]
        with Reader(self.case.exported.signature) as data:
            return self._prepared(data, ids.index(name))[1] if name in ids else None

    def _over_fillers(self, runner: BatchRunner) -> None:
        answers = self.case.answers
        folder = Path(self.case.request.samples)
        signature = self.case.exported.signature
        stored = read_synthetic(folder, answers, signature)
        seen = natural_outputs(answers, folder, stored, signature, SAMPLED_ANSWERS)
        self.difference.split(field_layouts(self.case.exported, seen))
        below_fp32 = self.case.request.artifact.precision != "fp32"
        for filler, tensors in zip(answers.fillers, stored, strict=True):
            if filler.edge and below_fp32:
                continue  # rounding moves what lies on an edge
            if not runner.takes(tensors.feed):
                self.findings.notes.append(f"generated input {filler.name!r} does not fit the file")
                continue
            (outputs,) = self._outputs(runner, [filler.name], [tensors.feed])
            self._check_shapes(filler.name, tensors.outputs, outputs)
            natural = filler.natural and not answers.samples
            self.difference.add(filler.name, natural, tensors.outputs, outputs)
            if filler.natural:
                self._probe(tensors)
            if natural:
                self.first.append(tensors.feed)
            if self.case.decides:
                record = self._decide(filler.name, outputs, tensors.feed)
                program = decision(self.case.processor, tensors.outputs, tensors.feed)
                self.error.add(program, record, filler.natural)
                if tensors.answer is not None:
                    sample = Sample(id=filler.name, group=filler.name)
                    self.synthetic.add(sample, tensors.answer, record)
                    if filler.natural and not answers.own_tensors:
                        self.steady.add(tensors.answer, program)

    def _over_data(self, runner: BatchRunner) -> None:
        case, answers = self.case, self.case.answers
        reader = TensorReader(Path(case.request.samples), answers.chunks, case.exported.signature)
        compared: list[str] = []
        with Reader(case.exported.signature) as data:
            for batch in in_batches(len(answers.samples)):
                prepared = [self._prepared(data, i) for i in batch]
                things = [sample.id for sample, _ in prepared]
                outputs = self._outputs(runner, things, [feed for _, feed in prepared])
                for i, (sample, feed), each in zip(batch, prepared, outputs, strict=True):
                    compared += self._compare(i, sample, feed, each, reader.next())
                name = case.request.artifact.name
                jobs.progress(f"judging {name}", batch.stop, len(answers.samples))
        self.by_id = {name: self.difference.of(i) for i, name in enumerate(compared)}

    def _prepared(self, data: Reader, index: int) -> tuple[Sample, Feed]:
        """A sample (with its text) prepared; it must be the one that the reference saw."""
        sample = self.case.answers.samples[index]
        raw = data.read(sample)
        if input_sha256(raw) != self.case.answers.answers[index].input_sha256:
            raise DataError(
                "EDGE-DATA-021",
                sample.id,
                wanted="the input that the reference answered",
                got="other bytes",
                hint="run validate again with --data",
            )
        feed = prepare_feed(self.case.processor, raw, sample.id)
        return (msgspec.structs.replace(sample, text=raw) if isinstance(raw, str) else sample), feed

    def _compare(
        self, index: int, sample: Sample, feed: Feed, outputs: Feed, reference: Feed | None
    ) -> Sequence[str]:
        """Compare one sample; returns its id where its tensors were compared."""
        stored = self.case.stored[index]
        if self.case.decides:
            record = self._decide(sample.id, outputs, feed)
            self.tally.add(sample, stored, record)
            self.truths.add(sample, feed, stored.record, record)
            own = self.case.answers.own_tensors or reference is None
            program = stored.record if own else decision(self.case.processor, reference or {}, feed)
            self.error.add(program, record, natural=True)
            if not own:
                self.steady.add(stored, program)
        if reference is None:
            return ()
        self._check_shapes(sample.id, reference, outputs)
        self.difference.add(sample.id, True, reference, outputs)
        self.likelihood.add(sample, feed, reference, outputs)
        self._probe(SyntheticTensors(feed=feed, outputs=reference), first=index < _PROBES)
        if index < ACTIVATION_INPUTS:
            self.first.append(feed)
        return (sample.id,)

    def _probe(self, tensors: SyntheticTensors, first: bool = True) -> None:
        if first and len(self.probes) < _PROBES:
            self.probes.append(tensors)

    def _outputs(
        self, runner: BatchRunner, things: Sequence[str], feeds: Sequence[Feed]
    ) -> list[Feed]:
        try:
            outputs = runner.run(feeds)
        except BackendError as error:
            thing = things[0] if len(things) == 1 else f"a batch with {things[0]}"
            self.findings.check("runs", False, f"fails on {thing}: {error.got}")
            raise RunAborted from error
        for thing, each in zip(things, outputs, strict=True):
            artifact, signature = self.case.request.artifact, self.case.exported.signature
            if broken := check_outputs(artifact, each, signature):
                self.findings.check("declared", False, f"{broken} (on {thing})")
                raise RunAborted
        return outputs

    def _check_shapes(self, thing: str, reference: Feed, outputs: Feed) -> None:
        for name, wanted in reference.items():
            if outputs[name].shape != wanted.shape:
                shapes = f"{list(outputs[name].shape)} instead of {list(wanted.shape)}"
                self.findings.check("declared", False, f"output {name!r} is {shapes} (on {thing})")
                raise RunAborted

    def _decide(self, thing: str, outputs: Feed, feed: Feed) -> Record | None:
        """The artifact's decision; None where its scores are none."""
        try:
            return decision(self.case.processor, outputs, feed)
        except ProcessingError as error:
            if not any(check.name == "decides" for check in self.findings.checks):
                self.findings.check("decides", False, f"on {thing}: {error.message}")
            return None


class DecisionError:
    """The largest change of a score, or of a margin, on any input (`edgeserve.tasks.gap`).

    Of embeddings: of a cosine that decides, among natural inputs.

    Args:
        rule: How decisions are compared.
    """

    def __init__(self, rule: DecisionRule) -> None:
        self._rule, self._largest, self._vectors = rule, 0.0, VectorPairs()

    def add(self, reference: Record | None, answer: Record | None, natural: bool) -> None:
        """Compare one input's decisions.

        Args:
            reference: What the exported program decides.
            answer: What the artifact decides.
            natural: The input is like those that the model is made for; generated extremes are
                nobody's neighbours.
        """
        if not isinstance(reference, Embedding):
            self._largest = max(self._largest, tasks.gap(self._rule, reference, answer))
        elif natural:
            self._vectors.add(reference, answer)

    def largest(self) -> float:
        """The largest error over all inputs; 0 before any."""
        return self._vectors.largest_gap() if len(self._vectors) else self._largest


def flip_counter(rule: DecisionRule) -> FlipCounter:
    """How decisions are counted."""
    if tasks.needs_neighbours(rule.task):
        return NeighbourFlipCounter(rule.task)
    one = tasks.decides(rule.task) and tasks.schema(rule.task).decisions == "one"
    return SingleDecisionCounter(rule.task) if one else MultiDecisionCounter(rule)
