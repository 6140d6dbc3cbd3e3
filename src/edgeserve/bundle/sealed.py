"""`Bundle`, a sealed ``.edge`` file, and `open_model`, one door to a workspace or a bundle.

Nothing is handed out before its hash holds.
"""

from __future__ import annotations

import functools
import hashlib
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Literal, Protocol, Self

import msgspec

from edgeserve.bundle.cache import ArtifactCache
from edgeserve.bundle.manifest import MANIFEST, MAX_BYTES, check_json, read_manifest
from edgeserve.bundle.reader import ByteSource, scan
from edgeserve.bundle.rules import IDENTITY, FunctionIdentity, check_bundle
from edgeserve.bundle.workspace import Workspace
from edgeserve.bundle.zipfmt import ZipMember
from edgeserve.errors import BundleError
from edgeserve.files import Closing
from edgeserve.types.artifact import Artifact, FileEntry
from edgeserve.types.base import or_default
from edgeserve.types.manifest import Manifest
from edgeserve.types.processing import Processing
from edgeserve.types.vocabulary import Task


def _damaged(code: str, thing: str, wanted: str, got: str) -> BundleError:
    hint = "the file is damaged or was changed: get it again"
    return BundleError(code, thing, wanted=wanted, got=got, hint=hint)


#: What identity and manifest say in one form.
_SHARED = ("processing", "labels", "task")


class _Shared(msgspec.Struct):
    """What ``identity.json`` and the manifest both say; the rest of the member is only hashed."""

    processing: Processing
    labels: tuple[str, ...]
    task: Task
    functions: tuple[FunctionIdentity, ...] = ()


def _check_identity(data: bytes, manifest: Manifest) -> None:
    """`model_id` covers what the manifest says about processing, labels and task.

    Args:
        data: The bytes of ``identity.json``, their hash checked.
        manifest: The manifest beside it.

    Raises:
        BundleError: EDGE-BUNDLE-040, they differ.
    """
    check_json(data, IDENTITY)
    try:
        shared = msgspec.json.decode(data, type=_Shared)
    except (ValueError, TypeError, RecursionError) as error:
        wanted = "the model's identity"
        raise _damaged("EDGE-BUNDLE-040", IDENTITY, wanted, str(error)) from error
    identified = {each.name: each.processing for each in shared.functions}
    functions = {each.name: each.processing for each in or_default(manifest.functions, ())}
    same = {field: getattr(shared, field) == getattr(manifest, field) for field in _SHARED}
    for field, holds in (same | {"functions": identified == functions}).items():
        if not holds:
            where = f"{MANIFEST} at $.{field}"
            raise _damaged("EDGE-BUNDLE-040", where, f"what {IDENTITY} says", "something else")


