"""Read and write ``manifest.json``: strict JSON, strict values, and every cross-reference held.

Law: ``write_manifest(read_manifest(b)) == b`` for any ``b`` that `write_manifest` wrote. The bytes
are hashed and signed as they lie; nothing here writes a manifest again in order to verify one.
"""

from __future__ import annotations

import re

import msgspec

from edgeserve.bundle.rules import check_manifest
from edgeserve.bundle.strictjson import check_json
from edgeserve.errors import BundleError
from edgeserve.types.base import decode, encode
from edgeserve.types.manifest import FORMAT_VERSION, Manifest

__all__ = ["MANIFEST", "check_wrapper", "read_manifest", "write_manifest"]

#: Name of the member.
MANIFEST = "manifest.json"

_VERSION = re.compile(r"(0|[1-9][0-9]{0,5})\.(0|[1-9][0-9]{0,5})")
_UNKNOWN_STEP = re.compile(r"Invalid value (?P<step>'[^`]*') - at `(?P<path>[^`]*)\.step`")
_PLACED = re.compile(r"(?P<said>.*) - at `(?P<path>[^`]*)`", re.DOTALL)
_HINT = "open it with the edgeserve that wrote it, or package the model again"


class _Version(msgspec.Struct):
    """The one field that every version of the format has; all others are passed over."""

    edgeserve: str


def read_manifest(data: bytes, thing: str = MANIFEST) -> Manifest:
    """Read a manifest, refusing whatever this version does not know exactly.

    A newer minor version is read: it may add meaning only under ``x``.

    Args:
        data: The member's bytes.
        thing: What to call it in errors.

    Raises:
        BundleError: EDGE-BUNDLE-030 to -034 and -031 for the JSON itself, -035 another version of
            the format, -036 a processing step that is not known, -037 values that do not fit (with
            their JSON path), -038 and -040 references that do not hold.
    """
    check_json(data, thing)
    _check_version(data, thing)
    try:
        manifest = decode(data, Manifest)
    except (ValueError, TypeError, ArithmeticError) as error:  # msgspec's, or numpy's of arrays
        raise _misfit(str(error), thing) from error
    check_manifest(manifest, thing)
    return manifest


def _check_version(data: bytes, thing: str) -> None:
    """Look at the version before anything else: another major may differ in every other field."""
    try:
        version = msgspec.json.decode(data, type=_Version).edgeserve
    except msgspec.DecodeError as error:
        raise _misfit(str(error), thing) from error
    match = _VERSION.fullmatch(version)
    if match is None or match[1] != FORMAT_VERSION.split(".")[0]:
        raise BundleError(
            "EDGE-BUNDLE-035",
            f"{thing} at $.edgeserve",
            wanted=f"a version like {FORMAT_VERSION}",
            got=ascii(version[:40]),
            hint="install a newer edgeserve: pip install -U edgeserve",
        )


def _misfit(said: str, thing: str) -> BundleError:
    """Put a decoder's complaint into our words: its JSON path is the thing."""
    if match := _UNKNOWN_STEP.fullmatch(said):
        return BundleError(
            "EDGE-BUNDLE-036",
            f"{thing} at {match['path']}",
            wanted="a processing step that this version knows",
            got=ascii(match["step"])[1:-1],
            hint="install a newer edgeserve: pip install -U edgeserve",
        )
    match = _PLACED.fullmatch(said)
    where, got = (match["path"], match["said"]) if match else ("$", said)
    return BundleError("EDGE-BUNDLE-037", f"{thing} at {where}", got=got[:300], hint=_HINT)


def write_manifest(manifest: Manifest) -> bytes:
    """Write a manifest, holding it to all that a reader will.

    Raises:
        BundleError: as `read_manifest`.
    """
    try:
        data = encode(manifest)
    except ValueError as error:
        raise _misfit(str(error), MANIFEST) from error
    read_manifest(data)
    return data


def check_wrapper(manifest: Manifest, version: str) -> None:
    """Refuse a manifest whose ``min_wrapper`` is above ``version`` (of edgeserve, e.g. "0.1.0").

    Raises:
        BundleError: EDGE-BUNDLE-041.
    """
    if _release(manifest.min_wrapper) > _release(version):
        raise BundleError(
            "EDGE-BUNDLE-041",
            manifest.name,
            wanted=f"edgeserve {manifest.min_wrapper} or newer",
            got=f"edgeserve {version}",
            hint="install a newer edgeserve: pip install -U edgeserve",
        )


def _release(version: str) -> tuple[int, ...]:
    """The release numbers of a version, end zeros off: 0.1 equals 0.1.0, 1.0rc1 is 1.0."""
    numbers = [int(n) for n in re.findall(r"\d+", re.split(r"[a-zA-Z+]", version)[0])]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
