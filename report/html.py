"""The verb `render_report`: a workspace's contents become a page, written as one HTML file.

The file needs nothing but itself.
"""

from __future__ import annotations

import math
from importlib import resources
from pathlib import Path

from edgeserve.errors import ReportError
from edgeserve.files import write_atomic
from edgeserve.installation import install_command
from edgeserve.report import charts
from edgeserve.report.detail import detail
from edgeserve.report.formatting import (
    VERDICT_MEANING,
    VERDICT_WORD,
    artifact_name,
    clean,
    join_phrase,
    mebibytes,
    milliseconds,
    percent,
    scientific,
)
from edgeserve.report.load import WorkspaceContents, load_workspace
from edgeserve.report.overview import clock, key_figures, matrix
from edgeserve.report.plotting import Series, size_against_latency
from edgeserve.report.request import Rendered, ReportRequest
from edgeserve.report.summary import (
    agreement_phrase,
    evidence_facts,
    headline,
    judged_by_tensors,
    limitation_facts,
    not_run_here,
    sentence,
)
from edgeserve.report.thumbnails import Thumbnails
from edgeserve.report.view_model import ArtifactRow, Fact, Page, Plot
from edgeserve.types.artifact import Artifact, Refused
from edgeserve.types.base import plain
from edgeserve.types.reports import Environment, Measurement, Report
from edgeserve.types.vocabulary import Verdict

_VERDICT_ORDER: tuple[Verdict, ...] = ("pass", "degraded", "unproven", "fail")
_MB = 1024.0 * 1024.0
#: Remarks on the server, which are the same beside every artifact.
_SERVER_FINDINGS = ("EDGE-CHECK-073", "EDGE-CHECK-074")

_BOUNDS_CAPTION = (
    "Flip rate of decided answers: the dot is the observed rate, the bar its 95 % bounds. The "
    "diamond is the flip rate of all answers. An fp32 artifact within the tensor limit is judged "
    "by its outputs; its bar is pale."
)
_DIFFERENCES_CAPTION = (
    "Relative to the output's own scale, over all inputs. The limit applies to fp32; other "
    "precisions are judged by their decisions."
)
_SPLIT_CAPTION = "Median time of each step. A faster model shortens only the step `run`."
_COST_CAPTION = (
    "Smaller and faster is down and to the left; the colour is the verdict. Rings mark the Pareto "
    "front: no other artifact is better in size, time and flips together."
)
_LATENCY_CAPTION = (
    "A wall time to the right of the CPU time shows waiting. The ticks are p50, p90 and p99."
)

_DECIDED = (
    "An answer is decided if the reference's top class leads the second by at least 0.05 in "
    "probability."
)
_DECIDED_NEIGHBOURS = (
    "The answer to an input is its nearest neighbour among the other inputs; it is decided if the "
    "nearest leads the second by a cosine of at least 0.01."
)

#: With more artifacts than this, the details of passing ones are collapsed.
_MAX_UNFOLDED = 3


def build_page(loaded: WorkspaceContents, thumbnails: Thumbnails) -> Page:
    """Build the page: best artifacts first, unknown figures marked as unknown."""
    manifest = loaded.manifest
    artifacts = sorted(manifest.artifacts, key=lambda a: _rank(loaded, a))
    listed: list[Artifact | Refused] = [*artifacts]
    listed += [r for r in manifest.refused if _key(r) in loaded.reports]
    details = [detail(loaded, one, thumbnails) for one in listed]
    if len(details) > _MAX_UNFOLDED:
        details = [d._replace(open=d.verdict != "pass") for d in details]
    series = [_series(loaded, a) for a in artifacts]
    rows = tuple(_row(loaded, a) for a in artifacts)
    return Page(
        title=clean(manifest.name),
        about=_about(loaded),
        headline=headline(loaded),
        tiles=key_figures(loaded, artifacts, rows),
        rows=rows,
        refused=manifest.refused,
        plots=_plots(loaded, series),
        details=tuple(details),
        compared=evidence_facts(loaded),
        missing=limitation_facts(loaded),
        environment=_environment(loaded),
        decided=_decided(loaded),
        matrix=matrix(loaded),
        chart=_chart(loaded, series),
        warnings=_warnings(loaded),
        pictures=sum(w.picture is not None for d in details for w in d.worst),
        texts=sum(w.text != "" for d in details for w in d.worst),
    )


