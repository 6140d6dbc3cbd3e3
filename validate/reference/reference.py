"""The reference at work: the exported program behind the packaged processing, and the server.

The exported program always runs, because only it gives tensors for every input. Where the
reference is a callable or an endpoint, its decisions (or its own tensors) take the place of the
program's.

`NearThresholdCompleter` adds what the reference nearly decided, so that no invention is excused
as a close call. A detector lists boxes from its threshold on. An artifact's box just above it
may be one that the reference has just below it, a close call, or an invention where the
reference sees nothing. The exported program's outputs tell which: its boxes are listed a margin
further down.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from edgeserve import tasks
from edgeserve.backends.reference import reference as reference_program
from edgeserve.backends.session import Session
from edgeserve.data import Feed
from edgeserve.data.reader import RawInput
from edgeserve.errors import ValidateError
from edgeserve.processing import Processor
from edgeserve.tasks.classification import Classification
from edgeserve.tasks.detection import Detection
from edgeserve.tasks.detection.compare import IOU, iou
from edgeserve.tasks.text_generation import Text
from edgeserve.tasks.token_classification import Tokens
from edgeserve.types.records import Record, Runtime
from edgeserve.types.source import Exported
from edgeserve.validate.inference import BatchRunner, decision, load_processor, prepare_feed
from edgeserve.validate.reference.caller_function import CallerReference
from edgeserve.validate.reference.endpoint import EndpointReference
from edgeserve.validate.reference.parse_records import check_size, complete_record
from edgeserve.validate.reference.python_callable import (
    PT2,
    CallableReference,
    ParsedAnswer,
    is_endpoint,
    parse_answer,
)

__all__ = ["NearThresholdCompleter", "Reference", "ReferenceAnswer"]


@dataclass(frozen=True)
class ReferenceAnswer:
    """What the reference gave for one input.

    Attributes:
        record: Its decision; None where it gives none.
        margin: How sure it was.
        scored: ``record`` holds its own scores.
        outputs: Output tensors with batch axis: its own, or the exported program's.
        own: ``outputs`` are its own.
        program: The decision of the exported program.
    """

    record: Record | None
    margin: float | None
    scored: bool
    outputs: Feed
    own: bool
    program: Record | None


class Reference:
    """The reference of one exported model. A context manager.

    Args:
        exported: The model.
        folder: The folder that its files lie in.
        reference: "pt2", ``module:callable`` or the address of an endpoint.
        user_folder: Where a callable's modules are found.
        caller: Name of the function that the process which started this worker answers for.

    Attributes:
        exported: The model.
        reference: As given.
        processor: The packaged processing.
        rule: How its decisions are compared.
        least_score: The least score of a box that a detector's server has listed so far; None of
            any other reference.

    Raises:
        ValidateError: the callable cannot be loaded, or the endpoint cannot be asked.
        BackendError: the exported program cannot be loaded.
    """

    def __init__(
        self, exported: Exported, folder: Path, reference: str, user_folder: Path, caller: str = ""
    ) -> None:
        self.exported = exported
        self.reference = reference
        self.processor = load_processor(exported, folder)
        self.rule = tasks.decision_rule(exported.task, exported.processing)
        self._attentive = NearThresholdCompleter(exported, folder)
        self._server = self._opened(reference, user_folder, caller)
        backend, program = reference_program(exported)
        self._session = backend.load(program, folder)
        self._runner = BatchRunner(self._session, exported.signature)
        self.least_score: float | None = None

    def __enter__(self) -> Reference:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()
        if self._server is not None:
            self._server.close()

    @property
    def runtime(self) -> Runtime:
        """The engine of the exported program."""
        return self._session.runtime

    @property
    def session(self) -> Session:
        """The exported program, open."""
        return self._session

    @property
    def runner(self) -> BatchRunner:
        """Runs the exported program with feeds."""
        return self._runner

    @property
    def is_server(self) -> bool:
        """The reference is a callable or an endpoint."""
        return self._server is not None

    @property
    def takes_raw_inputs(self) -> bool:
        """It is given raw inputs, so that its own preprocessing is compared."""
        return self._server is not None and self._server.takes_raw

    @property
    def said(self) -> str:
        """Who answers, where the reference's name does not tell; may be empty."""
        return self._server.said if self._server else ""

    def feed(self, raw: RawInput, thing: str) -> Feed:
        """One raw input as the exported program takes it; see `feed_of`."""
        return prepare_feed(self.processor, raw, thing)

    def run(self, feeds: Sequence[Feed]) -> list[Feed]:
        """Outputs of the exported program, one dict an input."""
        return self._runner.run(feeds)

    def answer(
        self, things: Sequence[str], raws: Sequence[RawInput], feeds: Sequence[Feed]
    ) -> list[ReferenceAnswer]:
        """Ask the reference.

        Args:
            things: What to call each input.
            raws: The raw inputs, which a callable gets.
            feeds: The same inputs prepared.

        Raises:
            ValidateError: the server failed, or gave an answer that is none.
        """
        outputs = self.run(feeds)
        programs = [self.program_answer(*each) for each in zip(outputs, feeds, strict=True)]
        if self._server is None:
            return programs
        answers = self._server.ask(raws, feeds, things)
        asked = zip(answers, things, feeds, programs, strict=True)
        return [self._of_server(*each) for each in asked]

    def program_answer(self, outputs: Feed, feed: Feed) -> ReferenceAnswer:
        """What the exported program says with these outputs of ``feed``."""
        decides = tasks.decides(self.exported.task)
        record = decision(self.processor, outputs, feed) if decides else None
        record = self._attentive.complete(record, outputs, feed)
        margin = None if record is None else tasks.margin(record, self.rule)
        return ReferenceAnswer(
            record=record, margin=margin, scored=True, outputs=outputs, own=True, program=record
        )

    def _opened(
        self, reference: str, user_folder: Path, caller: str
    ) -> CallableReference | CallerReference | EndpointReference | None:
        if reference == PT2:
            return None
        if reference == caller:
            return CallerReference(reference)
        if is_endpoint(reference):
            return EndpointReference(reference, self.exported.signature, self.processor.medium)
        return CallableReference(reference, user_folder)

    def _of_server(
        self, answer: object, thing: str, feed: Feed, program: ReferenceAnswer
    ) -> ReferenceAnswer:
        called = f"answer of {self.reference} to {thing}"
        exported = self.exported
        said = parse_answer(answer, exported.task, exported.signature, exported.labels, called)
        if said.tensors is not None:
            _check_tensors(said.tensors, program.outputs, called)
            own = self.program_answer(said.tensors, feed)
            return dataclasses.replace(own, program=program.record)
        check_size(said.record, program.record, called)
        least = tasks.least_score(said.record)
        if least is not None:
            self.least_score = least if self.least_score is None else min(self.least_score, least)
        known = complete_record(said.record, program.record)
        record = self._attentive.merge_near_threshold(program.record, known)
        return ReferenceAnswer(
            record=record,
            margin=self._margin(said, record, program),
            scored=said.scored,
            outputs=program.outputs,
            own=False,
            program=program.record,
        )

    def _margin(
        self, said: ParsedAnswer, record: Record | None, program: ReferenceAnswer
    ) -> float | None:
        """The server's own margin where its scores show one, else the exported program's."""
        if record is not None and (said.scored or not isinstance(record, Classification)):
            return tasks.margin(record, self.rule)
        return program.margin


