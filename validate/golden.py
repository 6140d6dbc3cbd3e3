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

from edgeserve import decisions, jobs
from edgeserve.data import Feed, Reader, load_data, write_arrays
from edgeserve.decisions import DECIDED_MARGIN
from edgeserve.errors import ValidateError
from edgeserve.files import LOCAL, describe, staged
from edgeserve.processing import Processor
from edgeserve.processing.processor import Medium
from edgeserve.types.artifact import FileEntry
from edgeserve.types.base import number, plain
from edgeserve.types.reports import Limits
from edgeserve.types.samples import Golden, GoldenCase, GoldenField
from edgeserve.types.source import Exported
from edgeserve.validate.candidates import Drawn, ask, draw, raw_bytes, recall
from edgeserve.validate.choice import Rule, choose_each, choose_set
from edgeserve.validate.deciding import processor_of
from edgeserve.validate.difference import scales_of
from edgeserve.validate.feeds import in_batches
from edgeserve.validate.fields import LOOKED_AT
from edgeserve.validate.natural import first_answers, splits_of
from edgeserve.validate.oracle import Oracle
from edgeserve.validate.request import GoldenRequest
from edgeserve.validate.server import check_reference
from edgeserve.validate.store import load_exported, program_key, read_answers, read_fillers
from edgeserve.validate.tried import tried

__all__ = ["make_golden"]

_FEWEST = 3


def make_golden(request: GoldenRequest) -> Golden:
    """Make golden cases and write them to ``out/golden``.

    Raises:
        DataError: a file of the given folder cannot be used.
        ValidateError: EDGE-VALIDATE-009 no input is decided well enough; and the reference's.
    """
    check_reference(request.reference)
    exported = load_exported(Path(request.source_folder))
    processor = processor_of(exported, Path(request.source_folder))
    rule = Rule(exported.task, plain(request.error))
    chosen, asked, surest = _chosen(request, exported, processor, rule)
    if not chosen:
        raise _none(request, rule, surest)
    golden = _written(request, chosen, processor.medium, rule)
    fields = () if rule.decides else _fields(request, exported, chosen)
    return msgspec.structs.replace(golden, note=_note(chosen, asked, rule), fields=fields)


