"""`make_golden`: inputs with the reference's answers, chosen so that no chip may answer otherwise.

A case is kept where the reference is at least three times as far from flipping as the worst error
that the gate has seen, so that a flip on a device is a fault and never bad luck. Cases are
generated, or come from the folder that the user names for it; data given for validation never
becomes one. Generated ones were made while the reference was being asked, so that its engine is
started again only where too few of them are left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from edgeserve import jobs, tasks
from edgeserve.backends.batching import in_batches
from edgeserve.data import Feed, Reader, load_data, write_arrays
from edgeserve.errors import ValidateError
from edgeserve.files import LOCAL, describe, staged
from edgeserve.processing import Processor
from edgeserve.processing.processor import Medium, load_processor
from edgeserve.types.artifact import FileEntry
from edgeserve.types.base import number, plain
from edgeserve.types.reports import Limits
from edgeserve.types.samples import Golden, GoldenCase, GoldenField, Sample
from edgeserve.types.source import Exported
from edgeserve.validate.compare.output_fields import SAMPLED_ANSWERS, field_layouts, natural_outputs
from edgeserve.validate.compare.tensors import field_scales
from edgeserve.validate.golden.candidates import (
    GoldenCandidate,
    ask_reference,
    generate_candidates,
    load_candidates,
    raw_bytes,
)
from edgeserve.validate.golden.select import (
    SelectionRule,
    measure_artifact_errors,
    select_by_margin,
    select_embeddings,
)
from edgeserve.validate.reference.python_callable import check_reference
from edgeserve.validate.reference.reference import Reference
from edgeserve.validate.reference_store import (
    load_exported,
    program_key,
    read_answers,
    read_synthetic,
)
from edgeserve.validate.requests import Answers, GoldenRequest

_FEW_CASES = 3


def make_golden(request: GoldenRequest) -> Golden:
    """Make golden cases and write them to ``out/golden``.

    Raises:
        DataError: a file of the given folder cannot be used.
        ValidateError: EDGE-VALIDATE-009 no input is decided well enough; and the reference's.
    """
    if request.reference != request.caller:
        check_reference(request.reference)
    exported = load_exported(Path(request.source_folder))
    processor = load_processor(exported, Path(request.source_folder))
    rule = SelectionRule(exported.task, plain(request.error))
    chosen, asked, surest = _select_cases(request, exported, processor, rule)
    if not chosen:
        raise _no_case_error(request, rule, surest)
    golden = _write_cases(request, chosen, processor.medium, rule)
    fields = () if rule.decides else _fields(request, exported, chosen)
    return msgspec.structs.replace(golden, note=_note(chosen, asked, rule), fields=fields)


def _select_cases(
    request: GoldenRequest, exported: Exported, processor: Processor, rule: SelectionRule
) -> tuple[list[GoldenCandidate], int, float]:
    """The cases, of how many inputs (or how many were wanted), and the largest margin of any input.

    By the cheapest way that does.

    In turn: generated inputs kept with the reference's answers, and the reference itself; of each
    first those that exceed the largest error, then those that exceed the artifacts' own on them.
    Where an answer holds many decisions, the artifacts are always asked: which of two boxes remains
    is not a matter of one margin.
    """
    enough = max(1, request.count // 2)
    best: list[GoldenCandidate] = []
    asked, surest = request.count, -1.0
    ask_first = rule.many or (rule.wide and bool(request.artifacts))
    for ask_for in (_stored_candidates, _new_candidates):
        found = ask_for(request, exported, rule)
        surest = max((surest, *(each.margin for each in found if each.record is not None)))
        asked = len(found) if request.given else request.count
        for try_them in (True,) if ask_first else (False, True):
            if try_them and request.artifacts and found and tasks.decides(exported.task):
                found = measure_artifact_errors(found, request.artifacts, exported, processor)
            chosen = _choose(found, request, rule)
            best = max(best, chosen, key=len)
            if len(best) >= (asked if request.given else enough) and best:
                return best, asked, surest
    return best, asked, surest


def _choose(
    found: list[GoldenCandidate], request: GoldenRequest, rule: SelectionRule
) -> list[GoldenCandidate]:
    """The best of what was found; all that hold, where the user gave them."""
    count = None if request.given is not None else request.count
    if not rule.decides:
        return found[:count]
    found = [each for each in found if rule.holds(each)]
    if tasks.needs_neighbours(rule.task):
        return select_embeddings(found, count, rule)
    return select_by_margin(found, count, lambda each: rule.wanted(each.error))


def _stored_candidates(
    request: GoldenRequest, exported: Exported, rule: SelectionRule
) -> list[GoldenCandidate]:
    """What was generated when the reference was asked, if it was this one and its answers hold."""
    if request.given is not None:
        return []
    folder, answers = _current_answers(request, exported)
    asked = (request.reference, request.seed)
    if answers is None or (answers.reference, answers.seed) != asked:
        return []
    try:
        return load_candidates(answers, folder, exported.signature)
    except ValidateError:  # damaged: they can be made again
        return []


def _current_answers(request: GoldenRequest, exported: Exported) -> tuple[Path, Answers | None]:
    """The folder of the stored answers, and those; None where they are not to this program."""
    folder = Path(request.out) / "samples"
    answers = read_answers(folder)
    current = answers is not None and answers.program_key == program_key(exported)
    return folder, answers if current else None


def _new_candidates(
    request: GoldenRequest, exported: Exported, rule: SelectionRule
) -> list[GoldenCandidate]:
    """Ask the reference, about what was given or what is generated now."""
    folder = Path(request.source_folder)
    user_folder = Path(request.folder)
    with Reference(exported, folder, request.reference, user_folder, request.caller) as oracle:
        if request.given is not None:
            return list(_given_candidates(request, oracle))
        asked = request.count, rule.wanted(None), request.seed
        return generate_candidates(oracle, folder, *asked, least=None)


def _given_candidates(request: GoldenRequest, oracle: Reference) -> Iterator[GoldenCandidate]:
    signature = oracle.exported.signature
    samples = load_data(Path(request.given or ""), signature, oracle.processor.medium)
    with Reader(signature) as reader:
        for batch in in_batches(len(samples)):
            some = [samples[i] for i in batch]
            inputs = [(sample.id, reader.read(sample), _suffix(sample)) for sample in some]
            yield from ask_reference(oracle, inputs)
            jobs.progress("golden cases", batch.stop, len(samples))


def _suffix(sample: Sample) -> str:
    return ".npz" if sample.row is not None else Path(sample.path or ".txt").suffix.lower()


def _no_case_error(request: GoldenRequest, rule: SelectionRule, surest: float) -> ValidateError:
    at_best = "" if surest < 0 or tasks.needs_neighbours(rule.task) else f", at best {surest:.2g}"
    what = f"inputs of {request.given}" if request.given else "generated inputs"
    three_times = "three times what each artifact changes"
    wanted = three_times if request.artifacts else f"{rule.wanted(None):.3g}"
    return ValidateError(
        "EDGE-VALIDATE-009",
        "golden cases",
        wanted=f"a decision with a margin above {wanted}",
        got=f"none on {what}{at_best}",
        hint="run `edgeserve validate OUT --golden DIR`: inputs that the model is sure of, and that"
        " may be shipped; where it is sure of none, as without trained weights, load those first",
    )


def _note(chosen: Sequence[GoldenCandidate], asked: int, rule: SelectionRule) -> str:
    if not rule.decides:
        return ""
    return "; ".join(filter(None, (_few(chosen, asked, rule), _wide(chosen, rule))))


def _wide(chosen: Sequence[GoldenCandidate], rule: SelectionRule) -> str:
    """Tolerances beyond half of what a case may have at most."""
    widest = max(rule.tolerance(each.error) for each in chosen)
    if widest <= rule.most_drift / 2:
        return ""
    what = "cosines" if tasks.needs_neighbours(rule.task) else "scores"
    most = f"at most {rule.most_drift:g}"
    return f"{what} may differ by up to {widest:.2g} from the reference's ({most})"


def _few(chosen: Sequence[GoldenCandidate], asked: int, rule: SelectionRule) -> str:
    if len(chosen) >= asked:
        return ""
    few = "; give better ones with --golden DIR" if len(chosen) < _FEW_CASES else ""
    own = any(each.error is not None for each in chosen)
    least = f"{rule.wanted(None):.3g}"
    wanted = "three times what each artifact changes on them" if own else least
    return f"{len(chosen)} of {asked} inputs are decided by a margin above {wanted}{few}"


def _fields(
    request: GoldenRequest, exported: Exported, chosen: Sequence[GoldenCandidate]
) -> tuple[GoldenField, ...]:
    """The parts that outputs are compared by, and the scale of each, as the gate has them.

    The reference's first answers say both, where they are stored, else the cases' own.
    """
    seen = _stored_outputs(request, exported) or [each.outputs for each in chosen]
    fields: list[GoldenField] = []
    for name, split in field_layouts(exported, seen).items():
        scales = field_scales(split, [feed[name] for feed in seen], Limits().scale_floor)
        fields += [
            GoldenField(output=name, word=field.word, scale=scale, axis=split.axis, runs=field.runs)
            for field, scale in zip(split.fields, scales, strict=True)
        ]
    return tuple(fields)


def _stored_outputs(request: GoldenRequest, exported: Exported) -> list[Feed]:
    """The reference's outputs for natural inputs, where they are stored and are its."""
    folder, answers = _current_answers(request, exported)
    if answers is None:
        return []
    try:
        fillers = read_synthetic(folder, answers, exported.signature)
        return natural_outputs(answers, folder, fillers, exported.signature, SAMPLED_ANSWERS)
    except ValidateError:  # damaged: the cases themselves will do
        return []


