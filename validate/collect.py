"""`collect_answers`: ask the reference once about everything, so that each artifact can be judged.

Answers are kept under hashes of the program, the reference and the inputs; unchanged ones are not
asked for again.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from edgeserve import jobs, tasks
from edgeserve.backends.batching import in_batches
from edgeserve.data import Feed, Reader, input_sha256, read_arrays, scan, split
from edgeserve.errors import BackendError, ValidateError
from edgeserve.files import sha256_bytes, staged
from edgeserve.processing.processor import load_processor
from edgeserve.tasks.classification import Classification
from edgeserve.tasks.embedding import Embedding
from edgeserve.types.artifact import FileEntry, Reason
from edgeserve.types.base import encode, number
from edgeserve.types.samples import Sample, StoredAnswer
from edgeserve.types.source import Exported
from edgeserve.validate.accuracy.evaluators import label_schema
from edgeserve.validate.checks.activations import ACTIVATION_INPUTS, record_activations
from edgeserve.validate.checks.reference_sanity import (
    MAX_SENSITIVITY,
    find_dependent_batch,
    perturb,
    proves_nothing,
    sensitivity,
)
from edgeserve.validate.golden.candidates import generate_candidates, save_candidates
from edgeserve.validate.golden.select import select_by_margin
from edgeserve.validate.inputs.edges import edge_feeds
from edgeserve.validate.inputs.generate import (
    GeneratedInput,
    changed_inputs,
    edge_inputs,
    mask_inputs,
    media_inputs,
)
from edgeserve.validate.inputs.ranges import InputStatistics, unvaried_notes
from edgeserve.validate.reference.preprocessing_search import (
    KEPT_INPUTS,
    MEDIA_NAMES,
    AskedInput,
    describe_difference,
    swapped_labels,
)
from edgeserve.validate.reference.python_callable import PT2, check_reference, reference_key
from edgeserve.validate.reference.reference import Reference, ReferenceAnswer
from edgeserve.validate.reference_store import (
    SyntheticTensors,
    TensorWriter,
    load_exported,
    program_key,
    read_answers,
    split_arrays,
    write_answers,
    write_synthetic,
)
from edgeserve.validate.requests import Answers, AnswersRequest, StoredCandidate, SyntheticInput
from edgeserve.validate.verdict import drift_limit

#: Golden candidates are drawn until there are enough that are this many times as sure as needed.
_MARGIN_FACTOR = 4.0


@dataclass(frozen=True)
class _Data:
    """The inputs to be judged on: each once, with its hash."""

    path: str | None = None
    samples: tuple[Sample, ...] = ()
    hashes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass
class _Collected:
    """What has been gathered so far."""

    answers: list[StoredAnswer] = field(default_factory=list)
    own: set[bool] = field(default_factory=set)
    fillers: list[SyntheticInput] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    natural: list[Feed] = field(default_factory=list)  # the first of them
    mixes: bool = False
    synthetic: list[AskedInput] = field(default_factory=list)
    differing: list[AskedInput] = field(default_factory=list)  # of the data, the worst first
    labels: Counter[tuple[str, str]] = field(default_factory=Counter)  # server's and program's
    narrowed: dict[str, list[str]] = field(default_factory=dict)  # generated inputs, by inputs

    def note_difference(self, asked: AskedInput) -> None:
        """Note how far the program is from a server's answer to an input of the data."""
        self.differing.append(asked)
        self.differing.sort(key=lambda each: -each.difference)
        del self.differing[KEPT_INPUTS:]
        record, program = asked.answer.record, asked.answer.program
        if isinstance(record, Classification) and isinstance(program, Classification):
            self.labels[record.label, program.label] += 1


def collect_answers(request: AnswersRequest) -> Answers:
    """Run the reference over the evaluation half of the data and over generated inputs.

    Raises:
        DataError: the data cannot be used.
        ValidateError: the reference cannot be asked.
        BackendError: the exported program cannot be run.
    """
    out = Path(request.out)
    exported = load_exported(Path(request.source_folder))
    stored = read_answers(out)
    reference = request.reference or (stored.reference if stored else PT2)
    of_caller = reference == request.caller
    if request.reference is not None and not of_caller:
        check_reference(reference)
    data = _data(request, exported)
    inputs = sha256_bytes(encode([data.samples, data.hashes, request.seed]))
    fresh = (program_key(exported), inputs)
    current = stored is not None and (stored.program_key, stored.data_key) == fresh
    held = stored if current and not request.refresh else None
    if held is not None and request.reference is None:
        return msgspec.structs.replace(held, cached=True)  # whoever gave them is not looked for
    if not of_caller:
        check_reference(reference)
    code = "" if of_caller else reference_key(reference, Path(request.folder))
    known = held is not None and (held.reference, held.reference_key) == (reference, code)
    if held is not None and known and not of_caller:
        return msgspec.structs.replace(held, cached=True)
    folder = Path(request.source_folder)
    with (
        Reference(exported, folder, reference, Path(request.folder), request.caller) as oracle,
        staged(out) as stage,
    ):
        answers = _collect(request, oracle, data, (*fresh, code), stage)
        if of_caller:
            answers = msgspec.structs.replace(answers, reference_key=_content_key(answers))
        write_answers(stage, answers)
    return answers