def _chosen(
    request: GoldenRequest, exported: Exported, processor: Processor, rule: Rule
) -> tuple[list[Drawn], int, float]:
    """The cases, of how many inputs (or how many were wanted), and the largest margin of any input.

    By the cheapest way that does.

    In turn: generated inputs kept with the reference's answers, and the reference itself; of each
    first those that exceed the largest error, then those that exceed the artifacts' own on them.
    Where an answer holds many decisions, the artifacts are always asked: which of two boxes remains
    is not a matter of one margin.
    """
    enough = max(1, request.count // 2)
    best: list[Drawn] = []
    asked, surest = request.count, -1.0
    for ask_for in (_remembered, _asked):
        found = ask_for(request, exported, rule)
        surest = max((surest, *(each.margin for each in found if each.record is not None)))
        asked = len(found) if request.given else request.count
        for try_them in (True,) if rule.many else (False, True):
            known = _tried(found, request, exported, processor) if try_them else found
            chosen = _choose(known, request, rule)
            best = max(best, chosen, key=len)
            if len(best) >= (asked if request.given else enough) and best:
                return best, asked, surest
    return best, asked, surest


def _tried(
    found: list[Drawn], request: GoldenRequest, exported: Exported, processor: Processor
) -> list[Drawn]:
    if not request.artifacts or not found or exported.task not in DECIDED_MARGIN:
        return found
    return tried(found, request.artifacts, exported, processor)


def _choose(found: list[Drawn], request: GoldenRequest, rule: Rule) -> list[Drawn]:
    """The best of what was found; all that hold, where the user gave them."""
    count = None if request.given is not None else request.count
    if not rule.decides:
        return found[:count]
    if rule.task == "feature-extraction":
        return choose_set(found, count, rule)
    return choose_each(found, count, lambda each: rule.wanted(each.error))


def _remembered(request: GoldenRequest, exported: Exported, rule: Rule) -> list[Drawn]:
    """What was generated when the reference was asked, if it was this one and its answers hold."""
    if request.given is not None:
        return []
    folder = Path(request.out) / "samples"
    answers = read_answers(folder)
    if answers is None or answers.program_key != program_key(exported):
        return []
    if (answers.reference, answers.seed) != (request.reference, request.seed):
        return []
    try:
        return recall(answers, folder, exported.signature)
    except ValidateError:  # damaged: they can be made again
        return []


def _asked(request: GoldenRequest, exported: Exported, rule: Rule) -> list[Drawn]:
    """Ask the reference, about what was given or what is generated now."""
    folder = Path(request.source_folder)
    with Oracle(exported, folder, request.reference, Path(request.folder)) as oracle:
        if request.given is not None:
            return list(_given(request, oracle))
        return draw(oracle, folder, request.count, rule.wanted(None), request.seed)


def _given(request: GoldenRequest, oracle: Oracle) -> Iterator[Drawn]:
    signature = oracle.exported.signature
    samples = load_data(Path(request.given or ""), signature, oracle.processor.medium)
    with Reader(signature) as reader:
        for batch in in_batches(len(samples)):
            some = [samples[i] for i in batch]
            suffixes = [".npz" if s.row is not None else _suffix(s.path or ".txt") for s in some]
            raws = [reader.read(sample) for sample in some]
            yield from ask(oracle, list(zip([s.id for s in some], raws, suffixes, strict=True)))
            jobs.progress("golden cases", batch.stop, len(samples))


def _suffix(path: str) -> str:
    return Path(path).suffix.lower()


def _none(request: GoldenRequest, rule: Rule, surest: float) -> ValidateError:
    at_best = "" if surest < 0 or rule.task == "feature-extraction" else f", at best {surest:.2g}"
    what = f"inputs of {request.given}" if request.given else "generated inputs"
    wanted = "three times what each artifact changes" if request.artifacts else _margin(rule)
    return ValidateError(
        "EDGE-VALIDATE-009",
        "golden cases",
        wanted=f"a decision with a margin above {wanted}",
        got=f"none on {what}{at_best}",
        hint="give --golden DIR: inputs that the model is sure of and that may be shipped; where it"
        " is sure of none, as without trained weights, train it or load its weights first",
    )


def _margin(rule: Rule) -> str:
    return f"{rule.wanted(None):.3g}"


def _note(chosen: Sequence[Drawn], asked: int, rule: Rule) -> str:
    if len(chosen) >= asked or not rule.decides:
        return ""
    few = "; give better ones with --golden DIR" if len(chosen) < _FEWEST else ""
    own = any(each.error is not None for each in chosen)
    wanted = "three times what each artifact changes on them" if own else _margin(rule)
    return f"{len(chosen)} of {asked} inputs are decided by a margin above {wanted}{few}"


def _fields(
    request: GoldenRequest, exported: Exported, chosen: Sequence[Drawn]
) -> tuple[GoldenField, ...]:
    """The parts that outputs are compared by, and the scale of each, as the gate has them.

    The reference's first answers say both, where they are stored, else the cases' own.
    """
    seen = _known(request, exported) or [each.outputs for each in chosen]
    floor = Limits().scale_floor
    return tuple(
        GoldenField(output=name, word=field.word, scale=scale, axis=split.axis, runs=field.runs)
        for name, split in splits_of(exported, seen).items()
        for field, scale in zip(
            split.fields, scales_of(split, [feed[name] for feed in seen], floor), strict=True
        )
    )


def _known(request: GoldenRequest, exported: Exported) -> list[Feed]:
    """The reference's outputs for natural inputs, where they are stored and are its."""
    folder = Path(request.out) / "samples"
    answers = read_answers(folder)
    if answers is None or answers.program_key != program_key(exported):
        return []
    try:
        fillers = read_fillers(folder, answers, exported.signature)
        return first_answers(answers, folder, fillers, exported.signature, LOOKED_AT)
    except ValidateError:  # damaged: the cases themselves will do
        return []


def _written(request: GoldenRequest, chosen: Sequence[Drawn], medium: Medium, rule: Rule) -> Golden:
    """Write the cases as ``golden/001.png`` and so on; paths are relative to the workspace."""
    origin: Literal["generated", "given"] = "generated" if request.given is None else "given"
    with staged(Path(request.out) / "golden") as stage:
        cases = tuple(
            _case(stage, f"{i:03d}", each, medium, rule) for i, each in enumerate(chosen, 1)
        )
    return Golden(origin=origin, cases=cases)


def _case(stage: Path, name: str, each: Drawn, medium: Medium, rule: Rule) -> GoldenCase:
    LOCAL.write(stage / f"{name}{each.suffix}", raw_bytes(each.raw))
    outputs = None
    arrays = decisions.held_apart(each.record) if rule.decides else each.outputs
    if arrays:
        LOCAL.write(stage / f"{name}.out.npz", write_arrays(arrays))
        outputs = _entry(stage, f"{name}.out.npz")
    return GoldenCase(
        input=_entry(stage, f"{name}{each.suffix}"),
        medium="tensors" if each.suffix == ".npz" else medium,
        record=None if each.record is None else decisions.emptied(each.record),
        outputs=outputs,
        margin=number(each.margin) if rule.decides else 0.0,
        tolerance=rule.tolerance(each.error),
    )


def _entry(stage: Path, name: str) -> FileEntry:
    entry = describe(stage, name)
    return FileEntry(path=f"golden/{name}", size=entry.size, sha256=entry.sha256)
