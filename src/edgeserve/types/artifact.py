"""`Artifact`, the one thing every stage takes, and what it is made of."""

from __future__ import annotations

import re

import msgspec

from edgeserve.types.base import Number, Value
from edgeserve.types.tensors import IO
from edgeserve.types.vocabulary import Format, Precision, Verdict, check_word

__all__ = [
    "MEMBER_NAME",
    "Artifact",
    "FileEntry",
    "Judgement",
    "Provenance",
    "Reason",
    "Recipe",
    "Refused",
    "check_member_name",
]

MEMBER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")
#: Dtypes of quantized weights, as `WeightInfo.dtype` says them.
_EIGHT_BITS = ("int8", "uint8", "int4", "uint4", "int2", "uint2")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def check_member_name(name: str) -> None:
    """Raise ValueError unless ``name`` is a relative POSIX path safe on every file system."""
    parts = name.split("/")
    if not MEMBER_NAME.fullmatch(name) or any(part in ("", ".", "..") for part in parts):
        raise ValueError(f"{name!r} is not an allowed member name")


class FileEntry(Value, frozen=True):
    """One file: relative POSIX path, size in bytes, sha256 in hex."""

    path: str
    size: int
    sha256: str

    def __post_init__(self) -> None:
        check_member_name(self.path)
        if not 0 <= self.size < 1 << 53:  # what every JSON reader keeps exactly
            raise ValueError(f"{self.path}: size {self.size} is negative or beyond 2**53")
        if not _SHA256.fullmatch(self.sha256):
            raise ValueError(f"{self.path}: {self.sha256!r} is not a sha256 in lower-case hex")


class Recipe(Value, frozen=True):
    """How a precision was reached.

    Attributes:
        precision: The precision asked for.
        keep_float: Source ops (module path or fx node) kept in float, so that the list travels
            between formats.
        options: Backend settings that change the bytes made, by name.
    """

    precision: Precision
    keep_float: tuple[str, ...] = ()
    options: dict[str, str] = {}


class Provenance(Value, frozen=True):
    """Where an artifact comes from.

    Attributes:
        parent: sha256 of the artifact it was derived from; None when exported from the source.
        recipe: How its precision was reached.
        route: The export route that won (`dynamo`, `trace`, ...).
        rewrites: Graph rewrites applied, in order.
        tools: Versions of what made it, by package name.
        weights: How many weights the file holds in each dtype ("int8": 4591208); filled for
            quantized artifacts.
    """

    parent: str | None = None
    recipe: Recipe | None = None
    route: str = ""
    rewrites: tuple[str, ...] = ()
    tools: dict[str, str] = {}
    weights: dict[str, int] = {}

    @property
    def eight_bit_share(self) -> float | None:
        """Share of the weights that are stored in 8 bits or fewer; None where not counted."""
        total = sum(self.weights.values())
        small = sum(n for dtype, n in self.weights.items() if dtype in _EIGHT_BITS)
        return small / total if total else None


class Reason(Value, frozen=True):
    """One reason behind a verdict: a stable code and a line for people."""

    code: str
    message: str


class Judgement(Value, frozen=True):
    """What the gate said of an artifact.

    Attributes:
        verdict: pass, degraded, fail or unproven.
        reasons: Why, most important first; empty only for `pass`.
        minimum_harm: The smallest share of flipped decisions that the evidence could have seen
            (95 %); None where decisions were not compared.
        executed_by: The engine that ran the proof, e.g. "onnxruntime 1.32.0 (cpu)".
    """

    verdict: Verdict
    reasons: tuple[Reason, ...] = ()
    minimum_harm: Number | None = None
    executed_by: str = ""


class Artifact(Value, frozen=True):
    """One converted model: what every stage takes.

    ``files`` are relative to the root the artifact lies under (a workspace, a bundle, or a job
    folder while it is still a candidate).

    Attributes:
        format: onnx, tflite, coreml or a registered other ("torch": the exported source, as
            reference).
        precision: fp32, fp16, w8, ...
        entry: The member of ``files`` (or the folder above several) that a runtime opens.
        files: Sorted by path.
        io: What the file takes and gives; of a file with several signatures, the largest.
        buckets: All signatures of a file that has several, smallest first (``io`` is the last of
            them); they differ in fixed sizes only. Empty where the file has one.
        provenance: How it was made.
        judgement: The gate's word; None for a candidate.
    """

    format: Format
    precision: Precision
    entry: str
    files: tuple[FileEntry, ...]
    io: IO
    buckets: tuple[IO, ...] = ()
    provenance: Provenance = Provenance()
    judgement: Judgement | None = None

    def __post_init__(self) -> None:
        check_word("format", self.format)
        check_word("precision", self.precision)
        if self.buckets and self.buckets[-1] != self.io:
            raise ValueError(f"io of {self.name} is not its last bucket")
        paths = [f.path for f in self.files]
        if paths != sorted(set(paths)):
            raise ValueError(f"files of {self.name} are not sorted and unique")
        if not any(p == self.entry or p.startswith(self.entry + "/") for p in paths):
            raise ValueError(f"entry {self.entry!r} is not among the files of {self.name}")
        if self.folder and not all(p.startswith(self.folder + "/") for p in paths):
            raise ValueError(f"files of {self.name} lie outside its folder {self.folder!r}")

    @property
    def name(self) -> str:
        """``{format}-{precision}``, as in ``artifacts/{name}/``."""
        return f"{self.format}-{self.precision}"

    @property
    def sha256(self) -> str:
        r"""Identity of the artifact's bytes: what caches key on.

        sha256 over one line a file, ``{sha256}  {path}\n`` in path order, paths taken from the
        folder that holds the entry: moving that folder does not change it.
        """
        from edgeserve.files import sha256_bytes

        lines = [f"{f.sha256}  {f.path[len(self.folder) :].lstrip('/')}\n" for f in self.files]
        return sha256_bytes("".join(lines).encode())

    @property
    def folder(self) -> str:
        """The folder that holds the entry and all files; empty for the root itself."""
        return self.entry.rpartition("/")[0]

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(f.size for f in self.files)

    @property
    def verdict(self) -> Verdict | None:
        """The gate's verdict; None for a candidate."""
        return self.judgement.verdict if self.judgement else None

    def unjudged(self) -> Artifact:
        """The same artifact as a candidate again."""
        return msgspec.structs.replace(self, judgement=None)

    def moved(self, folder: str) -> Artifact:
        """The same artifact with its files lying in ``folder`` instead."""
        old = len(self.folder)

        def to(path: str) -> str:
            return f"{folder}/{path[old:].lstrip('/')}".lstrip("/")

        files = tuple(msgspec.structs.replace(f, path=to(f.path)) for f in self.files)
        return msgspec.structs.replace(self, entry=to(self.entry), files=files)


class Refused(Value, frozen=True):
    """An artifact that may not be used, and why.

    Attributes:
        path: Where its remains lie under ``failed/`` in the workspace; None where there are none.
    """

    format: Format
    precision: Precision
    verdict: Verdict
    code: str
    message: str
    hint: str
    path: str | None = None

    @property
    def name(self) -> str:
        """``{format}-{precision}``, as an artifact's."""
        return f"{self.format}-{self.precision}"
