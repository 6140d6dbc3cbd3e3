"""What a Ray Serve application is told: an endpoint's options, and how far it may spread."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from edgeserve.errors import ServeError
from edgeserve.serve.options import RaySettings, ServeOptions
from edgeserve.types.base import Value

#: Options whose work Ray does in its own way, or that have no meaning there.
_UNSUPPORTED = ("grpc_port", "memory_mb", "lazy", "pinned", "control")


class Cascade(Value, frozen=True, kw_only=True):
    """Two models one after the other, asked for as one: ``POST /v2/models/NAME/predict``.

    Attributes:
        name: What the composition is asked for by.
        first: Name of the model that sees the raw input.
        crop: Name of the model that sees each box that ``first``, a detector, finds.
        pick: By label of ``first``, a classifier, the name of the model that sees the input next.
        otherwise: Name of that model for any other label; empty: none.
        most: Boxes that are looked at, best first.
    """

    name: str
    first: str
    crop: str = ""
    pick: dict[str, str] = {}
    otherwise: str = ""
    most: int = 8

    def __post_init__(self) -> None:
        if bool(self.crop) == bool(self.pick):
            raise ValueError(f"chain {self.name!r} wants either crop or pick")
        if self.most < 1:
            raise ValueError(f"chain {self.name!r} wants most of 1 or more")

    @property
    def models(self) -> set[str]:
        """Every model that it may ask."""
        return {self.first, self.crop, self.otherwise, *self.pick.values()} - {""}


@dataclass(frozen=True, kw_only=True)
class RayOptions(RaySettings, ServeOptions):
    """An endpoint's options, and where its replicas run.

    Attributes:
        target: Requests a replica that the number of replicas is steered to.
        ongoing: Requests that one replica takes at a time; the others wait in Ray's queue.
        fronts: Replicas that take requests and hand them on, each on a node of its own; 0: as many
            as there are nodes at the start. A node's proxy prefers the one beside it.
        chains: Models that are asked one after the other.
    """

    target: float = 2.0
    ongoing: int = 16
    fronts: int = 0
    chains: tuple[Cascade, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in _UNSUPPORTED:
            if getattr(self, name) not in (None, False, ()):
                wanted = "nothing: it has no meaning under Ray"
                raise _ray_option_error(name, wanted, repr(getattr(self, name)))
        for low, names in ((1, ("replicas", "ongoing")), (0, ("fronts", "models_per_replica"))):
            for name in names:
                if getattr(self, name) < low:
                    raise _ray_option_error(name, f"{low} or more", f"{getattr(self, name)}")
        for name in ("target", "cpus"):
            if not 0 < getattr(self, name) < float("inf"):
                raise _ray_option_error(name, "a number above 0", f"{getattr(self, name)}")
        if not 0 <= self.gpus < float("inf"):
            raise _ray_option_error("gpus", "a number from 0 up", f"{self.gpus}")
        if self.max_replicas is not None and self.max_replicas < self.replicas:
            wanted = f"{self.replicas} or more, the replicas that there are always"
            raise _ray_option_error("max_replicas", wanted, f"{self.max_replicas}")

    def endpoint(self, bundles: tuple[str, ...], lazy: bool = False) -> ServeOptions:
        """The options of an application in one replica."""
        shared = dataclasses.fields(ServeOptions)
        fields = {field.name: getattr(self, field.name) for field in shared}
        threads, keys = self.threads or max(1, int(self.cpus)), self.keys if lazy else None
        fields |= {"bundles": bundles, "threads": threads, "workers": self.workers or 1}
        fields |= {"lazy": lazy, "control": False, "keys": keys, "tls_cert": None, "tls_key": None}
        return ServeOptions(**fields)


def ray_options(given: Mapping[str, Any] | RayOptions) -> RayOptions:
    """A `RayOptions` out of what ``serve run`` or a configuration file hands over.

    Args:
        given: Its fields by name. Numbers may be text; ``bundles`` may be one text with commas, as
            the command line of ``serve run`` has it.

    Raises:
        ServeError: EDGE-SERVE-041, a field does not exist or has a value that cannot be used;
            -002, an option of the endpoint.
    """
    if isinstance(given, RayOptions):
        return given
    fields = dict(given)
    if isinstance(fields.get("bundles"), str):
        fields["bundles"] = [path for path in fields["bundles"].split(",") if path]
    if unknown := fields.keys() - {field.name for field in dataclasses.fields(RayOptions)}:
        raise _ray_option_error("arguments", "the fields of RayOptions", f"{min(unknown)!r}")
    try:
        scale = msgspec.convert(fields, RayOptions, strict=False)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, ServeError):
            raise error.__cause__ from None
        raise _ray_option_error("arguments", "the fields of RayOptions", str(error)) from error
    # Replicas start in folders of their own.
    paths = tuple(str(Path(path).absolute()) for path in scale.bundles)
    keys = None if scale.keys is None else str(Path(scale.keys).absolute())
    return dataclasses.replace(scale, bundles=paths, keys=keys)


def _ray_option_error(name: str, wanted: str, got: str) -> ServeError:
    return ServeError(
        "EDGE-SERVE-041",
        f"Ray application, {name}",
        wanted=wanted,
        got=got,
        hint="docs/guide/scale-out.md lists what an application is told",
    )