def _data(request: AnswersRequest, exported: Exported) -> _Data:
    """The evaluation half without repeated inputs; nothing without ``--data``."""
    if request.data is None:
        return _Data()
    medium = load_processor(exported, Path(request.source_folder)).medium
    found = scan(Path(request.data), exported.signature, medium, label_schema(exported))
    samples = split(found.samples, request.seed)["evaluation"]
    hashes: dict[str, Sample] = {}
    with Reader(exported.signature) as reader:
        for sample in samples:
            hashes.setdefault(input_sha256(reader.read(sample)), sample)
    notes = []
    if found.skipped:
        names = ", ".join(found.skipped[:3]) + (", ..." if len(found.skipped) > 3 else "")
        notes.append(f"{len(found.skipped)} files of the data are no inputs: {names}")
    if found.unused:
        notes.append(f"true {', '.join(found.unused)} of the data are of no use to {exported.task}")
    if len(hashes) < len(samples):
        notes.append(f"{len(samples) - len(hashes)} inputs repeat others byte by byte: left out")
    return _Data(found.path, tuple(hashes.values()), tuple(hashes), tuple(notes))


def _content_key(answers: Answers) -> str:
    """Hash over all answers: the same ones are the same evidence, whatever code gave them."""
    bare = msgspec.structs.replace(answers, notes=(), invariant_seconds=0.0)
    return sha256_bytes(encode(bare))


def _collect(
    request: AnswersRequest, oracle: Reference, data: _Data, keys: tuple[str, str, str], stage: Path
) -> Answers:
    signature = oracle.exported.signature
    statistics = {spec.name: InputStatistics() for spec in signature.inputs}
    writer = TensorWriter(stage, signature, request.tensor_bytes)
    collected = _Collected(notes=[*data.notes, *filter(None, [oracle.description])])
    for answered, digest in _over_data(oracle, data, statistics, collected):
        writer.add(answered.outputs)
        collected.own.add(answered.own)
        collected.answers.append(_to_stored(answered, digest))
    writer.flush()
    if writer.stored < len(data.samples):
        count = f"{writer.stored} of {len(data.samples)}"
        collected.notes.append(f"tensors were compared on the first {count} inputs")
    started = time.process_time()
    file = _over_generated(request, oracle, statistics, collected, stage)
    record_activations(stage, oracle.session, collected.natural)
    apart = time.process_time() - started
    answers, vectors = split_arrays(stage, collected.answers)
    candidates, candidates_file = _candidates(request, oracle, stage)
    findings = _findings(oracle, collected)
    return Answers(
        program_key=keys[0],
        reference_key=keys[2],
        data_key=keys[1],
        reference=oracle.reference,
        preprocessing=_preprocessing(oracle, data, collected),
        own_tensors=_gives_tensors(oracle, collected),
        runtime=oracle.session.runtime,
        data=data.path,
        samples=data.samples,
        answers=answers,
        chunks=tuple(writer.chunks),
        fillers=tuple(collected.fillers),
        fillers_file=file,
        notes=tuple(collected.notes),
        vectors=vectors,
        candidates=candidates,
        candidates_file=candidates_file,
        seed=request.seed,
        invariant_seconds=number(apart),
        least_score=None if oracle.least_score is None else number(oracle.least_score),
        mixes=collected.mixes,
        findings=findings,
    )


def _findings(oracle: Reference, collected: _Collected) -> tuple[Reason, ...]:
    """What the user has to know of the server beside the program."""
    limit = drift_limit(oracle.exported.task)
    texts = {
        "EDGE-CHECK-074": swapped_labels(collected.labels),
        "EDGE-CHECK-073": describe_difference(
            oracle, collected.synthetic, collected.differing, limit
        ),
    }
    return tuple(Reason(code=code, message=text) for code, text in texts.items() if text)


