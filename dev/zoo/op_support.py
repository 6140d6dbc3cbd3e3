"""Which format takes which operator: writes ``op_support.py`` from the zoo's rows.

    python -P dev/zoo/op_support.py --write     # after `make zoo` and `make zoo-ops`

A format takes an operator where a model that holds it was converted and answered right.
"""

from __future__ import annotations

import sys
import textwrap
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from edgeserve.backends.torch.diagnose.unsupported_op import base_name
from edgeserve.convert.torch_source import call_factory
from edgeserve.types.source import Source

__all__ = ["operators", "table"]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "backends" / "torch" / "diagnose" / "op_support.py"
_FORMATS = ("onnx", "tflite", "coreml")

_HEAD = '''"""Which formats took which operators: made by ``dev.zoo.op_support``."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["TAKEN"]

#: Formats, and the operators of ATen (without overloads) that all of these took.
'''


def operators(location: str) -> set[str]:
    """The operators of a model of the zoo, by their names without overload."""
    source = Source(kind="factory", location=f"dev.zoo.{location}", folder=str(ROOT))
    made = call_factory(source)
    program = torch.export.export(made.module, tuple(made.examples))  # type: ignore[arg-type]
    nodes = [node for node in program.graph.nodes if node.op == "call_function"]
    return {name for node in nodes if (name := _name(node))}


def _name(node: torch.fx.Node) -> str:
    """Picking by a mask has a name of its own: no format that is fixed in size can have it."""
    operator = str(node.target)
    if not operator.startswith("aten."):
        return ""
    if operator == "aten.index.Tensor":
        masks = [i for i in node.args[1] if i is not None and i.meta["val"].dtype == torch.bool]  # type: ignore[union-attr]
        return "index_by_mask" if masks else "index"
    return base_name(operator)


def table(rows: Mapping[str, Mapping[str, Any]], held: Mapping[str, set[str]]) -> dict[str, Any]:
    """For each operator the formats that take it.

    Args:
        rows: What was measured, by model.
        held: The operators of each model.
    """
    taken = defaultdict(set)
    for name, names in held.items():
        for format in _FORMATS:
            if rows[name].get(format, {}).get("ok"):
                for each in names:
                    taken[each].add(format)
    return {each: tuple(f for f in _FORMATS if f in formats) for each, formats in taken.items()}


def _text(found: Mapping[str, Any]) -> str:
    groups = defaultdict(list)
    for name, formats in sorted(found.items()):
        groups[formats].append(name)
    lines = "".join(map("".join, map(_entry, *zip(*sorted(groups.items()), strict=True))))
    return f"{_HEAD}TAKEN: Mapping[tuple[str, ...], str] = {{\n{lines}}}\n"


def _entry(formats: tuple[str, ...], names: list[str]) -> Iterator[str]:
    key = ", ".join(f'"{name}"' for name in formats) + ("," if len(formats) == 1 else "")
    first, *more = textwrap.wrap(" ".join(names), 86)
    if not more:
        yield f'    ({key}): "{first}",\n'
        return
    yield f"    ({key}): (\n"
    yield from (f'        "{line} "\n' for line in (first, *more))
    yield "    ),\n"


def main() -> None:
    """Write the module, from rows that are there and models that export as they are."""
    from dev.zoo.catalogue import locations
    from dev.zoo.run import rows_of

    rows = {**rows_of("plain"), **rows_of("ops")}
    held = {}
    for name in (*locations("plain"), *locations("ops")):
        if rows.get(name, {}).get("export", {}).get("ok"):
            held[name] = operators(name)
    found = _text(table(rows, held))
    if "--write" in sys.argv:
        PAGE.write_text(found)
    else:
        print(found)


if __name__ == "__main__":
    main()
