"""What a manifest must hold to: member names, the model's identity, and rules that span fields.

Member names are those that are allowed, and sets of them those that can lie together on every
file system. Every reference holds, every file is listed once: `check_manifest` is for workspaces
and bundles alike; `check_bundle` adds what only a sealed bundle must keep to.

The identity is what is the same over formats, precisions, slices of a bundle and reports.
`identity_bytes` writes the member ``identity.json`` once, when the source has been exported;
from then on its bytes travel as they are. ``model_id`` is their sha256: a reader hashes the
member and never builds it again, so that no two implementations can disagree about how it would
be written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from edgeserve.errors import BundleError
from edgeserve.files import sha256_bytes
from edgeserve.types.artifact import Artifact, ArtifactFunction, FileEntry, check_member_name
from edgeserve.types.base import UNSET, UnsetType, Value, encode, or_default
from edgeserve.types.manifest import MAIN, Manifest, features_of
from edgeserve.types.processing import Processing
from edgeserve.types.samples import Golden
from edgeserve.types.source import Exported, Weight
from edgeserve.types.tensors import Signature
from edgeserve.types.vocabulary import REFERENCE_FORMAT, Task

MAX_NAME = 200

#: Names that Windows gives to devices, with or without an extension.
_DEVICE = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)
_NAME_HINT = "do not repack a bundle: make it with `edgeserve package`"


def check_name(name: str) -> None:
    """Refuse a member name that some system would read as another place, or not take at all.

    Raises:
        BundleError: EDGE-BUNDLE-009.
    """
    try:
        check_member_name(name)
    except ValueError:
        wanted = "a relative path of A-Z a-z 0-9 . _ - and /"
        raise _bad_name(name, wanted, "something else") from None
    if len(name) > MAX_NAME:
        raise _bad_name(name[:60], f"at most {MAX_NAME} characters", str(len(name)))
    for part in name.split("/"):
        if part.endswith(".") or _DEVICE.fullmatch(part):
            raise _bad_name(name, "a name that every system keeps", "one that Windows changes")


def _bad_name(name: str, wanted: str, got: str) -> BundleError:
    # Only ASCII that shows: a hostile name must not move the cursor of the terminal it is shown on.
    shown = ascii(name)[1:-1]
    return BundleError(
        "EDGE-BUNDLE-009", f"member '{shown}'", wanted=wanted, got=got, hint=_NAME_HINT
    )


def check_names(names: Iterable[str]) -> None:
    """Refuse names of which two would meet on a file system that ignores case, or in one place.

    Every name and every folder above it must be spelled in one way, and be a file or a folder, not
    both.

    Raises:
        BundleError: EDGE-BUNDLE-010.
    """
    files: dict[str, str] = {}
    folders: dict[str, str] = {}
    for name in names:
        key = name.lower()
        if key in files or key in folders:
            raise _name_clash(name, files.get(key) or folders[key])
        files[key] = name
        parts = name.split("/")
        for depth in range(1, len(parts)):
            folder = "/".join(parts[:depth])
            other = files.get(folder.lower()) or folders.setdefault(folder.lower(), folder)
            if other != folder or folder.lower() in files:
                raise _name_clash(name, other)


def _name_clash(name: str, other: str) -> BundleError:
    got = f"the place of '{other}'"
    return BundleError(
        "EDGE-BUNDLE-010", f"member '{name}'", wanted="a place of its own", got=got, hint=_NAME_HINT
    )


#: Name of the member.
IDENTITY = "identity.json"


class FunctionIdentity(Value, frozen=True):
    """What makes a function beside the main one this function.

    Attributes:
        name: As the manifest names it.
        graph_sha256: sha256 of its graph text without metadata.
        processing: What happens around it.
    """

    name: str
    graph_sha256: str
    processing: Processing


class Identity(Value, frozen=True):
    """What makes a model this model. Lies as ``identity.json``.

    Attributes:
        weights: Name, dtype, shape and sha256 of each weight, sorted by name.
        graph_sha256: sha256 of the graph text without metadata (an ONNX source: of its files).
        processing: What happens around the model.
        labels: Class names by index.
        task: Meaning of the outputs.
        functions: Those beside the main one.
    """

    weights: tuple[Weight, ...]
    graph_sha256: str
    processing: Processing
    labels: tuple[str, ...]
    task: Task
    functions: tuple[FunctionIdentity, ...] | UnsetType = UNSET


def identity_bytes(exported: Exported) -> bytes:
    """Write ``identity.json`` for an exported source.

    The same weights, graph, processing, labels and task give the same bytes, in whatever order the
    weights are listed.
    """
    identity = msgspec.convert(exported, Identity, from_attributes=True)
    weights = tuple(sorted(exported.weights, key=lambda weight: weight.name))
    return encode(msgspec.structs.replace(identity, weights=weights))


def model_id(data: bytes) -> str:
    """The model's identity: sha256 in hex of the bytes of the member ``identity.json``."""
    return sha256_bytes(data)


