"""The metadata of a package: description, labels, task, and the source op of each value.

All of it comes from the source. coremltools' own entries (the date, its versions) are removed: with
them the bytes would change every day. A later change of the program renames values by suffixes;
`SourceMap` maps them back to the names that the export recorded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from edgeserve.backends.checks import is_kept, unknown_keep_float
from edgeserve.backends.coreml.spec import block_of, name_of, operations_of
from edgeserve.types.source import Exported

if TYPE_CHECKING:
    from edgeserve.backends.coreml.program import SourceProgram

#: Keys of the user-defined metadata: {function: {source op: [values it became]}} and
#: {source op: module}.
SOURCES, MODULES = "edgeserve.sources", "edgeserve.modules"

_TRACE = "EXIR_STACK_TRACE"


def sources_of(program: Any, source: SourceProgram) -> dict[str, list[str]]:
    """The values and operations of a PyMIL function that each source op became, in its order.

    Args:
        program: The PyMIL program; its only function is "main".
        source: The source program.
    """
    found: dict[str, list[str]] = {}
    for op in operations_of(program.functions["main"]):
        scopes = {key.name: value for key, value in op.scopes.items()}
        name = next(iter(scopes.get(_TRACE) or ()), None)
        if op.op_type != "const" and name in source.modules:
            names = [*(value.name for value in op.outputs), op.name]
            found.setdefault(name, []).extend(dict.fromkeys(names))
    return found


def describe_package(
    spec: Any,
    exported: Exported,
    options: Mapping[str, str],
    sources: Mapping[str, Mapping[str, list[str]]],
    modules: Mapping[str, str | None],
) -> None:
    """Replace the metadata of a ``Model`` message.

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
    _add_entry(metadata, SOURCES, sources)
    _add_entry(metadata, MODULES, named)
    _add_entry(metadata, "edgeserve.task", exported.task)
    _add_entry(metadata, "edgeserve.labels", list(exported.labels))
    _add_entry(metadata, "edgeserve.fields", exported.fields)
    _add_entry(metadata, "edgeserve.processing", msgspec.to_builtins(exported.processing))


def _add_entry(metadata: Any, key: str, value: Any) -> None:
    """One entry as JSON, text as it is; none for an empty value."""
    if value:
        metadata.userDefined[key] = value if isinstance(value, str) else as_json(value)


def as_json(value: Any) -> str:
    """Compact JSON, the same text for the same value."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def _summary(exported: Exported, options: Mapping[str, str]) -> str:
    name = options.get("name", "")
    labels = f" with {len(exported.labels)} labels" if exported.labels else ""
    task = "model" if exported.task == "tensors" else f"{exported.task} model"
    return f"{name}: {task}{labels}".removeprefix(": ")


_RENAMED_SUFFIX = re.compile(r"(_cast_fp16|_to_fp16|__post__dequant|_quantized)+$")


@dataclass(frozen=True)
class SourceMap:
    """The recorded source ops of one package.

    Attributes:
        sources: For each function, and in it for each value, the source op.
        modules: For each source op the module that held it ("features.0"), where known.
    """

    sources: Mapping[str, Mapping[str, str]]
    modules: Mapping[str, str]

    @classmethod
    def of(cls, spec: Any) -> SourceMap:
        """Read them from a ``Model`` message; packages of other tools have none."""
        notes = spec.description.metadata.userDefined
        try:
            found = json.loads(notes.get(SOURCES) or "{}")
            modules = json.loads(notes.get(MODULES) or "{}")
            sources = {
                function: {
                    value: source for source, values in by_source.items() for value in values
                }
                for function, by_source in found.items()
            }
        except (ValueError, AttributeError, TypeError):
            return cls({}, {})
        return cls(sources, modules)

    def source(self, function: str, operation: Any) -> str | None:
        """The source op of an operation of a function."""
        known = self.sources.get(function, {})
        names = [*(value.name for value in operation.outputs), name_of(operation)]
        plain = (_RENAMED_SUFFIX.sub("", name) for name in names)
        return next((known[name] for name in (*names, *plain) if name in known), None)

    def kept(self, function: str, block: Any, keep: Sequence[str]) -> Iterator[Any]:
        """The operations of a block that came from ops or modules named in ``keep``.

        A module's path stands for everything inside it.

        Raises:
            QuantizeError: EDGE-QUANTIZE-009, nothing came from one of them.
        """
        missing = set(keep)
        for operation in operations_of(block):
            source = self.source(function, operation)
            module = self.modules.get(source or "", "")
            hits = {entry for entry in keep if is_kept(entry, source, module)}
            missing -= hits
            if hits:
                yield operation
        if missing:
            raise unknown_keep_float(min(missing))

    def describe(self, spec: Any) -> None:
        """Record the source ops of the values in a changed message."""
        changed: dict[str, dict[str, list[str]]] = {}
        for function in self.sources:
            found = changed[function] = {}
            for operation in operations_of(block_of(spec.mlProgram.functions[function])):
                source = self.source(function, operation)
                if source is not None and operation.type != "const":
                    names = [*(value.name for value in operation.outputs), name_of(operation)]
                    found.setdefault(source, []).extend(dict.fromkeys(names))
        if changed:
            spec.description.metadata.userDefined[SOURCES] = as_json(changed)
