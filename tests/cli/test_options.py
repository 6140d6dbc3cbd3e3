"""An option is spelled once: command line, TOML, schema and Python read the same definition."""

from __future__ import annotations

import dataclasses
import inspect
import json
from pathlib import Path
from typing import Annotated, Any

import jsonschema
import msgspec
import pytest
import typer
from typer.testing import CliRunner

from edgeserve import api
from edgeserve.cli.app import app
from edgeserve.cli.options import command_of
from edgeserve.errors import UsageError
from edgeserve.options import Option, check_options, definitions, flag, narrow, read_options
from edgeserve.pipeline.run import config_schema, read_config
from edgeserve.serve.options import EmitSettings, RaySettings, ServeCommand, ServeOptions
from edgeserve.types.options import (
    ConvertOptions,
    ExportSettings,
    MeasureOptions,
    MeasureSettings,
    PackageOptions,
    ReportOptions,
    ValidateOptions,
)

KINDS: dict[str, type] = {
    "convert": ConvertOptions,
    "validate": ValidateOptions,
    "measure": MeasureOptions,
    "package": PackageOptions,
    "report": ReportOptions,
}


def flags_of(command: str) -> set[str]:
    """The flags and arguments that ``edgeserve COMMAND --help`` lists."""
    group = typer.main.get_command(app)
    built = group.get_command(None, command)  # type: ignore[attr-defined]
    return {p.metavar if p.param_type_name == "argument" else p.opts[-1] for p in built.params}


@pytest.mark.parametrize("command", KINDS)
def test_the_command_line_has_what_is_defined(command: str) -> None:
    kind = KINDS[command]
    assert flags_of(command) == {flag(kind, name) for name in definitions(kind)} | {"--json"}
    assert {f.name for f in dataclasses.fields(kind)} == set(definitions(kind)), "each has its help"


def test_serve_has_the_options_of_all_that_it_starts() -> None:
    kinds = (ServeOptions, RaySettings, EmitSettings, ServeCommand)
    wanted = {flag(kind, name) for kind in kinds for name in definitions(kind)}
    assert flags_of("serve") == wanted | {"--json"}


def test_the_schema_has_what_is_defined() -> None:
    schema = config_schema()
    for table, kind in KINDS.items():
        part = schema["$defs"][kind.__name__]
        helps = {name: field["description"] for name, field in part["properties"].items()}
        assert helps == {name: option.help for name, (_, option) in definitions(kind).items()}
        assert schema["properties"][table] == {"$ref": f"#/$defs/{kind.__name__}"}


def test_the_schema_is_printed() -> None:
    printed = CliRunner().invoke(app, ["run", "--schema"])
    assert json.loads(printed.stdout) == json.loads(msgspec.json.encode(config_schema()))


def test_the_schema_takes_what_the_reader_takes(tmp_path: Path) -> None:
    good = {"convert": {"source": "a:b", "out": "o", "to": ["onnx"]}, "measure": {"seconds": 2.0}}
    for change, fits in (
        ({}, True),
        ({"report": {"report": "r.html"}}, True),
        ({"measure": {"second": 2.0}}, False),
        ({"measure": {"seconds": "long"}}, False),
        ({"bogus": {}}, False),
    ):
        config = good | change
        schema = jsonschema.Draft202012Validator(config_schema())
        assert schema.is_valid(config) == fits, config
        file = tmp_path / "edgeserve.toml"
        tables = (
            "\n".join([f"[{name}]", *(f"{k} = {json.dumps(v)}" for k, v in table.items())])
            for name, table in config.items()
        )
        file.write_text("\n".join(tables))
        try:
            for table, values in read_config(file).items():
                read_options(KINDS[table], values)
            read = True
        except (UsageError, ValueError):
            read = False
        assert read == fits, config


@pytest.mark.parametrize(
    ("function", "command"),
    [
        (api.convert, "convert"),
        (api.Workspace.validate, "validate"),
        (api.Workspace.measure, "measure"),
        (api.Workspace.package, "package"),
    ],
)
def test_python_shows_what_is_defined(function: Any, command: str) -> None:
    shown = set(inspect.signature(function).parameters)
    assert set(definitions(KINDS[command])) - {"out"} <= shown | {"out"}


def test_an_option_is_spelled_in_one_place(tmp_path: Path) -> None:
    """A new one, written down once, arrives on the command line, from a file and from Python."""

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class New:
        out: Annotated[str, Option("A folder.", argument="OUT", path=True)]
        colours: Annotated[tuple[str, ...], Option("Colours.")] = ("red",)
        strength: Annotated[int | None, Option("Strength.", minimum=2)] = None
        loud: Annotated[bool, Option("Shout.")] = False

    seen: list[Any] = []
    one = typer.Typer()
    one.command()(command_of(New, lambda options, as_json: seen.append((options, as_json))))  # type: ignore[func-returns-value]
    words = ["o", "--colours", "a, b", "--strength", "3", "--loud", "--json"]
    assert CliRunner().invoke(one, words).exit_code == 0
    assert CliRunner().invoke(one, ["o"]).exit_code == 0
    assert CliRunner().invoke(one, ["o", "--strength", "1"]).exit_code == 2
    given = {"out": Path("o"), "colours": ["a", "b"], "strength": 3, "loud": True}
    assert seen[0] == (read_options(New, given), True)
    assert seen[1] == (read_options(New, {"out": "o"}), False)
    for values, code in (({"strength": 1}, "-005"), ({"out": ""}, "-005")):
        with pytest.raises(UsageError, match=code):
            check_options(read_options(New, {"out": "o"} | values))
    with pytest.raises(ValueError, match="unknown option 'colour': 'colours'"):
        read_options(New, {"out": "o", "colour": "a"})


def test_requests_take_their_part_of_the_options() -> None:
    options = ConvertOptions(source="a:b", out="o", shapes="dynamic", task="tensors")
    settings = narrow(ExportSettings, options)
    assert type(settings) is ExportSettings
    assert (settings.shapes, settings.task, settings.trust_pickle) == ("dynamic", "tensors", False)
    measured = narrow(MeasureSettings, MeasureOptions(out="o", batch=2))
    assert json.loads(msgspec.json.encode(measured)) == {
        "on": "host",
        "threads": None,
        "batch": 2,
        "seconds": 5.0,
    }
