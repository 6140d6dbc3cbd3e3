"""What a folder prepares inputs with, as transformers has it; and the error where no step does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edgeserve.backends.torch.blame import one_line
from edgeserve.errors import ConvertError

__all__ = ["not_carried", "preprocessor"]


def preprocessor(auto: Any, folder: Path, kind: str, **more: Any) -> Any:
    """Load it, from files alone and without running any code of the folder's.

    Args:
        auto: The class of transformers that knows its kind.
        folder: Where ``preprocessor_config.json`` lies.
        kind: What errors call it: "image processor".
        more: What else the class is told.

    Raises:
        ConvertError: EDGE-CONVERT-069.
    """
    from edgeserve.backends.torch.program import log_warnings

    try:
        with log_warnings():
            return auto.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False, **more
            )
    except Exception as error:  # transformers raises many kinds here
        wanted = f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"
        raise not_carried(kind, "preprocessor_config.json", wanted, one_line(error)) from error


def not_carried(kind: str, setting: str, wanted: str, got: str) -> ConvertError:
    """The error for what no step expresses."""
    return ConvertError(
        "EDGE-CONVERT-069",
        f"{kind}: {setting}",
        wanted=wanted,
        got=got,
        hint="give the processing yourself in a factory (docs/processing.md), with your server as"
        " --reference",
    )