#: The field of the manifest's ``x`` in which a bundle's author forbids that data leaves a device.
PRIVACY_FIELD = "local_only"
#: Keys that read like that field, or like another statement about privacy.
_PRIVACY = re.compile(
    r"(local|device)[-_. ]?only|(never|no|not)[-_. ]?(the[-_. ]?)?cloud|privacy", re.IGNORECASE
)
#: A model's name is also its name behind an endpoint.
MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_RELEASE = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6}){0,3}")
#: Where the files lie that a part of the manifest points to.
_FOLDERS = {"golden": "golden/", "processing": "assets/"}
_PART = re.compile(r"\$(?:\.functions\[[0-9]+\])?\.(golden|processing)\.")
#: What errors say before the JSON path of a value.
_AT = "manifest.json at "
_HINT = "the manifest was not written by edgeserve, or was changed since: make it again"


def referenced(manifest: Manifest) -> Iterator[tuple[str, FileEntry]]:
    """Each file that a value of the manifest points to, with the JSON path of the reference.

    This is the allow-list of a bundle, ``identity.json`` aside: what `package` copies.
    """
    for i, artifact in enumerate(manifest.artifacts):
        for j, entry in enumerate(artifact.files):
            yield f"$.artifacts[{i}].files[{j}]", entry
    yield from _referenced_by("$", manifest.golden, manifest.processing)
    for i, function in enumerate(or_default(manifest.functions, ())):
        yield from _referenced_by(f"$.functions[{i}]", function.golden, function.processing)


def _referenced_by(
    where: str, golden: Golden | None, processing: Processing
) -> Iterator[tuple[str, FileEntry]]:
    for i, case in enumerate(golden.cases if golden else ()):
        yield f"{where}.golden.cases[{i}].input", case.input
        if case.outputs is not None:
            yield f"{where}.golden.cases[{i}].outputs", case.outputs
    for i, made in enumerate(processing.inputs):
        for j, step in enumerate(made.steps):
            for name, entry in step.files.items():
                yield f"{where}.processing.inputs[{i}].steps[{j}].{name}", entry
    for i, read in enumerate(processing.outputs):
        for name, entry in read.files.items():
            yield f"{where}.processing.outputs[{i}].{name}", entry
    if not isinstance(processing.chat, UnsetType):
        yield f"{where}.processing.chat.template", processing.chat.template


def check_manifest(manifest: Manifest) -> None:
    """Hold a manifest to the rules that its types cannot say.

    Raises:
        BundleError: EDGE-BUNDLE-009 or -010 a member's name, -037 a value, -038 a reference that
            does not hold, -040 an identity that does not hold, -044 a privacy field.
    """
    _check_name_and_release(manifest)
    check_privacy(manifest.x)
    for i, artifact in enumerate(manifest.artifacts):
        check_privacy(or_default(artifact.x, {}), f"$.artifacts[{i}]")
    for i, function in enumerate(or_default(manifest.functions, ())):
        check_privacy(function.x, f"$.functions[{i}]")
    paths = [entry.path for entry in manifest.files]
    for path in paths:
        check_name(path)
    check_names(["manifest.json", *paths])
    if paths != sorted(paths):
        raise _bad_value("$.files", "files in the order of their paths", "another order")
    _check_identity(manifest)
    _check_signatures(manifest)
    _check_references(manifest)


def _check_name_and_release(manifest: Manifest) -> None:
    if not MODEL_NAME.fullmatch(manifest.name):
        wanted = "1 to 128 letters, digits, dots, dashes and underscores, a letter or digit first"
        raise _bad_value("$.name", wanted, ascii(manifest.name[:140]))
    if not _RELEASE.fullmatch(manifest.min_wrapper):
        wanted = "a release like 0.1.0"
        raise _bad_value("$.min_wrapper", wanted, ascii(manifest.min_wrapper[:40]))


def check_privacy(x: Mapping[str, Any], where: str = "$") -> None:
    """Refuse a statement about privacy that is not understood: ignored, it would let data leave.

    Args:
        x: The field ``x`` of the manifest, an artifact or a function.
        where: Whose it is, as a JSON path; the known field is the manifest's alone.

    Raises:
        BundleError: EDGE-BUNDLE-044, ``local_only`` is neither true nor false, or a key reads like
            a privacy field and is another.
    """
    for key, value in x.items():
        known = key == PRIVACY_FIELD and where == "$"
        if not _PRIVACY.search(key) or (known and isinstance(value, bool)):
            continue
        wanted = "true or false" if known else f"$.x.{PRIVACY_FIELD}, the only privacy field"
        got = ascii(value)[:80] if known else "another field, which nothing obeys"
        place, hint = f"{_AT}{where}.x.{ascii(key)[1:-1][:80]}", f'write "{PRIVACY_FIELD}": true'
        raise BundleError("EDGE-BUNDLE-044", place, wanted=wanted, got=got, hint=hint)


def _bad_value(where: str, wanted: str, got: str) -> BundleError:
    return BundleError("EDGE-BUNDLE-037", _AT + where, wanted=wanted, got=got, hint=_HINT)