def _decided(loaded: WorkspaceContents) -> str:
    """The definition of a decided answer, for the tasks of the reports."""
    stats = [r.decisions for r in loaded.reports.values() if r.decisions]
    embeds = any(s.embedding for s in stats)
    return (_DECIDED_NEIGHBOURS if embeds else _DECIDED) if stats else ""


def _chart(loaded: WorkspaceContents, series: list[Series]) -> Plot | None:
    svg = size_against_latency(series, clock(loaded))
    return Plot("Size, latency and agreement", svg, _COST_CAPTION) if svg else None


def _key(one: Artifact | Refused) -> str:
    return f"{one.format}-{one.precision}"


def _rank(loaded: WorkspaceContents, artifact: Artifact) -> tuple[int, float, str]:
    """Best verdict first, then fastest (CPU time: the steadier clock)."""
    measured = loaded.measurements.get(artifact.name)
    time = plain(measured[0].run.cpu.p50) if measured else float("inf")
    return _VERDICT_ORDER.index(artifact.verdict or "unproven"), time, artifact.name


def _about(loaded: WorkspaceContents) -> tuple[Fact, ...]:
    m = loaded.manifest
    facts = (Fact("version", str(m.version)), Fact("task", m.task))
    license = (Fact("license", clean(m.license)),) if m.license else ()
    return (*facts, Fact("model id", m.model_id[:12]), *license)


def _row(loaded: WorkspaceContents, artifact: Artifact) -> ArtifactRow:
    verdict = artifact.verdict or "unproven"
    report = loaded.reports.get(artifact.name)
    measured = loaded.measurements.get(artifact.name, (None,))[0]
    judgement, share = artifact.judgement, artifact.provenance.eight_bit_share
    return ArtifactRow(
        name=artifact_name(artifact.format, artifact.precision),
        anchor=f"a-{artifact.name}",
        verdict=verdict,
        word="Not run here" if not_run_here(artifact) else VERDICT_WORD[verdict],
        meaning="" if not_run_here(artifact) else VERDICT_MEANING[verdict],
        size=mebibytes(artifact.size / _MB),
        **_times(measured),
        **_agreement(report),
        **_difference(report),
        executed_by=clean(judgement.executed_by if judgement else "") or "not run here",
        noisy=clean(measured.noisy or "") if measured else "",
        eight_bit=f"{percent(share)} of weights in 8 bits" if share else "",
    )


def _times(m: Measurement | None) -> dict[str, str]:
    if m is None:
        return {"wall": "not measured", "wall_note": "", "cpu": "not measured", "cpu_note": ""}
    return {
        "wall": milliseconds(m.run.wall.p50),
        "wall_note": f"p90 {milliseconds(m.run.wall.p90)}",
        "cpu": milliseconds(m.run.cpu.p50),
        "cpu_note": f"p90 {milliseconds(m.run.cpu.p90)}",
    }


def _agreement(report: Report | None) -> dict[str, str]:
    stats = report.decisions if report else None
    if report is None or stats is None or not stats.decided.n:
        word = "no decided answer" if stats else "tensors only" if report else "not validated"
        empty = dict.fromkeys(("agreement_note", "agreement_count"), "")
        return {"agreement": word, "detectable": "unknown"} | empty
    return {
        "agreement": percent(1.0 - plain(stats.decided.rate)),
        "agreement_note": agreement_phrase(report),
        "agreement_count": f"all {stats.raw.n - stats.raw.count}/{stats.raw.n}",
        "detectable": percent(stats.minimum_harm),
    }


def _difference(report: Report | None) -> dict[str, str]:
    if report is None or not report.outputs:
        return {"difference": "unknown", "difference_note": ""}
    found = [plain(o.relative) for o in report.outputs]
    worst = max(found, key=lambda value: math.inf if math.isnan(value) else value)
    limit = f"limit {scientific(report.limits.tensor)}"
    return {"difference": scientific(worst), "difference_note": limit}


def _plots(loaded: WorkspaceContents, series: list[Series]) -> tuple[tuple[Plot, ...], ...]:
    """The other plots in up to two columns, without plots of a single mark."""
    refused = [r for r in loaded.manifest.refused if _key(r) in loaded.reports]
    judged = series + [_series(loaded, r) for r in refused]
    found = [
        ("Flip rate", charts.flip_bounds(judged), _BOUNDS_CAPTION),
        ("Run times", charts.latency_histograms(series), _LATENCY_CAPTION),
        ("Difference per output", charts.output_differences(judged), _DIFFERENCES_CAPTION),
        ("Time from raw input to answer", charts.step_bars(series), _SPLIT_CAPTION),
    ]
    plots = [Plot(title, svg, caption) for title, svg, caption in found if svg]
    columns = (tuple(plots[0::2]), tuple(plots[1::2]))
    return tuple(column for column in columns if column)


