"""Which source op each value of a package came from, through what coremltools makes of it.

An export notes it in the package's metadata. A later change of the program renames values by
endings of its own, which lead back to the name that was noted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgeserve.backends.coreml.metadata import MODULES, SOURCES, as_json
from edgeserve.backends.coreml.spec import block_of, name_of, operations_of
from edgeserve.errors import QuantizeError

__all__ = ["Origin"]

_ENDING = re.compile(r"(_cast_fp16|_to_fp16|__post__dequant|_quantized)+$")


@dataclass(frozen=True)
class Origin:
    """The notes of one package.

    Attributes:
        sources: For each function, and in it for each value, the source op.
        modules: For each source op the module that held it ("features.0"), where known.
    """

    sources: Mapping[str, Mapping[str, str]]
    modules: Mapping[str, str]

    @classmethod
    def of(cls, spec: Any) -> Origin:
        """Read the notes of a ``Model`` message; a package of somebody else's making has none."""
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
        plain = (_ENDING.sub("", name) for name in names)
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
            hits = {e for e in keep if e in (source, module) or module.startswith(f"{e}.")}
            missing -= hits
            if hits:
                yield operation
        if missing:
            raise QuantizeError(
                "EDGE-QUANTIZE-009",
                f"keep_float {sorted(missing)[0]!r}",
                wanted="a module's path or a node of the exported program that the file knows",
                got="nothing that came from it",
                hint="`edgeserve inspect` shows source and module",
            )

    def describe(self, spec: Any) -> None:
        """Note the origin of the values that a changed message has now."""
        changed: dict[str, dict[str, list[str]]] = {}
        for function in self.sources:
            found: dict[str, list[str]] = {}
            for operation in operations_of(block_of(spec.mlProgram.functions[function])):
                source = self.source(function, operation)
                if source is not None and operation.type != "const":
                    names = [*(value.name for value in operation.outputs), name_of(operation)]
                    found.setdefault(source, []).extend(dict.fromkeys(names))
            changed[function] = found
        if changed:
            spec.description.metadata.userDefined[SOURCES] = as_json(changed)
