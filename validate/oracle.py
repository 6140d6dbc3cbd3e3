"""The reference at work: the exported program behind the packaged processing, and the server.

The exported program always runs, because only it gives tensors for every input. Where the reference
is a callable or an endpoint, its decisions (or its own tensors) take the place of the program's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgeserve import decisions
from edgeserve.backends.reference import reference as reference_program
from edgeserve.backends.session import Session
from edgeserve.data import Feed
from edgeserve.data.reading import RawInput
from edgeserve.errors import ValidateError
from edgeserve.types.records import Classification, Detection, Record, Runtime
from edgeserve.types.source import Exported
from edgeserve.validate.attentive import Attentive
from edgeserve.validate.deciding import decision, processor_of
from edgeserve.validate.endpoint import Endpoint
from edgeserve.validate.feeds import Runner, feed_of
from edgeserve.validate.said import Said, understand
from edgeserve.validate.said_records import check_size, completed
from edgeserve.validate.server import PT2, Server, is_endpoint

__all__ = ["Answered", "Oracle"]


@dataclass(frozen=True)
class Answered:
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


class Oracle:
    """The reference of one exported model. A context manager.

    Args:
        exported: The model.
        folder: The folder that its files lie in.
        reference: "pt2", ``module:callable`` or the address of an endpoint.
        user_folder: Where a callable's modules are found.

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

    def __init__(self, exported: Exported, folder: Path, reference: str, user_folder: Path) -> None:
        self.exported = exported
        self.reference = reference
        self.processor = processor_of(exported, folder)
        self.rule = decisions.rule_of(exported.task, exported.processing)
        self._attentive = Attentive(exported, folder)
        self._server = self._opened(reference, user_folder)
        backend, program = reference_program(exported)
        self._session = backend.load(program, folder)
        self._runner = Runner(self._session, exported.signature)
        self.least_score: float | None = None

    def __enter__(self) -> Oracle:
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
    def runner(self) -> Runner:
        """Runs the exported program with feeds."""
        return self._runner

    @property
    def is_server(self) -> bool:
        """The reference is a callable or an endpoint."""
        return self._server is not None

    @property
    def prepares(self) -> bool:
        """It is given raw inputs, so that its own preprocessing is compared."""
        return self._server is not None and self._server.takes_raw

    @property
    def said(self) -> str:
        """Who answers, where the reference's name does not tell; may be empty."""
        return self._server.said if self._server else ""

    def feed(self, raw: RawInput, thing: str) -> Feed:
        """One raw input as the exported program takes it; see `feed_of`."""
        return feed_of(self.processor, raw, thing)

    def run(self, feeds: Sequence[Feed]) -> list[Feed]:
        """Outputs of the exported program, one dict an input."""
        return self._runner.run(feeds)

    def answer(
        self, things: Sequence[str], raws: Sequence[RawInput], feeds: Sequence[Feed]
    ) -> list[Answered]:
        """Ask the reference.

        Args:
            things: What to call each input.
            raws: The raw inputs, which a callable gets.
            feeds: The same inputs prepared.

        Raises:
            ValidateError: the server failed, or gave an answer that is none.
        """
        outputs = self.run(feeds)
        programs = [self.of_program(*each) for each in zip(outputs, feeds, strict=True)]
        if self._server is None:
            return programs
        answers = self._server.ask(raws, feeds, things)
        asked = zip(answers, things, feeds, programs, strict=True)
        return [self._of_server(*each) for each in asked]

    def of_program(self, outputs: Feed, feed: Feed) -> Answered:
        """What the exported program says with these outputs of ``feed``."""
        decides = self.exported.task in decisions.DECIDED_MARGIN
        record = decision(self.processor, outputs, feed) if decides else None
        record = self._attentive.complete(record, outputs, feed)
        margin = None if record is None else decisions.margin(record, self.rule)
        return Answered(
            record=record, margin=margin, scored=True, outputs=outputs, own=True, program=record
        )

    def _opened(self, reference: str, user_folder: Path) -> Server | Endpoint | None:
        if reference == PT2:
            return None
        if is_endpoint(reference):
            return Endpoint(reference, self.exported.signature, self.processor.medium)
        return Server(reference, user_folder)

    def _of_server(self, answer: object, thing: str, feed: Feed, program: Answered) -> Answered:
        called = f"answer of {self.reference} to {thing}"
        exported = self.exported
        said = understand(answer, exported.task, exported.signature, exported.labels, called)
        if said.tensors is not None:
            _check_tensors(said.tensors, program.outputs, called)
            own = self.of_program(said.tensors, feed)
            return dataclasses.replace(own, program=program.record)
        check_size(said.record, program.record, called)
        if isinstance(said.record, Detection) and len(said.record.scores):
            least = float(said.record.scores.min())
            self.least_score = least if self.least_score is None else min(self.least_score, least)
        known = completed(said.record, program.record)
        record = self._attentive.told_by(program.record, known)
        return Answered(
            record=record,
            margin=self._margin(said, record, program),
            scored=said.scored,
            outputs=program.outputs,
            own=False,
            program=program.record,
        )

    def _margin(self, said: Said, record: Record | None, program: Answered) -> float | None:
        """The server's own margin where its scores show one, else the exported program's."""
        if record is not None and (said.scored or not isinstance(record, Classification)):
            return decisions.margin(record, self.rule)
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
