"""What all result records have in common: the thing that `predict` returns and the gate compares.

A record's own class lies in the folder of its task (`edgeserve.tasks`), and `AnyRecord` is one of
them. Arrays have fixed dtypes, given per field; in JSON they are nested lists. Two records are
compared by `edgeserve.tasks`, never with ``==`` (arrays).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec
import numpy as np

from edgeserve.types.base import Value


class Runtime(Value, frozen=True):
    """The engine that ran: name, version and the delegate (execution provider) really used."""

    name: str
    version: str
    delegate: str


class RanOn(Value, frozen=True):
    """Where an answer came from.

    Attributes:
        where: "device" or "cloud".
        format: Format of the artifact.
        precision: Precision of the artifact.
        sha256: The artifact's sha256.
        runtime: Engine and delegate that really ran.
        model_id: Identity of the model that answered.
        proof: "golden" (the golden cases passed here), "none" (nothing to choose between, or no
        cases).
        note: Anything the caller should know, e.g. why the first choice was not used.
        why: Under a contract with an endpoint, the trigger for which one was asked; empty: none.
        took_ms: Under a contract, from the call of `predict` to the answer.
        attempts: Requests that were sent to endpoints.
        endpoint: Who answered, scheme and host alone; empty: the device.
        sent_bytes: What left the device for this answer.
    """

    where: str
    format: str
    precision: str
    sha256: str
    runtime: Runtime
    model_id: str
    proof: str = "none"
    note: str = ""
    why: str = ""
    took_ms: float = 0.0
    attempts: int = 0
    endpoint: str = ""
    sent_bytes: int = 0


class Record(Value, frozen=True, eq=False, kw_only=True):
    """One answer: a decision of the model's task.

    Attributes:
        ran_on: Where it came from; None of what a reference answered.
        sidecars: Fields whose arrays are too large for JSON (a mask of a million pixels): they are
            kept in a file beside it.
    """

    sidecars: ClassVar[tuple[str, ...]] = ()

    ran_on: RanOn | None = None

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and all(
            _equal(getattr(self, name), getattr(other, name)) for name in self.__struct_fields__
        )

    def __ne__(self, other: object) -> bool:  # msgspec does not derive it
        return not self == other

    def __hash__(self) -> int:
        values = (getattr(self, name) for name in self.__struct_fields__)
        return hash((type(self), *(x for x in values if not isinstance(x, np.ndarray))))

    def hold(self, field: str, dtype: type[np.generic], rank: int) -> None:
        """Give an array its declared dtype (JSON has none), refusing what would change value.

        Raises:
            ValueError: it has other dimensions, or numbers that the dtype cannot hold.
        """
        given = np.asarray(getattr(self, field))
        with np.errstate(over="ignore", invalid="ignore"):
            held = given.astype(dtype, copy=False)
        if np.issubdtype(dtype, np.integer):
            same = np.array_equal(held, given)
        else:
            same = np.array_equal(np.isfinite(held), np.isfinite(given))
        if not same or (given.ndim != rank and given.size):
            raise ValueError(f"{field} wants {dtype.__name__} values in {rank} dimensions")
        # A frozen struct: the one place where a field is set after all.
        msgspec.structs.force_setattr(self, field, held)


class Tensors(dict[str, Any]):
    """Named output tensors (the ``tensors`` task): a dict of arrays that also knows `ran_on`."""

    ran_on: RanOn | None = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping) or self.keys() != other.keys():
            return False
        return all(_equal(array, other[name]) for name, array in self.items())

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None


def _equal(one: Any, other: Any) -> bool:
    """Whether two fields are the same; arrays in dtype, shape and values, NaN as itself."""
    if not (isinstance(one, np.ndarray) and isinstance(other, np.ndarray)):
        return bool(np.all(one == other))
    kinds = one.dtype.kind == "f"
    return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=kinds)


def with_ran_on(answer: Any, ran_on: RanOn) -> Any:
    """An answer, a record or `Tensors`, that says where it came from."""
    if isinstance(answer, Tensors):
        answer.ran_on = ran_on
        return answer
    return msgspec.structs.replace(answer, ran_on=ran_on)


def unverified_origin(model_id: str) -> RanOn:
    """`RanOn` of a server that answers with tensors and declares little of itself."""
    return RanOn(
        where="cloud",
        format="",
        precision="",
        sha256="",
        model_id=model_id,
        runtime=Runtime(name="endpoint", version="", delegate=""),
    )
