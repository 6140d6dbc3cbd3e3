"""The object that ``--json`` prints: the contract with scripts, schema version 1."""

from __future__ import annotations

from typing import Literal

from edgeserve.types.artifact import Reason
from edgeserve.types.base import Value
from edgeserve.types.tensors import IO
from edgeserve.types.vocabulary import Format, Precision, Verdict


class ArtifactOutput(Value, frozen=True):
    """An artifact that was kept; ``entry`` is relative to ``out``."""

    format: Format
    precision: Precision
    entry: str
    sha256: str
    verdict: Verdict
    reasons: tuple[Reason, ...]
    io: IO


class RefusedOutput(Value, frozen=True):
    """What was refused, and what to do about it.

    Attributes:
        repro: With ``--bisect``: a script, relative to ``out``, that fails in the same way.
    """

    format: Format
    precision: Precision
    verdict: Verdict
    code: str
    message: str
    hint: str
    repro: str | None = None


class ErrorOutput(Value, frozen=True):
    """Why the command as a whole did not end well."""

    code: str
    message: str
    hint: str


class Output(Value, frozen=True, kw_only=True):
    """What ``convert``, ``validate`` and ``run`` print.

    Attributes:
        out: The workspace, as typed.
        model_id: Identity of the model; None after a dry run.
        artifacts: Kept, in order of name.
        refused: Not kept.
        error: None unless the command itself failed or a requirement is missed.
    """

    schema: Literal[1] = 1
    out: str
    model_id: str | None
    artifacts: tuple[ArtifactOutput, ...]
    refused: tuple[RefusedOutput, ...]
    error: ErrorOutput | None
