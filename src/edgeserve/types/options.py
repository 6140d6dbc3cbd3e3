"""Every option of every command, defined once.

A command's options are a frozen dataclass, each field annotated with an `Option`. From these come
the command line (`edgeserve.cli.options`), the tables of ``edgeserve.toml``
(`edgeserve.pipeline.run`), its JSON Schema, and the keyword arguments of `edgeserve.api`. They are
dataclasses of the standard library, not structs of msgspec: ``edgeserve convert --help`` reads
them and loads neither msgspec nor numpy. The options of ``serve`` are `edgeserve.serve.options`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Annotated

from edgeserve.options import Option


def _words(name: str) -> tuple[str, ...]:
    """Words of `edgeserve.types.vocabulary`, which is loaded when they are needed."""
    words: tuple[str, ...] = getattr(import_module("edgeserve.types.vocabulary"), name)
    return words


_tasks, _verdicts = partial(_words, "TASKS"), partial(_words, "VERDICTS")

_Workspace = Annotated[str, Option("The workspace that convert made.", argument="OUT", path=True)]
_Data = Annotated[
    str | None, Option("Validation data: a folder, data.jsonl, COCO json or .npz.", path=True)
]
_Reference = Annotated[
    str | None, Option("Your server: module:callable that takes the raw input, or its URL (v2).")
]
_Profile = Annotated[str | None, Option("Workload profile with the limits (`edgeserve profiles`).")]
_Require = Annotated[
    str | None,
    Option(
        "Exit 1 if an artifact is below this verdict (pass, degraded).",
        metavar="VERDICT",
        choices=_verdicts,
    ),
]
_Timeout = Annotated[float, Option("Time limit of one worker, s.", seconds=True)]


@dataclass(frozen=True, kw_only=True)
class ExportSettings:
    """What the worker that exports a source is told of the options of ``convert``."""

    task: Annotated[
        str | None,
        Option("image-classification, object-detection, ... (spec/tasks.md).", choices=_tasks),
    ] = None
    shapes: Annotated[
        str,
        Option(
            "If a dimension cannot be dynamic: fix it with a note (auto) or fail (dynamic).",
            metavar="auto|dynamic",
            choices=lambda: ("auto", "dynamic"),
        ),
    ] = "auto"
    trust_pickle: Annotated[bool, Option("Load a foreign .pt2 that can run code on loading.")] = (
        False
    )


@dataclass(frozen=True, kw_only=True)
class ConvertOptions(ExportSettings):
    """``edgeserve convert``."""

    source: Annotated[
        str,
        Option(
            "package.module:factory, a Hugging Face folder, an .onnx, a .pt2 or a workspace.",
            argument="SOURCE",
        ),
    ]
    out: Annotated[
        str, Option("Output folder (created or updated).", flags=("-o", "--out"), path=True)
    ]
    to: Annotated[
        tuple[str, ...],
        Option("onnx, tflite, coreml, a plugin's format, or all (comma-separated)."),
    ] = ("onnx",)
    precision: Annotated[
        tuple[str, ...], Option("fp32, fp16, w8, w8a8 or all (comma-separated).")
    ] = ("fp32",)
    data: _Data = None
    preprocess: Annotated[
        str | None,
        Option("imagenet, inception, unit, or a JSON or TOML file.", metavar="NAME|FILE"),
    ] = None
    reference: _Reference = None
    profile: _Profile = None
    require: _Require = None
    all_or_nothing: Annotated[bool, Option("Write nothing unless every artifact succeeds.")] = False
    dry_run: Annotated[bool, Option("Print the plan and stop.")] = False
    name: Annotated[str | None, Option("Name of the model; default: from the source.")] = None
    timeout: _Timeout = 3600.0
    bisect: Annotated[bool, Option("Find the failing part of the model; writes a script.")] = False
    via: Annotated[
        str | None,
        Option("Exporter: dynamo, optimum (ONNX); whole, core-aten (Core ML).", metavar="ROUTE"),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ValidateOptions:
    """``edgeserve validate``. Without data and reference, stored answers are compared with."""

    out: _Workspace
    data: _Data = None
    reference: _Reference = None
    golden: Annotated[
        str | None,
        Option("Raw inputs that may be shipped as golden cases.", metavar="DIR", path=True),
    ] = None
    profile: _Profile = None
    require: _Require = None
    junit: Annotated[str | None, Option("Write the checks as JUnit XML.", path=True)] = None
    against: Annotated[
        str | None,
        Option(
            "Earlier reports (or OUT): exit 1 if an artifact got worse.", metavar="OLD", path=True
        ),
    ] = None
    timeout: _Timeout = 3600.0


@dataclass(frozen=True, kw_only=True)
class MeasureSettings:
    """What the worker that measures one artifact is told of the options of ``measure``."""

    on: Annotated[str, Option("Target; only host in this version.", choices=lambda: ("host",))] = (
        "host"
    )
    threads: Annotated[
        int | None, Option("Threads of the runtime; default: the profile's, else 1.", minimum=1)
    ] = None
    batch: Annotated[
        int | None, Option("Batch size; default: 1, or the only one the file takes.", minimum=1)
    ] = None
    seconds: Annotated[float, Option("Time budget per artifact, s.", seconds=True)] = 5.0


@dataclass(frozen=True, kw_only=True)
class MeasureOptions(MeasureSettings):
    """``edgeserve measure``."""

    out: _Workspace
    profile: Annotated[str | None, Option("Workload profile that sets the threads.")] = None
    timeout: _Timeout = 600.0


@dataclass(frozen=True, kw_only=True)
class PackageOptions:
    """``edgeserve package``."""

    out: _Workspace
    bundle: Annotated[str, Option("The .edge file to write.", flags=("-o", "--out"), path=True)]
    target: Annotated[
        str | None,
        Option(
            "Only formats that run on android, ios, web or linux.",
            choices=partial(_words, "TARGETS"),
        ),
    ] = None
    only: Annotated[
        tuple[str, ...] | None, Option("Only these artifacts, such as onnx-fp32; comma-separated.")
    ] = None
    name: Annotated[str | None, Option("Name of the model; default: the workspace's.")] = None
    version: Annotated[int | None, Option("Version number, which must never fall.", minimum=1)] = (
        None
    )
    license: Annotated[str | None, Option("License of the model.", metavar="SPDX")] = None


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """``edgeserve report``."""

    out: _Workspace
    report: Annotated[str, Option("The HTML file to write.", flags=("-o", "--out"), path=True)]
