"""What the gate's verbs are asked and what they answer. Light: loads no runtime."""

from __future__ import annotations

from typing import Literal

from edgeserve.tasks.values import AnyRecord
from edgeserve.types.artifact import Artifact, FileEntry, Reason
from edgeserve.types.base import Number, Value
from edgeserve.types.records import Runtime
from edgeserve.types.reports import Limits
from edgeserve.types.samples import Sample, StoredAnswer


class AnswersRequest(Value, frozen=True):
    """Ask the reference (`edgeserve.validate.collect:collect_answers`).

    Attributes:
        source_folder: Folder of ``source.json`` and what it lists; absolute.
        out: Folder to fill (``OUT/samples``); absolute. What it holds is replaced as a whole.
        data: What ``--data`` names; None: generated inputs only.
        reference: "pt2", ``module:callable`` or the address of an endpoint; None: the one whose
            answers are stored in ``out``, and these answers where they are for the same program
            and data.
        folder: The user's folder: a callable's modules are found there.
        seed: Of the split and of generated inputs.
        refresh: Ask again even where nothing that is known of has changed.
        tensor_bytes: How much of the reference's outputs may be stored.
        golden: How many golden cases will be wanted: inputs to choose them from are generated and
            asked about too, which saves `make_golden` from starting the reference. 0: none will.
        caller: Name of the function that the process which started this worker answers for
            (`CallerFunction`); empty: it answers for none. A ``reference`` of this name is asked
            there, anew each time: nobody can tell whether what the function rests on has changed.
    """

    source_folder: str
    out: str
    data: str | None = None
    reference: str | None = None
    folder: str = "."
    seed: int = 0
    refresh: bool = False
    tensor_bytes: int = 1 << 30
    golden: int = 8
    caller: str = ""


class Chunk(Value, frozen=True):
    """Reference outputs of consecutive samples: ``.npz`` with an array ``{sample}.{output}`` each.

    Attributes:
        file: Relative to the samples folder.
        start: Index of the first sample.
        count: How many samples.
    """

    file: FileEntry
    start: int
    count: int


class SyntheticInput(Value, frozen=True):
    """A generated input.

    Attributes:
        name: "zeros", "extremes", "picture-3", ...
        natural: Like what the model is made for: it sets the outputs' scale where there is no data.
        answer: What the reference decided; None where it was not asked or gave no decision.
        of_length: It is there for its length, which its name says.
        edge: It lies on a constant of the program (`edgeserve.validate.inputs.edges`).
    """

    name: str
    natural: bool
    answer: StoredAnswer | None = None
    of_length: bool = False
    edge: bool = False


class StoredCandidate(Value, frozen=True):
    """A generated input that may become a golden case, and what the reference says to it.

    Attributes:
        thing: What it is, in words.
        suffix: Of a file that holds it (".png", ".txt", ".npz").
        record: The decision to hold a device to; None for a task without decisions.
        margin: How far it is from flipping; of an embedding 0, it depends on the others chosen.
        program: Of an embedding, the exported program's.
        size: Length of the longest free dimension, so that cases of several lengths are chosen.
        drift: How far the exported program's answer is from ``record``.
    """

    thing: str
    suffix: str
    record: AnyRecord | None = None
    margin: Number = 0.0
    program: AnyRecord | None = None
    size: int = 0
    drift: Number = 0.0


