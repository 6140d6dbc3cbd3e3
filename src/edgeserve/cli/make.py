"""Commands that make things: convert, validate, measure, package, report, run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgeserve.cli.app import Json, command, print_json

if TYPE_CHECKING:
    from edgeserve.pipeline.result import StageResult

__all__ = ["COMMANDS"]

Out = Annotated[str, typer.Argument(metavar="OUT", help="The workspace that convert made.")]
Data = Annotated[
    str | None, typer.Option(help="Validation data: a folder, data.jsonl, COCO json or .npz.")
]
Reference = Annotated[
    str | None,
    typer.Option(help="Your server: module:callable that takes the raw input, or its URL (v2)."),
]
ProfileName = Annotated[
    str | None, typer.Option(help="Workload profile with the limits (`edgeserve profiles`).")
]
Require = Annotated[
    str | None,
    typer.Option(
        metavar="VERDICT", help="Exit 1 if an artifact is below this verdict (pass, degraded)."
    ),
]
Timeout = Annotated[float, typer.Option(help="Time limit of one worker, s.")]


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _finish(outcome: StageResult, as_json: bool) -> int:
    """Print what came out and return the exit code."""
    if as_json:
        print_json(outcome.json())
    else:
        from edgeserve.cli.tables import print_outcome

        print_outcome(outcome)
    return outcome.exit_code


@command
def convert(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="package.module:factory, a Hugging Face folder, an .onnx, a .pt2, a workspace.",
        ),
    ],
    out: Annotated[str, typer.Option("-o", "--out", help="Output folder (created or updated).")],
    to: Annotated[
        str, typer.Option(help="onnx, tflite, coreml, or a plugin's format (comma-separated).")
    ] = "onnx",
    precision: Annotated[
        str, typer.Option(help="fp32, fp16, w8, w8a8 (comma-separated).")
    ] = "fp32",
    data: Data = None,
    preprocess: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE", help="imagenet, inception, unit, or a JSON or TOML file."
        ),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(help="image-classification, object-detection, ... (spec/tasks.md)."),
    ] = None,
    reference: Reference = None,
    profile: ProfileName = None,
    require: Require = None,
    all_or_nothing: Annotated[
        bool, typer.Option("--all-or-nothing", help="Write nothing unless every artifact succeeds.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and stop.")] = False,
    name: Annotated[str | None, typer.Option(help="Name of the model.")] = None,
    timeout: Timeout = 3600.0,
    trust_pickle: Annotated[
        bool,
        typer.Option("--trust-pickle", help="Load a foreign .pt2 that can run code on loading."),
    ] = False,
    bisect: Annotated[
        bool, typer.Option("--bisect", help="Find the failing part of the model; writes a script.")
    ] = False,
    shapes: Annotated[
        str,
        typer.Option(
            metavar="auto|dynamic",
            help="If a dimension cannot be dynamic: fix it with a note (auto) or fail (dynamic).",
        ),
    ] = "auto",
    via: Annotated[
        str | None,
        typer.Option(
            metavar="ROUTE", help="Exporter: dynamo, optimum (ONNX); whole, core-aten (Core ML)."
        ),
    ] = None,
    json_: Json = False,
) -> int:
    """Convert a model and validate each artifact against the reference."""
    from edgeserve.cli.app import terminal_ui
    from edgeserve.pipeline.convert import convert as stage
    from edgeserve.pipeline.options import ConvertOptions

    options = ConvertOptions(
        source=source,
        out=out,
        to=_words(to),
        precision=_words(precision),
        data=data,
        preprocess=preprocess,
        task=task,
        reference=reference,
        profile=profile,
        require=require,
        all_or_nothing=all_or_nothing,
        dry_run=dry_run,
        name=name,
        timeout=timeout,
        trust_pickle=trust_pickle,
        bisect=bisect,
        via=via,
        shapes=shapes,
    )
    return _finish(stage(options, terminal_ui()), json_)


@command
def validate(
    out: Out,
    data: Data = None,
    reference: Reference = None,
    golden: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Raw inputs that may be shipped as golden cases."),
    ] = None,
    profile: ProfileName = None,
    require: Require = None,
    junit: Annotated[str | None, typer.Option(help="Write the checks as JUnit XML.")] = None,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="OLD", help="Earlier reports (or OUT): exit 1 if an artifact got worse."
        ),
    ] = None,
    timeout: Timeout = 3600.0,
    json_: Json = False,
) -> int:
    """Validate again with other data, reference or limits."""
    from edgeserve.cli.app import terminal_ui
    from edgeserve.pipeline.options import ValidateOptions
    from edgeserve.pipeline.validate import validate as stage

    options = ValidateOptions(
        out=out,
        data=data,
        reference=reference,
        golden=golden,
        profile=profile,
        require=require,
        junit=junit,
        against=against,
        timeout=timeout,
    )
    return _finish(stage(options, terminal_ui()), json_)


@command
def measure(
    out: Out,
    on: Annotated[str, typer.Option(help="Target; only host in this version.")] = "host",
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of the runtime.")] = None,
    batch: Annotated[int, typer.Option(min=1, help="Batch size.")] = 1,
    seconds: Annotated[float, typer.Option(help="Time budget per artifact.")] = 5.0,
    profile: ProfileName = None,
    timeout: Timeout = 600.0,
    json_: Json = False,
) -> int:
    """Measure time and memory of each artifact, in its own process."""
    from edgeserve.cli.app import terminal_ui
    from edgeserve.pipeline.measure import measure as stage
    from edgeserve.pipeline.options import MeasureOptions

    options = MeasureOptions(
        out=out,
        on=on,
        threads=threads,
        batch=batch,
        seconds=seconds,
        profile=profile,
        timeout=timeout,
    )
    measured = stage(options, terminal_ui())
    if json_:
        print_json(measured.json())
    else:
        from edgeserve.cli.tables import print_measurements

        print_measurements(measured)
    return 0


@command
def package(
    out: Out,
    bundle: Annotated[str, typer.Option("-o", "--out", help="The .edge file to write.")],
    target: Annotated[
        str | None, typer.Option(help="Only formats that run on android, ios, web or linux.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the model.")] = None,
    version: Annotated[int | None, typer.Option(min=1, help="Monotonic version.")] = None,
    license_: Annotated[
        str | None, typer.Option("--license", metavar="SPDX", help="Licence of the model.")
    ] = None,
    json_: Json = False,
) -> int:
    """Write the .edge package (all artifacts that did not fail)."""
    from edgeserve.pipeline.options import PackageOptions
    from edgeserve.pipeline.publish import package as stage

    options = PackageOptions(
        out=out, bundle=bundle, target=target, name=name, version=version, license=license_
    )
    packaged = stage(options)
    if json_:
        print_json(packaged.json())
    else:
        from edgeserve.cli.tables import print_packaged

        print_packaged(packaged)
    return 0


@command
def report(
    out: Out,
    report_: Annotated[str, typer.Option("-o", "--out", help="The HTML file to write.")],
    json_: Json = False,
) -> int:
    """Write a self-contained HTML report (private: it shows inputs)."""
    from edgeserve.cli.app import terminal_ui
    from edgeserve.pipeline.options import ReportOptions
    from edgeserve.pipeline.publish import report as stage

    rendered = stage(ReportOptions(out=out, report=report_), terminal_ui())
    if json_:
        print_json({"schema": 1, "path": rendered.path, "size": rendered.size, "error": None})
    else:
        print(f"{rendered.path}  {rendered.size / 1024:.0f} KiB")
    return 0


@command
def run(
    config: Annotated[
        str, typer.Argument(metavar="[FILE]", help="TOML file that declares the stages.")
    ] = "edgeserve.toml",
    json_: Json = False,
) -> int:
    """Run the stages that edgeserve.toml declares, in order."""
    from edgeserve.cli.app import terminal_ui
    from edgeserve.pipeline.run import run_config

    ui = terminal_ui()
    outcome = run_config(Path(config), ui)
    sys.stderr.flush()
    return _finish(outcome, json_)


COMMANDS = {
    "convert": convert,
    "validate": validate,
    "measure": measure,
    "package": package,
    "report": report,
    "run": run,
}
