"""`Artifact`, the one thing every stage takes, and what it is made of."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from edgeserve.types.base import UNSET, Number, UnsetType, Value, check_word, or_default
from edgeserve.types.tensors import IO
from edgeserve.types.vocabulary import Format, Precision, Verdict

MEMBER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")
#: Dtypes of quantized weights, as `WeightInfo.dtype` says them.
_EIGHT_BITS = ("int8", "uint8", "int4", "uint4", "int2", "uint2")
_SHA256 = re.compile(r"[0-9a-f]{64}")
#: The precision of an artifact whose ops have several; its plan says which has which.
_MIXED: str = "mixed"
_FEATURE = re.compile(r"[a-z][a-z0-9-]{0,31}")


def check_member_name(name: str) -> None:
    """Raise ValueError unless ``name`` is a relative POSIX path safe on every file system."""
    parts = name.split("/")
    if not MEMBER_NAME.fullmatch(name) or any(part in ("", ".", "..") for part in parts):
        raise ValueError(f"{name!r} is not an allowed member name")


def check_features(requires: tuple[str, ...]) -> None:
    """Raise ValueError unless each feature is a word and none is there twice."""
    if bad := [word for word in requires if not _FEATURE.fullmatch(word)]:
        raise ValueError(f"{bad[0]!r} is not the name of a feature")
    if len(set(requires)) != len(requires):
        raise ValueError(f"features are listed twice: {list(requires)}")


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


class PrecisionPlan(Value, frozen=True):
    """Which precision each op of a mixed artifact has: the content of its plan file.

    Attributes:
        default: Precision of all ops that are not named.
        ops: Precision by source op (module path or fx node), so that a plan travels between
            formats.
        x: Whatever else the maker of the plan keeps in it.
    """

    default: Precision
    ops: dict[str, Precision] = {}
    x: dict[str, Any] = {}


class ArtifactFunction(Value, frozen=True):
    """What an artifact has of one function of the model beside the main one.

    Attributes:
        name: The function, as the manifest names it.
        io: What the file takes and gives for it; of several signatures, the largest.
        entry: The member that a runtime opens for it; None: the artifact's own entry.
        buckets: As of an `Artifact`.
        requires: Features that the function needs in this artifact.
    """

    name: str
    io: IO
    entry: str | None = None
    buckets: tuple[IO, ...] = ()
    requires: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.buckets and self.buckets[-1] != self.io:
            raise ValueError(f"io of function {self.name} is not its last bucket")
        check_features(self.requires)


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
        functions: What the artifact has of the model's functions beside the main one.
        plan: Of the precision "mixed" only, the file that says which op has which precision
            (`PrecisionPlan`); one of ``files``.
        requires: Features without which the main function cannot run. A Wrapper that does not know
            one passes the artifact over.
        x: Unknown fields of an artifact live only here.
    """

    format: Format
    precision: Precision
    entry: str
    files: tuple[FileEntry, ...]
    io: IO
    buckets: tuple[IO, ...] = ()
    provenance: Provenance = Provenance()
    judgement: Judgement | None = None
    functions: tuple[ArtifactFunction, ...] | UnsetType = UNSET
    plan: FileEntry | UnsetType = UNSET
    requires: tuple[str, ...] | UnsetType = UNSET
    x: dict[str, Any] | UnsetType = UNSET

    def __post_init__(self) -> None:
        check_word("format", self.format)
        check_word("precision", self.precision)
        if self.buckets and self.buckets[-1] != self.io:
            raise ValueError(f"io of {self.name} is not its last bucket")
        paths = [f.path for f in self.files]
        if paths != sorted(set(paths)):
            raise ValueError(f"files of {self.name} are not sorted and unique")
        functions = or_default(self.functions, ())
        if len({each.name for each in functions}) != len(functions):
            raise ValueError(f"functions of {self.name} are listed twice")
        for entry in (self.entry, *(each.entry for each in functions if each.entry is not None)):
            if not any(p == entry or p.startswith(entry + "/") for p in paths):
                raise ValueError(f"entry {entry!r} is not among the files of {self.name}")
        planned = not isinstance(self.plan, UnsetType)
        if (self.precision == _MIXED) != planned or (planned and self.plan not in self.files):
            raise ValueError(f"{self.name}: the precision mixed and a plan file need each other")
        check_features(or_default(self.requires, ()))
        if self.folder and not all(p.startswith(self.folder + "/") for p in paths):
            raise ValueError(f"files of {self.name} lie outside its folder {self.folder!r}")

    @property
    def name(self) -> str:
        """``{format}-{precision}``, as in ``artifacts/{name}/``; ``-{8 of the plan's hash}``."""
        plan = "" if isinstance(self.plan, UnsetType) else f"-{self.plan.sha256[:8]}"
        return f"{self.format}-{self.precision}{plan}"

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

        def placed(entry: FileEntry) -> FileEntry:
            return msgspec.structs.replace(entry, path=to(entry.path))

        files = tuple(map(placed, self.files))
        replaced: dict[str, Any] = {"entry": to(self.entry), "files": files}
        if not isinstance(self.plan, UnsetType):
            replaced["plan"] = placed(self.plan)
        if not isinstance(self.functions, UnsetType):
            replaced["functions"] = tuple(
                msgspec.structs.replace(each, entry=to(each.entry) if each.entry else None)
                for each in self.functions
            )
        return msgspec.structs.replace(self, **replaced)


class Refused(Value, frozen=True):
    """An artifact that may not be used, and why.

    Attributes:
        path: Where its remains lie under ``failed/`` in the workspace; None where there are none.
        plan: sha256 of the plan, of the precision "mixed".
    """

    format: Format
    precision: Precision
    verdict: Verdict
    code: str
    message: str
    hint: str
    path: str | None = None
    plan: str | UnsetType = UNSET

    @property
    def name(self) -> str:
        """``{format}-{precision}``, as an artifact's, with its plan's digits where it has one."""
        plan = "" if isinstance(self.plan, UnsetType) else f"-{self.plan[:8]}"
        return f"{self.format}-{self.precision}{plan}"