class Answers(Value, frozen=True):
    """What the reference answered. Lies as ``answers.json`` in the samples folder.

    Attributes:
        program_key: Hash over the exported program and its processing.
        reference_key: Hash over the reference: what it is called, and the code it was found in or
            what the endpoint says of its model; of a function of the calling process, over all
            that it answered.
        data_key: Hash over the inputs.
        reference: "pt2", ``module:callable`` or the address of an endpoint.
        preprocessing: Whether and how preprocessing was compared, as reports say it.
        own_tensors: The stored outputs are the reference's own, not the exported program's.
        runtime: The engine of the exported program.
        data: Absolute path of the data set; None without.
        samples: The evaluation half, without inputs whose bytes occur twice.
        answers: One per sample; of embeddings without their records, which are in ``vectors``.
        chunks: The stored outputs, in order; may end before the samples do.
        fillers: Generated inputs.
        fillers_file: ``.npz``: ``{filler}.in.{input}`` and ``{filler}.out.{output}``, by number.
        notes: For the report.
        cached: Nothing was run; this was there already.
        vectors: ``.npz`` with the samples' embeddings ``vectors``, float32 [samples, d], or with
            ``{sample}.{field}`` of their masks, depths and frames; None for other tasks.
        candidates: Generated inputs that golden cases are chosen from.
        candidates_file: ``.npz``: the raw bytes of each, ``{candidate}.raw``; its outputs,
            ``{candidate}.out.{output}``, by number, but where one class or vector is decided; and
            the arrays of masks, depths and frames, ``{candidate}.{field}``.
        seed: Of what was generated.
        invariant_seconds: CPU seconds that generated inputs and inner tensors took.
        least_score: Of a detector with a server: the least score of a box that it listed.
        mixes: A row gets another answer within a batch than alone, from the reference itself.
        findings: What the user has to know of the server beside the program: remarks on every
            artifact.
    """

    program_key: str
    reference_key: str
    data_key: str
    reference: str
    preprocessing: str
    own_tensors: bool
    runtime: Runtime
    data: str | None
    samples: tuple[Sample, ...]
    answers: tuple[StoredAnswer, ...]
    chunks: tuple[Chunk, ...]
    fillers: tuple[SyntheticInput, ...]
    fillers_file: FileEntry
    notes: tuple[str, ...] = ()
    cached: bool = False
    vectors: FileEntry | None = None
    candidates: tuple[StoredCandidate, ...] = ()
    candidates_file: FileEntry | None = None
    seed: int = 0
    invariant_seconds: Number = 0.0
    least_score: Number | None = None
    mixes: bool = False
    findings: tuple[Reason, ...] = ()

    def __post_init__(self) -> None:
        if len(self.samples) != len(self.answers):
            raise ValueError(f"{len(self.answers)} answers for {len(self.samples)} samples")


class JudgeRequest(Value, frozen=True):
    """Judge one artifact (`edgeserve.validate.judge:judge`).

    Attributes:
        artifact: The candidate.
        root: Folder its files lie under; absolute.
        source_folder: As in `AnswersRequest`.
        samples: The folder that `AnswersRequest` filled; absolute.
        limits: What harm is allowed.
        delegate: Which delegate to run it on; None: the backend's own choice.
        threads: Threads for the runtime; None: its own choice.
    """

    artifact: Artifact
    root: str
    source_folder: str
    samples: str
    limits: Limits = Limits()
    delegate: str | None = None
    threads: int | None = None


class LocatedArtifact(Value, frozen=True):
    """An artifact and the absolute folder that its files lie under."""

    artifact: Artifact
    root: str


class GoldenRequest(Value, frozen=True):
    """Make golden cases (`edgeserve.validate.golden.make:make_golden`).

    Attributes:
        source_folder: As in `AnswersRequest`.
        out: The workspace; cases are written below ``out/golden``, which is replaced as a whole.
            Where ``out/samples`` holds the answers of this reference, generated cases are chosen
            from them, and the reference is asked again only if too few are left.
        reference: "pt2", ``module:callable`` or the address of an endpoint.
        folder: The user's folder.
        given: ``--golden DIR``: files that may be shipped; None: generate.
        error: Largest `Report.error` of the artifacts; margins must exceed three times as much.
        count: How many to generate.
        seed: Of what is generated.
        artifacts: Those that the cases must hold for. Where too few inputs exceed ``error``, which
            is of the worst input, each artifact is asked how far it moves on each of them.
        caller: As in `AnswersRequest`.
    """

    source_folder: str
    out: str
    reference: Literal["pt2"] | str = "pt2"
    folder: str = "."
    given: str | None = None
    error: Number = 0.0
    count: int = 8
    seed: int = 0
    artifacts: tuple[LocatedArtifact, ...] = ()
    caller: str = ""