def _check_identity(manifest: Manifest) -> None:
    entry = next((e for e in manifest.files if e.path == IDENTITY), None)
    if entry is None or entry.sha256 != manifest.model_id:
        where = f"{_AT}$.model_id"
        wanted = f"the sha256 of {IDENTITY}"
        got = "another" if entry else f"no {IDENTITY} among the files"
        raise BundleError("EDGE-BUNDLE-040", where, wanted=wanted, got=got, hint=_HINT)


def _check_signatures(manifest: Manifest) -> None:
    """What a file takes and gives is what the model does, tensor by tensor, in the same order."""
    _check_states(manifest)
    signatures = manifest.signatures
    for i, artifact in enumerate(manifest.artifacts):
        where = f"$.artifacts[{i}]"
        _check_files_io(artifact, signatures[MAIN], where)
        for j, function in enumerate(or_default(artifact.functions, ())):
            place = f"{where}.functions[{j}]"
            if function.name == MAIN or function.name not in signatures:
                wanted = f"one of {sorted(set(signatures) - {MAIN})}"
                raise _bad_value(f"{place}.name", wanted, ascii(function.name[:80]))
            _check_files_io(function, signatures[function.name], place)


def _check_states(manifest: Manifest) -> None:
    """Signatures name states that are there, and agree with them on what a dimension is."""
    states = {state.name: state for state in or_default(manifest.states, ())}
    places = ["$.signature"]
    places += [f"$.functions[{i}].signature" for i in range(len(manifest.signatures) - 1)]
    for where, signature in zip(places, manifest.signatures.values(), strict=True):
        for name in or_default(signature.states, ()):
            if name not in states:
                raise _bad_value(f"{where}.states", f"one of {sorted(states)}", ascii(name[:80]))
            dims = states[name].dims
            if any(signature.dims.get(dim, size) != size for dim, size in dims.items()):
                wanted = f"the ranges of state {name}, which are {dims}"
                raise _bad_value(f"{where}.dims", wanted, str(signature.dims))
    for i, function in enumerate(or_default(manifest.functions, ())):
        if or_default(function.signature.states, ()) and "states" not in function.requires:
            raise _lacks_feature(f"$.functions[{i}].requires", "states")


def _check_files_io(part: Artifact | ArtifactFunction, signature: Signature, where: str) -> None:
    ranks = [len(spec.shape) for spec in signature.inputs]
    outputs, states = len(signature.outputs), sorted(or_default(signature.states, ()))
    for io in (part.io, *part.buckets):
        if [len(spec.shape) for spec in io.inputs] != ranks or len(io.outputs) != outputs:
            wanted = f"inputs of the ranks {ranks}, and {outputs} outputs, as the signature has"
            raise _bad_value(f"{where}.io", wanted, "others")
        if (got := sorted(or_default(io.states, {}))) != states:
            raise _bad_value(f"{where}.io.states", f"the states {states}", ascii(got)[:140])
        if missing := features_of(io) - set(or_default(part.requires, ())):
            raise _lacks_feature(f"{where}.requires", min(missing))


def _lacks_feature(where: str, feature: str) -> BundleError:
    return _bad_value(where, f"the feature {feature!r}, which is used", "a list without it")


def _check_references(manifest: Manifest) -> None:
    """Every reference names a listed file, alike in size and hash, in the folder it belongs to."""
    listed = {entry.path: entry for entry in manifest.files}
    for where, entry in referenced(manifest):
        if listed.get(entry.path) != entry:
            got = f"{entry.path}, listed otherwise" if entry.path in listed else entry.path
            raise _broken_reference(where, "a file as $.files lists it", got)
        folder = _FOLDERS[part[1]] if (part := _PART.match(where)) else ""
        if not entry.path.startswith(folder):
            raise _broken_reference(where, f"a file under {folder}", entry.path)
    for i, artifact in enumerate(manifest.artifacts):
        folder = f"artifacts/{artifact.name}/"
        if artifact.format == REFERENCE_FORMAT:
            raise _broken_reference(
                f"$.artifacts[{i}].format", "onnx, tflite or coreml", REFERENCE_FORMAT
            )
        for entry in artifact.files:
            if not entry.path.startswith(folder):
                where = f"$.artifacts[{i}].files"
                raise _broken_reference(where, f"files under {folder}", entry.path)

    for i, refused in enumerate(manifest.refused):
        if refused.path is not None:
            check_name(refused.path)
            if not refused.path.startswith("failed/"):
                where = f"$.refused[{i}].path"
                raise _broken_reference(where, "a path under failed/", refused.path)


def _broken_reference(where: str, wanted: str, got: str) -> BundleError:
    return BundleError("EDGE-BUNDLE-038", _AT + where, wanted=wanted, got=got, hint=_HINT)


def check_bundle(manifest: Manifest) -> None:
    """Hold a manifest to what a sealed bundle must keep to: nothing of the workspace is left in it.

    Raises:
        BundleError: EDGE-BUNDLE-039.
    """
    left = [] if manifest.reference is None else ["$.reference"]
    left += [f"$.refused[{i}].path" for i, r in enumerate(manifest.refused) if r.path is not None]
    if left:
        where = _AT + left[0]
        got = "something of a workspace"
        raise BundleError("EDGE-BUNDLE-039", where, wanted="null in a bundle", got=got, hint=_HINT)
