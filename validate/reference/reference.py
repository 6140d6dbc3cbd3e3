"""The reference at work: the exported program behind the packaged processing, and the server.

The exported program always runs, because only it gives tensors for every input. Where the
reference is a callable or an endpoint, its decisions (or its own tensors) take the place of the
program's.

A detector lists boxes from its threshold on. The exported program's are listed a margin further
down as well, and complete the reference's record by what it nearly decided.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from edgeserve import tasks
from edgeserve.backends.batching import BatchRunner
from edgeserve.backends.reference import reference as reference_program
from edgeserve.data import Feed
from edgeserve.data.reader import RawInput
from edgeserve.errors import ValidateError
from edgeserve.processing import Processor
from edgeserve.processing.processor import load_processor
from edgeserve.tasks.classification import Classification
from edgeserve.types.records import Record
from edgeserve.types.source import Exported
from edgeserve.validate.inference import decision, prepare_feed
from edgeserve.validate.reference.caller_function import CallerReference
from edgeserve.validate.reference.endpoint import EndpointReference
from edgeserve.validate.reference.python_callable import (
    PT2,
    CallableReference,
    ParsedAnswer,
    is_endpoint,
    parse_answer,
)


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
        program_outputs: The output tensors of the exported program.
    """

    record: Record | None
    margin: float | None
    scored: bool
    outputs: Feed
    own: bool
    program: Record | None
    program_outputs: Feed


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
        session: The exported program, open.
        runner: Runs the exported program with feeds.
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
        self._answers = tasks.answers_of(exported.task)
        self._lowered = _lower_threshold_processor(exported, folder)
        self._server = self._opened(reference, user_folder, caller)
        backend, program = reference_program(exported)
        self.session = backend.load(program, folder)
        self.runner = BatchRunner(self.session, exported.signature)
        self.least_score: float | None = None

    def __enter__(self) -> Reference:
        return self

    def __exit__(self, *_: object) -> None:
        self.session.close()
        if self._server is not None:
            self._server.close()

    @property
    def is_server(self) -> bool:
        """The reference is a callable or an endpoint."""
        return self._server is not None

    @property
    def takes_raw_inputs(self) -> bool:
        """It is given raw inputs, so that its own preprocessing is compared."""
        return self._server is not None and self._server.takes_raw

    @property
    def description(self) -> str:
        """Which model answers, where the reference's name does not tell; may be empty."""
        return self._server.description if self._server else ""

    def feed(self, raw: RawInput, thing: str) -> Feed:
        """One raw input as the exported program takes it; see `prepare_feed`."""
        return prepare_feed(self.processor, raw, thing)

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
        outputs = self.runner.run(feeds)
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
        near = decision(self._lowered, outputs, feed) if decides and self._lowered else None
        record = self._completed(record, near)
        margin = None if record is None else tasks.margin(record, self.rule)
        return ReferenceAnswer(
            record,
            margin,
            scored=True,
            outputs=outputs,
            own=True,
            program=record,
            program_outputs=outputs,
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
        parsed = parse_answer(answer, exported.task, exported.signature, exported.labels, called)
        if parsed.tensors is not None:
            _check_tensors(parsed.tensors, program.outputs, called)
            own = self.program_answer(parsed.tensors, feed)
            return dataclasses.replace(own, program=program.record, program_outputs=program.outputs)
        if parsed.record is not None and type(parsed.record) is type(program.record):
            assert self._answers is not None
            self._answers.check_size(parsed.record, program.record, called)
        least = tasks.least_score(parsed.record)
        if least is not None:
            self.least_score = least if self.least_score is None else min(self.least_score, least)
        record = self._completed(parsed.record, program.record)
        margin, scored = self._margin(parsed, record, program), parsed.scored
        return dataclasses.replace(program, record=record, margin=margin, scored=scored, own=False)

    def _completed(self, record: Record | None, program: Record | None) -> Record | None:
        """The record with what the exported program knows besides, or nearly decided."""
        if record is None or program is None or type(record) is not type(program):
            return record
        assert self._answers is not None
        completed: Record = self._answers.complete(self.rule, record, program)
        return completed

    def _margin(
        self, parsed: ParsedAnswer, record: Record | None, program: ReferenceAnswer
    ) -> float | None:
        """The server's own margin where its scores show one, else the exported program's."""
        if record is not None and (parsed.scored or not isinstance(record, Classification)):
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


def _lower_threshold_processor(exported: Exported, folder: Path) -> Processor | None:
    """The processing with its threshold a margin lower; None for tasks that leave nothing out."""
    step = exported.processing.task_output
    lowered = step.lowered(tasks.sure_margin(exported.task)) if step else None
    if lowered is None:
        return None
    outputs = (*exported.processing.outputs[:-1], lowered)
    processing = msgspec.structs.replace(exported.processing, outputs=outputs)
    return load_processor(msgspec.structs.replace(exported, processing=processing), folder)
