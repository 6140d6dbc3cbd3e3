"""Checks and refusals that several formats share, so that all of them use the same words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from edgeserve.errors import BackendError, QuantizeError
from edgeserve.types.artifact import Artifact, Provenance, Recipe


def check_precision(format: str, precision: str, precisions: Sequence[str]) -> None:
    """Reject a precision that a format does not derive from fp32.

    Raises:
        BackendError: EDGE-BACKEND-006.
    """
    if precision not in precisions:
        got = "a precision that this format does not derive from fp32"
        hint = f"ask for --precision {precisions[-1]}"
        raise refused_precision(format, precision, ", ".join(precisions), got, hint)


def refused_precision(
    format: str, precision: str, wanted: str, got: str, hint: str
) -> BackendError:
    """The error for a precision that a format does not make, or not in this way."""
    thing = f"{format} {precision}"
    return BackendError("EDGE-BACKEND-006", thing, wanted=wanted, got=got, hint=hint)


def derived_provenance(artifact: Artifact, recipe: Recipe, tools: dict[str, str]) -> Provenance:
    """The provenance of an artifact that is quantized from another one."""
    return Provenance(
        parent=artifact.sha256,
        recipe=recipe,
        route=artifact.provenance.route,
        rewrites=artifact.provenance.rewrites,
        tools=tools,
    )


def is_kept(entry: str, source: str | None, module: str | None) -> bool:
    """Whether an entry of ``keep_float`` names a source op, or a module that holds it."""
    return entry in (source, module) or (module or "").startswith(f"{entry}.")


def unknown_keep_float(entry: str) -> QuantizeError:
    """The error for an entry of ``keep_float`` that matches nothing in the artifact."""
    return QuantizeError(
        "EDGE-QUANTIZE-009",
        f"keep_float {entry!r}",
        wanted="a module's path or a node of the exported program that the artifact knows",
        got="no match in the artifact",
        hint="`edgeserve inspect` shows the source op and module of each op",
    )


def no_samples() -> QuantizeError:
    """The error for a calibration without data."""
    wanted = "samples of real data"
    hint = "give inputs as your users send them: --data FOLDER (docs/guide/data.md)"
    return QuantizeError("EDGE-QUANTIZE-001", "calibration", wanted=wanted, got="none", hint=hint)


def not_finite(tensor: str, sample: int, got: str) -> QuantizeError:
    """The error for an activation that overflows during calibration."""
    return QuantizeError(
        "EDGE-QUANTIZE-010",
        f"tensor {tensor!r}",
        wanted="finite values",
        got=f"{got} in calibration sample {sample}",
        hint="check the float model on that sample, keep the op in float, or drop the sample",
    )


def nothing_to_quantize(wanted: str, hint: str) -> QuantizeError:
    """The error for a model in which no layer can be quantized."""
    got = "no layer to quantize"
    return QuantizeError(
        "EDGE-QUANTIZE-011", "model", wanted=wanted, got=got, hint=f"{hint}, or keep less in float"
    )


def unreadable(
    thing: str, wanted: str, got: str, hint: str = "make the artifact again from its source"
) -> BackendError:
    """The error for a file that cannot be read, or that its engine does not take."""
    return BackendError("EDGE-BACKEND-012", thing, wanted=wanted, got=got, hint=hint)


def unsupported_dtype(tensor: str, dtypes: Sequence[str], got: str, hint: str) -> BackendError:
    """The error for an input or output of a dtype that edgeserve does not know."""
    wanted = f"a dtype among {dtypes}"
    return BackendError("EDGE-BACKEND-017", f"tensor {tensor!r}", wanted=wanted, got=got, hint=hint)


def unknown_taps(taps: object) -> BackendError:
    """The error for taps that name no activation of the graph."""
    wanted = "names of activations, as inspect shows them"
    hint = "run `edgeserve inspect` for the names"
    return BackendError("EDGE-BACKEND-014", "taps", wanted=wanted, got=f"{taps}", hint=hint)


def check_unlisted_files(artifact: Artifact, root: Path, folder: Path) -> None:
    """Reject a folder with files that the artifact does not list: no hash covers those.

    Raises:
        BackendError: EDGE-BACKEND-016.
    """
    listed = {root / entry.path for entry in artifact.files}
    for path in folder.rglob("*"):
        if path not in listed and (path.is_symlink() or not path.is_dir()):
            raise BackendError(
                "EDGE-BACKEND-016",
                f"file {path.name!r}",
                wanted="only files that the artifact lists",
                got="an additional file, from which the model could read its weights",
                hint="remove that file, or make the artifact again",
            )
