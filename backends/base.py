"""`Backend`: what one format is, and how its artifacts are made, checked, loaded, looked into."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, NamedTuple

import msgspec
import numpy as np

from edgeserve.backends.checks import refused_precision
from edgeserve.backends.graph import Graph
from edgeserve.backends.session import LoadOptions, Session
from edgeserve.environment import usable_cores
from edgeserve.errors import BackendError, ConvertError
from edgeserve.machine import raise_machine_error
from edgeserve.types.artifact import Artifact, FileEntry, Recipe
from edgeserve.types.source import Exported
from edgeserve.types.vocabulary import Target
from edgeserve.verified_files import VerifiedFiles

__all__ = ["UNAVAILABLE", "Backend", "PlainConversion", "Session", "check_file", "check_files"]


#: What a backend says when it cannot run a good file here: not installed, or no such delegate.
UNAVAILABLE = ("EDGE-BACKEND-004", "EDGE-BACKEND-005")

#: Feeds to calibrate with.
Samples = Iterable[Mapping[str, np.ndarray]]


#: Versions of packages, by name.
Tools = dict[str, str]


class PlainConversion(NamedTuple):
    """Python that converts ``model`` with a format's own converter and runs it on ``inputs``.

    Attributes:
        imports: Import statements, one a line.
        lines: What leaves the answers in ``got``, in the order of the model's outputs.
    """

    imports: str
    lines: str


class Backend(ABC):
    """One format: what it is, and how its artifacts are made, loaded and looked into. Stateless.

    Whatever the rest of edgeserve has to know of a format stands in its class, so that a new format
    needs no edit anywhere else.
    """

    #: Its word: up to 32 lower-case letters, digits and underscores, a letter first.
    format: ClassVar[str]
    #: What people call it, in reports and hints; empty: as its word.
    title: ClassVar[str] = ""
    #: Other words that people type for it.
    spellings: ClassVar[tuple[str, ...]] = ()
    #: Endings of an artifact's entry (".onnx").
    suffixes: ClassVar[tuple[str, ...]] = ()
    #: Extra of edgeserve that installs what runs it; empty where another package does.
    extra: ClassVar[str] = ""
    #: Distributions that run it: with another version of them the proof on a device is made again.
    packages: ClassVar[tuple[str, ...]] = ()
    #: Modules (or ``module:function`` that imports) that take its conversions a second or more to
    #: import: on Linux, workers are forked from a process that did so once.
    slow_imports: ClassVar[tuple[str, ...]] = ()
    #: Platforms that run it: what ``package --target`` keeps it for.
    targets: ClassVar[tuple[Target, ...]] = ()
    #: Whether several threads gain by running one session at the same time.
    thread_safe: ClassVar[bool] = False
    #: Every delegate that its runtimes have, on whatever device; `delegates` says which work here.
    all_delegates: ClassVar[tuple[str, ...]] = ("cpu",)
    #: Other words for delegates: those of other documentation, or of other systems.
    delegate_aliases: ClassVar[Mapping[str, str]] = MappingProxyType({})
    #: Delegates that compute on the processor.
    cpu_delegates: ClassVar[tuple[str, ...]] = ("cpu",)
    #: How it is made and run without edgeserve, for the scripts of ``convert --bisect``.
    plain: ClassVar[PlainConversion | None] = None
    #: Delegates that stand in for the format's own runtime, to prove an artifact: right and slow.
    simulated: ClassVar[tuple[str, ...]] = ()
    #: What this version makes.
    precisions: ClassVar[tuple[str, ...]] = ("fp32",)
    #: Those of them that are made from the exported program itself; the others derive from fp32.
    native: ClassVar[tuple[str, ...]] = ("fp32",)
    #: Those of them that need samples of real data.
    calibrated: ClassVar[tuple[str, ...]] = ("w8a8", "w8a16")
    #: Formats of exported programs that it is made from.
    takes: ClassVar[tuple[str, ...]] = ("torch",)
    #: Further routes, which are taken only where somebody asks for one by name.
    asked_routes: ClassVar[tuple[str, ...]] = ()
    #: What `export` can be told beside the precision, by name.
    options: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def delegate(cls, word: str) -> str:
        """The delegate that a word means for this format; the word itself where it is no alias."""
        name = word.strip().lower()
        return cls.delegate_aliases.get(name, name)

    @abstractmethod
    def missing(self) -> str | None:
        """What to install before `load` works (a pip line), or None. Imports nothing heavy."""

    @abstractmethod
    def delegates(self) -> tuple[str, ...]:
        """Delegates that can be asked for here, best first; `load` says so if one cannot run."""

    @abstractmethod
    def routes(self) -> tuple[str, ...]:
        """Ways from an exported program to this format, in the order they are tried."""

    @abstractmethod
    def _export(self, exported: Exported, root: Path, out: Path, route: str) -> Artifact:
        """Convert by one route. ``exported.program`` has been checked; ``out`` exists."""

    @abstractmethod
    def _load(self, artifact: Artifact, root: Path, how: LoadOptions) -> Session:
        """Load checked files; ``how.delegate`` is one of `delegates`."""

    @abstractmethod
    def _inspect(self, artifact: Artifact, root: Path) -> Graph:
        """Look into checked files."""

    def _export_native(
        self,
        exported: Exported,
        root: Path,
        out: Path,
        route: str,
        precision: str,
        options: Mapping[str, str],
    ) -> Artifact:
        """Convert by one route into a precision of `native`. The base has fp32 and no options."""
        return self._export(exported, root, out, route)

    def saturating(self, artifact: Artifact, root: Path) -> tuple[str, ...]:
        """Layers whose 8-bit sums may saturate on some processors; empty where none can."""
        return ()

    def missing_tools(self) -> str | None:
        """What to install before artifacts can be made and inspected, or None."""
        return self.missing()

    def tools(self) -> dict[str, str]:
        """Versions of the packages that make artifacts, by name: another version, other bytes."""
        return {}

    def _quantize(
        self, artifact: Artifact, root: Path, recipe: Recipe, samples: Samples, out: Path
    ) -> Artifact:
        """Make another precision. The base says that this version does not."""
        got = f"{recipe.precision}, which is not made in this version"
        raise refused_precision(
            self.format, recipe.precision, "fp32", got, "ask for --precision fp32"
        )

    def export(
        self,
        exported: Exported,
        root: Path,
        out: Path,
        route: str | None = None,
        precision: str = "fp32",
        options: Mapping[str, str] | None = None,
    ) -> Artifact:
        """Convert an exported program into a candidate of this format.

        Args:
            exported: What was exported.
            root: The folder that ``exported.program.path`` is relative to.
            out: Folder to write into (made if missing); the artifact's paths are relative to it.
            route: One of `routes` or `asked_routes`; None: the first.
            precision: One of `native`.
            options: Values for names of `options`.

        Raises:
            BackendError: EDGE-BACKEND-004 not installed, -006 a precision that is not native,
                -011 the program's bytes changed, -015 unknown route, -040 unknown option.
            UnsupportedOp: EDGE-OP-001, an op that this format cannot express.
            ConvertError: EDGE-CONVERT-076 a source that this format is not made from; the converter
                failed otherwise.
        """
        _need(self.format, self.missing_tools())
        route = route or self.routes()[0]
        known = (*self.routes(), *self.asked_routes)
        if route not in known:
            thing = f"route of {self.format}"
            wanted = f"one of {list(known)}"
            hint = "omit --via to try all exporters"
            raise BackendError("EDGE-BACKEND-015", thing, wanted=wanted, got=repr(route), hint=hint)
        self._check_options(precision, options or {})
        self._check_source(exported)
        for entry in (exported.program, *exported.program_data):
            check_file(entry, root)
        out.mkdir(parents=True, exist_ok=True)
        return self._export_native(exported, root, out, route, precision, options or {})

    def _check_source(self, exported: Exported) -> None:
        if exported.format not in self.takes:
            raise ConvertError(
                "EDGE-CONVERT-076",
                f"format {self.format}",
                wanted=f"a source in {' or '.join(self.takes)}",
                got=f"one in {exported.format}",
                hint="give the PyTorch module the file was made from; --to onnx takes the file",
            )

    def _check_options(self, precision: str, options: Mapping[str, str]) -> None:
        if precision not in self.native:
            wanted = f"one of {list(self.native)}, which are made from the source itself"
            hint = "make fp32 first and quantize that"
            raise refused_precision(self.format, precision, wanted, precision, hint)
        if unknown := sorted(set(options) - set(self.options)):
            raise BackendError(
                "EDGE-BACKEND-040",
                f"options of {self.format}",
                wanted=f"names among {list(self.options)}",
                got=f"{unknown}",
                hint="leave that option out, or correct its name",
            )

    def quantize(
        self, artifact: Artifact, root: Path, recipe: Recipe, samples: Samples, out: Path
    ) -> Artifact:
        """Derive another precision from a float artifact.

        Args:
            artifact: The float artifact, its files below ``root``.
            root: See ``artifact``.
            recipe: What to make.
            samples: Feeds to calibrate with.
            out: Folder to write into; the new artifact's paths are relative to it.

        Raises:
            BackendError: EDGE-BACKEND-006, this version makes no other precision.
        """
        _need(self.format, self.missing_tools())
        check_files(artifact, root)
        out.mkdir(parents=True, exist_ok=True)
        made = self._quantize(artifact, root, recipe, samples, out)
        weights: Counter[str] = Counter()
        for weight in self._inspect(made, out).weights:
            weights[weight.dtype] += math.prod(weight.shape)
        provenance = msgspec.structs.replace(made.provenance, weights=dict(weights))
        return msgspec.structs.replace(made, provenance=provenance)

    def load(
        self,
        artifact: Artifact,
        root: Path,
        *,
        delegate: str | None = None,
        threads: int | None = None,
        taps: Sequence[str] = (),
        optimize: bool = True,
        verified: bool = False,
    ) -> Session:
        """Load an artifact; the caller closes the session.

        Args:
            artifact: What to load, its files below ``root``.
            root: See ``artifact``.
            delegate: One of `delegates` or an alias of one; None: "cpu", or the best where there is
                no "cpu". Never replaced by another in silence.
            threads: Threads for one run; None: as many as this process may use.
            taps: Inner tensors to return as well, by the names that `inspect` shows.
            optimize: Let the engine rewrite its graph; False shows what the file itself says.
            verified: The caller has just compared the files' hashes; do not read them twice.

        Raises:
            BackendError: EDGE-BACKEND-004 not installed, -005 delegate, -011 a file's bytes are not
                the artifact's, -012 the engine refused the file, -014 unknown tap, -018 threads.
            FilesError: EDGE-FILES-007, the machine failed.
        """
        _need(self.format, self.missing())
        usable = self.delegates()
        if delegate is None:
            taken = "cpu" if "cpu" in usable else usable[0]
        else:
            taken = self.delegate(delegate)
        if taken not in usable:
            raise BackendError(
                "EDGE-BACKEND-005",
                f"delegate of {self.format}",
                wanted=f"one of {list(usable)}, usable here",
                got=repr(delegate),
                hint="install the runtime build that has it, or leave the delegate out",
            )
        most = max(16, 4 * usable_cores())  # thousands of threads stop the whole machine
        if threads is not None and not 1 <= threads <= most:
            hint = "leave threads out to use all that this process may use"
            raise BackendError(
                "EDGE-BACKEND-018", "threads", wanted=f"1 to {most}", got=str(threads), hint=hint
            )
        with VerifiedFiles(artifact.files, root, hashed=not verified) as files:
            how = LoadOptions(taken, threads, tuple(taps), optimize, files)
            try:
                session = self._load(artifact, root, how)
            except Exception as error:
                raise_machine_error(error, artifact.name)
                raise
            try:
                files.check_names()
            except BackendError:
                session.close()
                raise
        session.again = partial(
            self.load,
            artifact,
            root,
            delegate=taken,
            threads=threads,
            taps=tuple(taps),
            optimize=optimize,
        )
        return session

    def inspect(self, artifact: Artifact, root: Path) -> Graph:
        """Look into an artifact without running it.

        Raises:
            BackendError: EDGE-BACKEND-004 not installed, -011 a file's bytes are not the
            artifact's,
                -012 the file cannot be read.
        """
        _need(self.format, self.missing_tools())
        check_files(artifact, root)
        return self._inspect(artifact, root)


def _need(format: str, missing: str | None) -> None:
    if missing:
        thing = f"format {format!r}"
        wanted = "its packages installed"
        got = "some missing or too old"
        raise BackendError("EDGE-BACKEND-004", thing, wanted=wanted, got=got, hint=missing)


def check_files(artifact: Artifact, root: Path) -> None:
    """Compare every file of an artifact with its recorded size and sha256.

    Raises:
        BackendError: EDGE-BACKEND-011.
    """
    VerifiedFiles(artifact.files, root).close()


def check_file(entry: FileEntry, root: Path) -> None:
    """Compare one file with its entry, as `check_files` does."""
    VerifiedFiles((entry,), root).close()