def _check_tensors(tensors: Feed, outputs: Feed, called: str) -> None:
    for name, array in outputs.items():
        if tensors[name].shape != array.shape or tensors[name].dtype.kind != array.dtype.kind:
            raise ValidateError(
                "EDGE-VALIDATE-006",
                called,
                wanted=f"{name!r} as {array.dtype} {list(array.shape)}",
                got=f"{tensors[name].dtype} {list(tensors[name].shape)}",
                hint="return each output as the model gives it for one input",
            )


_SURE_MARGIN = tasks.sure_margin("object-detection")


class NearThresholdCompleter:
    """Completes the records of a reference by what its program nearly decided.

    Args:
        exported: The model.
        folder: The folder that its files lie in.
    """

    def __init__(self, exported: Exported, folder: Path) -> None:
        self._rule = tasks.decision_rule(exported.task, exported.processing)
        self._lowered = _lower_threshold_processor(exported, folder)

    def complete(self, record: Record | None, outputs: Feed, feed: Feed) -> Record | None:
        """A record of the reference with what the program's outputs add; others as they are."""
        if isinstance(record, Detection) and self._lowered is not None:
            near = decision(self._lowered, outputs, feed)
            return self._with_near(record, near) if isinstance(near, Detection) else record
        return record

    def merge_near_threshold(self, program: Record | None, record: Record | None) -> Record | None:
        """A callable's record, with what the program's own (completed) record knows besides."""
        if isinstance(record, Detection) and isinstance(program, Detection):
            return self._with_near(record, program)
        if isinstance(record, Tokens) and isinstance(program, Tokens) and record.unsure is None:
            return msgspec.structs.replace(record, unsure=program.unsure)
        if isinstance(record, Text) and isinstance(program, Text) and record.unsure is None:
            same = record.tokens == program.tokens  # gaps are counted between tokens
            return msgspec.structs.replace(record, unsure=program.unsure if same else None)
        return record

    def _with_near(self, record: Detection, near: Detection) -> Detection:
        """Add the boxes below the threshold that are none of the record's own."""
        found = iou(near.boxes, record.boxes) >= IOU
        alike = np.array([[a == b for b in record.labels] for a in near.labels], bool)
        own = (found & alike.reshape(found.shape)).any(axis=1)
        new = np.flatnonzero((near.scores < self._rule.threshold) & ~own)
        return Detection(
            boxes=np.concatenate([record.boxes, near.boxes[new]]),
            scores=np.concatenate([record.scores, near.scores[new]]),
            labels=(*record.labels, *(near.labels[i] for i in new)),
            floor=self._rule.threshold - _SURE_MARGIN,
        )


def _lower_threshold_processor(exported: Exported, folder: Path) -> Processor | None:
    """The processing with its threshold a margin lower; None for tasks that leave nothing out."""
    step = exported.processing.task_output
    lowered = step.lowered(tasks.sure_margin(exported.task)) if step else None
    if lowered is None:
        return None
    outputs = (*exported.processing.outputs[:-1], lowered)
    processing = msgspec.structs.replace(exported.processing, outputs=outputs)
    return load_processor(msgspec.structs.replace(exported, processing=processing), folder)