class Bundle(Closing):
    """A sealed bundle, checked from end to end when it is opened, except for the members' data.

    The data of a member are held to its sha256 each time it is read. Safe to use from several
    threads.

    Attributes:
        path: The file.
        manifest: What it holds.
        size: The file's bytes.
        members: Name to place, in file order, read-only.
    """

    kind: Literal["bundle"] = "bundle"

    def __init__(self, path: str | Path, cache: ArtifactCache | None = None) -> None:
        """Open and check a bundle.

        Args:
            path: The ``.edge`` file.
            cache: Where `local` extracts to; None: the user's cache.

        Raises:
            BundleError: whatever is wrong with it, one code per fault (``spec/bundle.md``).
        """
        self.path = Path(path)
        self._cache = cache
        self._source = ByteSource(self.path)
        try:
            self.size = self._source.size
            self.members = MappingProxyType(scan(self._source))
            self.manifest = self._read_manifest()
            self._listed = {entry.path: entry for entry in self.manifest.files}
            self._check_members()
            _check_identity(self.read(IDENTITY), self.manifest)
        except BaseException:
            self.close()
            raise

    def _read_manifest(self) -> Manifest:
        place = self.members[MANIFEST]
        if place.size > MAX_BYTES:
            wanted = f"at most {MAX_BYTES} bytes"
            raise _damaged("EDGE-BUNDLE-030", MANIFEST, wanted, str(place.size))
        data = self._source.read(place.start, place.size)
        self._check_crc(place, zlib.crc32(data))
        manifest = read_manifest(data)
        check_bundle(manifest)
        return manifest

    def _check_crc(self, place: ZipMember, crc: int) -> None:
        if crc != place.crc:
            where, wanted = f"member {place.name!r}", f"CRC-32 {place.crc:08x}"
            raise _damaged("EDGE-BUNDLE-017", where, wanted, f"{crc:08x}")

    def _check_members(self) -> None:
        """The members are those that the manifest lists, each with the size that it says."""
        stored = {name: place.size for name, place in self.members.items() if name != MANIFEST}
        listed = {entry.path: entry.size for entry in self._listed.values()}
        for name in sorted(stored.keys() | listed.keys()):
            if stored.get(name) != listed.get(name):
                wanted, got = _bytes(listed.get(name)), _bytes(stored.get(name))
                raise _damaged("EDGE-BUNDLE-019", f"member {name!r}", wanted, got)

    @functools.cached_property
    def sha256(self) -> str:
        """sha256 of the whole file, computed when first asked for."""
        digest = hashlib.sha256()
        for chunk in self._source.chunks(0, self.size):
            digest.update(chunk)
        return digest.hexdigest()

    def read(self, member: str) -> bytes:
        """A member's bytes, after its size, CRC and sha256 held.

        Raises:
            BundleError: EDGE-BUNDLE-042 there is no such member, -004 its bytes are not those that
                the manifest lists, -017 its CRC is wrong, -018 the file changed under our hands.
        """
        return b"".join(self._chunks(self._find(member)))

    def _find(self, member: str) -> FileEntry:
        if member not in self._listed:
            where = f"member {member!a}"
            wanted = "a member that the manifest lists"
            got = "none of that name"
            hint = "`edgeserve inspect` lists the members"
            raise BundleError("EDGE-BUNDLE-042", where, wanted=wanted, got=got, hint=hint)
        return self._listed[member]

    def _chunks(self, entry: FileEntry) -> Iterator[bytes]:
        """A member's bytes in pieces; whoever takes them uses none until the end is reached."""
        place = self.members[entry.path]
        digest, crc = hashlib.sha256(), 0
        for chunk in self._source.chunks(place.start, place.size):
            digest.update(chunk)
            crc = zlib.crc32(chunk, crc)
            yield chunk
        if digest.hexdigest() != entry.sha256:
            where, wanted = f"member {entry.path!r}", f"sha256 {entry.sha256}"
            raise _damaged("EDGE-BUNDLE-004", where, wanted, digest.hexdigest())
        self._check_crc(place, crc)

    def local(self, artifact: Artifact) -> Path:
        """The artifact's files as real files: extracted into the cache, or found there, verified.

        Returns:
            The folder under which ``artifact.files`` lie.

        Raises:
            BundleError: EDGE-BUNDLE-042 not an artifact of this bundle; -004 and as `read`.
            FilesError: the cache cannot be written.
        """
        if artifact not in self.manifest.artifacts:
            where = f"artifact {artifact.name}"
            wanted = "an artifact of this bundle"
            hint = "take it from the manifest of the bundle that is open"
            raise BundleError("EDGE-BUNDLE-042", where, wanted=wanted, got="another", hint=hint)
        cache = self._cache or ArtifactCache()
        return cache.folder(artifact.name, artifact.files, self._chunks)

    def verify(self) -> None:
        """Read every member once and hold it to its hash.

        Raises:
            BundleError: as `read`.
        """
        for entry in self._listed.values():
            for _ in self._chunks(entry):
                pass

    def close(self) -> None:
        """Close the file; extracted artifacts stay usable."""
        self._source.close()


def _bytes(size: int | None) -> str:
    return "no such member" if size is None else f"{size} bytes"


class Model(Protocol):
    """What a workspace and a bundle have in common; a context manager.

    Attributes:
        path: The folder or file.
        kind: Which of the two.
        manifest: What it holds.
    """

    path: Path

    @property
    def kind(self) -> Literal["workspace", "bundle"]: ...

    @property
    def manifest(self) -> Manifest: ...

    def read(self, member: str) -> bytes:
        """A member's bytes, after its sha256 held."""

    def local(self, artifact: Artifact) -> Path:
        """The folder under which ``artifact.files`` lie as real, verified files."""

    def close(self) -> None:
        """Let go of what is open."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


def open_model(path: str | Path) -> Model:
    """Open a workspace (a folder with ``manifest.json``) or a bundle (a file).

    Raises:
        BundleError: EDGE-BUNDLE-001 there is neither, -051 a folder without a manifest; whatever is
            wrong with the manifest or the bundle.
    """
    where = Path(path)
    if where.is_dir():
        workspace = Workspace(where)
        # Read now, so that a bad one is refused here.
        _check_identity(workspace.read(IDENTITY), workspace.manifest)
        return workspace
    if not where.exists():
        wanted = "a bundle or a workspace"
        got = "nothing there"
        hint = "check the path: `edgeserve package OUT -o model.edge` makes a bundle"
        raise BundleError("EDGE-BUNDLE-001", str(path), wanted=wanted, got=got, hint=hint)
    return Bundle(where)
