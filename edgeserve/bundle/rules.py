"""Rules of a manifest that span fields: every reference holds, every file is listed once.

`check_manifest` is for workspaces and bundles alike; `check_bundle` adds what only a sealed bundle
must keep to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from edgeserve.bundle.identity import IDENTITY
from edgeserve.bundle.names import check_name, check_names
from edgeserve.errors import BundleError
from edgeserve.types.artifact import FileEntry
from edgeserve.types.manifest import Manifest
from edgeserve.types.processing import Picks, Tokenize

__all__ = ["MODEL_NAME", "check_bundle", "check_manifest", "referenced"]

#: A model's name is also its name behind an endpoint.
MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_RELEASE = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6}){0,3}")
#: Where the files lie that a part of the manifest points to.
_FOLDERS = {"$.golden": "golden/", "$.processing": "assets/"}
_HINT = "the manifest was not written by edgeserve, or was changed since: make it again"


def referenced(manifest: Manifest) -> Iterator[tuple[str, FileEntry]]:
    """Each file that a value of the manifest points to, with the JSON path of the reference.

    This is the allow-list of a bundle, ``identity.json`` aside: what `package` copies.
    """
    for i, artifact in enumerate(manifest.artifacts):
        for j, entry in enumerate(artifact.files):
            yield f"$.artifacts[{i}].files[{j}]", entry
    for i, case in enumerate(manifest.golden.cases if manifest.golden else ()):
        yield f"$.golden.cases[{i}].input", case.input
        if case.outputs is not None:
            yield f"$.golden.cases[{i}].outputs", case.outputs
    for i, made in enumerate(manifest.processing.inputs):
        for j, step in enumerate(made.steps):
            if isinstance(step, Tokenize):
                yield f"$.processing.inputs[{i}].steps[{j}].tokenizer", step.tokenizer
    for i, read in enumerate(manifest.processing.outputs):
        if isinstance(read, Picks) and read.tokenizer is not None:
            yield f"$.processing.outputs[{i}].tokenizer", read.tokenizer


def check_manifest(manifest: Manifest, thing: str) -> None:
    """Hold a manifest to the rules that its types cannot say.

    Raises:
        BundleError: EDGE-BUNDLE-009 or -010 a member's name, -037 a value, -038 a reference that
            does not hold, -040 an identity that does not hold.
    """
    _check_words(manifest, thing)
    paths = [entry.path for entry in manifest.files]
    for path in paths:
        check_name(path)
    check_names(["manifest.json", *paths])
    if paths != sorted(paths):
        raise _value(f"{thing} at $.files", "files in the order of their paths", "another order")
    _check_identity(manifest, thing)
    _check_signatures(manifest, thing)
    _check_references(manifest, thing)


def _check_words(manifest: Manifest, thing: str) -> None:
    if not MODEL_NAME.fullmatch(manifest.name):
        wanted = "1 to 128 letters, digits, dots, dashes and underscores, a letter or digit first"
        raise _value(f"{thing} at $.name", wanted, ascii(manifest.name[:140]))
    if not _RELEASE.fullmatch(manifest.min_wrapper):
        wanted = "a release like 0.1.0"
        raise _value(f"{thing} at $.min_wrapper", wanted, ascii(manifest.min_wrapper[:40]))


def _value(where: str, wanted: str, got: str) -> BundleError:
    return BundleError("EDGE-BUNDLE-037", where, wanted=wanted, got=got, hint=_HINT)


def _check_identity(manifest: Manifest, thing: str) -> None:
    entry = next((e for e in manifest.files if e.path == IDENTITY), None)
    if entry is None or entry.sha256 != manifest.model_id:
        raise BundleError(
            "EDGE-BUNDLE-040",
            f"{thing} at $.model_id",
            wanted=f"the sha256 of {IDENTITY}",
            got="another" if entry else f"no {IDENTITY} among the files",
            hint=_HINT,
        )


def _check_signatures(manifest: Manifest, thing: str) -> None:
    """What a file takes and gives is what the model does, tensor by tensor, in the same order."""
    ranks = [len(spec.shape) for spec in manifest.signature.inputs]
    outputs = len(manifest.signature.outputs)
    for i, artifact in enumerate(manifest.artifacts):
        for io in (artifact.io, *artifact.buckets):
            if [len(spec.shape) for spec in io.inputs] != ranks or len(io.outputs) != outputs:
                wanted = f"inputs of the ranks {ranks}, and {outputs} outputs, as the signature has"
                raise _value(f"{thing} at $.artifacts[{i}].io", wanted, "others")


def _check_references(manifest: Manifest, thing: str) -> None:
    """Every reference names a listed file, alike in size and hash, in the folder it belongs to."""
    listed = {entry.path: entry for entry in manifest.files}
    for where, entry in referenced(manifest):
        if listed.get(entry.path) != entry:
            got = f"{entry.path}, listed otherwise" if entry.path in listed else entry.path
            raise _lie(f"{thing} at {where}", "a file as $.files lists it", got)
        for part, folder in _FOLDERS.items():
            if where.startswith(part) and not entry.path.startswith(folder):
                raise _lie(f"{thing} at {where}", f"a file under {folder}", entry.path)
    for i, artifact in enumerate(manifest.artifacts):
        folder = f"artifacts/{artifact.name}/"
        if artifact.format == "torch":
            raise _lie(f"{thing} at $.artifacts[{i}].format", "onnx, tflite or coreml", "torch")
        for entry in artifact.files:
            if not entry.path.startswith(folder):
                where = f"{thing} at $.artifacts[{i}].files"
                raise _lie(where, f"files under {folder}", entry.path)

    for i, refused in enumerate(manifest.refused):
        if refused.path is not None:
            check_name(refused.path)
            if not refused.path.startswith("failed/"):
                where = f"{thing} at $.refused[{i}].path"
                raise _lie(where, "a path under failed/", refused.path)


def _lie(where: str, wanted: str, got: str) -> BundleError:
    return BundleError("EDGE-BUNDLE-038", where, wanted=wanted, got=got, hint=_HINT)


def check_bundle(manifest: Manifest, thing: str) -> None:
    """Hold a manifest to what a sealed bundle must keep to: nothing of the workspace is left in it.

    Raises:
        BundleError: EDGE-BUNDLE-039.
    """
    left = [] if manifest.reference is None else ["$.reference"]
    left += [f"$.refused[{i}].path" for i, r in enumerate(manifest.refused) if r.path is not None]
    if left:
        raise BundleError(
            "EDGE-BUNDLE-039",
            f"{thing} at {left[0]}",
            wanted="null in a bundle",
            got="something of a workspace",
            hint=_HINT,
        )
