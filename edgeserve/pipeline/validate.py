"""``edgeserve validate``: ask the gate again; other data, reference or limits."""

from __future__ import annotations

from pathlib import Path

from edgeserve.errors import UsageError
from edgeserve.pipeline.against import compare, model_at, reports_at
from edgeserve.pipeline.bench import Bench, at_work
from edgeserve.pipeline.earlier import earlier, with_earlier
from edgeserve.pipeline.export import exported_in
from edgeserve.pipeline.judging import ask_reference, gate
from edgeserve.pipeline.junit import check_writable, write_junit
from edgeserve.pipeline.options import ValidateOptions, choice, no_empty, seconds
from edgeserve.pipeline.outcome import Outcome
from edgeserve.pipeline.placing import golden_for, settle
from edgeserve.pipeline.profiles import limits_of
from edgeserve.pipeline.ui import QUIET, Ui
from edgeserve.types.base import decode
from edgeserve.types.words import VERDICTS
from edgeserve.validate.request import Answers

__all__ = ["validate"]


def validate(options: ValidateOptions, ui: Ui = QUIET) -> Outcome:
    """Judge every artifact of a workspace again and note the verdicts.

    Without ``--data`` and ``--reference`` the answers stored by the last run are compared with.
    What fails now moves to ``failed/``.

    Raises:
        UsageError: an option's value is unknown, or there are no reports to compare with.
        BundleError: ``options.out`` is no workspace, or a file in it changed.
        DataError: the data set cannot be used.
        ValidateError: the reference cannot be asked, or no golden case can be made.
    """
    _check(options)
    limits = limits_of(options.profile)
    before = reports_at(Path(options.against)) if options.against else None
    was = model_at(Path(options.against)) if options.against else None
    with at_work(options.out, ui, options.timeout) as bench:
        manifest = bench.workspace.manifest
        answers = _answers(bench, options)
        for artifact in manifest.artifacts:
            bench.workspace.local(artifact)  # no changed byte reaches a runtime
        for refused in manifest.refused:
            name = f"{refused.format}-{refused.precision}"
            ui.note(f"{name}: {earlier(bench.root, refused)}; `edgeserve convert` makes it anew")
        judging = [
            bench.crew.start(gate, bench, artifact.unjudged(), bench.root, answers, limits)
            for artifact in manifest.artifacts
        ]
        bench.crew.finish()
        judged = [future.result() for future in judging]
        reports = {j.artifact.name: j.report for j in judged}
        golden = golden_for(bench, judged, answers, options.golden, manifest.golden)
        manifest = settle(bench, manifest, judged, (), golden, answers)
    other = was if was != manifest.model_id else None
    changes = () if before is None else compare(before, reports, other)
    if options.junit:
        write_junit(Path(options.junit), manifest, reports, changes)
    return Outcome(
        out=options.out,
        manifest=with_earlier(Path(options.out), manifest, tuple(reports)),
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
    no_empty(options)
    seconds("--timeout", options.timeout)
    if options.require is not None:
        choice("--require", options.require, VERDICTS)
    if options.golden is not None and not Path(options.golden).exists():
        raise UsageError(
            "EDGE-USAGE-005",
            f"--golden {options.golden}",
            wanted="a folder of raw inputs",
            got="nothing at this path",
            hint="correct the path given with --golden",
        )
    if options.junit is not None:
        check_writable(Path(options.junit))


def _answers(bench: Bench, options: ValidateOptions) -> Answers:
    """Fresh answers where something new is asked for, else those stored by the last run."""
    stored = bench.root / "samples" / "answers.json"
    data, reference = options.data, options.reference
    if data is None and stored.exists():
        data = decode(stored.read_bytes(), Answers).data
    if reference is None:
        reference = None if stored.exists() else exported_in(bench.root).reference or "pt2"
    return ask_reference(bench, data, reference)
