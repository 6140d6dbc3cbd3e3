"""Commands of typer made from options classes: nothing of an option is spelled a second time."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

import typer

from edgeserve.cli.app import Json, command
from edgeserve.options import Option, definitions, flag, is_list, split_list

O = TypeVar("O")  # noqa: E741


_Keyword = functools.partial(inspect.Parameter, kind=inspect.Parameter.KEYWORD_ONLY)


def command_of(kind: type[O], function: Callable[[O, bool], int | None]) -> Callable[..., None]:
    """Make a command of ``function(options, as_json)``, which takes all options of ``kind``."""

    @functools.wraps(function)
    def run(**values: Any) -> int | None:
        return function(kind(**given_options(kind, values)), values["json_"])

    return command(with_parameters(run, parameters(kind)))


def with_parameters(
    function: Callable[..., int | None], listed: list[inspect.Parameter]
) -> Callable[..., int | None]:
    """Give a function that takes anything the signature that typer reads, with ``--json`` last."""
    json_ = _Keyword("json_", default=False, annotation=Json)
    signature = inspect.Signature([*listed, json_])
    function.__signature__ = signature  # type: ignore[attr-defined]
    function.__annotations__ = {p.name: p.annotation for p in signature.parameters.values()}
    function.__dict__.pop("__wrapped__", None)  # whose signature would be read instead
    return function


def parameters(kind: type) -> list[inspect.Parameter]:
    """A parameter for each option of a class: arguments, then what is required, then its own."""
    fields = {field.name: field for field in dataclasses.fields(kind)}
    listed = []
    for name, (type_, option) in definitions(kind).items():
        default = fields[name].default
        annotation: Any = Annotated[_typed(type_, option), _typer_info(kind, name, type_, option)]
        if default is dataclasses.MISSING:
            default = inspect.Parameter.empty
        elif is_list(type_) and not option.repeat and default is not None:
            default = ",".join(default)
        elif is_list(type_) and not default:
            default = None
        listed.append(_Keyword(name, default=default, annotation=annotation))
    own = vars(kind)["__annotations__"]
    return sorted(
        listed,
        key=lambda p: (
            not definitions(kind)[p.name][1].argument,
            p.default is not inspect.Parameter.empty,
            p.name not in own,
        ),
    )


def _typed(type_: Any, option: Option) -> Any:
    """The type that typer reads: lists are given with commas, as a row of arguments or repeated."""
    if not is_list(type_):
        return type_
    if option.argument:
        return list[str]
    return list[str] | None if option.repeat else str | None


def _typer_info(kind: type, name: str, type_: Any, option: Option) -> Any:
    if option.argument:
        return typer.Argument(metavar=option.argument, help=option.help)
    flags = option.flags or ((flag(kind, name),) if type_ is bool else ())
    metavar = option.metavar or None
    return typer.Option(*flags, help=option.help, metavar=metavar, min=option.minimum)


def given_options(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that typer read, as the fields of a class take them."""
    found = {}
    for name, (type_, option) in definitions(kind).items():
        value = values[name]
        if is_list(type_) and value is not None:
            value = tuple(value) if option.argument or option.repeat else split_list(value)
        elif is_list(type_) and option.repeat:
            value = ()
        found[name] = value
    return found
