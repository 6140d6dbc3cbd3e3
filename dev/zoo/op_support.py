"""Which format takes which operator: writes ``op_support.json`` from the zoo's rows.

    python -P dev/zoo/op_support.py --write     # after `make zoo` and `make zoo-ops`

A format takes an operator where a model that holds it was converted and answered right.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from edgeserve.backends.torch.diagnose.unsupported_op import base_name
from edgeserve.convert.torch_source import call_factory
from edgeserve.types.source import Source

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "backends" / "torch" / "diagnose" / "op_support.json"
_FORMATS = ("onnx", "tflite", "coreml")


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
    """Operators by the formats that take them, names separated by spaces."""
    groups = defaultdict(list)
    for name, formats in sorted(found.items()):
        groups[" ".join(formats)].append(name)
    text = {formats: " ".join(names) for formats, names in sorted(groups.items())}
    return json.dumps(text, indent=1) + "\n"


def main() -> None:
    """Write the table, from rows that are there and models that export as they are."""
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