def _over_data(
    oracle: Reference, data: _Data, statistics: dict[str, InputStatistics], collected: _Collected
) -> Iterator[tuple[ReferenceAnswer, str]]:
    """Ask about the data, a batch at a time."""
    with Reader(oracle.exported.signature) as reader:
        for batch in in_batches(len(data.samples)):
            samples = [data.samples[i] for i in batch]
            raws = [reader.read(sample) for sample in samples]
            feeds = [oracle.feed(raw, s.id) for raw, s in zip(raws, samples, strict=True)]
            _note_statistics(statistics, feeds)
            collected.natural += feeds[: max(0, ACTIVATION_INPUTS - len(collected.natural))]
            answers = oracle.answer([s.id for s in samples], raws, feeds)
            asked = zip(batch, raws, feeds, answers, strict=True)
            for i, raw, feed, answered in asked:
                _check_decides(oracle, answered, data.samples[i].id)
                if oracle.is_server:
                    collected.note_difference(AskedInput.of(oracle, raw, feed, answered))
                yield answered, data.hashes[i]
            jobs.progress("reference", batch.stop, len(data.samples))


def _note_statistics(statistics: dict[str, InputStatistics], feeds: Sequence[Feed]) -> None:
    for feed in feeds:
        for name, array in feed.items():
            if array.dtype.kind in "fiub":
                statistics[name].add(array)


def _check_decides(oracle: Reference, answered: ReferenceAnswer, thing: str) -> None:
    if answered.record is None and tasks.decides(oracle.exported.task):
        raise ValidateError(
            "EDGE-VALIDATE-012",
            f"answer of {oracle.reference} to {thing}",
            wanted="a decision",
            got="NaN scores, or several answers to one input",
            hint="take this input out of the data, or fix the model",
        )


def _to_stored(answered: ReferenceAnswer, digest: str) -> StoredAnswer:
    margin = None if answered.margin is None else number(answered.margin)
    record, scored = answered.record, answered.scored
    return StoredAnswer(input_sha256=digest, record=record, margin=margin, scored=scored)


def _over_generated(
    request: AnswersRequest,
    oracle: Reference,
    statistics: dict[str, InputStatistics],
    collected: _Collected,
    stage: Path,
) -> FileEntry:
    """Ask about generated inputs: natural ones as if they were data, the others as tensors."""
    tensors: list[SyntheticTensors] = []
    example = read_arrays(Path(request.source_folder) / oracle.exported.examples.path)
    masks = mask_inputs(oracle.exported, example)  # their zeros are no rounded numbers
    for each in _generated(request, oracle, example, statistics, masks):
        jobs.progress("reference on generated inputs", len(tensors))
        try:
            each, answered = _ask_widened(oracle, each, collected)
        except BackendError as error:  # a program may refuse an extreme input
            collected.notes.append(f"generated input {each.name!r} left out: {error.message}")
            continue
        magnitudes = {n: 0.0 if n in masks else k.magnitude for n, k in statistics.items()}
        if reason := _ill_conditioned(request, oracle, each, answered, magnitudes):
            collected.notes.append(f"generated input {each.name!r} left out: {reason}")
            continue
        answer = _answer_to(oracle, each, answered)
        kind = {name: getattr(each, name) for name in ("natural", "of_length", "edge")}
        collected.fillers.append(SyntheticInput(name=each.name, **kind))
        tensors.append(SyntheticTensors(feed=each.feed, outputs=answered.outputs, answer=answer))
        if each.natural and request.data is None:
            collected.natural.append(each.feed)
    collected.notes += [
        f"the exported program fails on other numbers than those seen in {names}: not tried in"
        f" generated input {', '.join(kinds)}"
        for names, kinds in collected.narrowed.items()
    ]
    collected.notes += unvaried_notes(statistics, [each.feed for each in tensors])
    _ask_batch(oracle, collected, tensors)
    file, bare = write_synthetic(stage, tensors)
    collected.fillers[:] = [
        msgspec.structs.replace(filler, answer=answer)
        for filler, answer in zip(collected.fillers, bare, strict=True)
    ]
    return file


def _ask_batch(oracle: Reference, collected: _Collected, tensors: list[SyntheticTensors]) -> None:
    """Whether rows depend on each other; a batch in which they do is one more generated input."""
    mixed = find_dependent_batch(oracle.runner, oracle.exported.signature, collected.natural)
    if mixed is None:
        return
    collected.mixes = True
    natural = oracle.processor.medium == "tensors"  # alone, such rows may be nothing but zeros
    collected.fillers.append(SyntheticInput(name="rows in a batch", natural=natural))
    tensors.append(SyntheticTensors(feed=mixed[0], outputs=mixed[1]))


def _ill_conditioned(
    request: AnswersRequest,
    oracle: Reference,
    each: GeneratedInput,
    answered: ReferenceAnswer,
    magnitudes: dict[str, float],
) -> str:
    """Why an extreme input proves nothing: on it the reference answers mostly rounding errors."""
    if each.natural or each.edge:  # edges were chosen where the reference stands firm
        return ""
    try:
        (moved,) = oracle.runner.run([perturb(each.feed, magnitudes, request.seed)])
    except BackendError:
        return ""
    share = sensitivity(answered.outputs, moved)
    if share <= MAX_SENSITIVITY:
        return ""
    change = f"rounding changes it by {100 * share:.2g} %"
    return f"reference is ill-conditioned on this input ({change})"


