"""``edgeserve validate``: validate again with other data, another reference or other limits.

What an earlier run refused is told with the reference that it was judged against, and the day.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from edgeserve.options import check_options, value_error
from edgeserve.pipeline.export import read_exported
from edgeserve.pipeline.judge import ask_reference, gate, hold_to_golden
from edgeserve.pipeline.options import limits_of
from edgeserve.pipeline.promote import golden_for, promote
from edgeserve.pipeline.regression import compare_reports, model_id_at, reports_at
from edgeserve.pipeline.result import StageResult, check_writable, write_junit
from edgeserve.pipeline.stage_context import QUIET, StageContext, Ui, open_stage
from edgeserve.types.artifact import Refused
from edgeserve.types.base import decode
from edgeserve.types.manifest import Manifest
from edgeserve.types.options import ValidateOptions
from edgeserve.types.reports import Report
from edgeserve.validate.reference.caller_function import CallerFunction
from edgeserve.validate.requests import Answers


def refusal_origin(root: Path, refused: Refused) -> str:
    """When and against what it was refused, as far as its report in the workspace tells.

    The manifest itself does not say: bundles carry its refusals, and no reference leaves OUT.
    """
    path = root / "reports" / f"{refused.format}-{refused.precision}.validate.json"
    try:
        report = decode(path.read_bytes(), Report)
        day = datetime.fromtimestamp(path.stat().st_mtime, UTC).date()
    except (OSError, msgspec.MsgspecError):
        return "refused earlier, not judged again"
    if refused.code not in {reason.code for reason in report.judgement.reasons}:
        return "refused earlier, not judged again"  # by a converter: the report is an older one
    return f"refused on {day} against {report.reference}, not judged again"


def annotate_refusals(root: Path, manifest: Manifest, judged: Collection[str]) -> Manifest:
    """The manifest to show: refusals that this run did not make say whose they are."""
    shown = (
        r
        if f"{r.format}-{r.precision}" in judged
        else msgspec.structs.replace(r, message=f"{r.message} ({refusal_origin(root, r)})")
        for r in manifest.refused
    )
    return msgspec.structs.replace(manifest, refused=tuple(shown))


def validate(
    options: ValidateOptions, ui: Ui = QUIET, caller: CallerFunction | None = None
) -> StageResult:
    """Judge every artifact of a workspace again and note the verdicts.

    Without ``--data`` and ``--reference`` the answers stored by the last run are compared with.
    What fails now moves to ``failed/``.

    Args:
        options: What to do.
        ui: Where progress is shown.
        caller: A function of this process, asked where the reference has its name.

    Raises:
        UsageError: an option's value is unknown, or there are no reports to compare with.
        BundleError: ``options.out`` is no workspace, or a file in it changed.
        DataError: the data set cannot be used.
        ValidateError: the reference cannot be asked, or no golden case can be made.
    """
    _check(options)
    limits = limits_of(options.profile)
    before = reports_at(Path(options.against)) if options.against else None
    was = model_id_at(Path(options.against)) if options.against else None
    with open_stage(options.out, ui, options.timeout, caller) as bench:
        manifest = bench.workspace.manifest
        answers = _answers(bench, options)
        for artifact in manifest.artifacts:
            bench.workspace.local(artifact)  # no changed byte reaches a runtime
        for refused in manifest.refused:
            name = f"{refused.format}-{refused.precision}"
            ui.note(
                f"{name}: {refusal_origin(bench.root, refused)}; `edgeserve convert` makes it anew"
            )
        judging = [
            bench.crew.start(gate, bench, artifact.unjudged(), bench.root, answers, limits)
            for artifact in manifest.artifacts
        ]
        bench.crew.finish()
        judged = [future.result() for future in judging]
        golden = golden_for(bench, judged, answers, options.golden, manifest.golden)
        judged = hold_to_golden(bench, manifest, judged, golden)
        reports = {j.artifact.name: j.report for j in judged}
        manifest = promote(bench, manifest, judged, (), golden, answers)
    other = was if was != manifest.model_id else None
    changes = () if before is None else compare_reports(before, reports, other)
    if options.junit:
        write_junit(Path(options.junit), manifest, reports, changes)
    return StageResult(
        out=options.out,
        manifest=annotate_refusals(Path(options.out), manifest, tuple(reports)),
        cells=(
            *(j.artifact.name for j in judged),
            *(f"{r.format}-{r.precision}" for r in manifest.refused),
        ),
        reports=reports,
        required=options.require,  # type: ignore[arg-type]
        changes=changes,
    )


def _check(options: ValidateOptions) -> None:
    """Refuse what would come to light only after the artifacts were judged.

    Raises:
        UsageError: EDGE-USAGE-001 or -005.
    """
    check_options(options)
    if options.golden is not None and not Path(options.golden).exists():
        called, hint = f"--golden {options.golden}", "correct the path given with --golden"
        raise value_error(called, "a folder of raw inputs", "nothing at this path", hint)
    if options.junit is not None:
        check_writable(Path(options.junit))


def _answers(bench: StageContext, options: ValidateOptions) -> Answers:
    """Fresh answers where something new is asked for, else those stored by the last run."""
    stored = bench.root / "samples" / "answers.json"
    data, reference = options.data, options.reference
    if data is None and stored.exists():
        data = decode(stored.read_bytes(), Answers).data
    if reference is None:
        reference = None if stored.exists() else read_exported(bench.root).reference or "pt2"
    return ask_reference(bench, data, reference)
