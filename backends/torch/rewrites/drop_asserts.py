"""Remove checks: what they check was checked when the module was exported."""

from __future__ import annotations

from torch import fx

__all__ = ["drop_asserts"]

#: Starts of the names of operators that only check; ``_guards_fn`` is a module that does.
_CHECKS = ("aten._assert", "aten._functional_assert", "aten.sym_constrain", "_guards_fn")


def drop_asserts(module: fx.GraphModule) -> bool:
    """Remove assertions and size constraints, and with them what was computed only for them."""
    checks = [node for node in module.graph.nodes if str(node.target).startswith(_CHECKS)]
    for node in checks:
        if node.users:  # a functional assertion hands a token on to the next one
            node.replace_all_uses_with(node.args[-1])
        module.graph.erase_node(node)
    return bool(checks)
