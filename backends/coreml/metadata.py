"""What a package says of itself: a line for people, labels and task, and where each op is from.

All of it comes from the source's own values. What coremltools notes (the day, its versions) is
dropped: it would make other bytes every day.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from edgeserve.backends.coreml.program import SourceProgram
from edgeserve.types.source import Exported

__all__ = ["MODULES", "SOURCES", "as_json", "describe_package", "sources_of"]

#: Keys of the user-defined metadata: {function: {source op: [values it became]}} and
#: {source op: module}.
SOURCES, MODULES = "edgeserve.sources", "edgeserve.modules"

_TRACE = "EXIR_STACK_TRACE"


def sources_of(program: Any, source: SourceProgram) -> dict[str, list[str]]:
    """The values and operations of a PyMIL function that each source op became, in its order.

    Args:
        program: The PyMIL program; its only function is "main".
        source: Where it came from.
    """
    found: dict[str, list[str]] = {}
    for op in _operations(program.functions["main"]):
        scopes = {key.name: value for key, value in op.scopes.items()}
        name = next(iter(scopes.get(_TRACE) or ()), None)
        if op.op_type != "const" and name in source.modules:
            names = [*(value.name for value in op.outputs), op.name]
            found.setdefault(name, []).extend(dict.fromkeys(names))
    return found


def _operations(block: Any) -> Iterable[Any]:
    for op in block.operations:
        yield op
        for inner in op.blocks:
            yield from _operations(inner)


def describe_package(
    spec: Any,
    exported: Exported,
    options: Mapping[str, str],
    sources: Mapping[str, Mapping[str, list[str]]],
    modules: Mapping[str, str | None],
) -> None:
    """Fill in the metadata of a ``Model`` message, in place of what stands there.

    Args:
        spec: The message.
        exported: The source.
        options: "name", "author" and "license", where they are known.
        sources: For each function what `sources_of` found.
        modules: See `SourceProgram.modules`.
    """
    metadata = spec.description.metadata
    metadata.Clear()
    metadata.shortDescription = _summary(exported, options)
    metadata.author = options.get("author", "")
    metadata.license = options.get("license", "")
    used = {source for found in sources.values() for source in found}
    named = {source: modules[source] for source in used if modules[source]}
    _note(metadata, SOURCES, sources)
    _note(metadata, MODULES, named)
    _note(metadata, "edgeserve.task", exported.task)
    _note(metadata, "edgeserve.labels", list(exported.labels))
    _note(metadata, "edgeserve.fields", exported.fields)
    _note(metadata, "edgeserve.processing", msgspec.to_builtins(exported.processing))


def _note(metadata: Any, key: str, value: Any) -> None:
    """One entry as JSON, text as it is; nothing where there is nothing to say."""
    if value:
        text = value if isinstance(value, str) else as_json(value)
        metadata.userDefined[key] = text


def as_json(value: Any) -> str:
    """Compact JSON, the same text for the same value."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def _summary(exported: Exported, options: Mapping[str, str]) -> str:
    name = options.get("name", "")
    labels = f" with {len(exported.labels)} labels" if exported.labels else ""
    task = "model" if exported.task == "tensors" else f"{exported.task} model"
    return f"{name}: {task}{labels}".removeprefix(": ")