def _generated(
    request: AnswersRequest,
    oracle: Reference,
    example: Feed,
    statistics: dict[str, InputStatistics],
    masks: frozenset[str],
) -> Iterator[GeneratedInput]:
    """Natural inputs first; without data they say what numbers the tensors hold."""
    exported, processor = oracle.exported, oracle.processor
    made = list(media_inputs(exported, processor, request.seed))
    if request.data is None:
        _note_statistics(statistics, [each.feed for each in made if each.natural] or [example])
    yield from made
    bounds = oracle.session.index_bounds()
    yield from edge_inputs(exported, processor, example, statistics, request.seed, bounds, masks)
    for name, feed in edge_feeds(oracle.session, example, masks, request.seed):
        yield GeneratedInput(name, natural=False, raw=None, feed=feed, edge=True)


def _ask_widened(
    oracle: Reference, each: GeneratedInput, collected: _Collected
) -> tuple[GeneratedInput, ReferenceAnswer]:
    """Ask about an input; about its form within what was seen where the program itself fails."""
    seen = each.within_seen()
    try:
        answered = _ask(oracle, each, collected)
        if seen is None or not proves_nothing(answered.outputs, each.natural):
            return each, answered
    except BackendError:
        if seen is None:
            raise
    names = ", ".join(map(repr, changed_inputs(seen.feed, each.feed)))
    collected.narrowed.setdefault(names, []).append(each.name)
    return seen, _ask(oracle, seen, collected)


def _ask(oracle: Reference, each: GeneratedInput, collected: _Collected) -> ReferenceAnswer:
    if each.natural and each.raw is not None:
        (answered,) = oracle.answer([each.name], [each.raw], [each.feed])
        collected.own.add(answered.own)
        if oracle.is_server:
            collected.synthetic.append(AskedInput.of(oracle, each.raw, each.feed, answered))
        return answered
    return oracle.program_answer(oracle.runner.run([each.feed])[0], each.feed)


def _answer_to(
    oracle: Reference, each: GeneratedInput, answered: ReferenceAnswer
) -> StoredAnswer | None:
    """The reference's decision, where it was asked; of embeddings only those among neighbours."""
    asked = each.raw is not None or not oracle.is_server
    extreme = isinstance(answered.record, Embedding) and not each.natural
    if not asked or answered.record is None or extreme:
        return None
    return _to_stored(answered, input_sha256(each.feed))


def _candidates(
    request: AnswersRequest, oracle: Reference, stage: Path
) -> tuple[tuple[StoredCandidate, ...], FileEntry | None]:
    """Inputs to choose golden cases from, while the reference is at hand; more than are needed."""
    if not request.golden:
        return (), None
    task = oracle.exported.task
    least = tasks.sure_margin(task)
    folder = Path(request.source_folder)
    try:
        wanted = _MARGIN_FACTOR * least
        drawn = generate_candidates(oracle, folder, request.golden, wanted, request.seed, least)
    except BackendError:  # golden cases are a stage of their own, which says what is wrong
        return (), None
    if tasks.decides(task) and not tasks.needs_neighbours(task):
        close = [each for each in drawn if each.drift <= drift_limit(task) / 2]
        drawn = close if len(close) >= request.golden else drawn
        drawn = select_by_margin(drawn, 2 * request.golden, lambda _: least)
    elif tasks.decides(task):
        drawn = [each for each in drawn if each.record is not None]
    return save_candidates(drawn, stage)


def _gives_tensors(oracle: Reference, collected: _Collected) -> bool:
    if len(collected.own) > 1:
        raise ValidateError(
            "EDGE-VALIDATE-011",
            f"reference {oracle.reference}",
            wanted="one kind of answer",
            got="tensors for some inputs and decisions for others",
            hint="let the function answer every input in the same form",
        )
    return collected.own != {False}


def _preprocessing(oracle: Reference, data: _Data, collected: _Collected) -> str:
    """The line of the report that says whether preprocessing was seen by the comparison."""
    if oracle.processor.medium == "tensors":
        return "none: the model takes tensors"
    if not oracle.is_server:
        return "declared, not compared"
    if not oracle.takes_raw_inputs:
        return "declared, not compared: the packaged processing made the endpoint's tensors"
    through = "tensors" if collected.own == {True} else "decisions"
    on = "" if data.samples else f" on generated {MEDIA_NAMES[oracle.processor.medium]} only"
    return f"compared{on} (through the reference's {through})"
