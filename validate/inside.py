"""What a file holds inside: stored weights, inner tensors, sums that may saturate. Remarks only."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from edgeserve.backends.base import Backend
from edgeserve.backends.graph import Graph
from edgeserve.errors import BackendError
from edgeserve.types.base import plain
from edgeserve.validate.inner import file_inner, read_inner, taps_of
from edgeserve.validate.inner_rules import check_inner
from edgeserve.validate.promises import check_size
from edgeserve.validate.trial import Trial
from edgeserve.validate.verdict import GROSS

__all__ = ["look_inside"]


def look_inside(trial: Trial, backend: Backend) -> None:
    """Remarks on what the file holds: stored weights, inner tensors, sums that may saturate."""
    request, exported = trial.case.request, trial.case.exported
    findings, root = trial.findings, Path(request.root)
    try:
        graph = backend.inspect(request.artifact, root)
        check_size(graph, exported.weights, findings)
        if layers := backend.saturating(request.artifact, root):
            findings.remark("EDGE-CHECK-069", _saturating(layers))
        _compare_inside(trial, backend, graph)
    except BackendError as error:
        findings.notes.append(f"inner tensors were not looked at: {error.message}")


def _saturating(layers: Sequence[str]) -> str:
    more = f" and {len(layers) - 3} more" if len(layers) > 3 else ""
    return f"on x86 without VNNI 8-bit sums may saturate in {', '.join(layers[:3])}{more}"


def _compare_inside(trial: Trial, backend: Backend, graph: Graph) -> None:
    request = trial.case.request
    reference = read_inner(Path(request.samples))
    taps = taps_of(graph, reference)
    if not taps or not trial.first:
        return
    found = file_inner(
        lambda names: backend.load(
            request.artifact,
            Path(request.root),
            delegate=request.delegate,
            threads=request.threads,
            taps=names,
            optimize=False,
            verified=True,
        ),
        trial.runner,
        taps,
        reference,
        trial.first,
    )
    off = max((plain(diff.relative) for diff in trial.difference.natural()), default=0.0)
    harmed = bool(trial.findings.broken) or off > GROSS
    check_inner(taps, found, reference, request.artifact.precision, trial.findings, harmed)