def _write_cases(
    request: GoldenRequest, chosen: Sequence[GoldenCandidate], medium: Medium, rule: SelectionRule
) -> Golden:
    """Write the cases as ``golden/001.png`` and so on; paths are relative to the workspace."""
    origin: Literal["generated", "given"] = "generated" if request.given is None else "given"
    with staged(Path(request.out) / "golden") as stage:
        named = [(f"{i:03d}", each) for i, each in enumerate(chosen, 1)]
        cases = tuple(_write_case(stage, name, each, medium, rule) for name, each in named)
    return Golden(origin=origin, cases=cases)


def _write_case(
    stage: Path, name: str, each: GoldenCandidate, medium: Medium, rule: SelectionRule
) -> GoldenCase:
    LOCAL.write(stage / f"{name}{each.suffix}", raw_bytes(each.raw))
    outputs = None
    arrays = tasks.sidecar_arrays(each.record) if rule.decides else each.outputs
    if arrays:
        LOCAL.write(stage / f"{name}.out.npz", write_arrays(arrays))
        outputs = _entry(stage, f"{name}.out.npz")
    return GoldenCase(
        input=_entry(stage, f"{name}{each.suffix}"),
        medium="tensors" if each.suffix == ".npz" else medium,
        record=None if each.record is None else tasks.detach_arrays(each.record),
        outputs=outputs,
        margin=number(each.margin) if rule.decides else 0.0,
        tolerance=rule.tolerance(each.error),
    )


def _entry(stage: Path, name: str) -> FileEntry:
    entry = describe(stage, name)
    return FileEntry(path=f"golden/{name}", size=entry.size, sha256=entry.sha256)
