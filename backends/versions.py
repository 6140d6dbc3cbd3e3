"""Versions of the packages that make and run artifacts.

`versions` is what backends note in what they make, `too_old` names installed packages that are
older than `OLDEST`.
"""

from __future__ import annotations

import importlib.metadata
import re

from edgeserve import __version__

#: Oldest versions that models are converted with: older ones make other files, or none. The same as
#: in the extras [convert] and [coreml].
OLDEST: dict[str, str] = {
    "ai-edge-litert": "2.3",
    "ai-edge-quantizer": "0.10",
    "coremltools": "9.0",
    "flatbuffers": "25.2",
    "litert-torch": "0.10",
    "onnx": "1.20",
    "onnx-ir": "1.0",
    "onnxruntime": "1.20",
    "onnxscript": "0.7.2",
    "pillow": "12",
    "safetensors": "0.5",
    "tokenizers": "0.21",
    "torch": "2.13",
    "transformers": "5.24",
}


def versions(*packages: str) -> dict[str, str]:
    """Versions of edgeserve and of installed distributions; what is missing is left out."""
    found = {"edgeserve": __version__}
    for name in packages:
        if (version := _installed(name)) is not None:
            found[name] = version
    return found


def too_old(*packages: str) -> str | None:
    """The pip line for those of ``packages`` that are installed and older than `OLDEST`, or None.

    For a backend's `missing_tools`: a converter of another version fails in its own words, or makes
    a file that is wrong.
    """
    found = {name: version for name in packages if (version := _installed(name))}
    old = {name: v for name, v in found.items() if _release(v) < _release(OLDEST[name])}
    if not old:
        return None
    wanted = " ".join(f"'{name}>={OLDEST[name]}'" for name in old)
    have = ", ".join(f"{name} {version}" for name, version in old.items())
    return f"pip install -U {wanted} (too old here: {have})"


def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _release(version: str) -> tuple[int, ...]:
    """The leading numbers of a version, without zeros at their end: "2.13.0+cpu" is (2, 13)."""
    numbers = [int(part) for part in re.findall(r"\d+", version.split("+")[0])[:4]]
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)