def _series(loaded: WorkspaceContents, one: Artifact | Refused) -> Series:
    report = loaded.reports.get(_key(one))
    measured = loaded.measurements.get(_key(one))
    return Series(
        name=artifact_name(one.format, one.precision),
        verdict=one.verdict or "unproven",
        size_mb=one.size / _MB if isinstance(one, Artifact) else None,
        measurement=measured[0] if measured else None,
        decisions=report.decisions if report else None,
        outputs=report.outputs if report else (),
        limits=report.limits if report else None,
        by_numbers=report is not None and judged_by_tensors(report),
    )


def _environment(loaded: WorkspaceContents) -> tuple[Fact, ...]:
    """Each different machine once."""
    found: list[Environment] = [r.environment for r in loaded.reports.values()]
    found += [m.environment for some in loaded.measurements.values() for m in some]
    unique = [e for i, e in enumerate(found) if e not in found[:i]]
    facts = []
    for e in unique:
        facts += [
            Fact("Processor", clean(f"{e.processor}, {e.machine}")),
            Fact("Cores", f"{e.cores} available"),
            Fact("Instruction sets", clean(", ".join(e.features)) or "not known"),
            Fact("System", clean(f"{e.system}, {e.python}")),
            Fact("Packages", clean(", ".join(f"{k} {v}" for k, v in sorted(e.packages.items())))),
        ]
    return tuple(facts)


def _warnings(loaded: WorkspaceContents) -> tuple[str, ...]:
    noisy = [m for some in loaded.measurements.values() for m in some if m.noisy]
    reasons = (reason for r in loaded.reports.values() for reason in r.judgement.reasons)
    found = dict.fromkeys(r.message for r in reasons if r.code in _SERVER_FINDINGS)
    warnings = [sentence(clean(message)) for message in found]
    if len(noisy) > 1:
        some = list(dict.fromkeys(artifact_name(m.format, m.precision) for m in noisy))
        of = "" if len(some) == len(loaded.measurements) else f" of {join_phrase(some)}"
        warnings.append(
            f"Wall times{of} are unreliable: the machine was busy or the runs varied too much. "
            "CPU times are shown instead; the reason is listed below each artifact."
        )
    elif noisy:
        name = artifact_name(noisy[0].format, noisy[0].precision)
        warnings.append(f"Times of {name} are unreliable: {clean(noisy[0].noisy or '')}.")
    if loaded.stale:
        files = clean(", ".join(loaded.stale))
        warnings.append(f"Ignored, because it describes another version of the artifact: {files}.")
    return tuple(warnings)


def render_report(request: ReportRequest) -> Rendered:
    """Render a workspace's report; the same workspace gives the same bytes.

    Raises:
        ReportError: EDGE-REPORT-001 no workspace, -002 a file in it is unreadable, -003 a
            package for rendering is missing.
        BundleError: the manifest breaks its rules.
        FilesError: EDGE-FILES-001, the file cannot be written.
    """
    _check_packages()
    workspace = Path(request.workspace)
    page = build_page(load_workspace(workspace), Thumbnails(workspace))
    data = _html(page).encode("utf-8")
    write_atomic(Path(request.out), data)
    return Rendered(path=request.out, size=len(data))


def _check_packages() -> None:
    try:
        import jinja2
        import matplotlib
    except ImportError as error:
        raise ReportError(
            "EDGE-REPORT-003",
            error.name or "a package",
            wanted="jinja2 and matplotlib",
            got="not installed",
            hint=install_command("report"),
        ) from error
    del jinja2, matplotlib


def _html(page: Page) -> str:
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_template),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=lambda value: clean(value) if type(value) is str else value,
    )
    environment.globals["artifact_name"] = artifact_name
    environment.filters["scientific"] = scientific
    css = Markup(_template("report.css"))  # ours alone: no text of the user's is in it
    return environment.get_template("report.html.j2").render(page=page, css=css)


def _template(name: str) -> str:
    return (resources.files("edgeserve.report") / "templates" / name).read_text("utf-8")
