"""Golden cases for the artifacts kept: made once, and for as many of them as there are any for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from edgeserve.errors import ValidateError
from edgeserve.pipeline.bench import Bench
from edgeserve.pipeline.judging import Judged
from edgeserve.pipeline.stages import key_of
from edgeserve.types.base import plain
from edgeserve.types.samples import Golden
from edgeserve.validate.request import Answers, GoldenRequest, Placed

__all__ = ["golden_cases"]

#: The code of "no input is far enough from flipping".
_NONE_FAR_ENOUGH = "EDGE-VALIDATE-009"


def golden_cases(
    bench: Bench, answers: Answers, kept: Sequence[Judged], given: str | None, known: Golden | None
) -> Golden | None:
    """Golden cases far enough from flipping for the artifacts kept; made once for the same ones.

    Where one artifact moves the answers so far that no input is left, the cases are made for the
    others: better proof for those than for none. On a device the one left out has to answer the
    same cases, and is not used where it cannot.

    Returns:
        None where no generated input is far enough for any of them: the verdicts stand, but
        `package` will ask for ``validate --golden DIR``.

    Raises:
        ValidateError: none of the inputs *given* is far enough from flipping.
    """
    folder = str(Path(given).absolute()) if given is not None else None
    key, given_key = _keys(answers, kept, folder)
    if known is not None and folder is None:
        if bench.stages.done("golden", key) or bench.stages.done("golden-given", given_key):
            return known
        if known.origin == "given":
            bench.ui.note("the golden cases given earlier are about other answers: made anew")
    golden = _made(bench, answers, kept, folder)
    if golden is None:
        return None
    bench.stages.finish("golden", key)
    bench.stages.forget("golden-given")
    if folder is not None:
        bench.stages.finish("golden-given", given_key)
    if golden.note:
        bench.ui.note(f"golden cases: {golden.note}")
    return golden


def _keys(answers: Answers, kept: Sequence[Judged], folder: str | None) -> tuple[str, str]:
    """Stage keys: of cases generated or given for these artifacts, and of given ones for any."""
    about = (answers.program_key, answers.reference_key)
    shas = sorted(j.artifact.sha256 for j in kept)
    return key_of(*about, _error(kept), folder, shas), key_of(*about)


def _error(kept: Sequence[Judged]) -> float:
    return max((plain(j.report.error) for j in kept), default=0.0)


def _made(
    bench: Bench, answers: Answers, kept: Sequence[Judged], folder: str | None
) -> Golden | None:
    """Cases for all; failing that for as many as there are any for; None where that is none."""
    by_error = sorted(kept, key=lambda j: plain(j.report.error))
    golden, refused = _try(bench, answers, by_error, folder)
    if refused is None:
        return golden
    # Whatever fits some fits fewer as well, so halving finds how many. What succeeds last is what
    # lies in the workspace, and each success is of more than the one before.
    fits, too_many = 0, len(by_error)
    while too_many - fits > 1:
        count = (fits + too_many) // 2
        made, _ = _try(bench, answers, by_error[:count], folder)
        if made is None:
            too_many = count
        else:
            golden, fits = made, count
    if golden is not None:
        return _without(golden, by_error[fits:])
    if folder is not None:
        raise refused
    bench.ui.note(f"no golden cases: {refused.message}; {refused.hint}")
    return None


def _try(
    bench: Bench, answers: Answers, some: Sequence[Judged], folder: str | None
) -> tuple[Golden, None] | tuple[None, ValidateError]:
    """The cases, or the error that says that no input is far enough from flipping."""
    try:
        return _make(bench, answers, some, folder), None
    except ValidateError as refused:
        if refused.code != _NONE_FAR_ENOUGH:
            raise
        return None, refused


def _make(bench: Bench, answers: Answers, some: Sequence[Judged], folder: str | None) -> Golden:
    request = GoldenRequest(
        source_folder=str(bench.root / "source"),
        out=str(bench.root),
        reference=answers.reference,
        folder=bench.path[0],
        given=folder,
        error=_error(some),
        artifacts=tuple(Placed(artifact=j.artifact, root=str(j.root.absolute())) for j in some),
    )
    return bench.work(
        "golden cases", "edgeserve.validate.golden:make_golden", request, Golden, "golden"
    )


def _without(golden: Golden, left_out: Sequence[Judged]) -> Golden:
    """The cases, with a word on the artifacts that they were not chosen for."""
    left = ", ".join(j.artifact.name for j in left_out)
    said = f"none is far enough from flipping for {left}: a device uses it only if it holds them"
    return msgspec.structs.replace(golden, note="; ".join(filter(None, (golden.note, said))))
